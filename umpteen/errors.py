"""What can go wrong, in words: every message states the rule, the value and the remedy.

Each error also inherits the builtin a caller would expect, so ``except ValueError`` keeps working.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UmpteenError(Exception):
    """Base of every error this library raises on purpose."""


class BadInput(UmpteenError, ValueError):
    """Data that cannot be used as given: shapes that disagree, NaN, an unreadable line."""


class BadConfig(UmpteenError, ValueError):
    """A setting that does not exist or is out of its range."""


class NotFitted(UmpteenError, ValueError, AttributeError):
    """A model that was asked to predict before it was trained."""


class BadModelFile(UmpteenError, ValueError):
    """A model folder that is missing, truncated, foreign or newer than this version."""


class OutOfMemory(UmpteenError, MemoryError):
    """A device without room; the message names the setting to lower."""


class MissingExtra(UmpteenError, ImportError):
    """An optional package is needed; the message names the extra to install."""

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(f"{purpose} needs the package '{package}': pip install 'umpteen[{extra}]'")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known word, or an empty string."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{found[0]}'?" if found else ""
