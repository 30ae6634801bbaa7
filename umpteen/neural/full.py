"""One scorer for every label, trained a piece of the labels at a time.

The gradient of the logistic loss by a score is σ(score) − y. So the scores of some labels are turned into gradients in
place, the texts' share of them is added up, the labels' weights are stepped at once, and the next labels follow:
memory holds the weights and the scores of one piece, never scores, gradients or an optimiser's state of all labels
(Renée, MLSys 2023; ELMO, ICML 2025).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch.nn import functional as F

from umpteen.config import LABELS_STEPPED_AT_ONCE as _LABELS_AT_ONCE
from umpteen.config import NetConfig
from umpteen.neural.lda_init import Whitening
from umpteen.neural.scorers import log_odds
from umpteen.neural.sparse_table import with_gradient
from umpteen.neural.stable_topk import stable_topk
from umpteen.tree import LabelTree

_COPIES = 3  # of the scores of some labels, while the best are looked for


class Full(torch.nn.Module):
    """A vector and a bias for every label, in short floats on a GPU.

    Parameters
    ----------
    reader
        Turns tokens into one vector per text.
    tree
        One level: the labels.
    config
        Dropout and the rate at which labels learn. At rate 1 a step closes the gap of a label for a text as far as
        the gradient goes: rates do not depend on the width of the encoder.
    """

    def __init__(self, reader: torch.nn.Module, tree: LabelTree, config: NetConfig):
        super().__init__()
        self.reader, self.config, self.width = reader, config, reader.widths[-1]
        self.standard = Whitening(self.width) if config.begins_with_texts else None
        self.register_buffer("weight", torch.zeros(tree.n_labels, self.width))
        self.register_buffer("bias", torch.full((tree.n_labels,), -math.log(max(tree.n_labels, 2))))
        self.register_buffer("rate", torch.tensor(config.head_rate), persistent=False)
        self.waiting: list[tuple[torch.Tensor, torch.Tensor]] = []  # vectors and truth of texts that still step labels

    def shorten(self) -> None:
        """Keep the weights in short floats; what is lost in a step is made up for on average."""
        self.weight = self.weight.to(torch.bfloat16)

    def begin(self, level: int, share: torch.Tensor) -> None:
        """Start every label at how often texts carry it, a share of all texts (labels,)."""
        self.bias.copy_(log_odds(share))

    @property
    def standards(self) -> list[Whitening | None]:
        """What makes vectors standard, for the one level there is."""
        return [self.standard]

    def room(self, level: int) -> torch.Tensor:
        """Return where first weights may be worked out (labels, d)."""
        return self.weight if self.weight.dtype == torch.float32 else torch.empty_like(self.weight, dtype=torch.float32)

    def compared(self, level: int, e: torch.Tensor) -> torch.Tensor:
        """Return what labels are compared with (texts, d)."""
        return self._scaled([e])

    def start(self, level: int, offset: torch.Tensor, weight: torch.Tensor) -> None:
        """Take first weights (labels, d), and what is added to the biases (labels,)."""
        self.weight.copy_(weight)
        self.bias.add_(offset)

    def pace(self, factor: float) -> None:
        """Learn at this share of the rate."""
        self.rate.fill_(factor * self.config.head_rate)

    def loss(
        self, ids: torch.Tensor, mask: torch.Tensor | None, truth: Sequence[torch.Tensor], *, is_whole: bool = True
    ) -> torch.Tensor:
        """Return a loss whose gradient is the texts' share; a whole batch steps the labels, too.

        Where it is a part of a batch, ``step_tables`` steps them after the last one.
        """
        e = F.dropout(self._scaled(self.reader(ids, mask)), self.config.dropout[-1], self.training)
        loss, grad_e = self._learned(e, truth[0], steps=is_whole)
        if not is_whole:
            self.waiting.append((e.detach(), truth[0]))
        return with_gradient(e, loss / len(e), grad_e / len(e))

    @torch.no_grad()
    def step_tables(self) -> None:
        """Step the labels by all texts that wait for it: they are scored once more, for nothing was kept of them."""
        e, truth = (torch.cat(parts) for parts in zip(*self.waiting, strict=True))
        self.waiting.clear()
        short = e.to(self.weight.dtype)
        for first, last in self._pieces():
            self._step(first, last, _gap(self._scores(short, first, last), truth[:, first:last].float()), short)

    @torch.no_grad()
    def _learned(self, e: torch.Tensor, truth: torch.Tensor, *, steps: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Step the labels, if asked to; return the summed loss and the texts' gradient (texts, d)."""
        grad_e, loss, short = torch.zeros_like(e), torch.zeros((), device=e.device), e.to(self.weight.dtype)
        with torch.autocast(e.device.type, enabled=False):
            for first, last in self._pieces():
                scores, right = self._scores(short, first, last), truth[:, first:last].float()  # (texts, labels)
                loss -= F.logsigmoid(-scores).sum() + (scores * right).sum()
                gap = _gap(scores, right).to(short.dtype)
                grad_e += (gap @ self.weight[first:last]).to(grad_e.dtype)
                if steps:
                    self._step(first, last, gap, short)
        return loss, grad_e

    def _step(self, first: int, last: int, gap: torch.Tensor, e: torch.Tensor) -> None:
        """Step a piece of the labels by what its scores (texts, labels) were off."""
        rate = self.rate / self.width
        self.weight[first:last] = stepped(self.weight[first:last], gap.to(e.dtype).T @ e, rate)
        self.bias[first:last] -= rate * gap.float().sum(dim=0)

    @torch.no_grad()
    def topk(
        self, seen: Iterable[torch.Tensor], k: int, beams: Sequence[int] = (), *, allowed: Sequence[torch.Tensor] = ()
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the numbers (texts, k) of the best labels, −1 where there are none, and their scores."""
        e, parts = self._scaled(seen), []
        for first, last in self._pieces():
            scores = self._scores(e, first, last)
            if len(allowed):
                scores = torch.where(allowed[0][first:last], scores, -torch.inf)
            values, at = stable_topk(scores, k)
            parts.append((values, first + at))
        values, labels = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
        values, at = stable_topk(values, k)
        return torch.where(values.isfinite(), labels.gather(1, at), -1), values.sigmoid()

    @torch.no_grad()
    def score(self, seen: Iterable[torch.Tensor], nodes: Sequence[torch.Tensor]) -> torch.Tensor:
        """Score some labels (texts, labels) of each text."""
        e, labels = self._scaled(seen), nodes[-1]
        weight = F.embedding(labels, self.weight).float()
        return (torch.bmm(weight, e.float()[:, :, None])[:, :, 0] + self.bias[labels]).sigmoid()

    def numbers(self, candidates: int, length: int, *, searches: bool) -> int:
        """Return how many numbers the candidates of one text take at most; a search scores labels piece by piece."""
        return candidates * self.width + (_COPIES * min(len(self.bias), _LABELS_AT_ONCE) if searches else 0)

    def silence(self, places: torch.Tensor, margin: float) -> None:
        """Give labels a fixed margin."""
        self.weight[places] = 0.0
        self.bias[places] = margin

    def _scaled(self, seen: Iterable[torch.Tensor]) -> torch.Tensor:
        """Bring what was read to one length."""
        *_, e = seen
        e = e if self.standard is None else self.standard(e)
        return F.normalize(e.float(), dim=1) * math.sqrt(self.width)

    def _scores(self, e: torch.Tensor, first: int, last: int) -> torch.Tensor:
        """Score a piece of the labels in float32, multiplied in the precision of ``e``."""
        return F.linear(e, self.weight[first:last].to(e.dtype)).float() + self.bias[first:last]

    def _pieces(self) -> list[tuple[int, int]]:
        n_labels = len(self.bias)
        return [(first, min(first + _LABELS_AT_ONCE, n_labels)) for first in range(0, n_labels, _LABELS_AT_ONCE)]


def _gap(scores: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Turn scores into the gradient of the logistic loss by them, in place."""
    return scores.sigmoid_().sub_(right)


def stepped(weight: torch.Tensor, gradient: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
    """Return ``weight − rate · gradient`` in the precision of ``weight``, short floats rounded up or down at random.

    Rounded to the nearest, a step smaller than half the distance to the next short float would be lost every time.
    """
    exact = weight.float() - rate * gradient.float()
    if weight.dtype != torch.bfloat16:
        return exact
    bits = exact.view(torch.int32) + torch.randint_like(exact, 0, 1 << 16, dtype=torch.int32)
    return (bits & -(1 << 16)).view(torch.float32).to(torch.bfloat16)
