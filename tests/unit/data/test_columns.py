"""Columns of other libraries as texts and labels: stand-ins with their methods, and the real ones where installed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from umpteen import Dataset, Tfidf, XRLinear
from umpteen.data.columns import class_names, readable
from umpteen.errors import BadInput

TEXTS = ["red apple", "green pear", "red plum", "green apple"]
LISTS = [["red", "fruit"], ["green"], ["red"], []]


class Scalar:
    """A value of pyarrow, which is no str."""

    def __init__(self, value: Any) -> None:
        self.value = value


class ArrowColumn:
    """Like a pyarrow.ChunkedArray: iterating gives objects of its own."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Any:
        return map(Scalar, self.values)

    def to_pylist(self) -> list[Any]:
        return list(self.values)


class Series:
    """Like a pandas.Series of a shuffled table: numbers in brackets are of its index."""

    dtype = np.dtype(object)

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Any:
        return iter(self.values)

    def __getitem__(self, label: Any) -> Any:
        raise KeyError(label)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        found = np.empty(len(self.values), dtype=object)
        found[:] = self.values
        return found

    def to_list(self) -> list[Any]:
        return list(self.values)


class LazyColumn:
    """Like a column of a dataset of Hugging Face: a sequence that is read from disk."""

    def __init__(self, values: list[Any]) -> None:
        self.values, self.n_passes = values, 0

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Any:
        self.n_passes += 1
        return iter(self.values)

    def __getitem__(self, key: Any) -> Any:
        return self.values[key]


class Stream:
    """Like a column of a streaming dataset of Hugging Face: it can be read repeatedly, but has no length."""

    def __init__(self, values: list[Any], features: Any = None) -> None:
        self.values, self.n_passes, self.column_name = values, 0, "some"
        self.source = SimpleNamespace(features={"some": features})

    def __iter__(self) -> Any:
        self.n_passes += 1
        return iter(self.values)

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)


class Indexed:
    """A sequence by the old protocol, without ``__iter__`` in its class."""

    __iter__ = None  # type: ignore[assignment]

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, row: int) -> Any:
        return self.values[row]


def check(texts: Any, lists: Any) -> None:
    """Compare with a model of the same data in lists, in every method that takes texts or labels."""
    usual = XRLinear(threads=1, seed=1).fit(TEXTS, LISTS)
    model = XRLinear(threads=1, seed=1).fit(texts, lists)
    assert model.labels_.names() == usual.labels_.names()
    np.testing.assert_array_equal(model.topk(texts, 2).scores, usual.topk(TEXTS, 2).scores)
    assert model.predict(texts) == usual.predict(TEXTS)
    assert model.evaluate(texts, lists, ks=(1,)) == usual.evaluate(TEXTS, LISTS, ks=(1,))
    assert model.score(texts, lists) == usual.score(TEXTS, LISTS)
    assert Tfidf().fit(texts).terms == Tfidf().fit(TEXTS).terms
    assert list(Dataset(texts).take([3, 0]).texts) == [TEXTS[3], TEXTS[0]]


@pytest.mark.parametrize("kind", [ArrowColumn, Series, LazyColumn, Stream, Indexed])
def test_columns_of_texts_and_of_lists(kind: Any) -> None:
    check(kind(TEXTS), kind(LISTS))


@pytest.mark.parametrize("kind", [ArrowColumn, Series, LazyColumn, Stream, Indexed])
def test_columns_of_single_labels(kind: Any) -> None:
    model = XRLinear(threads=1).fit(kind(TEXTS), kind(["a", "b", "a", "b"]))
    assert model.predict(kind(TEXTS)).tolist() == ["a", "b", "a", "b"]


def test_a_column_of_texts_is_not_held_in_memory_but_one_of_labels_is_read_once() -> None:
    texts, lists = LazyColumn(TEXTS), LazyColumn(LISTS)
    assert readable(texts) is texts
    XRLinear(threads=1).fit(texts, lists)
    assert lists.n_passes == 1


def test_a_stream_is_held_in_memory_only_where_it_has_to_be() -> None:
    texts = Stream(TEXTS)
    assert readable(texts) == TEXTS
    assert texts.n_passes == 1
    texts = Stream(TEXTS)
    Tfidf().fit(texts)
    assert texts.n_passes > 1
    texts = Stream(TEXTS)
    bounded = XRLinear(threads=1, seed=1).fit(texts, LISTS, memory="1GB")
    assert texts.n_passes > 1
    usual = XRLinear(threads=1, seed=1).fit(TEXTS, LISTS)
    np.testing.assert_array_equal(bounded.topk(texts, 2).scores, usual.topk(TEXTS, 2).scores)
    rows = Stream([[1.0, 0.0], [0.0, 1.0]])
    assert XRLinear(threads=1).fit(rows, [["a"], ["b"]], memory="1GB").predict(rows)[0] == ["a"]


