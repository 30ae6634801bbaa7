"""Exceptions. Each also inherits from the builtin that a caller would expect, such as ``ValueError``."""

import difflib
from collections.abc import Iterable


class UmpteenError(Exception):
    """Base class of all exceptions of this library."""


class BadInput(UmpteenError, ValueError):
    """Data that cannot be used as given: shapes that disagree, NaN, an unreadable line."""


class BadConfig(UmpteenError, ValueError):
    """A setting that does not exist or is out of its range."""


class NotFitted(UmpteenError, ValueError, AttributeError):
    """A model that is used before it is fitted."""


class BadModelFile(UmpteenError, ValueError):
    """A model folder that is missing, truncated, foreign or newer than this version."""


class OutOfMemory(UmpteenError, MemoryError):
    """The device is out of memory; the message names the setting to lower."""


class RankFailed(UmpteenError, RuntimeError):
    """Another process of a training by several has ended or cannot be reached."""


class MissingExtra(UmpteenError, ImportError):
    """An optional package is needed; the message names the extra to install."""

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(f"{purpose} needs the package '{package}': pip install 'umpteen[{extra}]'")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known word, or an empty string."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{found[0]}'?" if found else ""
