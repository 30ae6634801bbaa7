"""Check sparse and dense matrices and convert them to float32 CSR.

Kernels can iterate over the result of ``as_csr`` without bounds checks. It may share the arrays of the input, which are
never changed.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.engine import machine_memory, run
from umpteen.errors import BadInput
from umpteen.kernels import lazy
from umpteen.store.parts import blocks

_BLOCK = 1 << 20  # values checked at a time, to bound temporary memory
_MAX_COLUMNS = np.iinfo(np.int32).max
_BYTES_PER_COLUMN = 64  # that training takes for a feature, or a label without rows


def check_width(n_columns: int, what: str, bound: float = 0.0) -> None:
    """Refuse so many labels or features that these alone exceed the memory of the machine, or a bound on it."""
    needed, has = float(_BYTES_PER_COLUMN) * n_columns, min(machine_memory(), bound or float("inf"))
    if needed > has:
        raise BadInput(
            f"there are {n_columns:,} {what}, which alone take {needed / 1e9:.0f} GB of memory where there are "
            f"{has / 1e9:.1f}; is a number in the data wrong? Number {what} from 0 without gaps"
        )


def as_csr(X: Any, name: str = "X", n_features: int | None = None, finite: bool = True) -> sp.csr_matrix:
    """Check a matrix and return it as canonical float32 CSR.

    Canonical means: 32-bit indices, in range and sorted within each row, without duplicates (they are summed).
    Canonical input is not copied.

    Parameters
    ----------
    X
        Any scipy sparse matrix or array, a two-dimensional ndarray, or a list of lists.
    name
        Name in messages.
    n_features
        Required number of columns.
    finite
        Refuse NaN and infinity.

    Returns
    -------
    scipy.sparse.csr_matrix
        Kernels take its :func:`triplet`.

    Examples
    --------
    >>> as_csr([[0, 2], [0.5, 0]]).toarray()
    array([[0. , 2. ],
           [0.5, 0. ]], dtype=float32)
    """
    csr = _from_sparse(X, name) if sp.issparse(X) else _from_dense(X, name)
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    if n_features is not None and csr.shape[1] != n_features:
        raise BadInput(
            f"{name} has {csr.shape[1]} features, but the model was trained with {n_features}; "
            "prepare the rows as for training"
        )
    if finite:
        _check_finite(csr, name)
    return csr


def stored(table: np.ndarray) -> sp.csr_matrix:
    """Return a dense array as CSR, with less memory than scipy, which would create a COO matrix first.

    Examples
    --------
    >>> stored(np.array([[0.5, 0.0], [1.0, 2.0]], np.float32)).indices.tolist()
    [0, 0, 1]
    """
    n, d = table.shape
    has_zeros = bool((table == 0).any())
    values = table.flatten() if has_zeros else table.ravel()  # a copy if entries are removed
    columns, ptr = np.tile(np.arange(d, dtype=np.int32), n), np.arange(n + 1) * d
    csr = sp.csr_matrix((values, columns, ptr), shape=(n, d))
    if has_zeros:
        csr.eliminate_zeros()
    return csr


def triplet(csr: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the arguments of kernels: ``(indptr int64, indices int32, data float32)``, each contiguous."""
    return (
        np.ascontiguousarray(csr.indptr, dtype=np.int64),
        np.ascontiguousarray(csr.indices, dtype=np.int32),
        np.ascontiguousarray(csr.data, dtype=np.float32),
    )


def pointers(lengths: Any) -> np.ndarray:
    """Return where slices of these lengths start, and where the last one ends, as int64.

    Examples
    --------
    >>> pointers([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    return ends


def slice_blocks(starts: np.ndarray, lengths: np.ndarray, at_once: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield where slices of an array go that are put end to end, and the places they come from, some slices at a time.

    Examples
    --------
    >>> [(to, places.tolist()) for to, places in slice_blocks(np.array([7, 2]), np.array([2, 3]), 1)]
    [(slice(0, 2, None), [7, 8]), (slice(2, 5, None), [2, 3, 4])]
    """
    ptr = pointers(lengths)
    for begin, end in blocks(len(lengths), at_once):
        low, high = int(ptr[begin]), int(ptr[end])
        moved = np.repeat(starts[begin:end] - ptr[begin:end], lengths[begin:end])
        yield slice(low, high), np.arange(low, high) + moved


