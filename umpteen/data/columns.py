"""Columns of tables in memory as lists: pandas, polars, pyarrow and Hugging Face datasets, none of which is imported.

A column is recognised by its methods. Columns that can be iterated repeatedly and yield plain values, such as those of
``datasets``, stay what they are, so that texts need not be held in memory; those of its streams, whose length is not
known, become lists.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.errors import BadInput

_PLAIN = (list, tuple, str, bytes, set, frozenset, np.ndarray, Mapping)
_NUMBERS = tuple("biufc")  # kinds of numpy types


def readable(X: Any) -> Any:
    """Return iterators, columns and streams as lists, which can be read more than once; anything else unchanged.

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
    if is_stream(X):
        return list(X)
    if hasattr(X, "__getitem__") and hasattr(X, "__len__") and not isinstance(X, Iterable) and not hasattr(X, "shape"):
        return [X[row] for row in range(len(X))]
    return X


def is_stream(X: Any) -> bool:
    """Return whether X can be iterated repeatedly but has no length: a column of a streaming dataset."""
    is_read_again = isinstance(X, Iterable) and not isinstance(X, Iterator)
    return is_read_again and not any(hasattr(X, name) for name in ("__len__", "shape", "column_names"))


def class_names(Y: Any) -> list[str] | None:
    """Return the names of the classes whose numbers are in a column, if it is one of ``datasets`` that knows them.

    None if a name looks like the number of another class: then nobody could say which of the two is meant.
    """
    feature = getattr(Y, "features", None)
    if feature is None:  # a stream knows the features of its table
        of_table = getattr(getattr(Y, "source", None), "features", None)
        feature = of_table.get(getattr(Y, "column_name", None)) if isinstance(of_table, Mapping) else None
    feature = getattr(feature, "feature", feature)  # of lists: that of their values
    names = getattr(feature, "names", None)
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        return None
    numbers = {str(number): number for number in range(len(names))}
    is_clear = all(numbers.get(name, number) == number for number, name in enumerate(names))
    return list(names) if is_clear else None


def readable_targets(Y: Any) -> Any:
    """Return labels like :func:`readable`, and any other iterable but a set or a mapping as a list, read once."""
    Y = readable(Y)
    is_column = isinstance(Y, Iterable) and not isinstance(Y, _PLAIN) and not sp.issparse(Y)
    return list(Y) if is_column and not hasattr(Y, "__array__") else Y
