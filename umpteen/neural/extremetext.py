"""extremeText: summed embeddings of a text's features, and a probabilistic label tree with logistic loss.

The features are tf-idf rows of words and n-grams, or any sparse rows; no encoder is involved. A step updates only the
embeddings of the features that a batch has, so that the table may have millions of rows (Wydmuch and others, NeurIPS
2018; fastText).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn import functional as F

from umpteen.config import NeuralConfig
from umpteen.data.tokens import Tokens, by_budget
from umpteen.neural.encoder import Batch, pick_device
from umpteen.neural.heads import gathered
from umpteen.neural.readers import Reader
from umpteen.neural.sparse_table import fastest
from umpteen.store.tensors import Allocate, in_memory

_FEATURES_AT_ONCE = 1_000_000  # of padded texts


@dataclass(frozen=True)
class WeightedFeatures(Tokens):
    """The features of all texts with their weights, one text after the other."""

    values: np.ndarray  # float32

    @classmethod
    def of_rows(cls, rows: sp.csr_matrix) -> WeightedFeatures:
        """Take sparse rows as they are."""
        return cls(rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data.astype(np.float32))

    def truncated(self, limit: int, allocate: Allocate = in_memory) -> WeightedFeatures:
        """Return all features, whose order says nothing."""
        return self

    def take(self, rows: np.ndarray, allocate: Allocate = in_memory) -> WeightedFeatures:
        """Return the features of some texts."""
        width = int(self.ids.max(initial=0)) + 1
        return self.of_rows(sp.csr_matrix((self.values, self.ids, self.ptr), shape=(len(self), width))[rows])


class FeatureRows:
    """What an encoder is to other networks: the device, and batches of what is read."""

    def __init__(self, n_features: int, config: NeuralConfig):
        self.n_features, self.config, self.device = n_features, config.encoder, pick_device(config.encoder.device)
        self.model = torch.nn.Module()  # nothing of it is pretrained
        self.dim = config.network.hidden
        self.budget = self.training_budget = _FEATURES_AT_ONCE

    def flat(self, tokens: WeightedFeatures) -> FlatFeatures:
        """Return features on the device."""
        return FlatFeatures(tokens, self.device)

    def autocast(self) -> AbstractContextManager[Any]:
        """Compute in float32."""
        return nullcontext()

    def twin(self) -> FeatureRows:
        """Return what reads for another level."""
        return self


class FlatFeatures:
    """Features on a device, from which batches are cut there."""

    def __init__(self, tokens: WeightedFeatures, device: torch.device):
        self.ptr, self.ids, self.values = (
            torch.from_numpy(np.append(part, part.dtype.type(0))).to(device)
            for part in (tokens.ptr, tokens.ids, tokens.values)
        )
        self.lengths, self.device = tokens.lengths, device

    def cut(self, rows: np.ndarray, budget: int) -> Iterator[np.ndarray]:
        """Yield some texts from short to long, in batches that padded hold at most ``budget`` features."""
        return (rows[some] for some in by_budget(self.lengths[rows], budget))

    def batch(self, rows: np.ndarray) -> Batch:
        """Return the features of some texts (texts, length) and their weights, 0 for padding."""
        width = max(int(self.lengths[rows].max(initial=0)), 1)
        chosen = torch.from_numpy(rows).to(self.device)
        at = self.ptr[chosen, None] + torch.arange(width, device=self.device)
        is_feature = at < self.ptr[chosen + 1, None]
        at = torch.where(is_feature, at, 0)
        return Batch(self.ids[at].long(), torch.where(is_feature, self.values[at], 0.0))


class FeatureBag(Reader):
    """The weighted sum of the embeddings of a text's features, the same for all levels."""

    reads = "features"

    def __init__(self, encoder: FeatureRows, n_levels: int, config: NeuralConfig):
        super().__init__(encoder, n_levels, config)
        width = config.network.hidden
        self.register_buffer("weight", torch.empty(encoder.n_features, width).uniform_(-1.0 / width, 1.0 / width))
        self.register_buffer("state", torch.zeros(encoder.n_features))
        self.register_buffer("rate", torch.tensor(config.training.learning_rate), persistent=False)
        self.waiting: list[tuple[torch.Tensor, ...]] = []  # features, weights and gradients of the next step

    @property
    def widths(self) -> list[int]:
        """Length of the vector that each level reads."""
        return [self.weight.shape[1]] * self.n_levels

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None) -> list[torch.Tensor]:
        """Return the vectors (texts, d) of features (texts, length) with their weights."""
        with torch.no_grad():
            e = F.embedding_bag(ids, self.weight, per_sample_weights=mask, mode="sum")
        if self.training:
            e.requires_grad_(True)
            e.register_hook(lambda gradient: self.waiting.append((ids, mask, gradient.detach())))
        return [e] * self.n_levels

    def set_lr(self, factor: float) -> None:
        """Multiply the learning rate by a factor."""
        self.rate.fill_(factor * self.config.training.learning_rate)

    @torch.no_grad()
    def step(self) -> None:
        """Update the embeddings of the features that were read since the last step."""
        _, update = fastest(self.weight.device)
        unused = torch.zeros(len(self.weight), device=self.weight.device)  # there are no biases
        decay = self.config.training.weight_decay
        for ids, weights, gradient in self._of_all_ranks():
            update(self.weight, unused, self.state, ids, weights, weights != 0, gradient, self.rate, decay)
        self.waiting.clear()

    def _of_all_ranks(self) -> list[list[torch.Tensor]]:
        """Return what all ranks have read since the last step, as one batch."""
        none = torch.zeros((0, 1), device=self.weight.device)
        most = max((ids.shape[1] for ids, _, _ in self.waiting), default=1)
        wide = [
            (*(F.pad(part, (0, most - part.shape[1])) for part in (ids, weights)), gradient)
            for ids, weights, gradient in self.waiting
        ]
        return [gathered(wide, (none.long(), none, none.new_zeros((0, self.weight.shape[1]))))]
