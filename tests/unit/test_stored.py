"""Training with arrays in files gives the bytes of training in memory, on every engine and after every interruption."""

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.config import LinearConfig, SearchConfig, TfidfConfig, TreeConfig
from umpteen.data.rows import Rows
from umpteen.data.stored_texts import StoredTexts
from umpteen.data.stored_tfidf import StoredTfidf
from umpteen.data.tfidf import Tfidf
from umpteen.engine import LocalEngine, Memory
from umpteen.engine.processes import ProcessEngine
from umpteen.linear import LinearTree, stored, train
from umpteen.linear.choose import settle
from umpteen.linear.stored import Store, StoredTree, cut
from umpteen.linear.stored_arrays import load_rows, place_rows, save_matrix
from umpteen.store import Checkpoint
from umpteen.tree import build, pifa

SEARCH = SearchConfig(beam=3)
NO_BOUND = Memory(0)


@pytest.fixture(scope="module")
def data() -> tuple[Rows, sp.csr_matrix]:
    rng = np.random.default_rng(3)
    X = sp.random(400, 90, 0.1, format="csr", dtype=np.float32, random_state=5)
    Y = sp.csr_matrix((rng.random((400, 130)) < 0.03).astype(np.float32))
    return Rows.of(X), Y


def in_files(folder: Any, data: Any, tree: TreeConfig, linear: LinearConfig, engine: Any = None, **options: Any) -> Any:
    rows, Y = data
    checkpoint = Checkpoint(folder, "key")
    save_matrix(checkpoint, stored.TARGETS, Y)
    store = Store(checkpoint, place_rows(checkpoint, rows), engine or LocalEngine(1), NO_BOUND, 1, **options)
    work = StoredTree(store, "tree-0", SEARCH, seed=1)
    labels = work.tree(tree, None)
    linear = work.settle(labels, linear)
    return work.pack(labels, work.train(labels, linear), "int8")


def in_memory(data: Any, tree: TreeConfig, linear: LinearConfig) -> LinearTree:
    rows, Y = data
    labels = build(pifa(rows.sparse, Y, keep=tree.max_features), tree, seed=1)
    linear = settle(rows, Y, labels, linear, SEARCH, seed=1)
    levels = train(rows, Y, labels, linear, SEARCH, seed=1)
    return LinearTree.pack(levels, labels, rows.n_features, SEARCH, weights="int8")


def assert_same(one: LinearTree, two: LinearTree) -> None:
    assert one.tree.order.tolist() == two.tree.order.tolist()
    assert one.arrays.keys() == two.arrays.keys()
    for name, array in one.arrays.items():
        assert array.dtype == two.arrays[name].dtype, name
        np.testing.assert_array_equal(array, two.arrays[name], err_msg=name)


@pytest.mark.parametrize(
    "linear",
    [
        LinearConfig(negatives="tfn"),
        LinearConfig(negatives="tfn+man", negatives_at="all", relevance="induce-l1"),
        LinearConfig(negatives="man", loss="logistic", relevance="induce", cost=1.0),
    ],
    ids=["tfn", "tfn+man", "man"],
)
@pytest.mark.parametrize("kind", ["halving", "kmeans", "random", "none"])
def test_files_give_the_bytes_of_memory(tmp_path, data, kind, linear):
    tree = TreeConfig(kind=kind, branching=4, leaf_size=5)
    assert_same(in_files(tmp_path, data, tree, linear), in_memory(data, tree, linear))


@pytest.fixture(scope="module")
def processes() -> Any:
    engine = ProcessEngine(2)
    yield engine
    engine.close()


@pytest.fixture
def small_parts(monkeypatch):
    """Divide even small work into many tasks."""
    for name, value in {
        "_PART_WORK": 3_000,
        "_LEAST_WORK": 3_000,
        "_SLICES_A_WORKER": 3,
        "_LEAST_WEIGHTS": 100,
    }.items():
        monkeypatch.setattr(stored, name, value)


