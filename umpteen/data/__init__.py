"""What came in: texts or feature rows, targets, and the names of the labels.

Names are loaded when they are first used. Knows nothing about trees, models or commands.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from umpteen.data.dataset import Dataset
    from umpteen.data.labels import Labels
    from umpteen.data.readers import read, read_pair, read_texts, stream_texts

_HOMES = {
    "Dataset": "umpteen.data.dataset",
    "Labels": "umpteen.data.labels",
    "read": "umpteen.data.readers",
    "read_pair": "umpteen.data.readers",
    "read_texts": "umpteen.data.readers",
    "stream_texts": "umpteen.data.readers",
}

__all__ = ["Dataset", "Labels", "load_demo", "read", "read_pair", "read_texts", "stream_texts"]


def load_demo(split: str = "train") -> Dataset:
    """Return the data that comes with the package: descriptions of Debian packages and their Debtags.

    Examples
    --------
    >>> load_demo()
    Dataset(demo: 14,217 rows, texts, 537 labels)
    """
    from importlib import resources

    from umpteen.data.readers import read

    with resources.as_file(resources.files("umpteen.data") / "demo") as folder:
        return read(folder, split)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'umpteen.data' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
