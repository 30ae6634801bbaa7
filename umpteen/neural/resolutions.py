"""Recursive fine-tuning: one encoder, from a coarse view of the labels to a fine one (Algorithms 1 and 2).

Each resolution is a level of the preliminary tree. Its classifiers start at the linear solution on the embeddings of
the resolution before (eq. 11), and encoder and classifiers then learn together (eq. 9) on the nodes that the level
above lets through (eqs. 7 and 8).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn import functional as F
from torch.nn.utils import skip_init

from umpteen.config import NeuralConfig
from umpteen.data.tokens import Tokens
from umpteen.engine import Progress, silent
from umpteen.neural import newton
from umpteen.neural.encoder import Encoder
from umpteen.neural.heads import log_odds
from umpteen.neural.lda_init import Covariance, Whitening, discriminants
from umpteen.neural.losses import weighted
from umpteen.neural.trainer import BEST, Report, Trainer, hold_out, mean_precision
from umpteen.neural.truth import Truth
from umpteen.store import Checkpoint
from umpteen.tree import LabelTree, relevance

_AT_A_TIME = 8_192  # texts scored at a time


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


class DenseLevel(torch.nn.Module):
    """An encoder and classifiers of the nodes of one level, all of which are scored for every text.

    Parameters
    ----------
    encoder
        Learns with the classifiers.
    parents
        The parent of each node.
    config
        Loss and dropout.
    level
        Number of the level.
    """

    def __init__(self, encoder: Encoder, parents: np.ndarray, config: NeuralConfig, level: int):
        super().__init__()
        self.embedder, self.encoder, self.config = encoder, encoder.model, config
        self.dropout, self.scale = config.network.dropout_at(level), math.sqrt(encoder.dim)
        self.head = skip_init(torch.nn.Linear, encoder.dim, len(parents), device=encoder.device)
        self.register_buffer("parents", torch.from_numpy(parents.astype(np.int64)).to(encoder.device), persistent=False)

    def loss(
        self, ids: torch.Tensor, mask: torch.Tensor | None, truth: Sequence[Truth], *, is_whole: bool = True,
        predicted: Truth | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Return the mean loss of a text over the nodes whose parent is let through, weighted by relevance (eq. 9)."""
        e = F.normalize(self.embedder(ids, mask), dim=1) * self.scale  # (texts, d)
        scores = self.head(F.dropout(e, self.dropout, self.training))  # (texts, nodes)
        let_through = None if predicted is None else predicted.dense()[:, self.parents]
        config = self.config.training
        return weighted(config.loss, scores.float(), truth[0].dense(), let_through, config.alpha).sum() / len(ids)

    def set_lr(self, factor: float) -> None:
        """The optimiser trains everything."""

    def step(self) -> None:
        """The optimiser trains everything."""

    def scores(self, E: np.ndarray) -> Iterator[torch.Tensor]:
        """Score all nodes for embeddings of length one, some texts at a time."""
        with torch.inference_mode():
            for first in range(0, len(E), _AT_A_TIME):
                block = torch.from_numpy(E[first : first + _AT_A_TIME]).to(self.head.weight.device)
                yield self.head(block * self.scale)

    def best(self, E: np.ndarray, k: int) -> np.ndarray:
        """Return the k best nodes of each text (texts, k)."""
        k = min(k, self.head.out_features)
        return np.concatenate([scores.topk(k, dim=1).indices.cpu().numpy() for scores in self.scores(E)])

    @torch.no_grad()
    def set_weights(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """Take classifiers (nodes, d) for embeddings of length one, and biases (nodes,)."""
        self.head.weight.copy_(weight / self.scale)
        self.head.bias.copy_(bias)


@dataclass
class Finetuning:
    """One fine-tuning run; ``embeddings`` is the result, and the encoder is changed in place.

    ``tree`` is the preliminary tree: its levels are the resolutions, and the last one's targets are learned only if
    it has few enough nodes.
    """

    encoder: Encoder
    tokens: Tokens
    Y: sp.csr_matrix
    tree: LabelTree
    config: NeuralConfig
    checkpoint: Checkpoint | None = None
    progress: Progress = silent
    report: list[Resolution] = field(default_factory=list)
    last: DenseLevel | None = None

    def __post_init__(self) -> None:
        fraction = self.config.training.validation_fraction
        self.trained_on, self.held_out = hold_out(len(self.tokens), fraction, self.config.seed)

    def embeddings(self) -> np.ndarray:
        """Fine-tune through all resolutions and embed the texts at the end."""
        E, level = None, None
        numbers = self._levels()
        finished = [number for number in numbers if self._has(_finished(number))]
        for number in finished:
            self.report.append(Resolution.of(self.checkpoint.load(_finished(number))["report"]))
        if finished:  # the last of them says it all
            E, level = self._restored(finished[-1])
        for number in numbers:
            if number > max(finished, default=-1):
                E, level = self._resolution(number, E, level)
        self.last = level
        return self.encoder.embed(self.tokens, progress=self.progress) if E is None else E

    def label_classifiers(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the weights (labels, d) and biases of the last resolution by label, if that one was the labels.

        They are for embeddings of length one.
        """
        if self.last is None or self.last.head.out_features != self.tree.n_labels:
            return None
        head, position = self.last.head, self.tree.position
        weight = head.weight.detach().cpu().numpy()[position] * np.float32(self.last.scale)
        return weight, head.bias.detach().cpu().numpy()[position]

    def _levels(self) -> list[int]:
        """Return the levels to learn: all of clusters, and the labels if they are few enough and were asked for."""
        network = self.config.network
        only_clusters = network.labels_per_cluster > 1 and not network.levels
        with_labels = not only_clusters and self.tree.n_labels <= network.max_nodes
        return list(range(self.tree.n_levels - (not with_labels)))

    def _has(self, stage: str) -> bool:
        return self.checkpoint is not None and self.checkpoint.has(stage)

    def _level(self, number: int) -> DenseLevel:
        return DenseLevel(self.encoder, self.tree.parents[number], self.config, number)

    def _resolution(self, number: int, E: np.ndarray | None, above: DenseLevel | None) -> tuple[np.ndarray, DenseLevel]:
        """Learn one level; return the embeddings after it and the level."""
        level, R = self._level(number), self._relevance(number)
        trainer = self._trainer(number, level, R)
        if E is None and (not trainer.has_state or number):
            E = self.encoder.embed(self.tokens, progress=self.progress)
        begun = time.perf_counter()
        trainer.predicted = self._let_through(number, E, above)
        if not trainer.has_state:
            self._initialise(level, number, E, R, trainer.predicted)
        init_s = time.perf_counter() - begun
        report = trainer.run()
        learned = time.perf_counter()
        if E is None or report.steps:
            E = self.encoder.embed(self.tokens, progress=self.progress)
        self._finish(number, level, E, report, init_s, time.perf_counter() - learned)
        if self.checkpoint is not None:
            self.checkpoint.drop(trainer.state_name)
        return E, level

    # What is learned, on which nodes

    def _relevance(self, number: int) -> sp.csr_matrix:
        if self.config.training.relevance == "none":
            return self.tree.lift(self.Y, number)
        return relevance(self.tree, self.Y, number, normalize=self.config.training.relevance == "induce-l1")

    def _let_through(self, number: int, E: np.ndarray | None, above: DenseLevel | None) -> sp.csr_matrix | None:
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

    # First weights

    def _initialise(
        self, level: DenseLevel, number: int, E: np.ndarray, R: sp.csr_matrix, let_through: sp.csr_matrix | None
    ) -> None:
        """Set the classifiers to the linear solution on the current embeddings (eq. 11), or as ``init`` says."""
        config, rows = self.config.training, self.trained_on  # held-out texts shall tell later how good it is
        vectors = torch.from_numpy(E[rows]).to(self.encoder.device)
        if config.init == "newton":
            W = newton.solve_level(
                vectors, R[rows], None if let_through is None else let_through[rows], self.tree.starts[number],
                cost=config.init_cost, alpha=config.alpha, progress=self.progress,
            )  # fmt: skip
            level.set_weights(W[:-1].T, W[-1])
        elif config.init == "lda":
            level.set_weights(*_discriminants(vectors, R[rows]))
        else:
            generator = torch.Generator().manual_seed(self.config.seed + number)
            small = torch.randn(level.head.weight.shape, generator=generator) / level.scale
            bias = torch.full((len(small),), -1.0) if config.init == "random" else _prior(R[rows])
            level.set_weights(small.to(vectors.device), bias)

    # Training

    def _trainer(self, number: int, level: DenseLevel, R: sp.csr_matrix) -> Trainer:
        config = self.config.training
        held_out = self.tokens.take(self.held_out)

        def quality() -> float:
            return mean_precision(level.best(self.encoder.embed(held_out), BEST), R[self.held_out])

        stage = f"fine-tuning on {level.head.out_features:,} nodes"
        return Trainer(
            level, self.encoder, self.tokens, [R], config, list(self.encoder.model.parameters()),
            epochs=config.epochs_at(number, len(self._levels())), seed=self.config.seed + number,
            checkpoint=self.checkpoint, progress=self.progress, stage=stage,
            rows=self.trained_on, quality=quality if len(self.held_out) else None,
        )  # fmt: skip

    # What a finished resolution leaves

    def _finish(
        self, number: int, level: DenseLevel, E: np.ndarray, report: Report, init_s: float, embed_s: float
    ) -> None:
        done = Resolution(level.head.out_features, report.steps, report.tokens, init_s, report.seconds, embed_s)
        self.report.append(done)
        if self.checkpoint is not None:
            weights = {name: tensor.cpu().numpy() for name, tensor in level.state_dict().items()}
            self.checkpoint.save(_finished(number), weights | {"embeddings": E, "report": np.array(done, np.float64)})

    def _restored(self, number: int) -> tuple[np.ndarray, DenseLevel]:
        level, arrays = self._level(number), dict(self.checkpoint.load(_finished(number), mmap=False))
        E = arrays.pop("embeddings").copy()
        del arrays["report"]
        level.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
        return E, level


def _discriminants(vectors: torch.Tensor, R: sp.csr_matrix) -> tuple[torch.Tensor, torch.Tensor]:
    """Return linear discriminants of the nodes (nodes, d) and their biases, for vectors that are not whitened."""
    covariance = Covariance(vectors.shape[1], vectors.device)
    covariance.add(vectors)
    whitening = Whitening(vectors.shape[1]).to(vectors.device)
    whitening.fit(covariance)
    pairs = R.tocoo()
    text, node = (torch.from_numpy(part.astype(np.int64)).to(vectors.device) for part in (pairs.row, pairs.col))
    sums = torch.zeros(R.shape[1], vectors.shape[1], device=vectors.device)
    sums.index_add_(0, node, whitening(vectors)[text])
    offset = discriminants(sums, torch.bincount(node, minlength=R.shape[1]).float())
    weight = sums @ whitening.matrix.T
    return weight, _prior(R).to(vectors.device) + offset - weight @ whitening.mean


def _prior(R: sp.csr_matrix) -> torch.Tensor:
    return log_odds(torch.from_numpy(R.getnnz(axis=0).astype(np.float32)) / max(R.shape[0], 1))


def _finished(number: int) -> str:
    """Return the stage of a resolution that is done."""
    return f"resolution-{number}"
