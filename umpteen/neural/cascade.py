"""A reader and the heads of all levels: each level scores the children of the nodes that the one above finds best.

LightXML has two levels that read the same vector, CascadeXML three or four that read deeper and deeper layers; with one
level every label is scored. In training the true nodes come first among those whose children are scored, as many as
the beam holds. Where levels learn together the choice is made anew at every step (dynamic negatives). Levels that
learn one after the other are trained as a ``Level``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from umpteen.config import NeuralConfig
from umpteen.neural.heads import Head
from umpteen.neural.readers import PerLevel, Reader
from umpteen.neural.stable_topk import stable_topk
from umpteen.neural.truth import Truth
from umpteen.tree import LabelTree


class Shortlist(NamedTuple):
    """Nodes of a level that are scored for each text, all (texts, candidates)."""

    nodes: torch.Tensor
    exists: torch.Tensor  # whether a place holds a node
    path: torch.Tensor  # logarithm of the parent's score


class Cascade(torch.nn.Module):
    """Heads of every level on one pass of a reader.

    Parameters
    ----------
    reader
        Turns tokens into what each level reads, and makes the heads for it.
    tree
        The levels; its last one is the labels.
    config
        The beam and how scores of levels are combined.
    n_levels
        Levels that have a head, all of the tree by default.
    """

    def __init__(
        self, reader: Reader | PerLevel, tree: LabelTree, config: NeuralConfig, n_levels: int | None = None
    ):  # fmt: skip
        super().__init__()
        self.reader, self.tree, self.config = reader, tree, config
        sizes = tree.sizes[:n_levels]
        self.heads = torch.nn.ModuleList(reader.head(level, size) for level, size in enumerate(sizes))
        for level in range(1, 0 if config.is_recursive else len(sizes)):  # a ranker follows, not a search
            self.register_buffer(
                f"children_{level}", torch.from_numpy(child_table(tree.starts[level])), persistent=False
            )

    def head(self, level: int) -> Head:
        """Return the head of a level."""
        return self.heads[level]  # type: ignore[return-value]

    # Training

    def loss(
        self, ids: torch.Tensor, mask: torch.Tensor | None, truth: Sequence[Truth], *, is_whole: bool = True,
        predicted: Truth | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Return the logistic loss of a text, summed over nodes and levels.

        A whole batch updates heads that update themselves; after the last part of one, ``step`` does.
        """
        if not len(ids):
            return loss_without_texts(self.head(0), self.reader.widths[0], truth[0], is_whole=is_whole)
        total, shortlist = torch.zeros((), device=ids.device), None
        for level, e in enumerate(self.reader(ids, mask)):
            if shortlist is None:
                scores, lost = self.head(0).learn_all(e, truth[0], is_whole=is_whole)
            else:
                right = truth[level].contains(shortlist.nodes)
                scores, lost = self.head(level).learn(e, shortlist.nodes, right, shortlist.exists, is_whole=is_whole)
            total = total + lost / len(ids)
            if level + 1 == self.tree.n_levels:
                break
            if shortlist is None:  # the first level has few nodes where there are others
                shortlist, right = self._every(0, len(ids), ids.device), truth[0].dense() > 0
            shortlist = self._next(level, shortlist, scores.detach(), right)
        return total

    def divide(self) -> None:
        """Divide the nodes among ranks where levels score all of them; candidates are scored by every rank."""
        if len(self.heads) == 1 or self.config.is_recursive:
            for head in self.heads:
                head.divide()

    def unite(self) -> None:
        """Bring all nodes to rank 0."""
        for head in self.heads:
            head.unite()

    @property
    def is_divided(self) -> bool:
        """Whether this rank has some of the nodes only."""
        return self.head(0).shard.is_cut

    def _next(self, level: int, shortlist: Shortlist, scores: torch.Tensor, right: torch.Tensor) -> Shortlist:
        """Return the nodes below a level to train on: children of true nodes, and of the best others if asked for."""
        beam = self.config.network.beam_at(level)
        if self.config.training.negatives == "tfn":
            true = shortlist._replace(exists=shortlist.exists & right)
            most = int(true.exists.sum(dim=1).max())
            return self.below(level, true, true.exists.float(), min(beam, max(most, 1)))
        priority = torch.where(shortlist.exists, scores.sigmoid() + right, -1.0)  # true nodes come first
        return self.below(level, shortlist, priority, beam)

    def set_lr(self, factor: float) -> None:
        """Multiply the learning rates by a factor; an optimiser knows its own."""
        for part in (self.reader, *self.heads):
            part.set_lr(factor)

    def step(self) -> None:
        """Update what updates itself, after the backward pass of a batch."""
        for part in (self.reader, *self.heads):
            part.step()

    def place(self, device: torch.device) -> None:
        """Choose the precision of weights for a device."""
        for head in self.heads:
            head.place(device)

    def set_prior(self, level: int, frequency: torch.Tensor) -> None:
        """Start every node of a level at how often it is right where it is scored.

        ``frequency`` (nodes,) is that among all texts. Below the first level a node is scored only for texts whose beam
        holds its parent, about as many as the beam's part of the level above.
        """
        beam = self.config.network.beam_at(level - 1) if level else 1
        scored = min(1.0, beam / self.tree.sizes[level - 1]) if level else 1.0
        self.head(level).set_prior((frequency / scored).clamp(max=0.5))

    # Search

    @torch.no_grad()
    def choose(self, reads: Iterable[Any], beams: Sequence[int], level: int) -> torch.Tensor:
        """Return the nodes (texts, beam) above a level whose children it will learn, the best first, −1 for none."""
        walk = self._walk(reads, beams, ())
        for _ in range(level):
            shortlist, path = next(walk)
        path, at = stable_topk(path, min(beams[level - 1], path.shape[1]))
        return torch.where(path.isfinite(), shortlist.nodes.gather(1, at), -1)

    @torch.no_grad()
    def topk(
        self, reads: Iterable[Any], k: int, beams: Sequence[int], *, allowed: Sequence[torch.Tensor] = ()
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the best labels (texts, k) by their places in the last level, −1 where there are none, and scores.

        ``reads`` is what each level reads, ``beams`` is how many nodes of each level above are kept, ``allowed``
        (nodes,) says for each level what may be chosen; empty is everything.
        """
        if self.tree.n_levels == 1:
            (e,) = reads
            nodes, path = self.head(0).best(e, k, allowed[0] if len(allowed) else None)
            return torch.where(path.isfinite(), nodes, -1), path.exp()
        *_, (shortlist, path) = self._walk(reads, beams, allowed)
        path, at = stable_topk(path, k)
        return torch.where(path.isfinite(), shortlist.nodes.gather(1, at), -1), path.exp()

    @torch.no_grad()
    def recalled(self, reads: Iterable[Any], beams: Sequence[int], truth: Sequence[Truth]) -> torch.Tensor:
        """Return for each level how many of the nodes that are scored are true."""
        walk = zip(self._walk(reads, beams, ()), truth, strict=True)
        return torch.stack([(true.contains(found.nodes) & found.exists).sum() for (found, _), true in walk])

    def _walk(
        self, reads: Iterable[Any], beams: Sequence[int], allowed: Sequence[torch.Tensor]
    ) -> Iterator[tuple[Shortlist, torch.Tensor]]:
        """Yield for each level what is scored there and the logarithms of scores, −∞ where there is nothing."""
        shortlist = None
        for level, e in enumerate(reads):
            if shortlist is None:
                shortlist, scores = self._every(0, len(e), e.device), self.head(0).all(e).float()
            else:
                scores = self.head(level).some(e, shortlist.nodes).float()
            path = self._path(level, scores, shortlist)
            if len(allowed):
                shortlist = shortlist._replace(exists=shortlist.exists & allowed[level][shortlist.nodes])
            path = torch.where(shortlist.exists, path, -torch.inf)
            yield shortlist, path
            if level + 1 < self.tree.n_levels:
                shortlist = self.below(level, shortlist, path, beams[level])

    @torch.no_grad()
    def score(self, reads: Iterable[Any], nodes: Sequence[torch.Tensor]) -> torch.Tensor:
        """Score some labels of each text; ``nodes`` (texts, labels) are their ancestors, level by level."""
        path = torch.zeros(nodes[0].shape, device=nodes[0].device)
        for level, e in enumerate(reads):
            shortlist = Shortlist(nodes[level], torch.ones_like(path, dtype=torch.bool), path)
            path = self._path(level, self.head(level).some(e, nodes[level]).float(), shortlist)
        return path.exp()

    def n_floats(self, candidates: int, length: int, *, searches: bool) -> int:
        """Return how many numbers the candidates of one text take at most; a search scores the first level whole."""
        of_all = self.head(0).n_floats_of_all(length) if searches else 0
        return max(of_all, *(head.n_floats(candidates, length) for head in self.heads))

    def set_margin(self, labels: torch.Tensor, margin: float) -> None:
        """Give labels at these places a fixed margin."""
        self.head(-1).set_margin(labels, margin)

    def _every(self, level: int, n_texts: int, device: torch.device) -> Shortlist:
        """Return every node of a level."""
        nodes = torch.arange(self.tree.sizes[level], device=device).expand(n_texts, -1)
        return Shortlist(nodes, torch.ones_like(nodes, dtype=torch.bool), torch.zeros(nodes.shape, device=device))

    def _path(self, level: int, scores: torch.Tensor, shortlist: Shortlist) -> torch.Tensor:
        """Turn margins into the logarithms of scores, with that of the parents added as ``network.score`` says.

        Scores themselves would be 1 for many large margins, and their products 0 for many small ones.
        """
        is_last, rule = level + 1 == self.tree.n_levels, self.config.network.score
        multiplies = rule == "product" or (rule == "weighted" and is_last)
        return F.logsigmoid(scores) + shortlist.path if multiplies else F.logsigmoid(scores)

    def below(self, level: int, shortlist: Shortlist, scores: torch.Tensor, beam: int) -> Shortlist:
        """Return the children of the nodes with the best scores, or logarithms of them."""
        kept, at = scores.topk(min(beam, scores.shape[1]), dim=1)  # (texts, beam)
        children = self.get_buffer(f"children_{level + 1}")[shortlist.nodes.gather(1, at)]  # (texts, beam, most)
        exists = (children >= 0) & shortlist.exists.gather(1, at)[:, :, None]
        path = kept[:, :, None].expand_as(children)
        return Shortlist(children.clamp(min=0).flatten(1), exists.flatten(1), path.flatten(1))


def loss_without_texts(
    head: Head, width: int, truth: Truth, *, is_whole: bool, learned: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the loss of the nodes of this rank where it has no text of a batch, but others may have some.

    ``truth`` and ``learned`` are those of the texts of all ranks.
    """
    device = truth.nodes.device
    if not head.shard.is_cut:
        return torch.zeros((), device=device)
    e = torch.zeros((0, width), device=device, requires_grad=True)
    return head.learn_all(e, truth, is_whole=is_whole, learned=learned)[1]


def child_table(starts: np.ndarray) -> np.ndarray:
    """Return the children of each parent (parents, most children), −1 where one has fewer.

    Examples
    --------
    >>> child_table(np.array([0, 2, 3])).tolist()
    [[0, 1], [2, -1]]
    """
    counts = np.diff(starts).astype(np.int64)
    place = np.arange(int(counts.max(initial=1)))
    return np.where(place < counts[:, None], starts[:-1, None] + place, -1)
