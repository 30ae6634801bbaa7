"""Recursive fine-tuning: one encoder, from a coarse view of the labels to a fine one (Algorithms 1 and 2).

Each resolution is a level of the preliminary tree. Its classifiers are initialised with the linear solution on the
embeddings of the resolution before (eq. 11), and encoder and classifiers are then trained together (eq. 9) on the nodes
that the level above selects (eqs. 7 and 8), or on all of them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import torch

from umpteen.config import FEW_TEXTS, NeuralConfig
from umpteen.data.tokens import Tokens
from umpteen.engine import Callback, Progress, Record, ignore, silent
from umpteen.linear.dense import Projection
from umpteen.neural import newton
from umpteen.neural.distributed import ranks
from umpteen.neural.encoder import Encoder
from umpteen.neural.heads import log_odds
from umpteen.neural.lda_init import Covariance, Whitening, discriminants
from umpteen.neural.levels import DenseLevel, FullLevel, Level
from umpteen.neural.sharding import Shards
from umpteen.neural.trainer import BEST, Metrics, Report, Trainer, hold_out, precisions
from umpteen.store import Checkpoint, format_records, parse_records
from umpteen.store.tensors import Allocate, in_memory
from umpteen.tree import LabelTree, relevance


class Resolution(NamedTuple):
    """What happened at one resolution, for a table."""

    nodes: int
    steps: int
    tokens: int
    init_s: float
    train_s: float
    embed_s: float

    @classmethod
    def of(cls, numbers: np.ndarray) -> Resolution:
        """Undo ``np.array(resolution)``."""
        return cls(*(int(count) for count in numbers[:3]), *(float(seconds) for seconds in numbers[3:]))


class Classifiers(NamedTuple):
    """Classifiers of the labels (labels, d) for embeddings of length one, and the projection before them, if any."""

    weight: np.ndarray
    bias: np.ndarray
    projection: Projection | None


@dataclass
class Finetuning:
    """One fine-tuning run: ``train`` changes the encoder in place.

    ``tree`` is the preliminary tree: its levels are the resolutions. ``allocate`` makes the array of all embeddings.
    """

    encoder: Encoder
    tokens: Tokens
    Y: sp.csr_matrix
    tree: LabelTree
    config: NeuralConfig
    checkpoint: Checkpoint | None = None
    progress: Progress = silent
    record: Callback = ignore
    allocate: Allocate = in_memory
    report: list[Resolution] = field(default_factory=list)
    last: Level | None = None

    def __post_init__(self) -> None:
        fraction = self.config.training.validation_fraction
        self.trained_on, self.held_out = hold_out(len(self.tokens), fraction, self.config.seed)

    def train(self) -> Self:
        """Fine-tune through all resolutions; afterwards, rank 0 has all classifiers."""
        numbers = self._levels()
        finished = [number for number in numbers if self._has(_finished(number))]
        for number in finished:
            self._report_again(number)
        if finished:  # the last of them has all weights
            self.last = self._restored(finished[-1])
        for number in numbers:
            if number > max(finished, default=-1):
                self.last = self._resolution(number, self.last)
        if self.last is not None:
            self.last.unite()
        return self

    def embeddings(self) -> np.ndarray:
        """Return the present embeddings of all texts; all ranks embed some and have all."""
        return self._embedded(self.tokens, self.progress, self.allocate)

    def embeddings_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the present embeddings of the texts with these numbers, which this process embeds alone."""
        return self.encoder.embed(self.tokens.take(rows), progress=self.progress)

    def _embedded(self, tokens: Tokens, progress: Progress = silent, allocate: Allocate = in_memory) -> np.ndarray:
        if not ranks().are_many:
            return self.encoder.embed(tokens, progress=progress, allocate=allocate)
        return ranks().in_shares(len(tokens), lambda own: self.encoder.embed(tokens.take(own), progress=progress))

    def label_classifiers(self) -> Classifiers | None:
        """Return the classifiers of the last resolution by label, if its nodes are the labels."""
        if self.last is None or not self.trains_labels:
            return None
        weight, bias, projection = self.last.classifiers()
        return Classifiers(weight[self.tree.position], bias[self.tree.position], projection)

    @property
    def trains_labels(self) -> bool:
        """Whether the finest resolution is the labels."""
        return self.config.trains_labels(self.tree.n_labels)

    def _levels(self) -> list[int]:
        """Return the levels to train: all of clusters, and perhaps the labels."""
        return list(range(self.tree.n_levels - (not self.trains_labels)))

    def _has(self, stage: str) -> bool:
        return self.checkpoint is not None and self.checkpoint.has(stage)

    def _level(self, number: int) -> Level:
        is_labels = number == self.tree.n_levels - 1
        if is_labels and self.config.has_full_head(self.tree.n_labels):
            whitens = self._init(number) == "lda"
            return FullLevel(self.encoder, self.tree.n_labels, self.config, number, whitens=whitens)
        return DenseLevel(self.encoder, self.tree.parents[number], self.config, number)

    def _resolution(self, number: int, above: Level | None) -> Level:
        """Train one level and return it."""
        level, R = self._level(number), self.relevance_at(number)
        trainer = self._trainer(number, level, R)
        begun = time.perf_counter()
        E = self.embeddings() if self._needs_embeddings(number, trainer) else None
        embedded = time.perf_counter()
        trainer.predicted = self.selected_parents(number, E, above)
        if not trainer.has_state:
            self.initialise(level, number, E, R, trainer.predicted)
        init_s = time.perf_counter() - embedded
        report = trainer.run()
        self._finish(number, level, report, trainer.curve.records, init_s, embedded - begun)
        if self.checkpoint is not None:
            self.checkpoint.drop(trainer.state_name)
        return level

    def _needs_embeddings(self, number: int, trainer: Trainer) -> bool:
        """Return whether the level is initialised by embeddings, or negatives are predicted by them."""
        by_embeddings = not trainer.has_state and self._init(number) in ("newton", "lda")
        return by_embeddings or (number > 0 and self.config.training.negatives == "tfn+man")

    # What is trained, on which nodes

    def relevance_at(self, number: int) -> sp.csr_matrix:
        """Return the weights of the positive nodes of a level (texts, nodes), by eq. 6 if settings say so."""
        if self.config.training.relevance == "none":
            return self.tree.lift(self.Y, number)
        return relevance(self.tree, self.Y, number, normalize=self.config.training.relevance == "induce-l1")

    def selected_parents(self, number: int, E: np.ndarray | None, above: Level | None) -> sp.csr_matrix | None:
        """Return the parents (texts, nodes above) whose children a text is trained on; None is all (eqs. 7, 8)."""
        negatives = self.config.training.negatives
        if number == 0 or negatives == "all":
            return None
        true = self.tree.lift(self.Y, number - 1)
        if negatives == "tfn" or above is None:
            return true
        found = above.best(E, self.config.network.beam_at(number - 1))
        ptr = np.arange(0, found.size + 1, found.shape[1])
        predicted = sp.csr_matrix((np.ones(found.size, np.float32), found.ravel(), ptr), shape=true.shape)
        either = (true + predicted).tocsr()
        either.data[:] = 1.0
        return either

    # Initialisation

    def _init(self, number: int) -> str:
        """Return how a level is initialised."""
        config = self.config.training
        if config.init != "auto":
            return config.init
        per_node = self.tree.lift(self.Y, number).nnz / self.tree.sizes[number]
        if number == self.tree.n_levels - 1 and per_node < FEW_TEXTS:
            return "lda"
        return "prior" if config.loss == "bce" else "newton"

    def initialise(
        self, level: Level, number: int, E: np.ndarray | None, R: sp.csr_matrix, selected: sp.csr_matrix | None
    ) -> None:
        """Set the first weights of the classifiers: the linear solution (eq. 11), or as ``training.init`` says."""
        config, rows, init = self.config.training, self.trained_on, self._init(number)  # not on held-out texts
        if init in ("prior", "random"):
            generator = torch.Generator().manual_seed(self.config.seed + number)
            small = torch.randn((level.n_nodes, self.encoder.dim), generator=generator) / level.scale
            bias = torch.full((len(small),), -1.0) if init == "random" else _prior(R[rows])
            level.set_weights(small.to(self.encoder.device), bias.to(self.encoder.device))
            return
        vectors = torch.from_numpy(E[rows]).to(self.encoder.device)
        if init == "newton":
            W = newton.solve_level(
                vectors, R[rows], None if selected is None else selected[rows], self.tree.starts[number],
                cost=config.init_cost, alpha=config.alpha, progress=self.progress,
            )  # fmt: skip
            level.set_weights(W[:-1].T, W[-1])
        elif isinstance(level, FullLevel):
            level.start_at_discriminants(vectors, *_pairs(R[rows], vectors.device))
        else:
            level.set_weights(*_discriminants(vectors, R[rows]))

    # Training

    def _trainer(self, number: int, level: Level, R: sp.csr_matrix) -> Trainer:
        config = self.config.training
        held_out = self.tokens.take(self.held_out)

        def quality() -> Metrics:
            return precisions(level.best(self._embedded(held_out), BEST), R[self.held_out])

        return Trainer(
            level, self.encoder, self.tokens, [R], config, list(self.encoder.model.parameters()),
            epochs=config.epochs_at(number, len(self._levels())), seed=self.config.seed + number,
            checkpoint=self.checkpoint, progress=self.progress, stage=f"fine-tuning on {level.n_nodes:,} nodes",
            rows=self.trained_on, quality=quality if len(self.held_out) else None, record=self.record,
        )  # fmt: skip

    # What a finished resolution leaves

    def _finish(
        self, number: int, level: Level, report: Report, records: list[Record], init_s: float, embed_s: float
    ) -> None:
        done = Resolution(level.n_nodes, report.steps, report.tokens, init_s, report.seconds, embed_s)
        self.report.append(done)
        if self.checkpoint is not None:
            state = Shards(level).whole(level.state_dict())
            weights = {name: tensor.cpu().float().numpy() for name, tensor in state.items()}
            history = np.frombuffer(format_records(records), np.uint8)
            about = {"report": np.array(done, np.float64), "history": history}
            self.checkpoint.save(_finished(number), weights | about)

    def _report_again(self, number: int) -> None:
        """Report a resolution that was finished before an interruption."""
        stored = self.checkpoint.load(_finished(number))
        self.report.append(Resolution.of(stored["report"]))
        for record in parse_records(stored["history"].tobytes(), _finished(number)):
            self.record(record)

    def _restored(self, number: int) -> Level:
        level, arrays = self._level(number), dict(self.checkpoint.load(_finished(number), mmap=False))
        del arrays["report"], arrays["history"]
        state = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        level.load_state_dict(Shards(level).own(state))
        return level


