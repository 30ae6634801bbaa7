"""The reader of transformers: one pass of the encoder, pooled at the layers that each level names."""

from __future__ import annotations

import torch

from umpteen.config import NeuralConfig
from umpteen.errors import BadConfig
from umpteen.neural.encoder import Encoder
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
