"""What turns padded tokens into what levels read: one vector per text, or a state per token to attend to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from umpteen.neural.encoder import Encoder
from umpteen.neural.pooling import Pooling


class Layers(torch.nn.Module):
    """One pass of an encoder, read at a layer, or several side by side, for each level."""

    def __init__(self, encoder: Encoder, specs: Sequence[str]):
        super().__init__()
        self.encoder, n_layers = encoder, encoder.n_layers
        self.model = encoder.model
        self.poolings = [Pooling.parse(spec, n_layers, encoder.tokenizer.cls_token_id, "net.pooling") for spec in specs]

    @property
    def widths(self) -> list[int]:
        """Length of the vector that each level reads."""
        return [self.model.config.hidden_size * pooling.width for pooling in self.poolings]

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None) -> list[torch.Tensor]:
        """Return the vectors (texts, width) of each level."""
        every = not all(pooling.is_last_only for pooling in self.poolings)
        states = self.encoder.states(ids, mask, every=every)
        return [pooling(states, ids, mask) for pooling in self.poolings]


@dataclass(frozen=True)
class States:
    """A state per token (texts, length, d), and which tokens are no padding (texts, length)."""

    states: torch.Tensor
    mask: torch.Tensor

    @property
    def device(self) -> torch.device:
        """Where they lie."""
        return self.states.device

    def __len__(self) -> int:
        return len(self.states)

    def float(self) -> States:
        """Return them in full precision."""
        return States(self.states.float(), self.mask)

    def pooled(self) -> torch.Tensor:
        """Return the mean over the tokens of each text (texts, d)."""
        weight = self.mask[:, :, None].to(self.states.dtype)
        return (self.states * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1.0)


class Words(torch.nn.Module):
    """Base of readers that take an encoder's vectors of words and nothing else of it."""

    def __init__(self, encoder: Encoder, n_levels: int):
        super().__init__()
        self.model, self.n_levels = encoder.model, n_levels
        self.width = self.model.get_input_embeddings().weight.shape[1]

    def look_up(self, ids: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the vectors (texts, length, d), zero where there is padding, and the mask."""
        mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        x = self.model.get_input_embeddings()(ids)
        x = F.dropout(F.layer_norm(x, x.shape[-1:]), 0.2, self.training)
        return x * mask[:, :, None], mask


class Recurrent(Words):
    """An LSTM in both directions over the words of a text (AttentionXML)."""

    def __init__(self, encoder: Encoder, n_levels: int, hidden: int):
        super().__init__(encoder, n_levels)
        self.hidden = hidden
        self.onward = torch.nn.LSTM(self.width, hidden, batch_first=True)
        self.back = torch.nn.LSTM(self.width, hidden, batch_first=True)

    @property
    def widths(self) -> list[int]:
        """Length of the states that each level reads."""
        return [2 * self.hidden] * self.n_levels

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None) -> list[States]:
        """Return the states of all tokens, the same for each level."""
        x, mask = self.look_up(ids, mask)
        turned = _turned(mask)[:, :, None]  # so that padding comes last in both directions and is never read
        behind = self.back(x.gather(1, turned.expand_as(x)))[0]
        states = torch.cat([self.onward(x)[0], behind.gather(1, turned.expand_as(behind))], dim=2)
        states = F.dropout(states, 0.5, self.training) * mask[:, :, None]  # of a text without tokens, nothing is seen
        return [States(states, mask)] * self.n_levels


def _turned(mask: torch.Tensor) -> torch.Tensor:
    """Return for each place of a text (texts, length) the place it has when the text is read from its end.

    Examples
    --------
    >>> _turned(torch.tensor([[True, True, True, False]])).tolist()
    [[2, 1, 0, 3]]
    """
    at = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - at, at)


class Convolved(Words):
    """Filters over neighbouring words, their largest answers in a few parts of the text, a narrow layer (XML-CNN)."""

    SIZES, PARTS = (2, 4, 8), 8

    def __init__(self, encoder: Encoder, n_levels: int, hidden: int, bottleneck: int):
        super().__init__(encoder, n_levels)
        self.filters = torch.nn.ModuleList(torch.nn.Conv1d(self.width, hidden, size) for size in self.SIZES)
        self.narrow = torch.nn.Linear(len(self.SIZES) * hidden * self.PARTS, bottleneck)

    @property
    def widths(self) -> list[int]:
        """Length of the vector that each level reads."""
        return [self.narrow.out_features] * self.n_levels

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None) -> list[torch.Tensor]:
        """Return the vectors (texts, bottleneck), the same for each level."""
        x, mask = self.look_up(ids, mask)
        part = self._part(mask)
        x, found = x.transpose(1, 2), []
        for size, filters in zip(self.SIZES, self.filters, strict=True):
            around = F.pad(x, ((size - 1) // 2, size // 2))  # an answer for every token
            found.append(self._largest(filters(around), part))
        e = self.narrow(_even(torch.cat(found, dim=1).flatten(1)))
        return [torch.tanh(_even(e))] * self.n_levels

    def _part(self, mask: torch.Tensor) -> torch.Tensor:
        """Return which part of its text each token is in (texts, length); padding is in one of its own."""
        at = torch.arange(mask.shape[1], device=mask.device)
        return torch.where(mask, at * self.PARTS // mask.sum(dim=1, keepdim=True).clamp(min=1), self.PARTS)

    def _largest(self, answers: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        """Return the largest positive answer of each filter in each part (texts, filters, parts)."""
        out = answers.new_zeros(*answers.shape[:2], self.PARTS + 1)
        return out.scatter_reduce(2, part[:, None, :].expand_as(answers), answers, "amax")[:, :, : self.PARTS]


def _even(e: torch.Tensor) -> torch.Tensor:
    """Give the vector of each text mean 0 and variance 1.

    Nearly all of many labels are wrong for a text. What texts had in common would be pushed down for all of them, until
    nothing else is left.
    """
    return F.layer_norm(e, e.shape[1:])


class Separate(torch.nn.Module):
    """A reader of its own for each level."""

    def __init__(self, readers: Sequence[torch.nn.Module]):
        super().__init__()
        self.readers = torch.nn.ModuleList(readers)

    @property
    def widths(self) -> list[int]:
        """Length of what each level reads."""
        return [reader.widths[level] for level, reader in enumerate(self.readers)]

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None) -> Iterator[torch.Tensor | States]:
        """Read for one level after the other, as they are asked for."""
        for level, reader in enumerate(self.readers):
            yield reader(ids, mask)[level]
