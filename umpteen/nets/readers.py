"""What turns padded tokens into the vectors that levels read."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from umpteen.features.encoder import Encoder
from umpteen.features.pooling import Pooling


class Layers(torch.nn.Module):
    """One pass of an encoder, read at a layer, or several side by side, for each level."""

    def __init__(self, encoder: Encoder, specs: Sequence[str]):
        super().__init__()
        self.encoder, n_layers = encoder, encoder.model.config.num_hidden_layers
        self.model = encoder.model
        self.poolings = [Pooling.parse(spec, n_layers, encoder.tokenizer.cls_token_id) for spec in specs]

    @property
    def widths(self) -> list[int]:
        """Length of the vector that each level reads."""
        return [self.model.config.hidden_size * pooling.width for pooling in self.poolings]

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None) -> list[torch.Tensor]:
        """Return the vectors (texts, width) of each level."""
        states = self.encoder.states(ids, mask)
        return [pooling(states, ids, mask) for pooling in self.poolings]


def deeper_and_deeper(n_layers: int, n_levels: int) -> list[str]:
    """Return what each level reads: the first token of deeper and deeper layers, of two for the coarsest of several.

    Examples
    --------
    >>> deeper_and_deeper(12, 4)
    ['cls@5+6', 'cls@8', 'cls@10', 'cls@12']
    >>> deeper_and_deeper(12, 3)
    ['cls@7+8', 'cls@10', 'cls@12']
    >>> deeper_and_deeper(6, 2)
    ['cls@4+5', 'cls@6']
    >>> deeper_and_deeper(2, 3)
    ['cls@1', 'cls@1', 'cls@2']
    """
    step = max(1, round(n_layers / 6))
    layers = [max(1, n_layers - step * (n_levels - 1 - level)) for level in range(n_levels)]
    specs = [f"cls@{layer}" for layer in layers]
    if n_levels > 1 and layers[0] > 1:
        specs[0] = f"cls@{layers[0] - 1}+{layers[0]}"
    return specs
