"""Training a tree of linear scorers, and searching what was trained."""

from __future__ import annotations

import math
import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from umpteen.config import LinearConfig, SearchConfig
from umpteen.data.rows import Rows
from umpteen.errors import BadConfig, BadInput
from umpteen.linear import Level, LinearTree, choose, chunk, fit, search, settle, train
from umpteen.linear.pack import Coder, joined_ranges, pack_features
from umpteen.tree import LabelTree

SEARCH = SearchConfig(post="l3-hinge")
EXACT = {"cost": 1.0, "threshold": 0.0, "eps": 1e-4, "max_iter": 3000}


@pytest.fixture(scope="module")
def small() -> tuple[sp.csr_matrix, sp.csr_matrix, LabelTree]:
    """40 rows (one without features, one without labels), 12 labels (one without rows) in three levels."""
    rng = np.random.default_rng(0)
    X = (rng.random((40, 15)) * (rng.random((40, 15)) < 0.4)).astype(np.float32)
    Y = (rng.random((40, 12)) < 0.15).astype(np.float32)
    X[3] = 0
    Y[5] = 0
    Y[:, 7] = 0
    parents = np.array([0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1])
    return sp.csr_matrix(X), sp.csr_matrix(Y), LabelTree.from_parents(parents, np.array([0, 1, 0, 1, 0]))


def trained(small: Any, *, seed: int = 0, threads: int = 1, memory: float = 0.0, **changes: Any) -> list[Level]:
    X, Y, tree = small
    config, options = LinearConfig(**{"cost": 1.0, **changes}), {"seed": seed, "threads": threads, "memory": memory}
    return train(Rows.of(X), Y, tree, config, SEARCH, **options)


def dense(level: Level, n_features: int) -> np.ndarray:
    W = np.zeros((n_features, len(level.bias)))
    np.add.at(W, (level.features, level.nodes), level.values)
    return W


def same_levels(one: list[Level], two: list[Level]) -> bool:
    return all(
        np.array_equal(a, b)
        for x, y in zip(one, two, strict=True)
        for a, b in zip(x.arrays().values(), y.arrays().values(), strict=True)
    )


def expected_mask(small: Any, level: int, levels: list[Level], config: LinearConfig) -> np.ndarray:
    """Return the mask (rows, parents) of the paper's eqs. 7 and 8, dense."""
    X, Y, tree = small
    if level == 0:
        return np.ones((X.shape[0], 1), bool)
    carries = np.zeros((X.shape[0], tree.sizes[level - 1]), bool)
    for i, label in zip(*Y.nonzero(), strict=True):
        carries[i, tree.node_of(level - 1)[label]] = True
    config = settle(Rows.of(X), Y, tree, config, SEARCH)
    if config.negatives == "tfn" or (config.negatives_at == "leaf" and level < tree.n_levels - 1):
        return carries
    weights = [dense(one, X.shape[1]) for one in levels[:level]]
    scores = reference.node_scores(
        X.toarray(),
        weights,
        [one.bias for one in levels[:level]],
        list(tree.starts[:level]),
        ["l3-hinge"] * level,
    )[-1]
    predicted = np.zeros_like(carries)
    top = np.argsort(-scores, axis=1)[:, : config.negatives_beam]
    np.put_along_axis(predicted, top, True, axis=1)
    return predicted if config.negatives == "man" else predicted | carries


