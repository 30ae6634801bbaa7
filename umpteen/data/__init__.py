"""Datasets: texts or feature rows, targets, and the names of the labels."""

from importlib import resources

from umpteen.data.dataset import Dataset
from umpteen.data.documents import stream_documents
from umpteen.data.label_vocabulary import Vocabulary
from umpteen.data.labels import Labels
from umpteen.data.readers import read, read_pair, read_texts, stream_identified, stream_texts

__all__ = [
    "Dataset", "Labels", "Vocabulary", "load_demo", "read", "read_pair", "read_texts", "stream_documents",
    "stream_identified", "stream_texts",
]  # fmt: skip


def load_demo(split: str = "train") -> Dataset:
    """Return the data that comes with the package: descriptions of Debian packages and their Debtags.

    Examples
    --------
    >>> load_demo()
    Dataset(demo: 14,217 rows, texts, 537 labels)
    """
    with resources.as_file(resources.files("umpteen.data") / "demo") as folder:
        return read(folder, split)
