"""Read feature rows: the text format of the Extreme Classification Repository, svmlight, and ``.npz`` pairs.

A line is ``label,label feature:value feature:value``; labels are column numbers. Files of the repository have a header
``rows features labels``. svmlight files have none and may have ``# comments`` at the ends of lines; their indices are
not shifted.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from umpteen.data.labels import Labels
from umpteen.data.lines import line_blocks, open_bytes
from umpteen.data.sparse import as_csr, pointers, wrap
from umpteen.data.stored_rows import first_rows, write_matrix
from umpteen.errors import BadInput
from umpteen.store import Checkpoint, fingerprint

Storage = Callable[[str], Checkpoint]  # the checkpoint of a key

BLOCK = 1 << 24  # bytes parsed at a time
_MAX = 2**31 - 1
_HEADER = re.compile(rb"\s*(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s*")
NO_TEXTS = "; if the file holds texts, put it into a folder as train_texts.txt beside train_labels.txt"
_PROBLEMS = {
    1: "labels must be whole numbers separated by commas",
    2: "a label must be smaller than the number of labels (stated in the header, or 2147483647)",
    3: "features must be written index:value",
    4: "a feature must be smaller than the number of features (stated in the header, or 2147483647)",
    5: "a feature's value must be a number",
    6: "this value does not fit in float32",
}


class Header(NamedTuple):
    """First line of a file of the repository."""

    n_rows: int
    n_features: int
    n_labels: int


class _Parts(NamedTuple):
    label_counts: np.ndarray
    labels: np.ndarray
    feature_counts: np.ndarray
    indices: np.ndarray
    values: np.ndarray


def read_rows(
    path: Path, n_rows: int | None = None, n_features: int | None = None, storage: Storage | None = None
) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Read feature rows and targets from a text file with or without a header.

    Without a header the number of features is ``n_features``, and features beyond are dropped, or by default one more
    than the largest index. ``storage`` returns a checkpoint in which the feature rows are written and mapped.
    """
    if storage is not None and n_features is None:
        return _read_stored(path, n_rows, storage)
    found = list(_parsed(path, n_rows))
    header, joined = found[0][0] if found else None, _joined([part for _, part in found])
    n_found = _count_rows(path, header, joined, n_rows)
    return _matrices(_first(joined, n_found), header, n_features)


def _read_stored(path: Path, n_rows: int | None, storage: Storage) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Write the feature rows to a file some at a time, unless they are there already, and return them mapped."""
    state = path.stat()
    checkpoint = storage(fingerprint(str(path.resolve()), state.st_size, state.st_mtime_ns, n_rows))
    header, parts = None, []

    def blocks() -> Iterator[sp.csr_matrix]:
        nonlocal header
        for header, part in _parsed(path, n_rows):
            parts.append(part._replace(indices=np.empty(0, np.int32), values=np.empty(0, np.float32)))
            yield _csr(part.values, part.indices, part.feature_counts, header.n_features if header else _MAX)

    rows = blocks()
    arrays = write_matrix(checkpoint, rows)
    for _ in rows:  # the file was there: the labels are still to be read
        pass
    joined = _joined(parts)
    n_found = _count_rows(path, header, joined, n_rows)
    X = first_rows(arrays, n_found, header.n_features if header else None)
    return X, _targets(_first(joined, n_found), header)


def _parsed(path: Path, n_rows: int | None) -> Iterator[tuple[Header | None, _Parts]]:
    """Yield the header, if there is one, with the rows, some at a time."""
    header, n_found, line = None, 0, 1
    with open_bytes(path) as stream:
        for number, block in enumerate(line_blocks(partial(stream.read, BLOCK))):
            if number == 0:
                header, block = _take_header(path, block)
                line += header is not None
            yield header, (part := _parse(path, block, header, line))
            line += block.count(b"\n")
            n_found += len(part.label_counts)
            if n_rows is not None and n_found >= n_rows:
                return


def has_header(path: Path) -> bool:
    """Return whether a file of feature rows has a header."""
    with open_bytes(path) as stream:
        first = stream.readline(200).removeprefix(b"\xef\xbb\xbf").partition(b"\r")[0]
        return _HEADER.fullmatch(first) is not None


def read_npz(x_path: Path, y_path: Path, n_rows: int | None = None) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Read a pair of matrices written by ``scipy.sparse.save_npz``."""
    for path in (x_path, y_path):
        if not path.is_file():
            raise BadInput(f"{path} does not exist; X and Y of a split are needed together")
    X, Y = load_npz(x_path), load_npz(y_path)
    return (X, Y) if n_rows is None else (X[:n_rows], Y[:n_rows])


def load_npz(path: Path) -> sp.csr_matrix:
    """Read a matrix written by ``scipy.sparse.save_npz``; pickled content is refused."""
    try:
        matrix = sp.load_npz(path)
    except FileNotFoundError as error:
        raise BadInput(f"{path} does not exist") from error
    except Exception as error:  # zip, zlib, numpy and scipy raise different ones for damaged files
        raise BadInput(f"{path} is not a matrix written by scipy.sparse.save_npz: {error}") from error
    return as_csr(matrix, name=str(path))