def assert_optimal(small: Any, levels: list[Level], config: LinearConfig) -> None:
    """Check every node's weights against the dense twin over the rows its mask lets through."""
    X, Y, tree = small
    features = np.column_stack([X.toarray(), np.full(X.shape[0], config.bias)])
    for number, level in enumerate(levels):
        mask = expected_mask(small, number, levels, config)
        counts = np.zeros((X.shape[0], tree.sizes[number]))
        np.add.at(counts.T, tree.node_of(number)[Y.nonzero()[1]], np.eye(X.shape[0])[Y.nonzero()[0]])
        relevance = {
            "none": (counts > 0).astype(float),
            "induce": counts,
            "induce-l1": counts / np.maximum(counts.sum(axis=1, keepdims=True), 1),
        }[config.relevance]
        W = dense(level, X.shape[1])
        for node in range(tree.sizes[number]):
            rows = mask[:, tree.parents[number][node]]
            if not rows.any() or not counts[:, node].any():
                assert level.bias[node] == (-20.0 if config.loss == "logistic" else -3.5)
                assert not W[:, node].any()
                continue
            positive = counts[rows, node] > 0
            costs = config.cost * np.where(positive, config.cost_positive * relevance[rows, node], config.cost_negative)
            best = reference.solve(features[rows], np.where(positive, 1.0, -1.0), costs, config.loss == "logistic")
            np.testing.assert_allclose(W[:, node], best[:-1], atol=0.02)
            np.testing.assert_allclose(level.bias[node], best[-1] * config.bias, atol=0.02)


@pytest.mark.parametrize("loss", ["squared-hinge", "logistic"])
@pytest.mark.parametrize("relevance", ["none", "induce", "induce-l1"])
def test_weights_solve_the_problem_of_the_paper(small, loss, relevance):
    costs = {"cost": 2.0, "cost_positive": 1.5, "cost_negative": 0.5}
    config = LinearConfig(loss=loss, relevance=relevance, bias=0.7, **EXACT | costs)
    X, Y, tree = small
    assert_optimal(small, train(Rows.of(X), Y, tree, config, SEARCH), config)


@pytest.mark.parametrize("negatives", ["tfn", "man", "tfn+man"])
@pytest.mark.parametrize("negatives_at", ["leaf", "all"])
def test_masks_let_the_right_rows_through(small, negatives, negatives_at):
    config = LinearConfig(negatives=negatives, negatives_at=negatives_at, negatives_beam=1, **EXACT)
    X, Y, tree = small
    assert_optimal(small, train(Rows.of(X), Y, tree, config, SEARCH), config)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("negatives", ["tfn", "man", "tfn+man"])
def test_mask_equals_its_definition(small, number, negatives):
    X, Y, tree = small
    config = LinearConfig(negatives=negatives, negatives_at="all", negatives_beam=2)
    levels = train(Rows.of(X), Y, tree, config, SEARCH)[:number]
    mask = fit.mask_of(Rows.of(X), tree, Y, number, levels, config, SEARCH, 1)
    if number == 0:
        assert mask is None
        return
    expected = expected_mask(small, number, levels, config)
    assert mask.nnz == expected.sum()
    found = np.zeros_like(expected)
    found[mask.indices, np.repeat(np.arange(expected.shape[1]), np.diff(mask.indptr))] = True
    np.testing.assert_array_equal(found, expected)


def test_negatives_left_to_the_data_follow_the_parents_that_rows_have():
    def chosen(parents_per_row: int, n_parents: int = 40, beam: int = 10, **given: Any) -> LinearConfig:
        labels = np.arange(parents_per_row) * 3  # three labels a parent
        Y = sp.csr_matrix((np.ones(parents_per_row), labels, [0, parents_per_row, parents_per_row]), (2, 3 * n_parents))
        tree = LabelTree.from_groups(np.arange(3 * n_parents).reshape(-1, 3).tolist())
        rows, config = Rows.of(sp.csr_matrix(np.eye(2, dtype=np.float32))), LinearConfig(cost=1.0, **given)
        return settle(rows, Y.astype(np.float32), tree, config, SearchConfig(beam=beam))

    assert [chosen(n).negatives for n in (1, 2, 3, 9)] == ["tfn", "tfn", "tfn+man", "tfn+man"]
    assert [chosen(n).negatives_beam for n in (3, 9)] == [8, 10]
    assert chosen(3, beam=6).negatives_beam == 6
    assert chosen(3, negatives_beam=2).negatives_beam == 2
    for negatives in ("tfn", "man", "tfn+man"):
        assert chosen(1, negatives=negatives).negatives == negatives
    assert chosen(3, negatives="tfn+man").negatives_beam == 10


