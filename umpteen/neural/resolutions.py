"""Coarse-to-fine training: one encoder, from a coarse view of the labels to a fine one (Algorithms 1 and 2).

Each resolution is a level of the preliminary tree. Its classifiers are initialised on the embeddings that the encoder
has by then (eq. 11), and encoder and classifiers are then trained together (eq. 9) on the nodes that the level above
selects (eqs. 7 and 8), or on all of them.

Clusters may harm: a pretrained encoder tells apart labels with one or two texts each, and unlearns that while it learns
large clusters of them. Where classifiers of labels start as linear discriminants, these are tried on held-out texts
before and after each level of clusters; what makes them worse is undone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from umpteen.config import NeuralConfig
from umpteen.data.rows import take_rows
from umpteen.data.tokens import Tokens
from umpteen.engine import Progress, silent
from umpteen.linear.dense import Projection
from umpteen.neural.distributed import ranks
from umpteen.neural.encoder import Encoder
from umpteen.neural.heads import Head, log_odds
from umpteen.neural.initialise import Initialiser, node_frequencies, pairs
from umpteen.neural.lda_init import Covariance, Whitening, discriminants
from umpteen.neural.network import Job, Network
from umpteen.neural.passes import evaluating
from umpteen.neural.trainer import BEST, Metrics, Report, Trainer, precisions
from umpteen.store.tensors import Allocate, in_memory
from umpteen.tree import LabelTree, relevance

_SCORES_AT_ONCE = 100_000_000  # scores of texts for nodes that are in memory at a time
_TEXTS_AT_ONCE = 8_192


class Classifiers(NamedTuple):
    """Classifiers of the labels (labels, d) for embeddings of length one, and the projection before them, if any."""

    weight: np.ndarray
    bias: np.ndarray
    projection: Projection | None


class Finetuning(Network):
    """The fine-tuning of an encoder, which ``train`` changes in place.

    ``tree`` is the preliminary tree: its levels are the resolutions.
    """

    def __init__(self, encoder: Encoder, tree: LabelTree, config: NeuralConfig):
        super().__init__(encoder, tree, config, divides=True)
        self.n_undone = 0  # levels of clusters whose training was undone, or left out then

    @property
    def _levels(self) -> range:
        """The levels that are trained: all of clusters, and perhaps the labels."""
        return range(self.tree.n_levels - (not self.trains_labels))

    @property
    def trains_labels(self) -> bool:
        """Whether the finest resolution is the labels."""
        return self.config.trains_labels(self.tree.n_labels)

    # What is trained, on which nodes

    def truth(self, level: int | None, job: Job) -> list[sp.csr_matrix]:
        """Return the weights of the positive nodes of a level (texts, nodes)."""
        return [self.relevance(level, job.targets)]

    def relevance(self, level: int, targets: sp.csr_matrix) -> sp.csr_matrix:
        """Return the weights of the positive nodes of a level (texts, nodes), by eq. 6 if settings say so."""
        if self.config.training.relevance == "none":
            return self.tree.lift(targets, level)
        return relevance(self.tree, targets, level, normalize=self.config.training.relevance == "induce-l1")

    def selected_parents(self, level: int, E: np.ndarray | None, targets: sp.csr_matrix) -> sp.csr_matrix | None:
        """Return the parents (texts, nodes above) whose children a text is trained on; None is all (eqs. 7, 8)."""
        negatives = self.config.training.negatives
        if level == 0 or negatives == "all":
            return None
        true = self.tree.lift(targets, level - 1)
        if negatives == "tfn":
            return true
        found = self.best_nodes(E, level - 1, self.config.network.beam_at(level - 1))
        ptr = np.arange(0, found.size + 1, found.shape[1])
        predicted = sp.csr_matrix((np.ones(found.size, np.float32), found.ravel(), ptr), shape=true.shape)
        either = (true + predicted).tocsr()
        either.data[:] = 1.0
        return either

    def best_nodes(self, E: np.ndarray, level: int, k: int) -> np.ndarray:
        """Return the k best nodes of a level for each embedding (texts, k)."""
        head, n_nodes = self.module.head(level), self.tree.sizes[level]
        at_once, found = max(1, min(_TEXTS_AT_ONCE, _SCORES_AT_ONCE // n_nodes)), []
        with torch.inference_mode(), evaluating(head):
            for first in range(0, len(E), at_once):
                e = torch.from_numpy(E[first : first + at_once]).to(self.encoder.device)
                found.append(head.best(e, min(k, n_nodes), None)[0].cpu().numpy())
        return np.concatenate(found)

    # Training

    @property
    def epochs(self) -> tuple[float, ...]:
        """The epochs of which the effect was kept: of each level, if any were undone."""
        n, at = len(self._levels), self.config.training.epochs_at
        if not self.n_undone:
            return self.config.training.epochs
        return tuple(0.0 if n - 1 - self.n_undone <= level < n - 1 else at(level, n) for level in self._levels)

    def _train_all(self, job: Job) -> list[Report]:
        """Train the levels; clusters that make the first weights of the labels worse are undone, and are the last."""
        n_levels = len(self._levels)
        clusters = [level for level in self._levels[:-1] if self.config.training.epochs_at(level, n_levels)]
        if not clusters or not self._can_undo(job):
            return super()._train_all(job)
        labels = n_levels - 1
        reports, best = [], self._first_quality(labels, job)
        for level in clusters:
            before = {name: tensor.to("cpu", copy=True) for name, tensor in self.encoder.model.state_dict().items()}
            reports.append(self._train(level, job))
            found = self._first_quality(labels, job)
            if found < best:
                self.encoder.model.load_state_dict(before)
                self.n_undone = labels - level
                break
            best = found
        return [*reports, self._train(labels, job)]

    def _can_undo(self, job: Job) -> bool:
        """Return whether the labels start as linear discriminants and need nothing that clusters have learned."""
        starts_anew = self.trains_labels and self.config.init_at(self._levels[-1], self.tree.n_levels) == "lda"
        return starts_anew and len(job.held_out) > 0 and self.config.training.negatives != "tfn+man"

    def _first_quality(self, level: int, job: Job) -> float:
        """Return the mean precision on held-out texts that the classifiers of a level have before they are trained."""
        E = self.embeddings(job.tokens.take(job.rows, job.allocate), job.progress, job.allocate)
        self.first_weights(level, E, self.relevance(level, job.targets)[job.rows], None, job.progress)
        return ranks().from_main(float(np.mean(list(self.quality(level, job).values()))))

    def _seed(self, level: int | None) -> int:
        return self.config.seed + level

    def _stage(self, level: int | None) -> str:
        return f"fine-tuning on {self.tree.sizes[level]:,} nodes"

    def _is_measured(self, level: int | None) -> bool:
        return True

    def quality(self, level: int | None, job: Job) -> Metrics:
        """Return the precisions at 1, 3 and 5 of the nodes of a level, on held-out texts."""
        found = self.best_nodes(self.embeddings(job.tokens.take(job.held_out)), level, BEST)
        return precisions(found, self.relevance(level, job.targets[job.held_out]))

    def _prepare(self, trainer: Trainer, level: int | None, job: Job) -> None:
        """Select the nodes that a text is trained on, and initialise the classifiers of a level."""
        by_embeddings = not trainer.has_state and self.config.init_at(level, self.tree.n_levels) in ("newton", "lda")
        is_needed = by_embeddings or (level > 0 and self.config.training.negatives == "tfn+man")
        E = self.embeddings(job.tokens, job.progress, job.allocate) if is_needed else None
        trainer.predicted = selected = self.selected_parents(level, E, job.targets)
        if trainer.has_state:
            return
        R = trainer.truth[-1]
        if len(job.held_out):  # they are unknown to the first weights, too
            E = None if E is None else take_rows(E, job.rows, job.allocate)
            R, selected = R[job.rows], None if selected is None else selected[job.rows]
        self.first_weights(level, E, R, selected, job.progress)

    def _finish(self, targets: sp.csr_matrix) -> None:
        """Nothing: the model rounds what it keeps."""

    # First weights

    def first_weights(
        self, level: int, E: np.ndarray | None, R: sp.csr_matrix, selected: sp.csr_matrix | None,
        progress: Progress = silent,
    ) -> None:  # fmt: skip
        """Set the first weights of a level: the linear solution (eq. 11), or as ``training.init`` says."""
        init, frequencies = self.config.init_at(level, self.tree.n_levels), node_frequencies(R)
        prior = log_odds(frequencies)
        head, initialiser = self.module.head(level), Initialiser(self, [E] * (level + 1), progress)
        if init in ("prior", "random"):
            generator = torch.Generator().manual_seed(self.config.seed + level)
            small = torch.randn((R.shape[1], self.encoder.dim), generator=generator) / head.scale
            self._set(head, small, prior if init == "prior" else torch.full_like(prior, -1.0))
        elif init == "newton":
            initialiser.solve(level, R, selected, self.config.training.init_cost)
        elif head.whitening is not None:
            head.set_prior(frequencies.to(self.encoder.device))
            initialiser.set_discriminants({level: R})
        else:
            self._set(head, *_discriminants(torch.from_numpy(E).to(self.encoder.device), R, prior))

    @torch.no_grad()
    def _set(self, head: Head, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """Set the classifiers (nodes, d) of a head for embeddings of length one, and their biases (nodes,)."""
        device = self.encoder.device
        head.set_weights(head.shard.take(weight).to(device) / head.scale, head.shard.take(bias).to(device))

    # What it leads to

    def embeddings(self, tokens: Tokens, progress: Progress = silent, allocate: Allocate = in_memory) -> np.ndarray:
        """Return the present embeddings of texts; if there are several ranks, all embed some and have all.

        ``allocate`` makes their array.
        """
        if not ranks().are_many:
            return self.encoder.embed(tokens, progress=progress, allocate=allocate)
        return ranks().in_shares(len(tokens), lambda own: self.encoder.embed(tokens.take(own), progress=progress))

    def label_classifiers(self) -> Classifiers | None:
        """Return the classifiers of the labels, if they were trained; of several ranks, rank 0 has them."""
        if not self.trains_labels:
            return None
        head, position = self.module.head(-1), self.tree.position
        weight = head.weight.detach().float().cpu().numpy() * np.float32(head.scale)
        whitening, projection = head.whitening, None
        if whitening is not None:
            projection = Projection(whitening.mean.cpu().numpy(), whitening.matrix.cpu().numpy())
        return Classifiers(weight[position], head.bias.detach().cpu().numpy()[position], projection)


def _discriminants(vectors: torch.Tensor, R: sp.csr_matrix, prior: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return linear discriminants of the nodes (nodes, d) and their biases, for vectors that are not whitened."""
    covariance = Covariance(vectors.shape[1], vectors.device)
    covariance.add(vectors)
    whitening = Whitening(vectors.shape[1]).to(vectors.device)
    whitening.fit(covariance)
    text, node = pairs(R, vectors.device)
    sums = torch.zeros(R.shape[1], vectors.shape[1], device=vectors.device)
    sums.index_add_(0, node, whitening(vectors)[text])
    offset = discriminants(sums, torch.bincount(node, minlength=R.shape[1]).float())
    weight = sums @ whitening.matrix.T
    return weight, prior.to(vectors.device) + offset - weight @ whitening.mean
