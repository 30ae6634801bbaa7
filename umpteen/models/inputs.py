"""What a model predicts for: the texts, documents or feature rows of a path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from umpteen.data import read
from umpteen.data.readers import document_folder
from umpteen.data.xmc import NO_TEXTS, load_npz
from umpteen.errors import BadInput

_FEATURE_FILES = (".npz", ".svm", ".svmlight", ".libsvm")


def check_texts(source: str) -> None:
    """Refuse a file of feature rows."""
    if Path(source).suffix in _FEATURE_FILES:
        raise BadInput(f"the model was trained on texts, but {source} holds feature rows; pass texts")


def documents_of(source: str, whole_file: bool) -> str | Path | None:
    """Return the folder or the file whose texts are whole files; None if a file has one text per row."""
    if whole_file:
        return source
    return None if source == "-" else document_folder(source)


def read_features(source: str, n_features: int, *, whole_file: bool = False) -> Any:
    """Read the feature rows of a file, or of the test split of a folder."""
    if whole_file:
        raise BadInput("--whole-file reads texts, but the model was trained on feature rows; leave it out")
    if source == "-":
        raise BadInput("the model was trained on feature rows, not texts; pass a file of rows (XMC, svmlight, npz)")
    if Path(source).suffix == ".npz":
        return load_npz(Path(source))
    try:
        dataset = read(source, "test", n_features=n_features)
    except BadInput as error:  # the hint about texts applies to training only
        raise BadInput(str(error).replace(NO_TEXTS, "; the model was trained on feature rows, not texts")) from error
    if dataset.X is None:
        raise BadInput(f"the model was trained on feature rows, but {source} holds texts; pass rows of features")
    return dataset.X