@pytest.mark.parametrize("loss", ["squared-hinge", "logistic"])
def test_negatives_left_to_the_data_follow_how_well_labels_are_predicted(loss):
    def chosen(noise: float, **given: Any) -> LinearConfig:
        rows, Y = noisy_problem(noise)
        tree = LabelTree.from_groups([[0, 1], [2]])
        return settle(rows, Y, tree, LinearConfig(loss=loss, **given), SearchConfig(beam=9))

    for fixed in ({}, {"cost": 1.0}):
        easy, hard = chosen(0.0, **fixed), chosen(0.45, **fixed)
        assert (easy.negatives, hard.negatives) == ("tfn+man", "tfn")
        assert easy.negatives_beam == 2 < math.ceil(choose.PREDICTED_OF_MANY)
    assert chosen(0.0, negatives_beam=4).negatives_beam == 4
    assert chosen(0.0, negatives="tfn").negatives == "tfn"


def test_labels_without_clusters_are_tried_on_one_copy_of_the_rows(monkeypatch):
    rows, Y = noisy_problem(0.2)
    Y = sp.hstack([Y] * 20, format="csr")  # 60 labels, so several groups
    tree, copied, copies = LabelTree.flat(60), chunk.Chunk.copied, []
    monkeypatch.setattr(chunk.Chunk, "copied", lambda *given: copies.append(1) or copied(*given))

    def chosen() -> LinearConfig:
        copies.clear()
        return settle(rows, Y, tree, LinearConfig(cost=0.0), SEARCH, threads=1)

    whole = chosen()
    assert len(copies) <= 2  # one for each time that costs are compared
    monkeypatch.setattr(choose, "_SCORED_AT_ONCE", 7)
    assert chosen() == whole


@pytest.mark.parametrize("loss", ["squared-hinge", "logistic"])
def test_no_other_constants_have_a_lower_loss(loss):
    config = LinearConfig(loss=loss, cost_positive=3.0, cost_negative=0.5)
    targets = np.array([[1, 0.5, 0], [0, 0, 0], [0.2, 0, 0], [0, 1, 0], [0, 1, 1]], np.float32)
    best = choose.best_constants(config, targets)
    lowest = choose.loss_of(config, best, targets)
    for label in range(3):
        for step in (-0.01, 0.01):
            assert choose.loss_of(config, best + step * np.eye(3)[label], targets) > lowest


def noisy_problem(noise: float, n_rows: int = 800) -> tuple[Rows, sp.csr_matrix]:
    """Three labels, each decided by two of forty features, and by chance in a share of the rows."""
    rng = np.random.default_rng(0)
    X = (rng.random((n_rows, 40)) < 0.2) * rng.random((n_rows, 40))
    Y = np.stack([X[:, 2 * label] + X[:, 2 * label + 1] > 0.3 for label in range(3)], axis=1)
    Y ^= rng.random(Y.shape) < noise
    return Rows.of(sp.csr_matrix(X.astype(np.float32))), sp.csr_matrix(Y.astype(np.float32))


def test_a_cost_left_to_the_data_is_smaller_where_labels_are_noisy():
    def chosen(noise: float, **given: Any) -> float:
        rows, Y = noisy_problem(noise)
        return settle(rows, Y, LabelTree.flat(3), LinearConfig(**given), SEARCH).cost

    assert 0.25 <= chosen(0.3) < chosen(0.0) == 1.0
    assert 0.25 <= chosen(0.3, loss="logistic") <= 1.0
    assert chosen(0.3) == chosen(0.3)
    assert chosen(0.3, cost=3.0) == 3.0


