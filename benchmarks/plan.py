"""What is measured: datasets, variants of the peers and of umpteen, and the order of the jobs.

The two tables at the top are all there is to change. Knows nothing about how a job is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

K = 5
BEAM = 10
THREADS = 2
PROPENSITY = (0.55, 1.5)  # A and B of PSP@k, for every dataset

TFIDF = {"ngram_min": 1, "ngram_max": 2, "max_features": 200_000, "sublinear": True}


@dataclass(frozen=True)
class DatasetPlan:
    """Which rows of a dataset are used; texts become tf-idf rows with ``TFIDF``."""

    name: str
    title: str
    folder: str
    train_rows: int | None = None
    test_rows: int | None = None


DATASETS = (
    DatasetPlan("eurlex-4k", "Eurlex-4K, bag of words", "Eurlex-4K-bow"),
    DatasetPlan("eurlex57k", "EURLEX57K, tf-idf of 1–2 grams", "EURLEX57K"),
    DatasetPlan("yso-finna-en", "YSO-Finna-en titles, tf-idf of 1–2 grams", "YSO-Finna-en", 150_000, 10_000),
    DatasetPlan("debian-depends", "Debian-Depends, tf-idf of 1–2 grams", "Debian-Depends"),
    DatasetPlan("debian-debtags", "Debian-Debtags, tf-idf of 1–2 grams", "Debian-Debtags"),
    DatasetPlan("reverse-dictionary", "ReverseDictionary, tf-idf of 1–2 grams", "ReverseDictionary"),
    DatasetPlan("delicious", "delicious, bag of words", "delicious-bow"),
    DatasetPlan("bibtex", "bibtex, bag of words", "bibtex-bow"),
)
ALL = tuple(dataset.name for dataset in DATASETS)
SMALL = ("eurlex-4k",)
EMBEDDED = ("eurlex-4k", "delicious", "bibtex")
NONE: tuple[str, ...] = ()

# peers train on all rows and have no probabilities
ALL_ROWS: dict[str, Any] = {"calibration.rows": 0}

# xr-linear as docs/benchmarks.md calls "best settings": leaves trained on
# nearly all rows and ranked by their own margin: one-versus-all quality at a tree's price
BEST_SETTINGS: dict[str, Any] = {
    "linear.negatives": "tfn+man",
    "linear.negatives_beam": 24,
    "linear.eps": 0.04,
    "linear.max_iter": 60,
    "linear.threshold": 0.05,
    "search.beam": 20,
    "search.leaf_post": "identity",
}

# PECOS's command-line defaults
PECOS_TREE = {"nr_splits": 16, "max_leaf_size": 100, "negative_sampling_scheme": "tfn", "threshold": 0.1}


@dataclass(frozen=True)
class Variant:
    """One row of the tables: a peer with settings."""

    name: str
    title: str
    runner: str  # peers/<runner>_run.py, and the environment it runs in
    settings: Mapping[str, Any] = field(default_factory=dict)
    datasets: tuple[str, ...] = ALL
    full_datasets: tuple[str, ...] = ALL  # with --full
    ways: tuple[str, ...] = ("default",)  # of loading the model, each measured
    is_slow: bool = False  # fitted once, whatever --repeat says; left out by --quick


VARIANTS = (
    Variant("umpteen", "**umpteen xr-linear**", "umpteen", {"recipe": "xr-linear", **ALL_ROWS}),
    Variant("pecos", "PECOS XR-Linear", "pecos", PECOS_TREE, ways=("default", "hash", "mmap")),
    Variant("omikuji", "omikuji, 1 tree", "omikuji", {"n_trees": 1}),
    Variant(
        "umpteen-best",
        "**umpteen xr-linear**, best settings",
        "umpteen",
        {"recipe": "xr-linear", **ALL_ROWS, **BEST_SETTINGS},
        datasets=SMALL,
        full_datasets=SMALL,
    ),
    Variant("napkinxc", "napkinXC PLT", "napkinxc", datasets=SMALL),
    Variant(
        "napkinxc-l2",
        "napkinXC PLT, squared hinge",
        "napkinxc",
        {"loss": "l2", "liblinear_c": 1},
        datasets=NONE,
    ),
    Variant(
        "umpteen-dismec",
        "**umpteen dismec** (one versus all)",
        "umpteen",
        {"recipe": "dismec", **ALL_ROWS},
        datasets=SMALL,
        full_datasets=SMALL,
    ),
    Variant(
        "umpteen-extremetext",
        "**umpteen extremetext**",
        "umpteen",
        {"recipe": "extremetext", **ALL_ROWS},
        datasets=EMBEDDED,
        full_datasets=EMBEDDED,
    ),
    Variant(
        "pecos-ova",
        "PECOS one versus all",
        "pecos",
        {"ova": True, "threshold": 0.1},
        datasets=SMALL,
        full_datasets=SMALL,
        is_slow=True,
    ),
)
WAY_TITLES = {"hash": "hash chunks", "mmap": "memory-mapped"}


@dataclass(frozen=True)
class Job:
    """One process: a variant, a stage, a way of loading, and which repetition."""

    dataset: str
    variant: Variant
    stage: str
    way: str = "default"
    turn: int = 0

    def __str__(self) -> str:
        way = "" if self.way == "default" else f" ({self.way})"
        return f"{self.dataset}: {self.variant.name} {self.stage}{way}, turn {self.turn + 1}"


def dataset_plan(name: str) -> DatasetPlan:
    """Return the plan of a dataset by its name."""
    for plan in DATASETS:
        if plan.name == name:
            return plan
    raise SystemExit(f"unknown dataset '{name}'; choose from {', '.join(ALL)}")


def variants_for(dataset: str, full: bool = False, quick: bool = False) -> list[Variant]:
    """Return the variants measured on a dataset."""
    chosen = [v for v in VARIANTS if dataset in (v.full_datasets if full else v.datasets)]
    return [v for v in chosen if not (quick and v.is_slow)]


def jobs(dataset: str, variants: Sequence[Variant], repeat: int) -> Iterator[Job]:
    """List the jobs in order: variants take turns, so that a slow minute of the machine hits all alike."""
    for turn in range(repeat):
        for variant in variants:
            if turn == 0 or not variant.is_slow:
                yield Job(dataset, variant, "fit", turn=turn)
    for stage in ("batch", "single"):
        for turn in range(repeat):
            for variant in variants:
                for way in variant.ways:
                    yield Job(dataset, variant, stage, way, turn)
