"""Find the words of a text, and which of them the terms of tf-idf consist of.

tf-idf itself creates no strings (:mod:`umpteen.kernels.text`); what is here is for a single text, to show where its
terms are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from umpteen.config import TfidfConfig

_WORD, _TERM_WORD, _SPACES, _TOKEN = (re.compile(pattern) for pattern in (r"\w+", r"\w\w+", r"\s\s+", r"\S+"))

Places = dict[str, list[tuple[int, ...]]]  # term -> its occurrences, each the numbers of the words it consists of


class Span(NamedTuple):
    """A word of a text: ``text[start:end]``."""

    start: int
    end: int


def find_words(text: str) -> list[Span]:
    """Return the runs of letters, digits and underscores.

    Examples
    --------
    >>> find_words("a red-hot plum")
    [Span(start=0, end=1), Span(start=2, end=5), Span(start=6, end=9), Span(start=10, end=14)]
    """
    return [Span(*found.span()) for found in _WORD.finditer(text)]


def place_terms(text: str, config: TfidfConfig) -> Places:
    """Return all n-grams of a text, and which of its words each occurrence consists of.

    Examples
    --------
    >>> place_terms("Red plum, red", TfidfConfig())
    {'red': [(0,), (2,)], 'plum': [(1,)], 'red plum': [(0, 1)], 'plum red': [(1, 2)]}
    """
    folded, owners = _folded(text, config.lowercase)
    if config.analyzer == "word":
        return _collect([_word_units(folded, owners)], config, " ")
    if config.analyzer == "char":
        return _collect([_char_units(folded, owners)], config, "")
    return _collect(_padded_units(folded, owners), config, "", is_padded=True)


def sum_by_word(contributions: Mapping[str, float], places: Places, n_words: int) -> np.ndarray:
    """Distribute the contribution of each term evenly over its occurrences and their words; return sums (n_words,).

    Examples
    --------
    >>> places = place_terms("red plum", TfidfConfig())
    >>> sum_by_word({"red": 1.0, "red plum": 0.5}, places, 2).tolist()
    [1.25, 0.25]
    """
    sums = np.zeros(n_words)
    for term, contribution in contributions.items():
        occurrences = [words for words in places.get(term, ()) if words]
        for words in occurrences:
            sums[list(words)] += contribution / (len(occurrences) * len(words))
    return sums


Unit = tuple[str, int]  # a word or a character, and the number of the word that it belongs to; -1 for none


def _folded(text: str, lowercase: bool) -> tuple[str, list[int]]:
    """Return a text in lower case, and the number of the word that each character of it belongs to."""
    owners = np.full(len(text), -1)
    for number, (start, end) in enumerate(find_words(text)):
        owners[start:end] = number
    if not lowercase:
        return text, owners.tolist()
    return text.lower(), np.repeat(owners, [len(char.lower()) for char in text]).tolist()  # one may become two


def _word_units(text: str, owners: list[int]) -> list[Unit]:
    return [(found[0], owners[found.start()]) for found in _TERM_WORD.finditer(text)]


def _char_units(text: str, owners: list[int]) -> list[Unit]:
    """Return all characters, and a space for several white-space characters."""
    units: list[Unit] = []
    at = 0
    for found in _SPACES.finditer(text):
        units += [*zip(text[at : found.start()], owners[at : found.start()], strict=True), (" ", -1)]
        at = found.end()
    return units + list(zip(text[at:], owners[at:], strict=True))


def _padded_units(text: str, owners: list[int]) -> list[list[Unit]]:
    """Return the characters of each run without white space, with a space on both sides."""
    spans = (found.span() for found in _TOKEN.finditer(text))
    return [[(" ", -1), *zip(text[start:end], owners[start:end], strict=True), (" ", -1)] for start, end in spans]


def _collect(sequences: list[list[Unit]], config: TfidfConfig, joint: str, *, is_padded: bool = False) -> Places:
    places: Places = {}
    for units in sequences:
        for first, last in _ngrams(len(units), config, is_padded):
            term = joint.join(unit for unit, _ in units[first:last])
            owners = dict.fromkeys(number for _, number in units[first:last] if number >= 0)
            places.setdefault(term, []).append(tuple(owners))
    return places


def _ngrams(n_units: int, config: TfidfConfig, is_padded: bool) -> Iterator[tuple[int, int]]:
    """Yield the ends of all n-grams; a padded word that is shorter than the shortest one counts once."""
    if is_padded and n_units < config.ngram_min:
        yield 0, n_units
    for size in range(config.ngram_min, min(config.ngram_max, n_units) + 1):
        for first in range(n_units - size + 1):
            yield first, first + size