def _discriminants(vectors: torch.Tensor, R: sp.csr_matrix) -> tuple[torch.Tensor, torch.Tensor]:
    """Return linear discriminants of the nodes (nodes, d) and their biases, for vectors that are not whitened."""
    covariance = Covariance(vectors.shape[1], vectors.device)
    covariance.add(vectors)
    whitening = Whitening(vectors.shape[1]).to(vectors.device)
    whitening.fit(covariance)
    text, node = _pairs(R, vectors.device)
    sums = torch.zeros(R.shape[1], vectors.shape[1], device=vectors.device)
    sums.index_add_(0, node, whitening(vectors)[text])
    offset = discriminants(sums, torch.bincount(node, minlength=R.shape[1]).float())
    weight = sums @ whitening.matrix.T
    return weight, _prior(R).to(vectors.device) + offset - weight @ whitening.mean


def _pairs(R: sp.csr_matrix, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the texts and the nodes of all stored entries."""
    pairs = R.tocoo()
    text, node = (torch.from_numpy(part.astype(np.int64)).to(device) for part in (pairs.row, pairs.col))
    return text, node


def _prior(R: sp.csr_matrix) -> torch.Tensor:
    return log_odds(torch.from_numpy(R.getnnz(axis=0).astype(np.float32)) / max(R.shape[0], 1))


def _finished(number: int) -> str:
    """Return the stage of a resolution that is done."""
    return f"resolution-{number}"
