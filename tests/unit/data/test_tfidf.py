"""Tf-idf: the same numbers as scikit-learn, whatever the threads, the batch or the storage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from umpteen.config import TfidfConfig
from umpteen.data import vocabulary
from umpteen.data.tfidf import Tfidf
from umpteen.errors import BadInput, BadModelFile, NotFitted
from umpteen.store import save_tensors

WORDS = [
    "the", "The", "THE", "cat", "a", "x1", "42", "snake_case", "_", "naïve", "Café", "cafe\u0301", "ÉCOLE",
    "Straße", "ΣΊΣΥΦΟΣ", "σίσυφος", "İstanbul", "Москва", "МОСКВА", "日本語", "テキスト", "한국어", "🙂",
    "👩‍👩‍👧", "①②", "x²", "don't", "e-mail", "\n\n", "\t", "\u2003", "\u00a0", "\x00", "K", "Ⱥb", "हिन्दी",
    "ﬁne",
]  # fmt: skip
texts_made = st.lists(
    st.lists(st.sampled_from(WORDS) | st.text(max_size=6), max_size=14).map(" ".join), min_size=1, max_size=8
)
english = [
    "Council regulation on the common organisation of the market in beef and veal",
    "Commission decision on the market in milk",
    "",
    "The market, the market: milk and beef",
    "Zażółć gęślą jaźń w Łodzi",
]


def sklearn_twin(config: TfidfConfig, **changes) -> TfidfVectorizer:
    return TfidfVectorizer(
        analyzer=config.analyzer,
        lowercase=config.lowercase, ngram_range=(config.ngram_min, config.ngram_max),
        min_df=config.min_df, max_df=config.max_df, max_features=config.max_features or None,
        sublinear_tf=config.sublinear, dtype=np.float64, **changes,
    )  # fmt: skip


def assert_same(ours, theirs) -> None:
    """Compare two matrices bit by bit."""
    assert ours.shape == theirs.shape
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


configs_made = st.builds(
    lambda analyzer, shortest, more, lowercase, sublinear: TfidfConfig(
        analyzer, ngram_min=shortest, ngram_max=shortest + more, lowercase=lowercase, sublinear=sublinear
    ),
    st.sampled_from(["word", "char", "char_wb"]), st.integers(1, 4), st.integers(0, 3),
    st.booleans(), st.booleans(),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(texts_made, configs_made)
def test_rows_and_terms_equal_sklearn(texts, config):
    theirs = sklearn_twin(config)
    try:
        expected = theirs.fit_transform(texts)
    except ValueError:
        with pytest.raises(BadInput, match="n-gram"):
            Tfidf(config).fit(texts)
        return
    ours = Tfidf(config)
    rows = ours.fit_transform(texts)
    assert ours.terms == theirs.get_feature_names_out().tolist()
    assert rows.dtype == np.float32
    assert rows.indices.dtype == np.int32
    expected.sort_indices()
    np.testing.assert_array_equal(rows.indptr, expected.indptr)
    np.testing.assert_array_equal(rows.indices, expected.indices)
    np.testing.assert_allclose(rows.data, expected.data, rtol=1e-6)
    np.testing.assert_allclose(ours.arrays()["idf"], theirs.idf_, rtol=1e-6)


@settings(max_examples=100, deadline=None)
@given(texts_made, st.integers(1, 3), st.sampled_from([0.3, 0.5, 0.75, 1.0]))
def test_document_frequency_limits_equal_sklearn(texts, min_df, max_df):
    config = TfidfConfig(min_df=min_df, max_df=max_df)
    assume(max_df * len(texts) >= min_df)  # sklearn refuses the rest with another message
    try:
        expected = sklearn_twin(config).fit(texts).get_feature_names_out().tolist()
    except ValueError:
        with pytest.raises(BadInput):
            Tfidf(config).fit(texts)
        return
    assert Tfidf(config).fit(texts).terms == expected


@settings(max_examples=100, deadline=None)
@given(texts_made, st.integers(1, 12))
def test_max_features_keeps_the_most_frequent(texts, n):
    counter = CountVectorizer(ngram_range=(1, 2))
    try:
        totals = np.asarray(counter.fit_transform(texts).sum(axis=0)).ravel()
    except ValueError:
        assume(False)
    total_of = dict(zip(counter.get_feature_names_out().tolist(), totals.tolist(), strict=True))
    kept = Tfidf(TfidfConfig(max_features=n)).fit(texts).terms
    assert len(kept) == min(n, len(total_of))
    assert sorted((total_of[term] for term in kept), reverse=True) == sorted(totals, reverse=True)[:n]
    assert kept == Tfidf(TfidfConfig(max_features=n)).fit(texts[::-1]).terms


def test_unseen_texts_equal_sklearn():
    config = TfidfConfig()
    new = ["beef and unknown words", "nothing here", "", "MILK milk milk, the beef market"]
    expected = sklearn_twin(config).fit(english).transform(new)
    rows = Tfidf(config).fit(english).transform(new)
    np.testing.assert_allclose(rows.toarray(), expected.toarray(), rtol=1e-6)
    assert rows[2].nnz == 0


@pytest.mark.parametrize("analyzer", ["word", "char", "char_wb"])
def test_threads_and_blocks_do_not_change_a_bit(analyzer, monkeypatch):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS + english, size=rng.integers(0, 12))) for _ in range(300)]
    config = TfidfConfig(analyzer=analyzer, ngram_max=3, max_features=500)
    one = Tfidf(config, threads=1)
    expected = one.fit_transform(texts)
    monkeypatch.setattr(vocabulary, "BLOCK_CHARS", 256)
    monkeypatch.setattr(vocabulary, "ROUND_BLOCKS", 5)
    monkeypatch.setattr(vocabulary, "NAME_BYTES", 4)
    many = Tfidf(config, threads=4)
    assert_same(many.fit_transform(texts), expected)
    assert many.terms == one.terms
    for name, array in one.arrays().items():
        np.testing.assert_array_equal(array, many.arrays()[name])
    assert_same(one.transform(texts, threads=3), expected)


@settings(max_examples=50, deadline=None)
@given(texts_made, st.sampled_from(["word", "char", "char_wb"]))
def test_one_text_equals_its_row(texts, analyzer):
    tfidf = Tfidf(TfidfConfig(analyzer=analyzer)).fit([*texts, *english])
    rows = tfidf.transform(texts)
    for row, text in enumerate(texts):
        indices, values = tfidf.transform_one(text)
        here = slice(rows.indptr[row], rows.indptr[row + 1])
        np.testing.assert_array_equal(indices, rows.indices[here])
        np.testing.assert_array_equal(values, rows.data[here])
        assert indices.dtype == np.int32
        assert values.dtype == np.float32


def test_stored_arrays_give_the_same_bits(tmp_path):
    tfidf = Tfidf()
    expected = tfidf.fit_transform(english)
    for name, array in tfidf.arrays().items():
        np.save(tmp_path / f"{name}.npy", array)
    mapped = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in tfidf.arrays()}
    loaded = Tfidf.from_arrays(tfidf.config, mapped)
    assert_same(loaded.transform(english), expected)
    assert loaded.terms == tfidf.terms
    for name, array in loaded.arrays().items():
        assert np.shares_memory(array, mapped[name])


def test_an_iterator_is_as_good_as_a_list():
    expected = Tfidf().fit_transform(english)
    tfidf = Tfidf()
    assert_same(tfidf.fit_transform(text for text in english), expected)
    assert_same(tfidf.transform(text for text in english), expected)
    assert_same(tfidf.transform(np.array(english, dtype=object)), expected)


def test_fitting_again_forgets_what_was_learned():
    tfidf = Tfidf().fit(english)
    assert "beef" in tfidf.terms
    assert tfidf.fit(["other words"]).terms == ["other", "other words", "words"]
    assert tfidf.get_feature_names_out().tolist() == tfidf.terms
    assert [tfidf.term(column) for column in range(tfidf.n_features)] == tfidf.terms


def test_progress_reaches_the_end_of_every_stage():
    seen = []
    Tfidf().fit_transform(english, lambda *report: seen.append(report))
    stages = ["count terms", "name terms", "weigh terms"]
    assert list(dict.fromkeys(stage for stage, _, _ in seen)) == stages
    assert [report for report in seen if report[1] == report[2]] == [(stage, 5, 5) for stage in stages]


@pytest.mark.parametrize("texts", ["one text", b"bytes", 7])
def test_what_is_not_a_list_of_texts_is_refused(texts):
    with pytest.raises(BadInput, match=r"must be a list of texts"):
        Tfidf().fit(texts)
    with pytest.raises(BadInput, match=r"must be a list of texts"):
        Tfidf().fit(english).transform(texts)


def test_a_text_that_is_no_text_is_named():
    message = r"text 3 is NoneType; pass a str, use '' for an empty text"
    with pytest.raises(BadInput, match=message):
        Tfidf().fit(["a", "b", "", None])
    with pytest.raises(BadInput, match=message):
        Tfidf().fit(iter(["a", "b", "", None]))
    with pytest.raises(BadInput, match=message):
        Tfidf().fit(english).transform(["a", "b", "", None])
    with pytest.raises(BadInput, match=r"the text is float"):
        Tfidf().fit(english).transform_one(float("nan"))


@pytest.mark.parametrize(("texts", "message"), [([], "got 0"), (["", "a . !"], "no word n-gram in any of 2 texts")])
def test_texts_without_terms_are_refused(texts, message):
    with pytest.raises(BadInput, match=message):
        Tfidf().fit(texts)


def test_limits_that_leave_nothing_are_refused():
    with pytest.raises(BadInput, match=r"min_df=9 and max_df=1\.0 leave no term of 5 texts"):
        Tfidf(TfidfConfig(min_df=9)).fit(english)


def test_texts_that_change_between_readings_are_refused():
    class Fickle:
        def __init__(self):
            self.versions = iter([["one thing"], ["another"]])

        def __iter__(self):
            return iter(next(self.versions, ["something else"]))

    with pytest.raises(BadInput, match="differ between two readings"):
        Tfidf().fit(Fickle())


def test_an_empty_batch_has_the_right_width():
    tfidf = Tfidf().fit(english)
    assert tfidf.transform([]).shape == (0, tfidf.n_features)
    assert tfidf.transform_one("")[0].size == 0


def test_asking_before_fitting_says_so():
    asks = (
        lambda t: t.transform(["a"]), lambda t: t.transform_one("a"), lambda t: t.terms, lambda t: t.arrays()
    )  # fmt: skip
    for ask in asks:
        with pytest.raises(NotFitted, match="fit"):
            ask(Tfidf())


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("keys", lambda a: a[:-1]),
        ("idf", lambda a: a[:-1]),
        ("idf", lambda a: a.astype(np.float64)),
        ("slots", lambda a: a[:-1]),
        ("slots", lambda a: a + 1),
        ("slots", lambda a: np.maximum(a, 0)),
        ("term_offsets", lambda a: a[:-1]),
        ("term_bytes", lambda a: a[:-1]),
        ("term_bytes", None),
    ],
)
def test_damaged_arrays_are_refused(name, damage):
    arrays = Tfidf().fit(english).arrays()
    if damage is None:
        del arrays[name]
    else:
        arrays[name] = damage(arrays[name])
    with pytest.raises(BadModelFile, match="save the model again"):
        Tfidf.from_arrays(TfidfConfig(), arrays)


def test_saved_and_loaded(tmp_path) -> None:
    path = tmp_path / "tfidf.safetensors"
    tfidf = Tfidf(TfidfConfig(ngram_max=1, sublinear=True, lowercase=False)).fit(english)
    tfidf.save(path)
    again = Tfidf.load(path, threads=1)
    assert (again.config, again.terms, again.threads) == (tfidf.config, tfidf.terms, 1)
    assert (again.transform(english) != tfidf.transform(english)).nnz == 0
    with pytest.raises(NotFitted):
        Tfidf().save(path)
    assert Tfidf.load(path).terms == tfidf.terms


def test_damaged_files_are_refused(tmp_path) -> None:
    path = tmp_path / "tfidf.safetensors"
    tfidf = Tfidf().fit(english)
    arrays, settings = tfidf.arrays(), {"umpteen.tfidf": "{}"}
    for changed, metadata, message in (
        (arrays, {}, "was not written by Tfidf.save"),
        (arrays, {"umpteen.tfidf": "{"}, "JSON"),
        (arrays, {"umpteen.tfidf": '{"ngrams": 3}'}, "settings that this version does not have"),
        (arrays | {"slots": arrays["slots"] + 1}, settings, "do not fit"),
        (arrays | {"idf": arrays["idf"][:-1]}, settings, "'idf'"),
        ({"keys": arrays["keys"]}, settings, "has no array"),
    ):
        save_tensors(path, changed, metadata)
        with pytest.raises(BadModelFile, match=message):
            Tfidf.load(path)
    tfidf.save(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(BadModelFile):
        Tfidf.load(path)
    with pytest.raises(BadModelFile, match="cannot be read: No such file"):
        Tfidf.load(tmp_path / "absent")
