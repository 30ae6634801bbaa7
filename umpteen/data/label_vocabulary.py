"""Names of labels in one or more languages, read from the file of a vocabulary.

The formats: lines of ``key<TAB>name`` as in ``label_names``, the TSV and the CSV of Annif, TSV with the header of that
CSV, and SKOS.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from umpteen.data.corpus import without_brackets
from umpteen.data.labels import Labels
from umpteen.data.lines import PACKED, open_text, plain_suffix
from umpteen.data.skos import SKOS, read_skos
from umpteen.data.tables import csv_records
from umpteen.errors import BadInput, nearest

_TAG = re.compile(r"[a-z]{2,8}(-[a-z0-9]{1,8})*")  # of a language, as in BCP 47
_COLUMN = re.compile(r"label(?:_(.+))?")
Named = tuple[str, str, str, str]  # where it stands, key, language or "", name


@dataclass(frozen=True)
class Coverage:
    """How many labels a vocabulary names in a language."""

    n_labels: int
    n_unknown: int  # not in the vocabulary
    n_other_language: int  # named in another language only
    language: str | None

    def __str__(self) -> str:
        parts = []
        if self.n_unknown:
            parts.append(f"{self.n_unknown:,} are not in the vocabulary and keep their names")
        if self.n_other_language:
            parts.append(f"{self.n_other_language:,} have no name in '{self.language}' but in another language")
        named = f"All {self.n_labels:,} labels are named by the vocabulary"
        return f"Of {self.n_labels:,} labels, {' and '.join(parts)}" if parts else named


class Vocabulary:
    """Names of labels by key and language.

    A label without a name in the wanted language gets one by this order: the same language with another region
    (``sv-FI`` for ``sv``, or the reverse), a name without a language, English, the first language of the alphabet.
    Without a wanted language the order begins with names without a language.

    Parameters
    ----------
    names
        For every key, a name per language tag, such as ``sv`` or ``en-GB``; ``""`` for a name without a language.
    source
        Where they come from, for messages.

    Examples
    --------
    >>> vocabulary = Vocabulary({"c1": {"en": "law", "sv": "juridik"}, "c2": {"en": "tax"}})
    >>> vocabulary.languages, vocabulary.name("c1", "sv"), vocabulary.name("c2", "sv")
    (['en', 'sv'], 'juridik', 'tax')
    >>> labels = vocabulary.rename(Labels(["c2", "c1"]), "sv")
    >>> labels.names(), labels.keys()
    (['tax', 'juridik'], ['c2', 'c1'])
    """

    def __init__(self, names: Mapping[str, Mapping[str, str]], source: str = "the vocabulary"):
        self._names = {
            key: {tag.lower(): name for tag, name in by_language.items()} for key, by_language in names.items()
        }
        self._source = source

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Vocabulary:
        """Read a vocabulary; the format follows from the name of the file, which may be compressed.

        ``.csv`` has a header with ``uri`` and ``label_en``, ``label_sv``, …; ``.txt`` and ``.tsv`` have the same header
        or, without one, lines ``key<TAB>name`` or ``<uri><TAB>name<TAB>notation``; ``.rdf``, ``.xml``, ``.ttl`` and
        ``.nt`` are SKOS, which needs the extra ``skos``.
        """
        path = Path(path)
        kind = plain_suffix(path)
        if kind in (".txt", ".tsv"):
            found = _table(path, "\t") if _has_header(path) else _lines(path)
            return cls(_collect(found, path), str(path))
        if kind == ".csv":
            return cls(_collect(_table(path, ","), path), str(path))
        if kind in SKOS:
            return cls(_first_in_alphabet(read_skos(path, kind), path), str(path))
        known = ", ".join((".txt", ".tsv", ".csv", *SKOS))
        raise BadInput(f"{path} is no known kind of vocabulary: a file ends in {known} (also {PACKED})")

    def __len__(self) -> int:
        return len(self._names)

    @property
    def languages(self) -> list[str]:
        """Tags of the languages in which there are names."""
        return sorted({tag for names in self._names.values() for tag in names if tag})

    def name(self, key: str, language: str | None = None) -> str | None:
        """Return the name of a label, in another language if there is none in this one; None if there is none."""
        names = self._names.get(key)
        return names[_best(names, _tag(language))] if names else None

    def rename(self, labels: Labels, language: str | None = None) -> Labels:
        """Return the labels with the same keys and the names of this vocabulary; others keep their names.

        If it has none of the keys, labels that are names in this language (in any, without one) get their keys.
        """
        self._check_language(language)
        keys = labels.keys()
        if keys and not any(key in self._names for key in keys):
            keys = self._keys_of_names(keys, _tag(language))
            if not any(key in self._names for key in keys):
                raise BadInput(
                    f"{self._source} has none of the {len(keys)} labels, such as {keys[0]!r}, as a key or as a name; "
                    "use its keys"
                )
        names = [self.name(key, language) or name for key, name in zip(keys, labels.names(), strict=True)]
        renamed = Labels(names, keys)
        renamed.separator = labels.separator
        return renamed

    def _keys_of_names(self, labels: list[str], tag: str) -> list[str]:
        """Return the keys of labels that are names of one key alone; others stay."""
        named: dict[str, set[str]] = {}
        for key, names in self._names.items():
            for other, name in names.items():
                if not tag or _fits(other, tag):
                    named.setdefault(name, set()).add(key)
        found = [next(iter(keys)) if len(keys := named.get(label, ())) == 1 else label for label in labels]
        counts = Counter(found)
        return [key if counts[key] == 1 else label for key, label in zip(found, labels, strict=True)]

    def coverage(self, labels: Labels, language: str | None = None) -> Coverage:
        """Count the labels without a name, and those with a name in another language only."""
        keys, tag = labels.keys(), _tag(language)
        found = [self._names.get(key) for key in keys]
        n_other = sum(1 for names in found if names and tag and not any(_fits(other, tag) for other in names))
        return Coverage(len(labels), sum(1 for names in found if not names), n_other, language)

    def _check_language(self, language: str | None) -> None:
        tag, known = _tag(language), self.languages
        if tag and not _TAG.fullmatch(tag):
            raise BadInput(f"a language is a tag such as sv or en-GB, but is {language!r}")
        if tag and known and not any(_fits(other, tag) for other in known):
            raise BadInput(f"{self._source} has no names in '{language}', only in {', '.join(known)}")


def _tag(language: str | None) -> str:
    return (language or "").lower()


def _primary(tag: str) -> str:
    return tag.partition("-")[0]


def _fits(tag: str, wanted: str) -> bool:
    """Return whether a name with this tag is in the wanted language; one without a tag may be in any."""
    return not tag or _primary(tag) == _primary(wanted)


def _best(tags: Mapping[str, str], wanted: str) -> str:
    return min(tags, key=lambda tag: (tag != wanted, _primary(tag) != _primary(wanted), tag != "", tag != "en", tag))


def _collect(found: Iterator[Named], path: Path) -> dict[str, dict[str, str]]:
    """Return the names by key and language; a key that occurs on two lines is refused."""
    names: dict[str, dict[str, str]] = {}
    places: dict[str, str] = {}
    for here, key, language, name in found:
        if not key:
            raise BadInput(f"{here}: the line has no key; write key<TAB>name")
        if places.setdefault(key, here) != here:
            raise BadInput(f"{here}: {key!r} was at {places[key]} already; keys must be unique")
        if name := " ".join(name.split()):  # a name never holds a tab or a line break
            names.setdefault(key, {})[language] = name
    return _unless_empty(names, path)


def _first_in_alphabet(found: Iterator[tuple[str, str, str]], path: Path) -> dict[str, dict[str, str]]:
    """Return the names by key and language; of several names in one language the first in the alphabet."""
    names: dict[str, dict[str, str]] = {}
    for key, language, name in found:
        if name := " ".join(name.split()):
            by_language = names.setdefault(key, {})
            by_language[language] = min(name, by_language.get(language, name))
    return _unless_empty(names, path)


def _unless_empty(names: dict[str, dict[str, str]], path: Path) -> dict[str, dict[str, str]]:
    if not names:
        raise BadInput(f"{path} names no label; a vocabulary needs a key and a name for each")
    return names


def _lines(path: Path) -> Iterator[Named]:
    for number, line in enumerate(open_text(path), start=1):
        if not line.strip():
            continue
        here, cells = f"{path}:{number}", line.split("\t")
        if not 2 <= len(cells) <= 3:
            raise BadInput(f"{here}: the line must be key<TAB>name[<TAB>notation], but has {len(cells)} cells")
        yield here, without_brackets(cells[0].strip()), "", cells[1]


def _has_header(path: Path) -> bool:
    """Return whether the first line of a TSV file names a column of keys and one of names."""
    columns = _column_names(next((line for line in open_text(path) if line), "").split("\t"))
    return "uri" in columns and bool(_languages(columns))


def _column_names(header: list[str]) -> list[str]:
    return [column.strip().lower() for column in header]


def _languages(columns: list[str]) -> dict[int, str]:
    """Return the language of each column of names, "" if it says none."""
    return {at: (match[1] or "") for at, column in enumerate(columns) if (match := _COLUMN.fullmatch(column))}


def _table(path: Path, delimiter: str) -> Iterator[Named]:
    records = csv_records(path, delimiter=delimiter)
    here, header = next(records)
    columns = _column_names(header)
    if "uri" not in columns:
        raise BadInput(f"{here}: a vocabulary needs a column 'uri'{nearest('uri', columns)}")
    languages = _languages(columns)
    if not languages:
        raise BadInput(f"{here}: a vocabulary needs a column of names for each language, such as 'label_en'")
    for here, record in records:
        key = without_brackets(record[columns.index("uri")].strip())
        for at, language in languages.items():
            yield here, key, language.replace("_", "-"), record[at]
