"""Columns of tables in memory as lists: pandas, polars, pyarrow and Hugging Face datasets, none of which is imported.

A column is recognised by its methods. Columns that can be iterated repeatedly and yield plain values, such as those of
``datasets``, stay what they are, so that texts need not be held in memory.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.errors import BadInput

_PLAIN = (list, tuple, str, bytes, set, frozenset, np.ndarray, Mapping)
_NUMBERS = tuple("biufc")  # kinds of numpy types


def readable(X: Any) -> Any:
    """Return iterators and columns as lists, which can be read more than once; anything else unchanged.

    Columns of numbers that numpy can read keep their type, so they are not converted.

    Examples
    --------
    >>> readable(iter(["a", "b"])), readable(("a", "b"))
    (['a', 'b'], ('a', 'b'))
    """
    if isinstance(X, _PLAIN) or sp.issparse(X):
        return X
    if isinstance(X, Iterator):
        return list(X)
    if hasattr(X, "column_names"):  # a table of pyarrow or datasets, which would be read as rows
        names = ", ".join(f"'{name}'" for name in list(X.column_names)[:12])
        raise BadInput(f"a {type(X).__name__} is a whole table with the columns {names}; pass one of them")
    if hasattr(X, "to_pylist"):  # pyarrow, which yields objects of its own when it is iterated
        return X.to_pylist()
    if hasattr(X, "to_list") and getattr(getattr(X, "dtype", None), "kind", None) not in _NUMBERS:
        return X.to_list()  # pandas finds X[0] by the index of the table, not by position
    if hasattr(X, "__getitem__") and hasattr(X, "__len__") and not isinstance(X, Iterable) and not hasattr(X, "shape"):
        return [X[row] for row in range(len(X))]
    return X


def readable_targets(Y: Any) -> Any:
    """Return labels like :func:`readable`, and any other iterable but a set or a mapping as a list, read once."""
    Y = readable(Y)
    is_column = isinstance(Y, Iterable) and not isinstance(Y, _PLAIN) and not sp.issparse(Y)
    return list(Y) if is_column and not hasattr(Y, "__array__") else Y
