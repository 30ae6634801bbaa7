"""XML-CNN: convolutions over neighbouring words, max-pooling over parts of the text, and a narrow layer."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from umpteen.config import NeuralConfig
from umpteen.neural.encoder import Encoder
from umpteen.neural.readers import WordReader


class TextCNN(WordReader):
    """Filters over neighbouring words, their largest outputs in a few parts of the text, and a bottleneck."""

    SIZES, PARTS = (2, 4, 8), 8

    def __init__(self, encoder: Encoder, n_levels: int, config: NeuralConfig):
        super().__init__(encoder, n_levels, config)
        hidden, bottleneck = config.network.hidden, config.network.bottleneck
        self.filters = torch.nn.ModuleList(torch.nn.Conv1d(self.width, hidden, size) for size in self.SIZES)
        self.bottleneck = torch.nn.Linear(len(self.SIZES) * hidden * self.PARTS, bottleneck or hidden)

    @property
    def widths(self) -> list[int]:
        """Length of the vector that each level reads."""
        return [self.bottleneck.out_features] * self.n_levels

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None) -> list[torch.Tensor]:
        """Return the vectors (texts, bottleneck), the same for each level."""
        x, mask = self.embed(ids, mask)
        part = self._part(mask)
        x, found = x.transpose(1, 2), []
        for size, filters in zip(self.SIZES, self.filters, strict=True):
            around = F.pad(x, ((size - 1) // 2, size // 2))  # an output for every token
            found.append(self._largest(filters(around), part))
        e = self.bottleneck(_normalized(torch.cat(found, dim=1).flatten(1)))
        return [torch.tanh(_normalized(e))] * self.n_levels

    def _part(self, mask: torch.Tensor) -> torch.Tensor:
        """Return which part of its text each token is in (texts, length); padding is in one of its own."""
        at = torch.arange(mask.shape[1], device=mask.device)
        return torch.where(mask, at * self.PARTS // mask.sum(dim=1, keepdim=True).clamp(min=1), self.PARTS)

    def _largest(self, outputs: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        """Return the largest positive output of each filter in each part (texts, filters, parts)."""
        out = outputs.new_zeros(*outputs.shape[:2], self.PARTS + 1)
        return out.scatter_reduce(2, part[:, None, :].expand_as(outputs), outputs, "amax")[:, :, : self.PARTS]


def _normalized(e: torch.Tensor) -> torch.Tensor:
    """Give the vector of each text mean 0 and variance 1 (layer normalisation).

    Nearly all of many labels are wrong for a text. What texts have in common would be pushed down for all of them,
    until nothing else is left.
    """
    return F.layer_norm(e, e.shape[1:])
