"""Feature rows in files."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import umpteen
from umpteen.data import xmc
from umpteen.data.sparse import as_csr, normalize_rows
from umpteen.data.stored_rows import StoredRows
from umpteen.errors import BadInput
from umpteen.linear.stored_arrays import ROWS, load_matrix, load_rows, save_matrix
from umpteen.store import Checkpoint

Storage = Callable[[str], Checkpoint]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """Return what makes a checkpoint of a key."""
    return partial(Checkpoint, tmp_path / "storage")


def same(one: sp.csr_matrix, other: sp.csr_matrix) -> None:
    assert one.shape == other.shape
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


LINES = "0,2 1:0.5 3:2\n 0:1 1:1\n1 2:0.25 2:0.25 0:1\n2\n\n"  # unsorted, twice, no labels, no features, blank
WIDE_LATER = "0 1:1\n1 2:1\n" + "1 0:1\n" * 3 + "2 90:1\n"
FILES = {
    "wider rows later": WIDE_LATER,
    "with a header": "4 5 3\n" + LINES,
    "svmlight": LINES.removesuffix("\n"),
    "only a header": "0 5 3\n",
    "empty": "",
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("n_rows", [None, 2])
@pytest.mark.parametrize("block", [8, 1 << 24])
def test_rows_of_a_file_are_the_same_in_memory_and_in_a_file(
    tmp_path: Path, storage: Storage, kind: str, n_rows: int | None, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xmc, "BLOCK", block)
    path = tmp_path / "train.txt"
    path.write_text(FILES[kind])
    X, Y = xmc.read_rows(path, n_rows)
    for _ in range(2):  # written, and found there
        X_stored, Y_stored = xmc.read_rows(path, n_rows, storage=storage)
        same(X_stored, X)
        same(Y_stored, Y)
    if X.nnz:
        assert not as_csr(X_stored).data.flags.owndata  # still mapped


def test_a_truncated_file_is_refused_in_either_way(tmp_path: Path, storage: Storage) -> None:
    path = tmp_path / "train.txt"
    path.write_text("9 5 3\n" + LINES)
    for options in ({}, {"storage": storage}):
        with pytest.raises(BadInput, match="promises 9 rows but the file has 5"):
            xmc.read_rows(path, **options)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 60), st.booleans(), st.booleans(), st.integers(1, 50), st.integers(0, 10**6))
def test_rows_are_written_as_they_are_in_memory(n: int, some: bool, normalize: bool, at_once: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = as_csr(sp.random(n, 9, 0.3, format="csr", random_state=rng, dtype=np.float32))
    if seed % 3 == 0:
        X = normalize_rows(X)
    chosen = np.sort(rng.permutation(n)[: n // 2]) if some else None
    expected = X if chosen is None else X[chosen]
    with pytest.MonkeyPatch.context() as patch, checkpoint_alone() as checkpoint:
        patch.setattr("umpteen.data.stored_rows._ENTRIES_AT_ONCE", at_once)
        rows = StoredRows(X, chosen)
        assert rows.shape == expected.shape
        same(sp.csr_matrix(sp.vstack([expected[:0], *rows.blocks()])), expected)
        rows.write(checkpoint, ROWS, 2, normalize=normalize)
        found = load_rows(checkpoint.place)
        same(found.sparse, normalize_rows(expected) if normalize else expected)


@contextmanager
def checkpoint_alone() -> Iterator[Checkpoint]:
    """Make a checkpoint in a folder of its own."""
    with TemporaryDirectory() as folder:
        yield Checkpoint(folder)


def made(folder: Path, n: int = 700) -> Path:
    """Write rows whose labels their features give away."""
    rng, lines = np.random.default_rng(0), [f"{n} 60 20"]
    for _ in range(n):
        labels = sorted(rng.choice(20, rng.integers(1, 4), replace=False))
        features = sorted({3 * label + int(rng.integers(3)) for label in labels} | set(rng.integers(0, 60, 5).tolist()))
        values = " ".join(f"{feature}:{rng.random():.3f}" for feature in features)
        lines.append(f"{','.join(map(str, labels))} {values}")
    (folder / "train.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("normalize", [True, False])
def test_a_model_of_mapped_rows_has_the_same_bytes(tmp_path: Path, storage: Storage, normalize: bool) -> None:
    made(tmp_path)
    plain, stored = umpteen.read(tmp_path), umpteen.read(tmp_path, storage=storage)
    same(stored.X, plain.X)
    umpteen.XRLinear(normalize=normalize).fit(plain.X, plain.Y).save(tmp_path / "plain")
    umpteen.XRLinear(normalize=normalize).fit(stored.X, stored.Y, memory="1GB").save(tmp_path / "stored")
    names = sorted(file.name for file in (tmp_path / "plain").iterdir() if file.suffix == ".safetensors")
    assert names == sorted(file.name for file in (tmp_path / "stored").iterdir() if file.suffix == ".safetensors")
    for name in names:  # which carry digests
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "stored" / name).read_bytes()


def test_feature_rows_of_a_file_are_never_in_memory_as_a_whole(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xmc, "BLOCK", 1 << 16)
    monkeypatch.setattr("umpteen.store.parts._COPIED_AT_ONCE", 1 << 14)
    line = " ".join(f"{feature}:0.5" for feature in range(200))
    (tmp_path / "train.txt").write_text("6000 200 9\n" + f"{1} {line}\n" * 6000)
    xmc.read_rows(tmp_path / "train.txt", 10, storage=partial(Checkpoint, tmp_path / "before"))  # modules are loaded
    tracemalloc.start()
    try:
        X, _ = xmc.read_rows(tmp_path / "train.txt", storage=storage)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert X.nnz == 1_200_000  # 9.6 MB
    assert peak < 4_000_000


def test_matrices_of_a_checkpoint_stay_mapped(storage: Storage) -> None:
    X = sp.random(300, 40, 0.2, format="csr", random_state=0, dtype=np.float32)
    checkpoint = storage("key")
    save_matrix(checkpoint, "targets", X)
    found = load_matrix(checkpoint, "targets")
    same(found, as_csr(X))
    assert not found.data.flags.owndata  # scipy's constructor would copy both
    assert not found.indices.flags.owndata


@pytest.mark.parametrize(
    ("indices", "indptr", "message"),
    [
        ([0, 2**32], [0, 1, 2], "indices must be between 0 and 2"),
        ([0, 3], [0, 1, 2], "indices must be between 0 and 2"),
        ([0, 1], [0, 2**40, 2], "indptr must not decrease"),
        ([0, 1], [0, 1], "must have 3 entries"),
        ([0, 1], [1, 1, 2], "begin with 0"),
        ([0, 1], [0, 1, 3], "ends at 3"),
    ],
)
def test_arrays_that_are_no_matrix_are_refused(indices: list[int], indptr: list[int], message: str) -> None:
    X = sp.csr_matrix((2, 3), dtype=np.float32)
    X.data, X.indices, X.indptr = np.ones(2, np.float32), np.array(indices, np.uint64), np.array(indptr, np.int64)
    with pytest.raises(BadInput, match=message):
        as_csr(X)
