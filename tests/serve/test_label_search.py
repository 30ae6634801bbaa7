"""The search for labels by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umpteen.data.labels import Labels
from umpteen.serve import label_search
from umpteen.serve.label_search import LabelSearch

NAMES = st.lists(st.text("abAB \nß", min_size=1, max_size=6), min_size=1, max_size=30, unique=True)


def naive(names: list[str], words: str, limit: int) -> list[int]:
    """Return equal names, then prefixes, then others that contain the words."""
    folded = [name.casefold().replace("\n", " ") for name in names]
    words = words.casefold().replace("\n", " ")
    rank = [0 if one == words else 1 if one.startswith(words) else 2 for one in folded]
    found = [i for i, one in enumerate(folded) if words in one]
    return sorted(found, key=lambda i: (rank[i], i))[:limit]


@given(NAMES, st.text("abAß ", max_size=3), st.integers(1, 12))
def test_it_finds_what_a_loop_finds(names: list[str], words: str, limit: int) -> None:
    assert LabelSearch(Labels(names))(words, limit) == naive(names, words, limit)


@given(NAMES, st.text("abAß ", max_size=3))
def test_names_in_several_blocks(names: list[str], words: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_search, "_BLOCK", 5)
        patch.setattr(label_search, "_NAMES", 3)
        assert LabelSearch(Labels(names))(words, 100) == naive(names, words, 100)


def test_numbered_labels() -> None:
    assert LabelSearch(Labels.numbered(200))("19", 4) == [19, 190, 191, 192]


def test_no_labels() -> None:
    assert LabelSearch(Labels([]))("x", 4) == []