def normalize_rows(csr: sp.csr_matrix, threads: int = 1) -> sp.csr_matrix:
    """Scale each row to unit length; rows without values are unchanged.

    The result shares ``indices`` and ``indptr`` with the argument, which is returned itself if all its rows have unit
    length (within 1e-6).
    """
    by = np.empty(csr.shape[0], dtype=np.float64)
    if all(_measured(csr, by, threads)):
        return csr
    return wrap(_scaled(csr, by, threads), csr.indices, csr.indptr, csr.shape)


def has_unit_rows(csr: sp.csr_matrix, threads: int = 1) -> bool:
    """Return whether all rows with values have unit length, within 1e-6."""
    return all(_measured(csr, np.empty(csr.shape[0]), threads))


def unit_rows(csr: sp.csr_matrix, threads: int = 1) -> np.ndarray:
    """Return the values of the rows, each scaled to unit length."""
    by = np.empty(csr.shape[0], dtype=np.float64)
    _measured(csr, by, threads)
    return _scaled(csr, by, threads)


def _measured(csr: sp.csr_matrix, by: np.ndarray, threads: int) -> list[bool]:
    """Write into ``by`` what each row is to be multiplied with; return for blocks of rows whether that is about 1."""
    cuts = _cuts(csr.shape[0], threads)

    def measure(block: int) -> bool:
        return lazy.row.scales(csr.indptr, csr.data, cuts[block], cuts[block + 1], by)

    return run(measure, len(cuts) - 1, threads=threads)


def _scaled(csr: sp.csr_matrix, by: np.ndarray, threads: int) -> np.ndarray:
    """Return the values of the rows, each multiplied with its number."""
    cuts, data = _cuts(csr.shape[0], threads), np.empty(csr.nnz, dtype=np.float32)

    def scale(block: int) -> None:
        lazy.row.scale_rows(csr.indptr, csr.data, by, cuts[block], cuts[block + 1], data)

    run(scale, len(cuts) - 1, threads=threads)
    return data


