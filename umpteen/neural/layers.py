"""The readers of transformers: one pass of the encoder, pooled at the layers that each level names, or as it is."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from umpteen.config import NeuralConfig
from umpteen.errors import BadConfig
from umpteen.neural.encoder import Encoder
from umpteen.neural.heads import FullHead, Head, WeightedHead
from umpteen.neural.pooling import Pooling, deeper_and_deeper
from umpteen.neural.readers import Reader


class Layers(Reader):
    """One pass of an encoder, pooled at a layer, or at several side by side, for each level."""

    reads = "layers"

    def __init__(self, encoder: Encoder, n_levels: int, config: NeuralConfig):
        super().__init__(encoder, n_levels, config)
        self.encoder = encoder
        cls_id = encoder.tokenizer.cls_token_id
        self.poolings = [
            Pooling.parse(spec, encoder.n_layers, cls_id, "network.pooling") for spec in self._specs(encoder)
        ]

    def _specs(self, encoder: Encoder) -> list[str]:
        """Return what each level reads of the encoder."""
        specs = list(self.config.network.poolings)
        if not specs:
            return deeper_and_deeper(encoder.n_layers, self.n_levels, encoder.pooling.kind)
        if len(specs) not in (1, self.n_levels):
            raise BadConfig(f"network.pooling names {len(specs)} poolings, but the network has {self.n_levels} levels")
        return specs if len(specs) == self.n_levels else specs * self.n_levels

    @property
    def widths(self) -> list[int]:
        """Length of the vector that each level reads."""
        return [self.model.config.hidden_size * pooling.width for pooling in self.poolings]

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None) -> list[torch.Tensor]:
        """Return the vectors (texts, width) of each level."""
        every = not all(pooling.is_last_only for pooling in self.poolings)
        self.encoder.check_exported(self.poolings)
        states = self.encoder.states(ids, mask, every=every)
        n_windows = self.encoder.n_windows(ids)
        return [pooling(states, ids, mask, n_windows) for pooling in self.poolings]


class Embeddings(Reader):
    """The embedding of the encoder, of length one, for every level; the encoder learns with each of them.

    This is what XR-Transformer reads: coarse-to-fine training leaves an encoder, and classifiers of its embeddings.
    """

    reads = "layers"

    def __init__(self, encoder: Encoder, n_levels: int, config: NeuralConfig):
        super().__init__(encoder, n_levels, config)
        self.encoder = encoder

    @property
    def widths(self) -> list[int]:
        """Length of the embedding."""
        return [self.encoder.dim] * self.n_levels

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None) -> list[torch.Tensor]:
        """Return the embeddings (texts, d), the same for each level."""
        return [F.normalize(self.encoder(ids, mask), dim=1)] * self.n_levels

    def head(self, level: int, n_nodes: int) -> Head:
        """Return the head of a level: many labels are trained in blocks, all other nodes by an optimiser."""
        training, dropout = self.config.training, self.config.network.dropout_at(level)
        if level == self.n_levels - 1 and self.config.has_full_head(n_nodes):
            return FullHead(
                self.encoder.dim, n_nodes, dropout=dropout, whitens=training.init == "lda",
                learning_rate=training.full_head_learning_rate,
            )  # fmt: skip
        return WeightedHead(self.encoder.dim, n_nodes, dropout=dropout, loss=training.loss, alpha=training.alpha)

    def learners(self, level: int) -> list[torch.nn.Module]:
        """Return the encoder, which learns at every level."""
        return [self]
