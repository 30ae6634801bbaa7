"""The embedded demo data: complete, aligned, small."""

from __future__ import annotations

import lzma
from collections import Counter
from importlib.resources import files

import pytest

DEMO = files("umpteen") / "data" / "demo"
PARTS = ("train", "test")


def lines(name: str) -> list[str]:
    text = lzma.decompress((DEMO / f"{name}.txt.xz").read_bytes()).decode()
    assert text.endswith("\n")
    return text[:-1].split("\n")


@pytest.fixture(scope="module")
def demo() -> dict[str, list[str]]:
    return {name: lines(name) for part in PARTS for name in (f"{part}_texts", f"{part}_labels")}


@pytest.fixture(scope="module")
def names() -> dict[str, str]:
    return dict(line.split("\t") for line in lines("label_names"))


def test_all_files_together_are_small():
    sizes = {entry.name: len(entry.read_bytes()) for entry in DEMO.iterdir()}
    assert sizes.keys() == {
        "PROVENANCE.md",
        "label_names.txt.xz",
        *(f"{part}_{kind}.txt.xz" for part in PARTS for kind in ("texts", "labels")),
    }
    assert sum(sizes.values()) <= 2_000_000


@pytest.mark.parametrize("part", PARTS)
def test_every_text_has_labels(demo, part):
    texts, labels = demo[f"{part}_texts"], demo[f"{part}_labels"]
    assert len(texts) == len(labels) > 1000
    for text, row in zip(texts, labels, strict=True):
        assert text == " ".join(text.split()) != ""
        assert row.split() == sorted(set(row.split())) != []


def test_no_text_occurs_twice(demo):
    texts = demo["train_texts"] + demo["test_texts"]
    assert len(set(texts)) == len(texts)


def test_a_tenth_is_held_out(demo):
    n_test, n_train = len(demo["test_texts"]), len(demo["train_texts"])
    assert 0.08 < n_test / (n_test + n_train) < 0.12


def test_every_label_has_a_name_and_enough_documents(demo, names):
    counts = Counter(label for row in demo["train_labels"] for label in row.split())
    assert counts.keys() == names.keys()
    assert min(counts.values()) >= 2
    assert {label for row in demo["test_labels"] for label in row.split()} <= names.keys()
    assert all("::" in label for label in names)
    assert len(set(names.values())) == len(names)
    assert names["works-with::image"] == "works with: image"


def test_the_note_has_the_counts(demo, names):
    note = (DEMO / "PROVENANCE.md").read_text()
    for part in PARTS:
        assert f"| {part} | {len(demo[f'{part}_texts']):,} |" in note
    assert f"| {len(names):,} |" in note