def name_columns(names: Labels, n_labels: int, where: str) -> Labels:
    """Name columns by a label file: by its keys if these are the column numbers, else by line."""
    if len(names) != n_labels:
        raise BadInput(f"{where} has {n_labels} labels but there are {len(names)} names; they must agree")
    keys = names.keys()
    numbers = {int(key) for key in keys if key.isascii() and key.isdigit() and len(key) < 12}
    if numbers != set(range(n_labels)):
        return names
    order = np.argsort([int(key) for key in keys])
    return Labels(names.names(order), names.keys(order))


def _take_header(path: Path, block: bytes) -> tuple[Header | None, bytes]:
    block = block.removeprefix(b"\xef\xbb\xbf")
    first, _, rest = block.partition(b"\n")
    match = _HEADER.fullmatch(first)
    if match is None:
        return None, block
    header = Header(*map(int, match.groups()))
    if max(header.n_features, header.n_labels) > _MAX:
        raise BadInput(f"{path}:1: at most {_MAX} features and labels fit, but the header says {header[1:]}")
    return header, rest


def _parse(path: Path, block: bytes, header: Header | None, first_line: int) -> _Parts:
    from umpteen.kernels.parse import parse_rows  # loads numba, which other formats do not need

    n_lines, n_features = block.count(b"\n"), block.count(b":")
    label_ends, feature_ends = np.empty(n_lines, np.int64), np.empty(n_lines, np.int64)
    labels = np.empty(n_lines + block.count(b","), np.int32)
    indices, values = np.empty(n_features, np.int32), np.empty(n_features, np.float32)
    limits = (header.n_labels, header.n_features) if header else (_MAX, _MAX)
    text = np.frombuffer(block, dtype=np.uint8)
    n_rows, status, position = parse_rows(
        text, *limits, header is not None, label_ends, labels, feature_ends, indices, values
    )
    if status:
        line = first_line + block.count(b"\n", 0, position)
        shown = block[position : position + 40].split(b"\n")[0].decode(errors="replace")
        hint = "" if header or line > 1 else NO_TEXTS
        raise BadInput(f"{path}:{line}: {_PROBLEMS[status]}, but here is {shown!r}{hint}")
    n_labels = label_ends[n_rows - 1] if n_rows else 0
    n_features = feature_ends[n_rows - 1] if n_rows else 0
    return _Parts(
        np.diff(label_ends[:n_rows], prepend=0),
        labels[:n_labels],
        np.diff(feature_ends[:n_rows], prepend=0),
        indices[:n_features],
        values[:n_features],
    )


def _joined(found: list[_Parts]) -> _Parts:
    if not found:
        counts = np.empty(0, np.int64)
        return _Parts(counts, np.empty(0, np.int32), counts, np.empty(0, np.int32), np.empty(0, np.float32))
    if len(found) == 1:
        return found[0]
    return _Parts(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _count_rows(path: Path, header: Header | None, parts: _Parts, n_rows: int | None) -> int:
    """Return how many rows there are, at most ``n_rows``; compare their number with the header.

    Blank lines at the end of the file do not count.
    """
    n_found = len(parts.label_counts)
    if n_rows is not None and n_found >= n_rows:
        return n_rows
    if header is None:
        return n_found
    extra = slice(header.n_rows, None)
    if not parts.label_counts[extra].any() and not parts.feature_counts[extra].any():
        n_found = min(n_found, header.n_rows)
    if n_found != header.n_rows:
        raise BadInput(
            f"{path}:1: the header promises {header.n_rows} rows but the file has {n_found}; "
            "it is truncated or the header is wrong"
        )
    return n_found


def _first(parts: _Parts, n_rows: int) -> _Parts:
    label_counts, feature_counts = parts.label_counts[:n_rows], parts.feature_counts[:n_rows]
    labels = parts.labels[: label_counts.sum()]
    filled = slice(feature_counts.sum())
    return _Parts(label_counts, labels, feature_counts, parts.indices[filled], parts.values[filled])


def _matrices(
    parts: _Parts, header: Header | None, n_features: int | None
) -> tuple[sp.csr_matrix, sp.csr_matrix]:  # fmt: skip
    n_columns = header.n_features if header else int(parts.indices.max(initial=-1)) + 1
    X = _csr(parts.values, parts.indices, parts.feature_counts, n_columns)
    if header is None and n_features is not None:
        X = _fit_width(X, n_features)
    return X, _targets(parts, header)


def _targets(parts: _Parts, header: Header | None) -> sp.csr_matrix:
    n_labels = header.n_labels if header else int(parts.labels.max(initial=-1)) + 1
    Y = _csr(np.ones(len(parts.labels), np.float32), parts.labels, parts.label_counts, n_labels)
    Y.data[:] = 1.0  # duplicates were summed
    return Y


def _csr(values: np.ndarray, indices: np.ndarray, counts: np.ndarray, n_columns: int) -> sp.csr_matrix:
    return as_csr(wrap(values, indices, pointers(counts), (len(counts), n_columns)), finite=False)


def _fit_width(X: sp.csr_matrix, n_features: int) -> sp.csr_matrix:
    if X.shape[1] > n_features:
        return as_csr(X[:, :n_features])
    return wrap(X.data, X.indices, X.indptr, (X.shape[0], n_features))
