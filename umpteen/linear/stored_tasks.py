"""The tasks of a training with arrays in files.

A task maps what it needs from the stages of a checkpoint, and returns the arrays of a part of another stage. The order
of the work is in ``stored``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from umpteen.config import LinearConfig, SearchConfig, TreeConfig, from_dict
from umpteen.engine import Memory
from umpteen.linear.choose import held_out_losses
from umpteen.linear.chunk import Job, Problem, chunks_of
from umpteen.linear.fit import train_levels
from umpteen.linear.pack import Coder, Level, joined_ranges, pack_features
from umpteen.linear.search import LinearTree
from umpteen.linear.stored_arrays import MEMBERS, VECTORS, load_columns, load_matrix, load_rows
from umpteen.store import Checkpoint
from umpteen.store.mapped import resident_limit
from umpteen.store.parts import part_task
from umpteen.store.tensors import Tensors
from umpteen.tree import LabelTree, grow, sum_members


@part_task
def sum_labels(
    checkpoint: Checkpoint, *, rows: dict[str, str], first: int, last: int, keep: int, memory: int, threads: int
) -> Tensors:
    """Return the vectors of a range of labels: sums of the rows of each (eq. 4)."""
    source, arrays = load_rows(rows), checkpoint.load(MEMBERS)
    ptr = arrays["indptr"][first : last + 1]
    members = arrays["indices"][ptr[0] : ptr[-1]]
    with resident_limit(Memory(memory).maps):
        found = sum_members(source.triplet, source.n_sparse, ptr - ptr[0], members, keep=keep, threads=threads)
    return dict(zip(("indptr", "indices", "data"), found, strict=True))


@part_task
def grow_slice(
    checkpoint: Checkpoint, *, rows: dict[str, str], top: str, first: int, last: int, counts: list[int],
    config: dict[str, Any], seed: int, memory: int, threads: int,
) -> Tensors:  # fmt: skip
    """Return a slice of the order of the labels, clustered further, and the sizes of its nodes by level."""
    arrays = checkpoint.load(top)
    order, slices = arrays["order"][first:last].copy(), np.split(arrays["sizes"], arrays["cuts"])
    sizes = slices[np.searchsorted(arrays["firsts"], first)]
    with resident_limit(Memory(memory).maps):
        vectors, settings = load_matrix(checkpoint, VECTORS), from_dict(TreeConfig, config)
        levels = grow(order, vectors, settings, counts, sizes=sizes, seed=seed + first, threads=threads)
    found = {f"n-{depth}": np.array([len(nodes) for nodes in level]) for depth, level in enumerate(levels)}
    return found | {"order": order, "sizes": np.concatenate(levels[-1])}


@part_task
def try_costs(
    checkpoint: Checkpoint, *, rows: dict[str, str], tree: str, level: int, first: int, last: int,
    config: dict[str, Any], costs: list[float], seed: int, memory: int, threads: int,
) -> Tensors:  # fmt: skip
    """Return the losses of a group of labels on held-out rows, for each of the costs."""
    problem = _problem(checkpoint, rows, tree, level, "parents", (first, last), config, seed)
    with resident_limit(Memory(memory).maps):
        jobs = [Job(first, last, some, work, 0) for first, last, some, _, work in chunks_of(problem)]
        return {"losses": held_out_losses(problem, jobs, costs, threads=1 if memory else threads)}


@part_task
def predict_parents(
    checkpoint: Checkpoint, *, rows: dict[str, str], tree: str, matcher: str, first: int, last: int, beam: int,
    search: dict[str, Any], memory: int, threads: int,
) -> Tensors:  # fmt: skip
    """Return the nodes that the levels above predict for a range of rows."""
    source, labels = load_rows(rows), LabelTree.from_arrays(checkpoint.load(tree))
    with resident_limit(Memory(memory).maps):
        head = LinearTree(checkpoint.load(matcher), labels, source.n_features, from_dict(SearchConfig, search))
        return {"labels": head.topk(source.between(first, last), beam, threads=threads).labels}


@part_task
def train_nodes(
    checkpoint: Checkpoint, *, rows: dict[str, str], tree: str, level: int, first: int, last: int,
    config: dict[str, Any], seed: int, memory: int, threads: int,
) -> Tensors:  # fmt: skip
    """Return the weights of a range of nodes of a level."""
    problem, n = _problem(checkpoint, rows, tree, level, "mask", (first, last), config, seed), Memory(memory)
    with resident_limit(n.maps):
        return train_levels([problem], threads=threads, memory=n.solver)[0].arrays()


def _problem(
    checkpoint: Checkpoint, rows: dict[str, str], tree: str, level: int, mask: str, nodes: tuple[int, int],
    config: dict[str, Any], seed: int,
) -> Problem:  # fmt: skip
    """Return the training of a range of nodes of a level, on the rows of a mask."""
    source, starts = load_rows(rows), checkpoint.load(tree)[f"starts-{level}"]
    targets = load_columns(checkpoint, f"{tree}-targets-{level}", len(source))
    masked = load_columns(checkpoint, f"{tree}-{mask}-{level}", len(source)) if level else None
    return Problem(source, targets, masked, starts, from_dict(LinearConfig, config), seed, nodes)


@part_task
def pack_range(
    checkpoint: Checkpoint, *, rows: dict[str, str], tree: str, level: int, first: int, last: int,
    coder: dict[str, Any], memory: int, threads: int,
) -> Tensors:  # fmt: skip
    """Return the weights of a range of the features of a level, packed for the search."""
    labels, weights = LabelTree.from_arrays(checkpoint.load(tree)), Level(**checkpoint.load(f"{tree}-level-{level}"))
    with resident_limit(Memory(memory).maps):
        found = pack_features(weights, labels, level, (first, last), Coder(**coder), threads)
    return joined_ranges(found)._asdict()