def _cuts(n_rows: int, threads: int) -> np.ndarray:
    """Return where blocks of rows begin, and where the last one ends."""
    return np.linspace(0, n_rows, min(max(1, n_rows // 256), 8 * threads) + 1).astype(np.int64)


def check_rows_match(X: Any, Y: Any, x_name: str = "X", y_name: str = "Y") -> None:
    """Refuse inputs and targets with different numbers of rows; each is a matrix or a sequence."""
    n_x, n_y = n_rows_of(X), n_rows_of(Y)
    if n_x != n_y:
        raise BadInput(f"{y_name} has {n_y} rows but {x_name} has {n_x}; pass one label row per text")


def n_rows_of(rows: Any) -> int:
    """Return the number of rows of a matrix or a sequence."""
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def wrap(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> sp.csr_matrix:
    """Return a matrix of these arrays without copying values and indices.

    The constructor of scipy copies arrays that are small parts of others, and mapped arrays are parts of a file.

    Examples
    --------
    >>> file = np.zeros(1_000, np.float32)
    >>> np.shares_memory(wrap(file[:2], np.array([0, 1]), np.array([0, 2]), (1, 3)).data, file)
    True
    """
    shape = (int(shape[0]), int(shape[1]))
    if len(indptr) != shape[0] + 1 or indptr[0] != 0:
        raise ValueError(f"indptr of {shape[0]} rows must have {shape[0] + 1} entries and begin with 0")
    nnz = int(indptr[-1])
    if len(data) != len(indices) or nnz > len(data):
        raise ValueError(f"indptr ends at {nnz}, but there are {len(data)} values and {len(indices)} indices")
    is_large = max(nnz, *shape) > _MAX_COLUMNS or indices.dtype.itemsize > 4
    kind = np.int64 if is_large else np.int32  # scipy needs one type for both
    matrix = sp.csr_matrix((0, shape[1]), dtype=data.dtype)
    matrix.data, matrix.indices = data[:nnz], indices[:nnz].astype(kind, copy=False)
    matrix.indptr, matrix._shape = indptr.astype(kind, copy=False), shape
    return matrix


def refuse_masked(X: Any, name: str) -> None:
    """Refuse an array with masked entries."""
    if isinstance(X, np.ma.MaskedArray) and np.ma.getmaskarray(X).any():
        raise BadInput(f"{name} has masked entries, which would be read as if they were not; pass {name}.filled(0)")


def _from_dense(X: Any, name: str) -> sp.csr_matrix:
    try:
        array = np.asarray(X)
    except (ValueError, TypeError) as error:
        raise BadInput(f"{name} must be a matrix of numbers with rows of equal length: {error}") from error
    refuse_masked(X, name)
    if array.ndim != 2:
        raise BadInput(
            f"{name} must have two dimensions, but has shape {array.shape}. Reshape your data: "
            f"{name}.reshape(1, -1) makes one row of it, {name}.reshape(-1, 1) one column"
        )
    _check_width(array.shape[1], name)
    return sp.csr_matrix(_as_float32(array, name))


def _from_sparse(X: Any, name: str) -> sp.csr_matrix:
    if X.ndim != 2:
        raise BadInput(f"{name} must have two dimensions, but has shape {X.shape}. Reshape your data")
    _check_width(X.shape[1], name)
    try:
        checked = _checked(X)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise BadInput(f"{name} is not a well-formed {X.format} matrix: {error}; rebuild it") from error
    if checked.format != "csr":
        if checked.dtype.kind in "biu":
            checked = checked.astype(np.float32)  # scipy sums duplicates in the type of the matrix: 100 + 100 in int8
        checked = checked.tocsr()
    nnz = int(checked.indptr[-1])
    data, indices = _as_float32(checked.data[:nnz], name), checked.indices[:nnz].astype(np.int32, copy=False)
    return wrap(data, indices, checked.indptr, checked.shape)


def _checked(X: Any) -> Any:
    """Return a sparse matrix of the same arrays; raise an error if scipy would access them out of bounds."""
    if X.format == "coo":
        return sp.coo_matrix((X.data, X.coords), shape=X.shape)  # checks the indices
    if X.format not in ("csr", "csc", "bsr"):
        return X
    if X.indices.dtype.kind not in "iu" or X.indptr.dtype.kind not in "iu":
        raise ValueError("indices and indptr must be integers")
    if X.format == "csr":
        return _checked_rows(X)
    form = {"csc": sp.csc_matrix, "bsr": sp.bsr_matrix}[X.format]
    checked = form((X.data, X.indices, X.indptr), shape=X.shape)
    checked.check_format(full_check=True)
    return checked


def _checked_rows(X: Any) -> sp.csr_matrix:
    """Return a matrix of the same arrays; those of rows that are mapped stay mapped."""
    if any(part.ndim != 1 for part in (X.data, X.indices, X.indptr)):
        raise ValueError("data, indices and indptr must have one dimension")
    indptr = X.indptr.astype(np.int64)
    if (indptr[1:] < indptr[:-1]).any():
        raise ValueError("indptr must not decrease")
    csr = wrap(X.data, X.indices, indptr, X.shape)
    used = X.indices[: csr.nnz]  # as they came: another type may not hold them
    if len(used) and (used.min() < 0 or used.max() >= X.shape[1]):
        raise ValueError(f"indices must be between 0 and {X.shape[1] - 1}")
    return csr


def _check_width(n_columns: int, name: str) -> None:
    if n_columns > _MAX_COLUMNS:
        raise BadInput(f"{name} has {n_columns} columns; at most {_MAX_COLUMNS} fit in 32-bit indices")


def _as_float32(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype.kind == "c":
        raise BadInput(f"Complex data not supported: {name} is {array.dtype}; pass real numbers")
    if array.dtype.kind not in "biufO":
        raise BadInput(f"{name} must hold numbers, but holds {array.dtype}; pass texts as a list of str")
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # overflow gives inf, which is refused later
            return array.astype(np.float32, copy=False)
    except (ValueError, TypeError, OverflowError) as error:
        hint = "; pass texts as a list or as one column of a table" if name == "X" else ""
        raise BadInput(f"{name} must hold numbers: {str(error)[:80]}{hint}") from error


def _check_finite(csr: sp.csr_matrix, name: str) -> None:
    for start in range(0, len(csr.data), _BLOCK):
        block = np.isfinite(csr.data[start : start + _BLOCK])
        if not block.all():
            at = start + int(np.argmin(block))
            row = int(np.searchsorted(csr.indptr, at, side="right")) - 1
            what = "NaN" if np.isnan(csr.data[at]) else "infinity (inf, or a number too large for float32)"
            column = csr.indices[at]
            raise BadInput(f"{name} holds {what} at row {row}, column {column}; remove or replace it")
