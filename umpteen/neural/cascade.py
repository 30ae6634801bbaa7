"""Levels of scorers: each one scores the children of the nodes that the one above finds best.

LightXML has two levels that read the same vector, CascadeXML three or four that read deeper and deeper layers; with one
level every label is scored. In training the true nodes come first among those whose children are scored, as many as
the beam holds. Where levels learn at once the choice is made anew at every step; where they learn in turn, as in
AttentionXML, it is made once, before a level begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from umpteen.config import NetConfig
from umpteen.neural.lda_init import Whitening
from umpteen.neural.readers import Separate
from umpteen.neural.scorers import Attention, Scorer, Table, inherit, log_odds
from umpteen.neural.stable_topk import stable_topk
from umpteen.tree import LabelTree

_COPIES = 4  # of the scores of the first level: margins, probabilities, those of the way there, whether there is a node


class Shortlist(NamedTuple):
    """Nodes of a level that are scored for each text, all (texts, candidates)."""

    nodes: torch.Tensor
    exists: torch.Tensor  # whether a place holds a node
    path: torch.Tensor  # logarithm of the parent's score


class Cascade(torch.nn.Module):
    """Scorers of every level on one pass of a reader.

    Parameters
    ----------
    reader
        Turns tokens into what each level reads; says by ``widths`` how long its vectors are.
    tree
        The levels; its last one is the labels.
    config
        Dropout, bottleneck, beam and the rule of the score.
    """

    def __init__(self, reader: torch.nn.Module, tree: LabelTree, config: NetConfig):
        super().__init__()
        self.reader, self.tree, self.config = reader, tree, config
        self.learning: int | None = None  # the level that learns, None is all of them
        self.scorers = torch.nn.ModuleList(
            self._scorer(level, width, size)
            for level, (width, size) in enumerate(zip(reader.widths, tree.sizes, strict=True))
        )
        for level in range(1, tree.n_levels):
            self.register_buffer(
                f"children_{level}", torch.from_numpy(child_table(tree.starts[level])), persistent=False
            )

    def _scorer(self, level: int, width: int, n_nodes: int) -> torch.nn.Module:
        config = self.config
        if config.reader == "lstm":
            return Attention(width, n_nodes, hidden=config.hidden)
        parts: dict[str, Any] = {
            "dropout": config.at(config.dropout, level),
            "bottleneck": config.narrowed(level, self.tree.n_levels),
            "is_standard": config.begins_with_texts,
        }
        if config.steps_rows(level, n_nodes):
            return Table(width, n_nodes, rate=config.head_rate, decay=config.head_decay, **parts)
        return Scorer(width, n_nodes, **parts)

    def learn(self, level: int) -> None:
        """Let one level learn alone from now on; it begins with what the one above has learned.

        With one reader for all levels only the first level trains it.
        """
        self.learning = level
        own = isinstance(self.reader, Separate)
        if level:
            inherit(self.scorers[level], self.scorers[level - 1])
            if own:
                self.reader.readers[level].load_state_dict(self.reader.readers[level - 1].state_dict())
        self.requires_grad_(False)
        for part in self._learners():
            part.requires_grad_(True)

    def _learners(self) -> list[torch.nn.Module]:
        """Return the parts that learn now."""
        if self.learning is None:
            return [self]
        if isinstance(self.reader, Separate):
            return [self.reader.readers[self.learning], self.scorers[self.learning]]
        return [self.scorers[self.learning]] + ([] if self.learning else [self.reader])

    def train(self, mode: bool = True) -> Cascade:
        """Change how the parts that learn behave; the others stay as in prediction."""
        super().train(mode and self.learning is None)
        for part in self._learners() if self.learning is not None else []:
            part.train(mode)
        return self

    def loss(
        self, ids: torch.Tensor, mask: torch.Tensor | None, truth: Sequence[torch.Tensor], *, is_whole: bool = True,
        chosen: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Return the logistic loss of a text, summed over nodes and levels that learn.

        ``truth`` (texts, nodes) is what is right. A whole batch steps levels that step themselves; after the last part
        of one, ``step_tables`` does. Where one level learns, ``chosen`` (texts, beam) is what ``choose`` said of it.
        """
        if self.learning is not None:
            return self._loss_of(self.learning, ids, mask, truth, chosen, is_whole)
        total, shortlist = torch.zeros((), device=ids.device), self._every(0, len(ids), ids.device)
        for level, e in enumerate(self.reader(ids, mask)):
            right = truth[level].gather(1, shortlist.nodes)
            scores, lost = self._learned(level, e, shortlist, right, is_whole)
            total = total + lost / len(ids)
            if level + 1 < self.tree.n_levels:  # what is right comes first
                priority = torch.where(shortlist.exists, scores.detach().sigmoid() + right, -1.0)
                shortlist = self._below(level, shortlist, priority, self._beam(level))
        return total

    def _loss_of(
        self, level: int, ids: torch.Tensor, mask: torch.Tensor | None, truth: Sequence[torch.Tensor],
        chosen: torch.Tensor | None, is_whole: bool,
    ) -> torch.Tensor:  # fmt: skip
        """Return the loss of one level, on the children of nodes that are right and of those chosen before."""
        shortlist = self._every(max(level - 1, 0), len(ids), ids.device)
        if level:
            rank = torch.linspace(1.0, 0.5, chosen.shape[1], device=ids.device).expand(chosen.shape)
            priority = 2.0 * truth[level - 1]  # what is right comes first, then what was chosen, the best of it first
            priority = priority.scatter_add(1, chosen.clamp(min=0), torch.where(chosen >= 0, rank, 0.0))
            shortlist = self._below(level - 1, shortlist, priority, self._beam(level - 1))
        reader = self.reader.readers[level] if isinstance(self.reader, Separate) else self.reader
        right = truth[level].gather(1, shortlist.nodes)
        return self._learned(level, reader(ids, mask)[level], shortlist, right, is_whole)[1] / len(ids)

    @torch.no_grad()
    def choose(self, seen: Iterable[Any], beams: Sequence[int], level: int) -> torch.Tensor:
        """Return the nodes (texts, beam) above a level that it is to learn below, the best first, −1 for none."""
        walk = self._walk(seen, beams, ())
        for _ in range(level):
            shortlist, path = next(walk)
        path, at = stable_topk(path, min(beams[level - 1], path.shape[1]))
        return torch.where(path.isfinite(), shortlist.nodes.gather(1, at), -1)

    def _beam(self, level: int) -> int:
        return int(self.config.at(self.config.beam, level))

    @torch.no_grad()
    def begin(self, level: int, share: torch.Tensor) -> None:
        """Start every node of a level at how often it is right where it is scored.

        ``share`` (nodes,) is that of all texts. Below the first level a node is scored only for texts whose beam
        holds its parent, about as many as the beam's share of the level above. Nodes that attend start at nothing:
        the layer they share would learn slowly from biases that are right already.
        """
        if self.config.reader == "lstm":
            return
        beam = self._beam(level - 1) if level else 1
        asked = min(1.0, beam / self.tree.sizes[level - 1]) if level else 1.0
        self.scorers[level].bias.copy_(log_odds((share / asked).clamp(max=0.5)))

    @property
    def standards(self) -> list[Whitening | None]:
        """What makes the vectors that each level reads standard."""
        return [scorer.standard for scorer in self.scorers]

    def room(self, level: int) -> torch.Tensor:
        """Return where first weights of a level may be worked out (nodes, d)."""
        return self.scorers[level].weight.detach()

    def compared(self, level: int, e: torch.Tensor) -> torch.Tensor:
        """Return what the nodes of a level are compared with (texts, d)."""
        return self.scorers[level].prepare(e)

    @torch.no_grad()
    def start(self, level: int, offset: torch.Tensor, weight: torch.Tensor) -> None:
        """Take first weights (nodes, d), and what is added to the biases (nodes,)."""
        self.scorers[level].weight.copy_(weight)
        self.scorers[level].bias.add_(offset)

    def pace(self, factor: float) -> None:
        """Learn at this share of the rates; where there is an optimiser, it knows them itself."""
        for table in self._tables:
            table.pace(factor)

    def step_tables(self) -> None:
        """Step levels that step themselves, by the parts of a batch that were scored."""
        for table in self._tables:
            if table.waiting:
                table.step_waiting()

    @property
    def _tables(self) -> list[Table]:
        return [scorer for scorer in self.scorers if isinstance(scorer, Table)]

    @torch.no_grad()
    def topk(
        self, seen: Iterable[Any], k: int, beams: Sequence[int], *, allowed: Sequence[torch.Tensor] = ()
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the best labels (texts, k) by their places in the last level, −1 where there are none, and scores.

        ``seen`` is what each level reads, ``beams`` is how many nodes of each level above are kept, ``allowed``
        (nodes,) says for each level what may be chosen; empty is everything.
        """
        *_, (shortlist, path) = self._walk(seen, beams, allowed)
        path, at = stable_topk(path, k)
        return torch.where(path.isfinite(), shortlist.nodes.gather(1, at), -1), path.exp()

    @torch.no_grad()
    def found(
        self, seen: Iterable[Any], beams: Sequence[int], is_true: Sequence[Callable[[torch.Tensor], torch.Tensor]]
    ) -> torch.Tensor:
        """Return for each level how many of the nodes that are scored are true, as ``is_true`` (texts, nodes) says."""
        walk = zip(self._walk(seen, beams, ()), is_true, strict=True)
        return torch.stack([(right(shortlist.nodes) & shortlist.exists).sum() for (shortlist, _), right in walk])

    def _walk(
        self, seen: Iterable[Any], beams: Sequence[int], allowed: Sequence[torch.Tensor]
    ) -> Iterator[tuple[Shortlist, torch.Tensor]]:
        """Yield for each level what is scored there and the logarithms of scores, −∞ where there is nothing."""
        shortlist = None
        for level, e in enumerate(seen):
            shortlist = self._every(0, len(e), e.device) if shortlist is None else shortlist
            path = self._path(level, self._scored(level, e, shortlist), shortlist)
            if len(allowed):
                shortlist = shortlist._replace(exists=shortlist.exists & allowed[level][shortlist.nodes])
            path = torch.where(shortlist.exists, path, -torch.inf)
            yield shortlist, path
            if level + 1 < self.tree.n_levels:
                shortlist = self._below(level, shortlist, path, beams[level])

    @torch.no_grad()
    def score(self, seen: Iterable[Any], nodes: Sequence[torch.Tensor]) -> torch.Tensor:
        """Score some labels of each text; ``nodes`` (texts, labels) are their ancestors, level by level."""
        path = torch.zeros(nodes[0].shape, device=nodes[0].device)
        for level, e in enumerate(seen):
            shortlist = Shortlist(nodes[level], torch.ones_like(path, dtype=torch.bool), path)
            path = self._path(level, self.scorers[level].some(e, nodes[level]).float(), shortlist)
        return path.exp()

    def numbers(self, candidates: int, length: int, *, searches: bool) -> int:
        """Return how many numbers the candidates of one text take at most; a search scores the first level whole."""
        roots = self.tree.sizes[0] if searches else 0
        if self.config.reader == "lstm":  # every node attends to every token
            return max(candidates, roots) * (self.scorers[0].width + length)
        return max(candidates * max(scorer.width for scorer in self.scorers), _COPIES * roots)

    def silence(self, places: torch.Tensor, margin: float) -> None:
        """Give labels at these places a fixed margin."""
        self.scorers[-1].weight[places] = 0.0
        self.scorers[-1].bias[places] = margin

    def _every(self, level: int, n_texts: int, device: torch.device) -> Shortlist:
        """Return every node of a level."""
        nodes = torch.arange(self.tree.sizes[level], device=device).expand(n_texts, -1)
        return Shortlist(nodes, torch.ones_like(nodes, dtype=torch.bool), torch.zeros(nodes.shape, device=device))

    def _scored(self, level: int, e: Any, shortlist: Shortlist) -> torch.Tensor:
        scorer = self.scorers[level]
        return (scorer.all(e) if level == 0 else scorer.some(e, shortlist.nodes)).float()

    def _learned(
        self, level: int, e: Any, shortlist: Shortlist, right: torch.Tensor, is_whole: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scores of a level that learns, and the sum of its losses."""
        scorer = self.scorers[level]
        if isinstance(scorer, Table):
            return scorer.learned(e, shortlist.nodes, right, shortlist.exists, is_whole=is_whole)
        scores = self._scored(level, e, shortlist)
        each = F.binary_cross_entropy_with_logits(scores, right.float(), reduction="none")
        return scores, (each * shortlist.exists).sum()

    def _path(self, level: int, scores: torch.Tensor, shortlist: Shortlist) -> torch.Tensor:
        """Turn margins into the logarithms of scores, those of the way to the parents added as the rule says.

        Scores themselves would be 1 for many large margins, and their products 0 for many small ones.
        """
        is_last, rule = level + 1 == self.tree.n_levels, self.config.score
        multiplies = rule == "product" or (rule == "weighted" and is_last)
        return F.logsigmoid(scores) + shortlist.path if multiplies else F.logsigmoid(scores)

    def _below(self, level: int, shortlist: Shortlist, scores: torch.Tensor, beam: int) -> Shortlist:
        """Return the children of the nodes with the best scores, or logarithms of them."""
        kept, at = scores.topk(min(beam, scores.shape[1]), dim=1)  # (texts, beam)
        children = self.get_buffer(f"children_{level + 1}")[shortlist.nodes.gather(1, at)]  # (texts, beam, most)
        exists = (children >= 0) & shortlist.exists.gather(1, at)[:, :, None]
        path = kept[:, :, None].expand_as(children)
        return Shortlist(children.clamp(min=0).flatten(1), exists.flatten(1), path.flatten(1))


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
