"""Data with a known structure, and every recipe fitted on it once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.config import NeuralConfig
from umpteen.data.labels import Labels
from umpteen.models import RECIPES, Model, create

N_TOPICS, N_PER_TOPIC = 6, 10
N_LABELS = N_TOPICS * N_PER_TOPIC
SMALL = {"tree.leaf_size": 8, "tree.branching": 4, "threads": 1}  # several levels over sixty labels
LEARN = {
    "tree.kind": "halving", "encoder.max_length": 16, "encoder.device": "cpu", "network.branching": 8,
    "training.epochs": (1.0, 1.0), "training.batch_size": 100, "training.learning_rate": 1e-3,
    "training.head_learning_rate": 1e-2,
}  # fmt: skip
LEARN_AT_ONCE = {
    "encoder.max_length": 16, "encoder.device": "cpu", "network.levels": (6, 15), "network.pooling": "mean",
    "network.beam": (4,),
    "network.dropout": (0.1,), "training.epochs": 8.0, "training.batch_size": 32,
    "training.learning_rate": 3e-3, "training.head_learning_rate": 3e-2,
}  # fmt: skip
NEURAL = [name for name, recipe in RECIPES.items() if issubclass(recipe.config_class, NeuralConfig)]
NETS = [name for name in NEURAL if not RECIPES[name].defaults().is_recursive]
LINEAR = [name for name in RECIPES if name not in NEURAL]
needs_torch = pytest.mark.skipif(
    not (find_spec("torch") and find_spec("transformers")), reason="torch is not installed"
)
RANKED = [name for name in RECIPES if name not in NETS or RECIPES[name].defaults().ranker]  # by linear scorers
FLAT = ("dismec", "full", "xml-cnn")  # without clusters of labels


def params(names: Iterable[str]) -> list[Any]:
    """Return recipes as parameters of a test; those that need torch are skipped where it is not installed."""
    return [pytest.param(name, marks=[] if name in LINEAR else needs_torch) for name in names]


LEARN_OTHERWISE = {
    "full": {"training.full_head_learning_rate": 1.0},
    "xr-transformer": {"fusion": (1.0, 0.5, 0.0)},  # given, so that the encoder is kept where words say it all
    "extremetext": {
        "network.pooling": "", "training.epochs": 15.0, "training.learning_rate": 0.3,
        "training.head_learning_rate": 0.3, "network.hidden": 32, "network.dropout": 0.0,
    },
    "attentionxml": {
        "network.levels": (15,), "network.hidden": 32, "training.epochs": 8.0, "training.learning_rate": 2e-2,
    },
    "xml-cnn": {
        "network.levels": (), "network.hidden": 64, "network.bottleneck": 128, "training.epochs": 14.0,
        "training.learning_rate": 1e-2,
        "training.head_learning_rate": 6e-3,
    },
}  # fmt: skip


BRIEFLY = {"training.epochs": 1.0}  # where what a network learns does not matter


def learning(recipe: str) -> dict[str, Any]:
    """Return settings with which a recipe learns made data in a second or two."""
    if recipe not in NETS:
        return LEARN | LEARN_OTHERWISE.get(recipe, {})
    return LEARN_AT_ONCE | LEARN_OTHERWISE.get(recipe, {})


@dataclass(frozen=True)
class Made:
    """Texts whose labels are given away by keywords: ten labels to a topic, one to three labels to a text."""

    texts: list[str]
    lists: list[list[str]]
    labels: Labels
    Y: sp.csr_matrix

    def __len__(self) -> int:
        return len(self.texts)


def make(n_rows: int, seed: int) -> Made:
    """Write texts: two of the three keywords of each label, a word of each topic, and noise."""
    rng = np.random.default_rng(seed)
    names = [f"label {label:02}" for label in range(N_LABELS)]
    texts, lists = [], []
    for row in range(n_rows):
        topic = rng.integers(N_TOPICS)
        chosen = topic * N_PER_TOPIC + rng.choice(N_PER_TOPIC, rng.integers(1, 4), replace=False)
        chosen = {row % N_LABELS} if row < N_LABELS else set(chosen.tolist())  # every label occurs
        words = [f"key{label}x{part}" for label in chosen for part in rng.choice(3, 2, replace=False)]
        words += [f"topic{label // N_PER_TOPIC}" for label in chosen]
        words += [f"noise{number}" for number in rng.integers(0, 200, 6)]
        rng.shuffle(words)
        texts.append(" ".join(words))
        lists.append(sorted(names[label] for label in chosen))
    labels = Labels(names)
    return Made(texts, lists, labels, labels.encode(lists))


@pytest.fixture(scope="session")
def made() -> Made:
    """The training data."""
    return make(600, seed=1)


@pytest.fixture(scope="session")
def held_out() -> Made:
    """Texts that were not trained on."""
    return make(150, seed=2)


@pytest.fixture(scope="session")
def settings_of(request: pytest.FixtureRequest) -> Callable[[str], dict[str, Any]]:
    """Return settings that make a recipe small: several levels, and a tiny encoder if it has one."""

    def get(recipe: str) -> dict[str, Any]:
        if recipe in LINEAR:
            return SMALL
        encoder = {"encoder.name": str(request.getfixturevalue("encoder_folder"))}
        return SMALL | encoder | learning(recipe)

    return get


@pytest.fixture(scope="session")
def small(settings_of: Callable[[str], dict[str, Any]]) -> Callable[..., Model]:
    """Make an untrained model with several levels."""

    def build(recipe: str, **settings: Any) -> Model:
        return create(recipe, settings_of(recipe) | settings)

    return build


@pytest.fixture(scope="session")
def brief(small: Callable[..., Model]) -> Callable[..., Model]:
    """Make the same, but a network with little training: for tests that only compare."""
    return lambda recipe, **settings: small(recipe, **(BRIEFLY if recipe in NETS else {}), **settings)


@pytest.fixture(params=params([*LINEAR, *NEURAL]))
def recipe(request: pytest.FixtureRequest) -> str:
    """Every recipe in turn."""
    return request.param


@pytest.fixture(params=LINEAR)
def linear_recipe(request: pytest.FixtureRequest) -> str:
    """Every recipe that takes feature rows in turn."""
    return request.param


@pytest.fixture(scope="session")
def fitted(made: Made, small: Callable[..., Model]) -> Callable[[str], Model]:
    """Return a recipe's model of the texts, trained once; do not change it."""
    models: dict[str, Model] = {}

    def get(recipe: str) -> Model:
        if recipe not in models:
            models[recipe] = small(recipe).fit(made.texts, made.lists)
        return models[recipe]

    return get