@pytest.mark.parametrize("kind", ["halving", "kmeans"])
def test_processes_give_the_bytes_of_memory(tmp_path, data, kind, processes, small_parts):
    tree, linear = TreeConfig(kind=kind, branching=4, leaf_size=5), LinearConfig(negatives="tfn+man")
    assert_same(in_files(tmp_path, data, tree, linear, processes), in_memory(data, tree, linear))


class OneTask(LocalEngine):
    """Is interrupted after every task; ``seen`` gets the names of those that began."""

    def __init__(self, threads: int, seen: list[str] | None = None) -> None:
        super().__init__(threads)
        self.seen = [] if seen is None else seen

    def run(self, tasks: Any, **options: Any) -> list[Any]:
        self.seen.append(tasks[0].function.partition(":")[2])
        super().run(tasks[:1], **options)
        if len(tasks) > 1:
            raise KeyboardInterrupt
        return [None]


def test_a_run_goes_on_after_any_task(tmp_path, data, small_parts):
    """A run that is interrupted after every task, again and again, ends with the same bytes."""
    tree, linear = TreeConfig(branching=4, leaf_size=5), LinearConfig(negatives="tfn+man")

    n_runs, found = 0, None
    while found is None:
        n_runs += 1
        try:
            found = in_files(tmp_path, data, tree, linear, OneTask(1))
        except KeyboardInterrupt:
            continue
    assert n_runs > 10
    assert_same(found, in_memory(data, tree, linear))


def test_records_of_a_resumed_run_are_those_of_the_first(tmp_path, data):
    tree, linear = TreeConfig(branching=4, leaf_size=5), LinearConfig()
    first: list[Any] = []
    again: list[Any] = []
    in_files(tmp_path, data, tree, linear, record=first.append)
    in_files(tmp_path, data, tree, linear, record=again.append)
    assert first == again
    assert [record["stage"] for record in first] == [f"level {number + 1} of 4" for number in range(4)]


def test_rows_that_are_in_a_file_are_not_copied(tmp_path, data):
    first = place_rows(Checkpoint(tmp_path / "a", "key"), data[0])
    assert place_rows(Checkpoint(tmp_path / "b", "key"), first) is first
    assert not (tmp_path / "b").exists()
    np.testing.assert_array_equal(load_rows(first.source).indices, data[0].indices)


def test_ranges_hold_to_every_limit():
    work, size = np.array([5, 1, 1, 9, 1, 1, 1]), np.array([1, 1, 4, 1, 1, 1, 4])
    cuts = cut((work, 6), (size, 5))
    assert cuts[0] == 0
    assert cuts[-1] == 7
    for first, last in itertools.pairwise(cuts):
        assert last == first + 1 or (work[first:last].sum() <= 6 and size[first:last].sum() <= 5)


# Texts and tf-idf

TEXTS = [
    "Red apple pie",
    "",
    "ΣΊΣΥΦΟΣ rolls a stone",
    "green pear",
    "half \ud83d a character",
    "İstanbul red pie",
    "apple",
] * 30


@pytest.fixture
def texts(tmp_path) -> StoredTexts:
    return StoredTexts.write(Checkpoint(tmp_path / "texts", "key"), iter(TEXTS))


def test_stored_texts_are_a_sequence(texts):
    assert list(texts) == TEXTS
    assert texts[-1] == TEXTS[-1]
    assert texts[2:4] == TEXTS[2:4]
    some = texts.take(np.array([5, 2]))
    assert list(some) == [TEXTS[5], TEXTS[2]]
    assert list(some.take(np.array([1]))) == [TEXTS[2]]
    with pytest.raises(IndexError):
        texts[len(TEXTS)]


def test_texts_have_the_same_digest_only_if_they_end_at_the_same_places(tmp_path):
    rows = np.array([0, 1])
    one, other = (
        StoredTexts.write(Checkpoint(tmp_path / name, "key"), iter(some))
        for name, some in (("one", ["red iron", "ore"]), ("other", ["red", " ironore"]))
    )
    assert len({one.digest(), other.digest(), one.take(rows).digest(), other.take(rows).digest()}) == 4


