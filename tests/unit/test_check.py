"""Arrays of a model that do not fit each other are refused when it is opened."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen.config import SearchConfig
from umpteen.data.rows import Rows
from umpteen.data.tfidf import Tfidf
from umpteen.errors import BadConfig, BadInput, BadModelFile
from umpteen.linear import DenseHead, Level, LinearTree
from umpteen.linear.check import check_dense, check_packed
from umpteen.linear.dense import Projection
from umpteen.tree import LabelTree

N_FEATURES = 30


def make_head(weights: str = "int8", n_labels: int = 600) -> LinearTree:
    """A tree whose first level is whole and whose last is in runs, with random weights."""
    rng = np.random.default_rng(0)
    tree = LabelTree.from_parents(rng.permutation(np.arange(n_labels) % 40))
    levels = []
    for size in tree.sizes:
        W = sp.random(size, N_FEATURES, 0.3, format="coo", random_state=1)
        levels.append(
            Level(W.col.astype(np.int32), W.row.astype(np.int32), W.data.astype(np.float32), np.zeros(size, np.float32))
        )
        order = np.argsort(levels[-1].nodes, kind="stable")
        last = levels[-1]
        levels[-1] = Level(last.features[order], last.nodes[order], last.values[order], last.bias)
    return LinearTree.pack(levels, tree, N_FEATURES, SearchConfig(), weights=weights)


@pytest.fixture(scope="module", params=["int8", "float16", "float32"])
def head(request: pytest.FixtureRequest) -> LinearTree:
    return make_head(request.param)


def test_packed_arrays_pass(head: LinearTree) -> None:
    assert head.arrays["meta"][:, 0].tolist() == [1, 0]
    check_packed(head.arrays, head.tree, N_FEATURES)


def largest(array: np.ndarray) -> np.ndarray:
    out = array.copy()
    out.reshape(-1)[out.size // 2] = np.inf if array.dtype.kind == "f" else np.iinfo(array.dtype).max
    return out


def least(array: np.ndarray) -> np.ndarray:
    out = array.copy()
    out.reshape(-1)[out.size // 2] = np.nan if array.dtype.kind == "f" else np.iinfo(array.dtype).min
    return out


CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "largest": largest,
    "least": least,
    "half": lambda array: array[: len(array) // 2],
    "empty": lambda array: array[:0],
    "twice": lambda array: np.concatenate([array, array]),
    "flat": lambda array: array.reshape(-1, 1) if array.ndim == 1 else array.reshape(-1),
    "backwards": lambda array: array[::-1].copy(),
    "another type": lambda array: np.zeros(array.shape, np.float64),
}

# What leaves a model that can be searched: other weights, or nothing that is read.
HARMLESS = {
    ("codes", "largest", "int8"), ("codes", "least", "int8"), ("codes", "least", "float16"), ("codes", "backwards", ""),
    ("table", "backwards", "int8"), ("table", "backwards", "float32"), ("table", "twice", "float32"),
    ("table", "half", "float32"), ("table", "empty", "float32"), ("table", "largest", "float32"),
    ("table", "least", "float32"), ("bias", "backwards", ""), ("run_ptr", "backwards", ""),
    ("run_chunk", "least", ""), ("local", "least", ""),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", LinearTree.KERNEL)
def test_a_changed_array_is_refused_unless_it_can_be_searched(head: LinearTree, name: str, change: str) -> None:
    weights = {np.dtype(np.uint8): "int8", np.dtype(np.uint16): "float16"}.get(head.arrays["codes"].dtype, "float32")
    arrays = {**head.arrays, name: CHANGES[change](head.arrays[name])}
    if {(name, change, weights), (name, change, "")} & HARMLESS:
        check_packed(arrays, head.tree, N_FEATURES)
        rows = Rows.of(sp.random(70, N_FEATURES, 0.5, format="csr", dtype=np.float32, random_state=2))
        top = LinearTree(arrays, head.tree, N_FEATURES, SearchConfig()).topk(rows, 5)
        assert ((top.labels >= 0) & (top.labels < head.tree.n_labels)).all()
        assert np.isfinite(top.scores).all()
        return
    with pytest.raises(BadInput, match=r"'\w+'"):
        check_packed(arrays, head.tree, N_FEATURES)


def test_arrays_of_another_number_of_features_are_refused(head: LinearTree) -> None:
    with pytest.raises(BadInput, match="'ptr' has the shape"):
        check_packed(head.arrays, head.tree, N_FEATURES + 1)


def test_large_levels_are_checked_by_many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    head = make_head()
    monkeypatch.setattr("umpteen.linear.check.PER_TASK", 100)
    check_packed(head.arrays, head.tree, N_FEATURES)
    changed = head.arrays["local"].copy()
    changed[-1] = 255
    with pytest.raises(BadInput, match="of feature 29 do not fit level 1"):
        check_packed({**head.arrays, "local": changed}, head.tree, N_FEATURES)


def test_dense_classifiers_fit_labels_and_embeddings() -> None:
    dense = DenseHead(np.ones((4, 3), np.float32), np.ones(4, np.float32), "sigmoid")
    check_dense(dense, 4, 3)
    check_dense(dense, 4, None)
    with pytest.raises(BadInput, match=r"shapes .* but there are 5 labels"):
        check_dense(dense, 5, 3)
    with pytest.raises(BadInput, match="for embeddings of 3 numbers, not 4"):
        check_dense(dense, 4, 4)
    dense.weight[2, 2] = np.nan
    with pytest.raises(BadInput, match="not finite"):
        check_dense(dense, 4, 3)


@pytest.mark.parametrize("shape", [(2, 3), (3,), (4, 4)])
def test_a_projection_fits_the_classifiers(shape: tuple[int, ...]) -> None:
    weight, bias, mean = np.ones((4, 3), np.float32), np.ones(4, np.float32), np.zeros(3, np.float32)
    check_dense(DenseHead(weight, bias, "sigmoid", Projection(mean, np.eye(3, dtype=np.float32))), 4, 3)
    damaged = DenseHead(weight, bias, "sigmoid", Projection(mean, np.ones(shape, np.float32)))
    with pytest.raises(BadInput, match=r"projection .* does not fit"):
        check_dense(damaged, 4, 3)


# Trees


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        (np.array([0, 2**31 - 1, -(2**31), 3], np.int32), "level 1 of the tree"),  # differences that overflow
        (np.array([0, 5, 1, 3], np.int32), "level 1 of the tree"),
        (np.array([0, 1, 2, 3], np.uint32), "not 1-d uint32"),
        (np.array([0.0, 1.0, 2.0, 3.0]), "not 1-d float64"),
        (np.array([[0, 1, 2, 3]], np.int32), "not 2-d int32"),
    ],
)
def test_a_tree_is_made_of_ascending_whole_numbers(starts: np.ndarray, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        LabelTree(np.arange(3, dtype=np.int32), (np.array([0, 3], np.int32), starts))


# Texts


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slots", -2), ("slots", 2**31 - 1), ("slots", 0), ("idf", np.nan), ("idf", 0.0), ("term_offsets", 2**62),
        ("term_bytes", 255),
    ],
)  # fmt: skip
def test_changed_terms_are_refused(name: str, value: Any) -> None:
    tfidf = Tfidf().fit(["the cat sat", "the dog"])
    arrays = {key: array.copy() for key, array in tfidf.arrays().items()}
    arrays[name][1:3] = value
    with pytest.raises(BadModelFile, match=r"^tf-idf.*; save the model again"):
        Tfidf.from_arrays(tfidf.config, arrays)


# What config.json says


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "model"
    texts = [f"word{i % 7} word{i % 5}" for i in range(40)]
    umpteen.XRLinear(threads=1).fit(texts, [f"label {i % 7}" for i in range(40)]).save(folder)
    return folder


@pytest.fixture
def edit(saved: Path, tmp_path: Path) -> Callable[..., Path]:
    """Change a value of config.json in a copy."""

    def edited(*keys: str, value: Any) -> Path:
        for file in saved.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        document = json.loads((tmp_path / "config.json").read_text())
        table = document
        for key in keys[:-1]:
            table = table[key]
        table[keys[-1]] = value
        (tmp_path / "config.json").write_text(json.dumps(document))
        return tmp_path

    return edited


@pytest.mark.parametrize("name", ["n_labels", "n_features", "trees"])
@pytest.mark.parametrize("value", [-1, 10**18, 10**40, 1.5, True, "7", None, [7], float("nan")])
def test_absurd_numbers_are_refused(edit: Callable[..., Path], name: str, value: Any) -> None:
    with pytest.raises(BadModelFile, match=f"its '{name}' must be a whole number up to"):
        umpteen.load(edit("meta", name, value=value))


@pytest.mark.parametrize(
    "targets", [{"kind": "trees"}, {"kind": []}, {"kind": "single", "dtype": "i8"}, {"dtype": "U5"}, {"else": 1}, 7]
)
def test_absurd_targets_are_refused(edit: Callable[..., Path], targets: Any) -> None:
    with pytest.raises(BadModelFile, match="is not a whole umpteen model"):
        umpteen.load(edit("meta", "targets", value=targets))


def test_no_room_is_made_for_names_longer_than_there_are(edit: Callable[..., Path]) -> None:
    model = umpteen.load(edit("meta", "targets", "dtype", value="<U100000000"))
    assert model.predict(["word1 word1"]).dtype.itemsize < 100


def test_a_beam_is_no_wider_than_its_level(edit: Callable[..., Path]) -> None:
    folder = edit("settings", "search", "beam", value=2**60)
    assert umpteen.load(folder).topk(["word1"], 3).labels.shape == (1, 3)
    with pytest.raises((BadModelFile, BadConfig)):
        umpteen.load(edit("settings", "search", "beam", value=10**30))
    with pytest.raises((BadModelFile, BadConfig)):
        umpteen.load(edit("settings", "tfidf", "ngram_max", value=10**9))