@pytest.fixture(scope="session")
def rows(made: Made, fitted: Callable[[str], Model]) -> sp.csr_matrix:
    """The training texts as tf-idf rows."""
    return fitted("xr-linear").tfidf_.transform(made.texts)


@pytest.fixture(scope="session")
def inputs(made: Made, rows: sp.csr_matrix) -> Callable[[str], Any]:
    """Return the training data in the plainest form a recipe takes: rows, or texts if it takes nothing else."""
    return lambda recipe: rows if recipe in LINEAR else made.texts


@pytest.fixture
def files() -> Callable[[Path], dict[str, bytes]]:
    """Read a folder: every file's bytes by its name."""

    def read(folder: Path) -> dict[str, bytes]:
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(Path(folder).rglob("*"))
            if path.is_file()
        }

    return read


@pytest.fixture
def files_but_history() -> Callable[[Path], dict[str, Any]]:
    """Read a folder without what differs between two trainings: the history, whose times differ, and its digests."""

    def read(folder: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file() and not path.match("history-*.jsonl"):
                name = re.sub(r"^(model-\d+)-[0-9a-f]{16}/", r"\1/", path.relative_to(folder).as_posix())
                found[name] = _without_files(path) if path.name == "config.json" else path.read_bytes()
        return found

    return read


def _without_files(path: Path) -> dict[str, Any]:
    """Return a config without the table of files, whose names are compared anyway."""
    return {key: value for key, value in json.loads(path.read_bytes()).items() if key != "files"}
