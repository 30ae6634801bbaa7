"""A level that is trained by itself, after the levels above it: its head, and the reader if it learns with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from umpteen.neural.cascade import Cascade, Shortlist, loss_without_texts
from umpteen.neural.heads import inherit
from umpteen.neural.truth import Truth

_OF_TRUTH = 2.0  # priority of true nodes; those of nodes that were predicted are at most 1


class Level(torch.nn.Module):
    """What is trained of a cascade with one of its levels, a ``Trainable``.

    Parts that do not learn are no parts of this module: they stay in prediction mode, and no state of them is kept.

    Parameters
    ----------
    cascade
        Reader, heads and tree.
    number
        The level. It starts with what it shares with the one above.
    scores_all
        Whether all nodes are scored at once, and those that are not to be learned have no weight in the loss, if the
        head can leave nodes out. Otherwise only candidates are scored.
    """

    def __init__(self, cascade: Cascade, number: int, *, scores_all: bool):
        super().__init__()
        self.number, self.scores_all = number, scores_all or not number
        if number:
            inherit(cascade.head(number), cascade.head(number - 1))
        cascade.reader.begin_level(number)
        self.head = cascade.head(number)
        self.readers = torch.nn.ModuleList(cascade.reader.learners(number))
        self._cascade = (cascade,)  # not a part of the module
        if self.head.leaves_out:
            parents = torch.from_numpy(cascade.tree.parents[number].astype(np.int64))
            self.register_buffer("parents", self.head.shard.take(parents).to(self.head.bias.device), persistent=False)

    @property
    def is_divided(self) -> bool:
        """Whether this rank has some of the nodes only."""
        return self.head.shard.is_cut

    def loss(
        self, ids: torch.Tensor, mask: torch.Tensor | None, truth: Sequence[Truth], *, is_whole: bool = True,
        predicted: Truth | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Return the mean loss of a text.

        ``truth`` ends with the nodes of this level, before which come those of the level above if candidates are
        scored. ``predicted`` are nodes above: those whose children are learned if all nodes are scored, otherwise those
        that were predicted, with their priority.
        """
        (cascade,) = self._cascade
        learned = None
        if predicted is not None and self.head.leaves_out:
            learned = predicted.dense()[:, self.parents]
        if not len(ids):
            width = cascade.reader.widths[self.number]
            return loss_without_texts(self.head, width, truth[-1], is_whole=is_whole, learned=learned)
        with torch.set_grad_enabled(len(self.readers) > 0):
            e = cascade.reader.of_level(self.number, ids, mask)
        if self.scores_all:
            return self.head.learn_all(e, truth[-1], is_whole=is_whole, learned=learned)[1] / len(ids)
        above = self.number - 1
        parents = _parents(truth[-2], predicted)
        shortlist = cascade.below(above, parents, parents.path, cascade.config.network.beam_at(above))
        right = truth[-1].contains(shortlist.nodes)
        return self.head.learn(e, shortlist.nodes, right, shortlist.exists, is_whole=is_whole)[1] / len(ids)

    def set_lr(self, factor: float) -> None:
        """Multiply the learning rates by a factor; for what the optimiser does not train."""
        for part in (*self.readers, self.head):
            part.set_lr(factor)

    def step(self) -> None:
        """Update what the optimiser does not train, after the backward pass of a batch."""
        for part in (*self.readers, self.head):
            part.step()


def _parents(true: Truth, predicted: Truth | None) -> Shortlist:
    """Return the nodes whose children may be scored: true ones first, then the predicted ones, if there are any."""
    if predicted is None:
        predicted = Truth(true.nodes[:, :0], true.values[:, :0], true.n_nodes)
    nodes = torch.cat([true.nodes, predicted.nodes], dim=1)
    is_new = ~true.contains(predicted.nodes) & (predicted.nodes < predicted.n_nodes)
    priority = torch.cat([(true.nodes < true.n_nodes) * _OF_TRUTH, is_new * predicted.values], dim=1)
    return Shortlist(nodes.clamp(max=true.n_nodes - 1), priority > 0, priority)