def test_the_cost_is_chosen_by_the_loss_on_held_out_rows(monkeypatch):
    rows, Y = noisy_problem(0.2)
    tree, config = LabelTree.flat(3), LinearConfig(**EXACT | {"cost": 0.0, "cost_positive": 2.0, "bias": 0.7})
    found: list[np.ndarray] = []
    monkeypatch.setattr(choose, "lowest", lambda losses: found.append(losses) or 1.0)
    settle(rows, Y, tree, config, SEARCH, seed=5)
    held_out = np.random.default_rng([5, 0]).random(len(rows)) < 0.2
    X = np.column_stack([rows.sparse.toarray(), np.full(len(rows), config.bias)])
    expected = []
    for cost in choose.COSTS:
        loss = 0.0
        for label in range(3):
            y = np.where(Y.toarray()[:, label] > 0, 1.0, -1.0)
            costs = np.where(y > 0, 2.0, 1.0)
            w = reference.solve(X[~held_out], y[~held_out], cost * costs[~held_out], False)
            loss += (costs * np.maximum(0.0, 1.0 - y * (X @ w)) ** 2)[held_out].sum()
        expected.append(loss)
    np.testing.assert_allclose(found[0], expected, rtol=0.01)


@pytest.mark.parametrize(
    "Y", [np.zeros((4, 3)), np.array([[1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]])], ids=["no labels", "one"]
)
def test_a_cost_is_found_for_hardly_any_data(Y):
    rows = Rows.of(sp.csr_matrix(np.eye(4, dtype=np.float32)))
    for tree in (LabelTree.flat(3), LabelTree.from_groups([[0, 1], [2]])):
        assert settle(rows, sp.csr_matrix(Y.astype(np.float32)), tree, LinearConfig(), SEARCH).cost == 1.0
    rows, Y = noisy_problem(0.3, n_rows=100)
    assert settle(rows, Y, LabelTree.flat(3), LinearConfig(), SEARCH).cost == 1.0


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_are_copied_once_for_all_labels_of_a_parent(monkeypatch, threads):
    rows, Y = noisy_problem(0.1)
    Y = sp.csr_matrix(np.tile(Y.toarray(), (1, 40)))
    tree = LabelTree.from_groups([list(range(70)), list(range(70, 120))])  # jobs of sixteen labels: five and four
    copied: list[int] = []
    original = chunk.Chunk.copied

    def count(rows: Rows, some: np.ndarray, local: np.ndarray) -> Any:
        copied.append(len(some))
        return original(rows, some, local)

    monkeypatch.setattr(chunk.Chunk, "copied", count)
    train(rows, Y, tree, LinearConfig(cost=1.0, negatives="tfn"), SEARCH, threads=threads)
    lifted = tree.lift(Y, 0)
    assert sorted(copied) == sorted(np.diff(lifted.tocsc().indptr))


def test_an_error_while_rows_are_copied_reaches_the_caller(monkeypatch):
    def fail(*_: Any) -> Any:
        raise MemoryError("no room for the rows")

    rows, Y = noisy_problem(0.1)
    monkeypatch.setattr(chunk.Chunk, "copied", fail)
    with pytest.raises(MemoryError, match="no room for the rows"):
        train(rows, Y, LabelTree.from_groups([[0, 1], [2]]), LinearConfig(cost=1.0, negatives="tfn"), SEARCH, threads=3)


def test_without_parents_there_are_no_wrong_ones():
    rows, Y = Rows.of(sp.csr_matrix(np.eye(3, dtype=np.float32))), sp.csr_matrix(np.eye(3, dtype=np.float32))
    assert settle(rows, Y, LabelTree.flat(3), LinearConfig(), SearchConfig()).negatives == "tfn"


def test_a_predicted_parent_with_score_zero_is_in_the_mask(small):
    X, Y, tree = small
    # Margins of −60 give scores that are zero in single precision.
    nothing = np.empty(0, np.int32)
    top = Level(nothing, nothing, np.empty(0, np.float32), np.full(2, -60, np.float32))
    for negatives in ("man", "tfn+man"):
        config = LinearConfig(negatives=negatives, negatives_at="all", negatives_beam=2)
        mask = fit.mask_of(Rows.of(X), tree, Y, 1, [top], config, SEARCH, 1)
        assert mask.nnz == 2 * X.shape[0]


def encode(values: np.ndarray, weights: str) -> tuple[np.ndarray, np.ndarray]:
    coder = Coder.of([values], weights)
    return coder.encode(values), coder.table


