"""Make the embedded demo data: Debian package descriptions and their Debtags, from apt's own lists.

    apt-get update -o Acquire::Languages=en
    python scripts/make_demo_data.py

Descriptions and tags are what the machine's package lists say; the same lists give the same bytes. Needs a
Debian system (``apt-helper`` unpacks the lists), writes ``umpteen/data/demo`` and knows nothing about models.
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path

APT_HELPER = "/usr/lib/apt/apt-helper"
DEMO = Path(__file__).resolve().parents[1] / "umpteen" / "data" / "demo"
MIN_DOCUMENTS = 2  # training documents a label needs
TEST_SHARE = 10  # one source package in so many is held out

# What a text cannot tell: the part a package plays in the archive, and how large the program is.
DROPPED_FACETS = {"role", "scope"}
# Tags that follow from names and dependencies; where there are no others, nobody seems to have looked.
MECHANICAL = re.compile(r"devel::library|uitoolkit::.*")

FACET_NAMES = {
    "admin": "administration",
    "devel": "development",
    "implemented-in": "implemented in",
    "iso15924": "script",
    "junior": "for children",
    "made-of": "made of",
    "uitoolkit": "interface toolkit",
    "works-with": "works with",
    "works-with-format": "works with format",
    "x11": "X11",
}

# Plain text packs about two percent better with more literal context and no position bits.
XZ = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]


@dataclass
class Document:
    """One text, the source packages it describes, and its tags."""

    text: str
    sources: set[str] = field(default_factory=set)
    tags: set[str] = field(default_factory=set)

    @property
    def source(self) -> str:
        return min(self.sources)

    @property
    def is_test(self) -> bool:
        """Binary packages of one source share sentences, so a source is held out as a whole."""
        return digest(self.source) % TEST_SHARE == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lists", type=Path, default=Path("/var/lib/apt/lists"), help="folder of apt's lists")
    parser.add_argument("--out", type=Path, default=DEMO, help="folder to write")
    parser.add_argument("--budget", type=int, default=1_900_000, help="most bytes of all files together")
    options = parser.parse_args()

    documents = read_documents(options.lists)
    n_tagged, n_tags = len(documents), len({tag for document in documents for tag in document.tags})
    documents = keep_informative(documents)
    files, train, test = fit_budget(documents, options.budget)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (options.out / name).write_bytes(content)
    table = describe(train, test)
    suites = ", ".join(f"{suite} ({date})" for suite, date in suites_and_dates(options.lists))
    note = provenance(suites, f"{n_tagged:,} different tagged descriptions with {n_tags:,} tags", files, table)
    (options.out / "PROVENANCE.md").write_text(note)
    print(table)
    print(f"{sum(map(len, files.values())):,} bytes in {options.out}")


def read_documents(lists: Path) -> list[Document]:
    """Read every tagged package; packages with the same description become one document."""
    translations = {}
    for path in find_lists(lists, "Translation-en"):
        for entry in paragraphs(path):
            translations[entry["Package"], entry["Description-md5"]] = entry["Description-en"]
    documents: dict[str, Document] = {}
    n_short = 0
    for path in find_lists(lists, "Packages"):
        for entry in paragraphs(path):
            if "Tag" not in entry:
                continue
            description = translations.get((entry["Package"], entry.get("Description-md5", "")))
            n_short += description is None
            text = one_line(description or entry.get("Description", ""))
            document = documents.setdefault(text, Document(text))
            document.sources.add(entry.get("Source", entry["Package"]).split()[0])
            document.tags.update(tag.strip() for tag in entry["Tag"].replace("\n", " ").split(","))
    if n_short * 2 > len(documents):
        raise SystemExit(
            f"{lists} holds tags of {len(documents)} texts but the long description of few; "
            "run: apt-get update -o Acquire::Languages=en"
        )
    return list(documents.values())


def find_lists(lists: Path, kind: str) -> list[Path]:
    """Find apt's lists of one kind, packed or not."""
    return sorted(path for path in lists.iterdir() if re.search(rf"_{kind}(\.\w+)?$", path.name))