@pytest.mark.parametrize("some", [TEXTS, [], ["", ""], ["", "apple", ""]])
def test_texts_that_can_be_read_twice_are_written_as_others_are(tmp_path, monkeypatch, some):
    monkeypatch.setattr("umpteen.data.stored_texts._PART_BYTES", 20)
    once, twice = (Checkpoint(tmp_path / name, "key") for name in ("once", "twice"))
    assert list(StoredTexts.write(once, iter(some))) == list(StoredTexts.write(twice, some)) == some
    for name, array in once.load("texts").items():
        np.testing.assert_array_equal(twice.load("texts")[name], array)


def test_texts_that_change_while_they_are_written_are_refused(tmp_path):
    class Growing(list):
        def __iter__(self):
            self.append("more")
            return super().__iter__()

    checkpoint = Checkpoint(tmp_path, "key")
    with pytest.raises(ValueError):
        StoredTexts.write(checkpoint, Growing(["apple"]))
    assert not checkpoint.has("texts")


def test_digests_of_stored_texts_depend_on_the_texts_that_are_taken(texts):
    assert texts.digest() != texts.take(np.arange(3)).digest() != texts.take(np.arange(1, 4)).digest()


@pytest.mark.parametrize(
    "config", [TfidfConfig(), TfidfConfig(max_features=4), TfidfConfig(analyzer="char_wb", min_df=40)]
)
@pytest.mark.parametrize("kept", [slice(None), slice(1, None, 3)])
def test_stored_tfidf_equals_tfidf(tmp_path, texts, config, kept, monkeypatch):
    monkeypatch.setattr("umpteen.data.stored_tfidf._LEAST_RANGE", 300)
    expected = Tfidf(config)
    rows = expected.fit_transform(TEXTS[kept])
    some = texts.take(np.arange(len(TEXTS))[kept])
    checkpoint = Checkpoint(tmp_path / "features", "key")
    found = StoredTfidf(checkpoint, some, config, LocalEngine(1), NO_BOUND, 1).fit_transform()
    assert found.terms == expected.terms
    for name, array in expected.arrays().items():
        np.testing.assert_array_equal(found.arrays()[name], array)
    mine = load_rows(checkpoint.place)
    for one, two in zip(mine.triplet, (rows.indptr, rows.indices, rows.data), strict=True):
        np.testing.assert_array_equal(one, two)


def test_terms_of_late_texts_are_named_after_any_interruption(tmp_path, monkeypatch):
    """Terms are named in rounds; a run that is killed after any task goes on, with another number of workers."""
    monkeypatch.setattr("umpteen.data.stored_tfidf._LEAST_RANGE", 60)
    late = [f"common word{number // 4} only{number}" for number in range(60)]
    texts = StoredTexts.write(Checkpoint(tmp_path / "texts", "key"), late)
    seen: list[str] = []
    found, n_runs = None, 0
    while found is None:
        engine = OneTask(1, seen)
        engine.n_workers = (1, 3, 2)[n_runs % 3]
        n_runs += 1
        try:
            found = StoredTfidf(
                Checkpoint(tmp_path / "features", "key"), texts, TfidfConfig(), engine, NO_BOUND, 1
            ).fit_transform()
        except KeyboardInterrupt:
            continue
    assert seen.count("name") > 3
    expected = Tfidf(TfidfConfig())
    expected.fit_transform(late)
    for name, array in expected.arrays().items():
        np.testing.assert_array_equal(found.arrays()[name], array)


def test_stored_tfidf_refuses_what_tfidf_refuses(tmp_path, texts):
    checkpoint = Checkpoint(tmp_path / "features", "key")
    with pytest.raises(ValueError, match="leave no term"):
        StoredTfidf(checkpoint, texts, TfidfConfig(min_df=999), LocalEngine(1), NO_BOUND, 1).fit_transform()


@pytest.mark.parametrize(
    ("size", "total"), [("1GB", 10**9), ("2 GiB", 2**31), (5 * 10**8, 5 * 10**8), ("500mb", 5 * 10**8)]
)
def test_memory_is_read_with_its_unit(size, total):
    assert Memory.of(size).total == total


@pytest.mark.parametrize("size", ["1", "much", "-3GB", True, "10MB"])
def test_memory_that_cannot_be_used_is_refused(size):
    with pytest.raises(ValueError, match="memory"):
        Memory.of(size)
