"""Compile kernels ahead of time, so that the first real call does not wait for them (images, servers, timings).

Kernels are compiled for the types of their arguments when they are called: so tiny models are trained, opened, asked.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen import store
from umpteen.config import TfidfConfig, update
from umpteen.data.labels import Labels
from umpteen.data.rows import Rows
from umpteen.data.targets import Targets
from umpteen.data.tfidf import Tfidf
from umpteen.data.xmc import read_rows
from umpteen.engine import Progress, silent, task
from umpteen.errors import BadInput, nearest
from umpteen.linear import Level, LinearTree
from umpteen.models import folder
from umpteen.models.xrlinear import PLT, Bonsai, XRLinear
from umpteen.shortlist import TopK
from umpteen.tree import LabelTree

PURPOSES = ("all", "predict")

_N_LABELS, _N_FEATURES, _N_ROWS = 600, 8, 80
_TINY_MEMORY = 10**9  # bytes
_WEIGHTS = ("int8", "float16", "float32")


def warmup(progress: Progress = silent, *, purpose: str = "all") -> None:
    """Compile kernels; what is compiled is kept in the cache on disk.

    Parameters
    ----------
    progress
        Called as ``progress(stage, done, total)``.
    purpose
        ``all`` compiles everything; ``predict`` what opening a model and asking it takes, not what training takes.
    """
    if purpose not in PURPOSES:
        known = ", ".join(PURPOSES)
        raise BadInput(f"purpose must be one of {known}, but is {purpose!r}{nearest(str(purpose), PURPOSES)}")
    jobs = _answers() + (_trainings() if purpose == "all" else [])
    for done, job in enumerate(jobs):
        progress("compile kernels", done, len(jobs))
        with tempfile.TemporaryDirectory() as name:
            job(Path(name))
    progress("compile kernels", len(jobs), len(jobs))


# Prediction


class _EitherWay(LinearTree):
    """A tree whose levels a batch searches chunk by chunk, but for one level."""

    by_rows = -1

    def prefers_chunks(self, triplet: Any, beams: np.ndarray, level: int) -> bool:
        return level != self.by_rows


def _answers() -> list[Callable[[Path], None]]:
    """List models to be opened and asked: the numbers in their arrays are of every width that is common."""
    labels = np.arange(_N_LABELS)
    trees = {
        "few leaves": LabelTree.from_parents(labels // 20),
        "many leaves": LabelTree.from_parents(labels // 2, np.arange(_N_LABELS // 2) // 15),  # more than 256
        "flat": LabelTree.flat(_N_LABELS),
    }
    words, characters = TfidfConfig(), TfidfConfig(analyzer="char")
    jobs = [partial(_answer, tree, weights, words) for tree, weights in product(trees.values(), _WEIGHTS)]
    jobs += [partial(_answer, trees["few leaves"], "int8", tfidf) for tfidf in (characters, None)]
    return [*jobs, _read_file, _rank]


def _answer(tree: LabelTree, weights: str, tfidf: TfidfConfig | None, place: Path) -> None:
    """Open and ask a model of two trees that was not trained: training compiles the kernels of training."""
    from umpteen.models import load

    config = update(XRLinear.defaults(), {"trees": 2, "store.weights": weights, "tfidf": tfidf or TfidfConfig()})
    levels = [_level(n_nodes) for n_nodes in tree.sizes]
    head = LinearTree.pack(levels, tree, _N_FEATURES, config.search, weights=weights)
    targets = Targets(Labels.numbered(tree.n_labels), "sparse")
    words = _vocabulary(tfidf) if tfidf else None
    parts = folder.Parts(config, targets, words, _N_FEATURES, [head, head])
    store.write(place / "model", **folder.contents(parts))

    model = load(place / "model")
    X = sp.csr_matrix(np.ones((_N_ROWS, _N_FEATURES), np.float32))
    pairs = sp.csr_matrix((np.ones(_N_ROWS), np.arange(_N_ROWS), np.arange(_N_ROWS + 1)), (_N_ROWS, tree.n_labels))
    for rows in [X, ["a text"] * _N_ROWS] if tfidf else [X]:
        model.topk(rows, 5)
        model.topk(rows[:1], 5)
        model.topk(rows, 5, allowed=[0, 1, 2])
        model.score_labels(rows, pairs)
    either = _EitherWay(model.heads_[0].arrays, tree, _N_FEATURES, config.search)
    for level in range(-1, tree.n_levels):
        either.by_rows = level
        either.topk(Rows.of(X), 5)


def _level(n_nodes: int) -> Level:
    """Give every node one weight."""
    nodes = np.arange(n_nodes, dtype=np.int32)
    return Level(nodes % _N_FEATURES, nodes, np.ones(n_nodes, np.float32), np.zeros(n_nodes, np.float32))


def _vocabulary(config: TfidfConfig) -> Tfidf:
    """Make a tf-idf of terms that no text has."""
    columns = np.arange(_N_FEATURES)
    slots = np.full(2 * _N_FEATURES, -1, np.int32)
    slots[columns] = columns
    terms = np.frombuffer(b"abcdefgh", np.uint8)
    arrays = {
        "keys": columns.astype(np.uint64), "slots": slots, "idf": np.ones(_N_FEATURES, np.float32),
        "term_bytes": terms, "term_offsets": np.arange(len(terms) + 1),
    }  # fmt: skip
    return Tfidf.from_arrays(config, arrays)


def _rank(place: Path) -> None:
    """Rank a matrix of scores, as models with an encoder do."""
    TopK.from_csr([[0.5, 0.25]], 1)


def _read_file(place: Path) -> None:
    """Read feature rows."""
    path = place / "rows.txt"
    path.write_text("0 0:1\n")
    read_rows(path)


# Training


@task
def warm_up_tasks(*, from_texts: bool, threads: int) -> None:
    """Load or compile what the tasks of a training need: train a tiny model with arrays in files."""
    texts, labels, Y = _texts()
    model = XRLinear(tree={"leaf_size": 16, "branching": 8}, linear={"negatives": "tfn+man"}, threads=threads)
    model.fit(texts if from_texts else _rows(), Y, label_names=labels, memory=_TINY_MEMORY)


def _rows() -> sp.csr_matrix:
    """Make random feature rows."""
    return sp.random(_N_LABELS, 80, 0.2, format="csr", dtype=np.float32, random_state=0)


def _texts() -> tuple[list[str], Labels, sp.csr_matrix]:
    """Make texts of random words with two labels each."""
    labels, Y = Labels.from_lists([[f"label {i}", f"label {(i * 7) % _N_LABELS}"] for i in range(_N_LABELS)])
    rng, words = np.random.default_rng(0), [f"word{i}" for i in range(60)]
    return [" ".join(rng.choice(words, 12)) for _ in range(_N_LABELS)], labels, Y


def _trainings() -> list[Callable[[Path], None]]:
    """List models of every kind, to be trained, saved, opened, asked and measured."""
    texts, labels, Y = _texts()
    X = _rows()
    narrow = {"leaf_size": 16}
    models = [
        (XRLinear(tree={**narrow, "branching": 8}, linear={"negatives": "tfn+man"}, trees=2), texts),
        (XRLinear(tree={**narrow, "kind": "kmeans"}, store={"weights": "float16"}), X),
        (XRLinear(tree={"kind": "none"}, store={"weights": "float32"}), X),
        (Bonsai(trees=1), X),
        (PLT(), X),
    ]
    return [*(partial(_train, model, rows, Y, labels) for model, rows in models), _learn_words]


def _learn_words(place: Path) -> None:
    """Learn more terms than the first tables have room for, of words and of characters."""
    text = " ".join(map(str, range(10, 40_000)))
    for analyzer, longest in (("word", 1), ("char", 5)):
        Tfidf(TfidfConfig(analyzer=analyzer, ngram_max=longest)).fit([text])


def _train(model: Any, rows: Any, Y: sp.csr_matrix, labels: Labels, place: Path) -> None:
    from umpteen.metrics import inverse_propensity
    from umpteen.models import load

    model.fit(rows, Y, label_names=labels)
    model.save(place / "model")
    opened = load(place / "model")
    opened.topk(rows, 5)
    opened.topk(rows[:1], 5)
    opened.topk(rows[:20], 5, allowed=[0, 1, 2])
    opened.score_labels(rows[:20], Y[:20])
    opened.evaluate(rows, Y, inverse_propensity=inverse_propensity(Y), threshold=0.5)