def paragraphs(path: Path) -> Iterator[dict[str, str]]:
    """Yield the fields of every paragraph of a list."""
    content = subprocess.run([APT_HELPER, "cat-file", str(path)], check=True, capture_output=True).stdout
    for paragraph in content.decode().split("\n\n"):
        fields: dict[str, str] = {}
        key = ""
        for line in paragraph.splitlines():
            if line[0] in " \t":
                fields[key] += f"\n{line}"
            else:
                key, _, value = line.partition(":")
                fields[key] = value.strip()
        if fields:
            yield fields


def one_line(description: str) -> str:
    """Join the short and the long description; a lone dot is an empty line in Debian's files."""
    return " ".join(word for line in description.split("\n") if line.strip() != "." for word in line.split())


def keep_informative(documents: Iterable[Document]) -> list[Document]:
    """Drop tags that say nothing about a text, and texts that keep no tag a person chose."""
    kept = []
    for document in documents:
        document.tags = {
            tag for tag in document.tags if tag.partition("::")[0] not in DROPPED_FACETS and not tag.endswith("::TODO")
        }
        if document.text and not all(MECHANICAL.fullmatch(tag) for tag in document.tags):
            kept.append(document)
    return kept


def fit_budget(documents: list[Document], budget: int) -> tuple[dict[str, bytes], list[Document], list[Document]]:
    """Take as many documents as fit, in the order of their names' digests, and pack them."""
    documents = sorted(documents, key=lambda document: (digest(document.source), digest(document.text)))
    n = len(documents)
    while True:
        train, test = split(documents[:n])
        files = pack(train, test)
        size = sum(map(len, files.values()))
        if size <= budget:
            return files, train, test
        n = min(n - 1, int(n * budget / size))


def split(documents: Sequence[Document]) -> tuple[list[Document], list[Document]]:
    """Hold out a share of the source packages, then drop labels without enough training documents."""
    train = [document for document in documents if not document.is_test]
    counts = Counter(tag for document in train for tag in document.tags)
    known = {tag for tag, count in counts.items() if count >= MIN_DOCUMENTS}
    rows = [Document(document.text, document.sources, document.tags & known) for document in documents]
    rows = sorted((row for row in rows if row.tags), key=lambda row: digest(row.text))
    return [row for row in rows if not row.is_test], [row for row in rows if row.is_test]


def pack(train: Sequence[Document], test: Sequence[Document]) -> dict[str, bytes]:
    """Return every file's content by name."""
    lines: dict[str, Iterable[str]] = {}
    for part, documents in (("train", train), ("test", test)):
        lines[f"{part}_texts"] = (document.text for document in documents)
        lines[f"{part}_labels"] = (" ".join(sorted(document.tags)) for document in documents)
    tags = {tag for document in train for tag in document.tags}
    lines["label_names"] = (f"{tag}\t{readable(tag)}" for tag in sorted(tags))
    return {
        f"{name}.txt.xz": lzma.compress("".join(f"{line}\n" for line in content).encode(), filters=XZ)
        for name, content in lines.items()
    }


def readable(tag: str) -> str:
    """Spell out a tag: ``works-with::image:raster`` becomes "works with: image, raster"."""
    facet, _, value = tag.partition("::")
    words = value.replace("lang:", "").replace("-", " ").replace(":", ", ")
    return f"{FACET_NAMES.get(facet, facet)}: {words}"


