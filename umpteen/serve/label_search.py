"""Search for labels by name: equal names first, then prefixes, then names that contain the words.

Names are joined, in lower case, into blocks of text that ``str.find`` scans at the speed of memory. A block is small
enough that other threads do not wait long for the interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from umpteen.data.labels import Labels

_BLOCK = 1 << 19  # characters that are scanned at a time: a fraction of a millisecond
_NAMES = 4096  # names that are taken from the vocabulary at a time


class LabelSearch:
    """An index of the names of labels.

    Examples
    --------
    >>> search = LabelSearch(Labels(["Tax law", "Income tax", "tax", "Trade"]))
    >>> search("TAX", 10)
    [2, 0, 1]
    """

    def __init__(self, labels: Labels):
        self._blocks: list[tuple[int, str, np.ndarray]] = []  # number of the first name, names, where each begins
        for first, names in _in_blocks(labels):
            lengths = np.fromiter(map(len, names), np.int64, len(names)) + 1
            starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
            self._blocks.append((first, "\n" + "\n".join(names) + "\n", starts))

    def __call__(self, words: str, limit: int) -> list[int]:
        """Return the numbers of up to ``limit`` labels, best matches first."""
        words = _folded(words)
        found: dict[int, None] = {}
        for pattern in (f"\n{words}\n", f"\n{words}", words):
            if pattern:
                self._collect(pattern, limit, found)
        return list(found)

    def _collect(self, pattern: str, limit: int, found: dict[int, None]) -> None:
        for first, text, starts in self._blocks:
            position = 0
            while len(found) < limit and (position := text.find(pattern, position)) >= 0:
                number = int(np.searchsorted(starts, position, side="right")) - 1
                found[first + number] = None
                position = int(starts[number + 1]) if number + 1 < len(starts) else len(text)
            if len(found) >= limit:
                return


def _in_blocks(labels: Labels) -> Iterator[tuple[int, list[str]]]:
    """Yield the names in lower case, as many as make a block."""
    first, names, size = 0, [], 0
    for begin in range(0, len(labels), _NAMES):
        for name in labels.names(range(begin, min(begin + _NAMES, len(labels)))):
            names.append(_folded(name))
            size += len(names[-1]) + 1
            if size >= _BLOCK:
                yield first, names
                first, names, size = first + len(names), [], 0
    if names:
        yield first, names


def _folded(name: str) -> str:
    """Return a name without differences of case; a line break would end it."""
    return name.casefold().replace("\n", " ")
