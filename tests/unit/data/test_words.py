"""Words of a text, and the terms of tf-idf that consist of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.config import TfidfConfig
from umpteen.data.tfidf import Tfidf
from umpteen.data.words import find_words, place_terms, sum_by_word

TEXTS = st.text(st.sampled_from([*"abcXYZ_1é Σσς\t\n-.,ßİ中"]), max_size=40)
CONFIGS: list[dict[str, Any]] = [
    {},
    {"lowercase": False, "ngram_max": 3},
    {"analyzer": "char", "ngram_min": 1, "ngram_max": 3},
    {"analyzer": "char_wb", "ngram_min": 2, "ngram_max": 4},
]


@pytest.mark.parametrize("changes", CONFIGS, ids=str)
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_every_term_that_tfidf_counts_has_its_places(changes: dict[str, Any], text: str) -> None:
    config = TfidfConfig(sublinear=False, **changes)
    tfidf = Tfidf(config, threads=1).fit(["xx xx", f"xx {text} xx"])
    places = place_terms(f"xx {text} xx", config)
    columns, values = tfidf.transform_one(f"xx {text} xx")
    assert set(places) == {tfidf.term(column) for column in columns}
    counts = values / tfidf.arrays()["idf"][columns]
    counts /= counts.min() / min(len(found) for found in places.values())
    for column, count in zip(columns, counts, strict=True):
        assert len(places[tfidf.term(column)]) == pytest.approx(count, rel=1e-3)


@given(text=TEXTS, seed=st.integers(0, 99))
def test_contributions_of_words_add_up_to_those_of_terms(text: str, seed: int) -> None:
    words, places = find_words(text), place_terms(text, TfidfConfig())
    found = dict(zip(places, np.random.default_rng(seed).normal(size=len(places)), strict=True))
    sums = sum_by_word(found, places, len(words))
    assert len(sums) == len(words)
    assert sums.sum() == pytest.approx(sum(found.values()), abs=1e-9)


def test_characters_belong_to_the_words_that_they_are_in() -> None:
    places = place_terms("ab, cd", TfidfConfig(analyzer="char", ngram_min=2, ngram_max=4))
    assert places["b, c"] == [(0, 1)]
    assert places[", "] == [()]
    assert sum_by_word({", ": 1.0, "b, c": 1.0}, places, 2).tolist() == [0.5, 0.5]