def digest(name: str) -> int:
    """Return a number that depends on the name alone."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def suites_and_dates(lists: Path) -> list[tuple[str, str]]:
    """Return the suites that have tagged packages, with the dates of their lists."""
    found = {}
    for path in find_lists(lists, "Packages"):
        prefix, _, suite = path.name.partition("_dists_")
        suite = suite.partition("_")[0]
        release = lists / f"{prefix}_dists_{suite}_InRelease"
        if not release.exists() or "\nOrigin: Debian\n" not in (text := release.read_text()):
            continue
        date = re.search(r"^Date: (.*)$", text, re.MULTILINE)
        found[suite] = parsedate_to_datetime(date[1]).date().isoformat() if date else "undated"
    return sorted(found.items())


def describe(train: Sequence[Document], test: Sequence[Document]) -> str:
    """Count what a reader wants to know, as a Markdown table."""
    rows = [
        "| part | documents | labels | labels per document | words per document |",
        "|---|---|---|---|---|",
    ]
    for name, part in (("train", train), ("test", test)):
        labels = {tag for document in part for tag in document.tags}
        n_labels = sum(len(document.tags) for document in part) / len(part)
        n_words = sum(len(document.text.split()) for document in part) / len(part)
        rows.append(f"| {name} | {len(part):,} | {len(labels):,} | {n_labels:.2f} | {n_words:.1f} |")
    return "\n".join([*rows, "", *facets(train)])


def facets(train: Sequence[Document]) -> list[str]:
    """List the facets with their labels and how often they occur."""
    labels: dict[str, Counter[str]] = defaultdict(Counter)
    for document in train:
        for tag in document.tags:
            labels[tag.partition("::")[0]][tag] += 1
    rows = ["| facet | labels | occurrences in train | most frequent |", "|---|---|---|---|"]
    for facet, counts in sorted(labels.items(), key=lambda item: -item[1].total()):
        top = ", ".join(f"`{tag.partition('::')[2]}`" for tag, _ in counts.most_common(3))
        rows.append(f"| `{facet}::` | {len(counts)} | {counts.total():,} | {top} |")
    return rows


def provenance(suites: str, before: str, files: dict[str, bytes], table: str) -> str:
    """Return the note that goes with the data."""
    sizes = "\n".join(f"| `{name}` | {len(content):,} |" for name, content in files.items())
    return f"""# Demo data: Debian package descriptions and their Debtags

Real texts with real labels, small enough to ship: the description of a Debian package is to be tagged with
its [Debtags](https://wiki.debian.org/Debtags), such as `use::editing` or `works-with::image`. Meant for
trying things out; not a benchmark of the literature.

## Source

The package lists of the Debian archive, component main, architecture amd64, as apt keeps them:
{suites}. Made by

    apt-get update -o Acquire::Languages=en
    python scripts/make_demo_data.py

The same lists give the same bytes. They held {before}.

## What was done

- A text is the short and the long description on one line, without the package's name. Packages with the
  same text are one document with the tags of all of them.
- Labels are the `Tag:` field. Left out are the facets `role::` (the part a package plays in the archive) and
  `scope::` (how large a program is), which a description does not tell and which would crowd out the tags
  people look for, and `...::TODO` (a note between taggers).
- Documents whose only tags are `devel::library` or `uitoolkit::...` are left out: such tags follow from names
  and dependencies, and alone suggest that nobody has looked at the package. On other documents they stay.
- One source package in {TEST_SHARE} is held out for the test part, chosen by a digest of its name; packages
  from one source share sentences, so they stay together.
- Labels with fewer than {MIN_DOCUMENTS} training documents are left out, then documents without labels.
- Label names are spelled out from the tags by the script.

Tags are the work of volunteers and incomplete: a good prediction may count as wrong.

## Licence

The texts and tags are metadata of the Debian archive, for which no separate licence is stated. Descriptions
are part of the packages they describe, all of which are free software by the Debian Free Software
Guidelines; their authors keep their rights. The licence of this library does not extend to them.

## Contents

{table}

`train_texts` and `train_labels` (and the same for `test`) have one document a line; labels are separated by
blanks. `label_names` has a label and its name a line, separated by a tab.

| file | bytes |
|---|---|
{sizes}
"""


if __name__ == "__main__":
    main()