def test_a_raw_score_of_minus_one_does_not_cancel_a_true_parent(small):
    X, Y, tree = small
    nothing = np.empty(0, np.int32)
    top = Level(nothing, nothing, np.empty(0, np.float32), np.full(2, -1, np.float32))
    config = LinearConfig(negatives="tfn+man", negatives_at="all", negatives_beam=2)
    search = SearchConfig(post="identity", leaf_post="same")
    assert fit.mask_of(Rows.of(X), tree, Y, 1, [top], config, search, 1).nnz == 2 * X.shape[0]


@pytest.mark.parametrize("cuts", [[0, 15], [0, 4, 15], [0, 0, 1, 7, 15, 15]])
def test_levels_are_packed_alike_in_any_ranges_of_features(cuts):
    labels = LabelTree.from_parents(np.arange(300) // 3, np.arange(100) // 50)  # the last level is in runs
    rng = np.random.default_rng(0)
    for number, n_nodes in enumerate(labels.sizes):
        nodes, features = np.nonzero(rng.random((n_nodes, 15)) < 0.3)
        values = rng.standard_normal(len(nodes)).astype(np.float32)
        level = Level(features.astype(np.int32), nodes.astype(np.int32), values, np.zeros(n_nodes, np.float32))
        coder = Coder.of([values], "int8")
        whole, *others = pack_features(level, labels, number, (0, 15), coder, threads=1)
        ranges = [part for ends in pairwise(cuts) for part in pack_features(level, labels, number, ends, coder, 1)]
        assert not others
        assert whole.is_in_runs == (number == 2)
        for name, array in joined_ranges(ranges)._asdict().items():
            np.testing.assert_array_equal(array, getattr(whole, name), err_msg=name)


def test_small_weights_are_dropped(small):
    whole, cut = trained(small, threshold=0.0), trained(small, threshold=0.3)
    for all_of_them, kept in zip(whole, cut, strict=True):
        W = dense(all_of_them, 15)
        np.testing.assert_allclose(dense(kept, 15), np.where(np.abs(W) >= 0.3, W, 0), atol=1e-6)
        assert 0 < len(kept.values) < len(all_of_them.values)
        np.testing.assert_array_equal(kept.bias, all_of_them.bias)


def test_without_bias(small):
    levels = trained(small, bias=0.0)
    assert all(not level.bias.any() and level.values.any() for level in levels)


@pytest.mark.parametrize("key", ["cost_positive", "cost_negative"])
def test_a_cost_of_zero_is_a_row_that_counts_for_nothing(small, key):
    config = LinearConfig(**{key: 0.0}, **EXACT)
    X, Y, tree = small
    assert_optimal(small, train(Rows.of(X), Y, tree, config, SEARCH), config)


def test_a_chunk_without_a_single_row_scores_low(small):
    X, Y, _ = small
    tree = LabelTree.from_groups([[7], [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11]])  # nothing carries label 7
    levels = train(Rows.of(X), Y, tree, LinearConfig(), SEARCH)
    assert levels[1].bias[0] == -3.5
    assert 0 not in levels[1].nodes
    head = LinearTree.pack(levels, tree, 15, SEARCH)
    top = head.topk(Rows.of(X), 12, beam=2)
    assert np.isfinite(top.scores).all()
    assert (np.sort(top.labels, axis=1) == np.arange(12)).all()


def test_no_labels_at_all(small):
    X, Y, tree = small
    levels = train(Rows.of(X), sp.csr_matrix(Y.shape, dtype=np.float32), tree, LinearConfig(), SEARCH)
    assert [len(level.bias) for level in levels] == list(tree.sizes)
    top = LinearTree.pack(levels, tree, 15, SEARCH).topk(Rows.of(X), 3)
    assert np.isfinite(top.scores).all()


def test_rows_without_features_are_predicted_from_the_bias(small):
    tree = small[2]
    levels = trained(small)
    empty = Rows.of(sp.csr_matrix((2, 15), dtype=np.float32))
    found = LinearTree.pack(levels, tree, 15, SEARCH).topk(empty, 12)
    scores = reference.node_scores(
        np.zeros((1, 15)), [np.zeros((15, n)) for n in tree.sizes], [level.bias for level in levels],
        list(tree.starts), ["l3-hinge", "l3-hinge", "l4-hinge"],
    )[-1]  # fmt: skip
    np.testing.assert_allclose(found.scores, np.tile(np.sort(scores)[:, ::-1], (2, 1)), rtol=1e-4, atol=1e-30)


@pytest.fixture(scope="module")
def wide() -> tuple[sp.csr_matrix, sp.csr_matrix, LabelTree]:
    """Chunks of more labels than a kernel takes at a time."""
    rng = np.random.default_rng(1)
    X = sp.random(120, 50, 0.2, format="csr", dtype=np.float32, random_state=1)
    Y = sp.csr_matrix((rng.random((120, 100)) < 0.05).astype(np.float32))
    return X, Y, LabelTree.from_groups(rng.permutation(100).reshape(5, 20).tolist())


@pytest.mark.parametrize("negatives", ["tfn", "tfn+man"])
def test_threads_do_not_change_the_weights(wide, negatives):
    one = trained(wide, negatives=negatives, seed=3)
    for threads in (2, 8):
        assert same_levels(one, trained(wide, negatives=negatives, seed=3, threads=threads))


def test_the_seed_decides(wide):
    first = trained(wide, max_iter=1, seed=3)
    assert same_levels(first, trained(wide, max_iter=1, seed=3))
    assert not same_levels(first, trained(wide, max_iter=1, seed=4))


def test_a_dense_block_equals_the_same_columns_sparse(small):
    X, Y, tree = small
    rng = np.random.default_rng(2)
    block = rng.normal(0, 0.5, (40, 4)).astype(np.float32)
    config = LinearConfig(**EXACT)
    apart = train(Rows.of(X, block), Y, tree, config, SEARCH)
    joined = sp.csr_matrix(sp.hstack([X, block]))
    together = train(Rows.of(joined), Y, tree, config, SEARCH)
    for one, two in zip(apart, together, strict=True):
        np.testing.assert_allclose(dense(one, 19), dense(two, 19), atol=0.02)
        np.testing.assert_allclose(one.bias, two.bias, atol=0.02)
    head = LinearTree.pack(apart, tree, 19, SEARCH)
    np.testing.assert_allclose(head.topk(Rows.of(X, block), 5).scores, head.topk(Rows.of(joined), 5).scores, rtol=1e-4)


def test_rows_are_searched_some_at_a_time(small, monkeypatch):
    X, Y, tree = small
    rows = Rows.of(X, np.random.default_rng(2).normal(0, 0.5, (40, 4)).astype(np.float32))
    head = LinearTree.pack(train(rows, Y, tree, LinearConfig(), SEARCH), tree, 19, SEARCH)
    at_once = head.topk(rows, 5)
    scored = head.score_labels(rows, Y)
    monkeypatch.setattr(search, "ROWS_AT_ONCE", 7)
    in_turn = head.topk(rows, 5)
    assert in_turn.labels.tolist() == at_once.labels.tolist()
    np.testing.assert_allclose(in_turn.scores, at_once.scores, rtol=1e-5)
    np.testing.assert_allclose(head.score_labels(rows, Y).toarray(), scored.toarray(), rtol=1e-5)


@pytest.mark.parametrize(("negatives", "stages"), [("tfn", ["3 levels"]), ("tfn+man", ["2 levels", "level 3 of 3"])])
def test_progress_counts_every_level(small, negatives, stages):
    X, Y, tree = small
    seen: dict[str, list[tuple[int, int]]] = {}
    train(
        Rows.of(X), Y, tree, LinearConfig(negatives=negatives), SEARCH,
        progress=lambda stage, done, total: seen.setdefault(stage, []).append((done, total)),
    )  # fmt: skip
    assert list(seen) == stages
    for steps in seen.values():
        assert steps[0][0] == 0
        assert steps[-1][0] == steps[-1][1] > 0
        assert steps == sorted(steps)


def test_a_memory_bound_holds_and_changes_nothing(wide, monkeypatch):
    plain, sizes, lock = fit.train_chunk, [], threading.Lock()
    held = {"now": 0, "most": 0}

    def watched(problem: Any, job: Any, *rest: Any) -> Level:
        with lock:
            sizes.append(job.bytes)
            held["now"] += job.bytes
            held["most"] = max(held["most"], held["now"])
        try:
            return plain(problem, job, *rest)
        finally:
            with lock:
                held["now"] -= job.bytes

    monkeypatch.setattr(fit, "train_chunk", watched)
    free = trained(wide, threads=4)
    bound = 1.3 * max(sizes)
    assert sum(sorted(sizes)[-2:]) > bound  # two large ones do not fit together
    held["most"] = 0
    bounded = trained(wide, threads=4, memory=bound)
    assert 0 < held["most"] <= bound
    assert same_levels(free, bounded)


def test_an_impossible_memory_bound_is_refused(wide):
    with pytest.raises(BadConfig, match=r"may use 0 MB but its largest chunk needs .*; allow more"):
        trained(wide, memory=1e3)


def test_the_budget_lets_tasks_in_while_they_fit():
    budget = fit.Budget(10)
    entered = threading.Event()

    def second() -> None:
        with budget.hold(6):
            entered.set()

    worker = threading.Thread(target=second)
    with budget.hold(6):
        worker.start()
        assert not entered.wait(0.1)
        with budget.hold(4):
            assert budget.used == 10
    worker.join(30)
    assert entered.is_set()
    assert budget.used == 0


def test_a_failing_task_gives_its_memory_back():
    budget = fit.Budget(10)
    with pytest.raises(ValueError), budget.hold(6):
        raise ValueError
    assert budget.used == 0


@pytest.mark.parametrize("weights", ["float32", "float16", "int8"])
def test_known_structure_is_learnt(tiny, weights):
    levels = train(Rows.of(tiny.X), tiny.Y, tiny.tree, LinearConfig(), SEARCH)
    head = LinearTree.pack(levels, tiny.tree, tiny.X.shape[1], SEARCH, weights=weights)
    best = tiny.tree.order[head.topk(Rows.of(tiny.X), 1).labels[:, 0]]
    assert tiny.Y.toarray()[np.arange(200), best].mean() > 0.98
    assert head.n_weights == sum(len(level.values) for level in levels)


def test_scores_of_given_labels_are_those_of_the_search(tiny):
    levels = train(Rows.of(tiny.X), tiny.Y, tiny.tree, LinearConfig(), SEARCH)
    head = LinearTree.pack(levels, tiny.tree, tiny.X.shape[1], SEARCH)
    top = head.topk(Rows.of(tiny.X), 5, beam=6)
    named = sp.csr_matrix(
        (np.ones(1000, np.float32), (np.repeat(np.arange(200), 5), tiny.tree.order[top.labels].ravel())),
        shape=(200, 60),
    )
    for threads in (1, 3):
        scored = head.score_labels(Rows.of(tiny.X), named, threads=threads).toarray()
        found = np.take_along_axis(scored, tiny.tree.order[top.labels].astype(int), axis=1)
        np.testing.assert_allclose(found, top.scores, rtol=1e-5)


def test_k_beyond_the_labels_is_padded_and_allowed_labels_are_kept_to(tiny):
    levels = train(Rows.of(tiny.X), tiny.Y, tiny.tree, LinearConfig(), SEARCH)
    head = LinearTree.pack(levels, tiny.tree, tiny.X.shape[1], SEARCH)
    rows = Rows.of(tiny.X[:3])
    every = head.topk(rows, 70)
    assert (np.sort(every.labels[:, :60], axis=1) == np.arange(60)).all()
    assert (every.labels[:, 60:] == -1).all()
    allowed = np.array([3, 17, 41])
    some = head.topk(rows, 5, beam=6, allowed=tiny.tree.allowed_nodes(allowed))
    assert (np.sort(tiny.tree.order[some.labels[:, :3]], axis=1) == allowed).all()
    assert (some.labels[:, 3:] == -1).all()
    nothing = head.topk(rows, 2, allowed=tiny.tree.allowed_nodes(np.array([], int)))
    assert (nothing.labels == -1).all()


def test_beams_by_level_are_widened_until_they_hold_k(small):
    tree = small[2]
    levels = trained(small)
    head = LinearTree.pack(levels, tree, 15, SearchConfig(beams=(1, 2)))
    assert head.beams(None, 1).tolist() == [1, 2, 2]
    assert head.beams(7, 1).tolist() == [2, 5, 7]  # no wider than a level
    # Five labels may lie under three nodes (2 + 2 + 2), and those under both nodes of the top level.
    assert head.beams(1, 5).tolist() == [2, 3, 5]
    assert (np.sort(head.topk(Rows.of(small[0]), 12, beam=1).labels, axis=1) == np.arange(12)).all()


def test_levels_above_the_parents_of_labels_keep_more_nodes(tiny):
    tree = LabelTree.from_parents(np.arange(64) // 2, np.arange(32) // 2, np.arange(16) // 2)
    levels = train(Rows.of(tiny.X), tiny.Y[:, np.arange(64) % tiny.Y.shape[1]], tree, LinearConfig(cost=1.0), SEARCH)
    search = SearchConfig(beam=3, upper_beam=1.5)
    head = LinearTree.pack(levels, tree, tiny.X.shape[1], search)
    assert tree.sizes == (8, 16, 32, 64)
    assert head.beams(None, 1).tolist() == [5, 5, 3, 3]
    assert head.beams(2, 1).tolist() == [3, 3, 2, 2]
    top = LinearTree.pack(levels[:2], tree, tiny.X.shape[1], search)
    assert top.beams(None, 1).tolist() == [5, 5]


def test_the_top_of_a_tree_has_no_leaf_post_processor(small):
    levels = trained(small)
    search = SearchConfig(post="sigmoid", leaf_post="identity")
    assert LinearTree.pack(levels, small[2], 15, search).posts.tolist() == [5, 5, 0]
    assert LinearTree.pack(levels[:2], small[2], 15, search).posts.tolist() == [5, 5]


def test_rows_of_another_width_are_refused(small):
    head = LinearTree.pack(trained(small), small[2], 15, SEARCH)
    with pytest.raises(BadInput, match="X has 14 features, but the model was trained with 15"):
        head.topk(Rows.of(small[0][:, :14]), 1)


def test_packed_arrays_cannot_be_written_to(small):
    head = LinearTree.pack(trained(small), small[2], 15, SEARCH)
    with pytest.raises(ValueError, match="read-only"):
        head.arrays["bias"][0] = 1


def test_no_rows_give_no_rows(small):
    head = LinearTree.pack(trained(small), small[2], 15, SEARCH)
    assert head.topk(Rows.of(sp.csr_matrix((0, 15), dtype=np.float32)), 3).labels.shape == (0, 3)


magnitudes = st.floats(2**-20, 1000, width=32)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(magnitudes, st.booleans()), max_size=30))
def test_codes_keep_the_sign_and_about_the_size(drawn):
    values = np.array([-size if negative else size for size, negative in drawn], np.float32)
    codes, table = encode(values, "float32")
    np.testing.assert_array_equal(codes, values)
    codes, table = encode(values, "float16")
    np.testing.assert_array_equal(table[codes], values.astype(np.float16).astype(np.float32))
    codes, table = encode(values, "int8")
    assert codes.dtype == np.uint8
    np.testing.assert_array_equal(np.sign(table[codes]), np.sign(values))
    floor = np.abs(values).max(initial=0) / 2000  # smaller ones are raised to it
    size = np.maximum(np.abs(values), floor)
    np.testing.assert_allclose(np.abs(table[codes]), size, rtol=0.031)


def test_codes_of_one_magnitude_are_exact():
    values = np.array([0.3, -0.3], np.float32)
    codes, table = encode(values, "int8")
    np.testing.assert_allclose(table[codes], values, rtol=1e-6)


def test_an_unknown_precision_is_refused():
    with pytest.raises(BadConfig, match="weights must be float32, float16 or int8, but is 'int4'"):
        encode(np.ones(1, np.float32), "int4")
