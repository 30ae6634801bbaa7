"""Read feature rows: the text format of the Extreme Classification Repository, svmlight, and ``.npz`` pairs.

A line is ``label,label feature:value feature:value``; labels are column numbers. Files of the repository have a header
``rows features labels``. svmlight files have none and may have ``# comments`` at the ends of lines; their indices are
not shifted.
"""

import re
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from umpteen.data.labels import Labels
from umpteen.data.lines import line_blocks, open_bytes
from umpteen.data.sparse import as_csr, pointers, wrap
from umpteen.errors import BadInput

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
    path: Path, n_rows: int | None = None, n_features: int | None = None
) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Read feature rows and targets from a text file with or without a header.

    Without a header the number of features is ``n_features``, and features beyond are dropped, or by default one more
    than the largest index.
    """
    header, found = None, []
    n_found = 0
    line = 1
    with open_bytes(path) as stream:
        for number, block in enumerate(line_blocks(partial(stream.read, BLOCK))):
            if number == 0:
                header, block = _take_header(path, block)
                line += header is not None
            found.append(_parse(path, block, header, line))
            line += block.count(b"\n")
            n_found += len(found[-1].label_counts)
            if n_rows is not None and n_found >= n_rows:
                break
    parts = _joined(found)
    if header is not None and (n_rows is None or n_found < n_rows):
        parts = _check_count(path, parts, header)
    return _matrices(parts, header, n_rows, n_features)


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


def _check_count(path: Path, parts: _Parts, header: Header) -> _Parts:
    """Compare the number of rows with the header; blank lines at the end of the file do not count."""
    extra = slice(header.n_rows, None)
    if not parts.label_counts[extra].any() and not parts.feature_counts[extra].any():
        parts = _first(parts, header.n_rows)
    if len(parts.label_counts) != header.n_rows:
        raise BadInput(
            f"{path}:1: the header promises {header.n_rows} rows but the file has {len(parts.label_counts)}; "
            "it is truncated or the header is wrong"
        )
    return parts


def _first(parts: _Parts, n_rows: int | None) -> _Parts:
    label_counts, feature_counts = parts.label_counts[:n_rows], parts.feature_counts[:n_rows]
    labels = parts.labels[: label_counts.sum()]
    filled = slice(feature_counts.sum())
    return _Parts(label_counts, labels, feature_counts, parts.indices[filled], parts.values[filled])


def _matrices(
    parts: _Parts, header: Header | None, n_rows: int | None, n_features: int | None
) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    parts = _first(parts, n_rows)
    if header:
        n_columns, n_labels = header.n_features, header.n_labels
    else:
        n_columns = int(parts.indices.max(initial=-1)) + 1
        n_labels = int(parts.labels.max(initial=-1)) + 1
    X = _csr(parts.values, parts.indices, parts.feature_counts, n_columns)
    if header is None and n_features is not None:
        X = _fit_width(X, n_features)
    Y = _csr(np.ones(len(parts.labels), np.float32), parts.labels, parts.label_counts, n_labels)
    Y.data[:] = 1.0  # duplicates were summed
    return X, Y


def _csr(values: np.ndarray, indices: np.ndarray, counts: np.ndarray, n_columns: int) -> sp.csr_matrix:
    return as_csr(wrap(values, indices, pointers(counts), (len(counts), n_columns)), finite=False)


def _fit_width(X: sp.csr_matrix, n_features: int) -> sp.csr_matrix:
    if X.shape[1] > n_features:
        return as_csr(X[:, :n_features])
    return wrap(X.data, X.indices, X.indptr, (X.shape[0], n_features))