class ClassColumn(LazyColumn):
    """Like a column of numbers of classes of a dataset of Hugging Face."""

    def __init__(self, values: list[Any], features: Any) -> None:
        super().__init__(values)
        self.features = features


CLASSES = SimpleNamespace(names=["dull", "sharp", "blunt"])  # like datasets.ClassLabel, and a list of it


@pytest.mark.parametrize("kind", [ClassColumn, Stream])
def test_the_names_of_classes_are_names_of_labels(kind: Any) -> None:
    model = XRLinear(threads=1).fit(TEXTS, kind([1, 0, 1, 0], CLASSES))
    assert model.predict(TEXTS).tolist() == ["sharp", "dull", "sharp", "dull"]
    assert (model.labels_.names(), model.labels_.keys()) == (CLASSES.names, ["0", "1", "2"])
    for same in (kind([1, 0, 1, 0], CLASSES), [1, 0, 1, 0], ["sharp", "dull", "sharp", "dull"]):
        assert model.score(TEXTS, same) == 1.0
    model = XRLinear(threads=1).fit(TEXTS, kind([[0, 1], [1, 0], [1, 0], [0, 1]], SimpleNamespace(feature=CLASSES)))
    assert sorted(model.predict(TEXTS)[0]) == ["dull", "sharp"]
    with pytest.raises(BadInput, match="row 1 has the label '-1', none of the 3 known ones"):
        XRLinear().fit(TEXTS, kind([1, -1, 1, 0], CLASSES))


def test_classes_that_are_named_like_the_numbers_of_others_stay_numbers() -> None:
    stars, digits = SimpleNamespace(names=["1", "2", "3"]), SimpleNamespace(names=["0", "1"])
    assert class_names(ClassColumn([0, 1], stars)) is None
    assert class_names(ClassColumn([0, 1], digits)) == ["0", "1"]
    assert class_names(ClassColumn([0, 1], SimpleNamespace(dtype="int64"))) is class_names([0, 1]) is None
    model = XRLinear(threads=1).fit(TEXTS, ClassColumn([2, 0, 2, 0], stars))
    assert model.predict(TEXTS).tolist() == [2, 0, 2, 0]


def test_a_whole_table_is_refused() -> None:
    class Table(LazyColumn):
        column_names = ("text", "labels")

    class Streamed(Stream):
        column_names = ("text", "labels")

    for kind in (Table, Streamed):
        with pytest.raises(BadInput, match="whole table with the columns 'text', 'labels'; pass one of them"):
            XRLinear().fit(kind([{"text": "a"}]), [["b"]])
        with pytest.raises(BadInput, match="whole table"):
            Tfidf().fit(kind([{"text": "a"}]))


@pytest.mark.parametrize("kind", [ArrowColumn, Series, LazyColumn, Stream, Indexed])
def test_a_missing_text_is_refused(kind: Any) -> None:
    with pytest.raises(BadInput):
        XRLinear().fit(kind(["a red apple", None]), [["a"], ["b"]])


def test_pandas() -> None:
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"text": TEXTS, "labels": LISTS, "one": ["a", "b", "a", "b"]})
    table["n"] = np.array([3, 1, 3, 1], np.int16)
    table.index = [2, 0, 3, 1]  # as after shuffling
    check(table["text"], table["labels"])
    assert XRLinear(threads=1).fit(table["text"], table["one"].astype("category")).classes_.tolist() == ["a", "b"]
    assert XRLinear(threads=1).fit(table["text"], table["n"]).classes_.dtype == np.int16
    with pytest.raises(BadInput):
        XRLinear().fit(pd.Series(["a red apple", None]), [["a"], ["b"]])


def test_polars() -> None:
    pl = pytest.importorskip("polars")
    check(pl.Series(TEXTS), pl.Series(LISTS))


def test_pyarrow() -> None:
    pa = pytest.importorskip("pyarrow")
    check(pa.chunked_array([TEXTS[:2], TEXTS[2:]]), pa.array(LISTS))
    with pytest.raises(BadInput, match="whole table with the columns 'text'"):
        XRLinear().fit(pa.table({"text": TEXTS}), LISTS)


def test_datasets_of_hugging_face() -> None:
    hf = pytest.importorskip("datasets")
    classes = hf.ClassLabel(names=["dull", "sharp"])
    features = {"text": hf.Value("string"), "one": classes, "some": hf.Sequence(classes)}
    values = {"text": TEXTS, "one": [1, 0, 1, 0], "some": [[0, 1], [1], [0], []]}
    table = hf.Dataset.from_dict(values, features=hf.Features(features))
    for data in (table, table.to_iterable_dataset()):
        check(data["text"], LISTS)
        assert XRLinear(threads=1).fit(data["text"], data["one"]).classes_.tolist() == classes.names
        assert XRLinear(threads=1).fit(data["text"], data["some"]).labels_.names() == classes.names
        with pytest.raises(BadInput, match="whole table"):
            XRLinear().fit(data, LISTS)
