"""What the levels of a network do with one text: nodes in the beam, and margins on a label's path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from umpteen.neural.cascade import Cascade, Shortlist
from umpteen.neural.network import Network, Texts
from umpteen.neural.passes import predicting
from umpteen.tree.trace import Kept, Place


class TracedNode(NamedTuple):
    """An ancestor of a label, or the label itself at the last level."""

    level: int
    node: int
    margin: float
    factor: float
    score: float  # with those of the levels above, as ``network.score`` says
    place: Place | None  # None where an ancestor was not kept, so that the search did not come here


def trace_label(network: Network, texts: Texts, label: int, k: int) -> list[TracedNode]:
    """Follow a label through the levels for one text, of which the search returns k labels."""
    nodes = [int(of_level[label]) for of_level in network._ancestors]
    beams = _beams(network, k)
    ((_, reads),) = network.batches(texts, network._candidates(beams), searches=True)
    with predicting():
        levels = list(reads)
        places = _places(network.module, levels, nodes, [*beams, k])
        margins = [network.module.head(level).some(e, _one(nodes[level], e)).float() for level, e in enumerate(levels)]
        return _traced(network.module, nodes, margins, places)


def trace_beam(network: Network, texts: Texts, k: int) -> list[Kept]:
    """Return what the search for k labels of one text keeps at each level."""
    beams = _beams(network, k)
    ((_, reads),) = network.batches(texts, network._candidates(beams), searches=True)
    with predicting():
        found = _levels(network.module, list(reads), beams)
        return [Kept.best(*level, width) for level, width in zip(found, [*beams, k], strict=True)]


def _beams(network: Network, k: int) -> list[int]:
    """Return how many nodes of each level above the labels are kept in a search for k labels."""
    return network.beams(min(k, network.reach()))


def _places(module: Cascade, reads: list[Any], nodes: list[int], widths: list[int]) -> list[Place]:
    """Search; return where the ancestors of a label rank, down to the first one that is not kept."""
    places: list[Place] = []
    for level, (found, scores) in enumerate(_levels(module, reads, widths[:-1])):
        places.append(Place.of(found, scores, nodes[level], widths[level]))
        if not places[-1].is_kept:
            break
    return places


def _levels(module: Cascade, reads: list[Any], beams: list[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Search; yield for each level the nodes that are scored, and their scores."""
    for shortlist, path in module._walk(reads, beams, ()):
        exists = shortlist.exists[0]
        nodes, scores = (part[0][exists].cpu().numpy() for part in (shortlist.nodes, path.exp()))
        yield nodes, scores


def _traced(module: Cascade, nodes: list[int], margins: list[torch.Tensor], places: list[Place]) -> list[TracedNode]:
    path, found = torch.zeros_like(margins[0]), []
    for level, margin in enumerate(margins):
        every = torch.ones_like(margin, dtype=torch.bool)
        path = module._path(level, margin, Shortlist(every.long(), every, path))
        numbers = (float(margin), float(margin.sigmoid()), float(path.exp()))
        found.append(TracedNode(level, nodes[level], *numbers, places[level] if level < len(places) else None))
    return found


def _one(node: int, e: Any) -> torch.Tensor:
    return torch.tensor([[node]], device=e.device)
