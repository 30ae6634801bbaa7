"""How much memory and work the training of a tree of linear classifiers takes, from sizes alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from umpteen.config import ModelConfig
from umpteen.data.size import DataSize
from umpteen.kernels import LANES
from umpteen.linear.choose import negatives_for
from umpteen.tree import shape

_NONZERO_BYTES = 8  # int32 and float32
_WEIGHT_BYTES = 25  # of a trained weight: 9 as a job returns it, 12 in its level, 4 while arrays are joined
_PLACE_BYTES = (1.4, 2.7)  # of the place of a stored weight among siblings: with few chunks, and with many
_FEW_CHUNKS = 256  # whose numbers fit in a byte
_LABEL_BYTES = 13  # of a label in a model: its bias, its place in the tree, and the number of its rows
_PACKED_BYTES = 3  # of a weight in a tree that is finished
_LARGEST = 2.0  # rows of the largest chunk, as a multiple of the mean
_KEPT, _USUAL_THRESHOLD = 33, 0.1  # weights that a label with one row keeps, at most, with this threshold
_GROWTH = 0.8  # exponent of their growth with the rows of a label: from 33 to 12 000 weights for 1 to 2 500 rows
_GROWTH_OF_SHORT = 0.86  # for clusters of labels, if rows have so few features that one row keeps them all
VISIT_FEATURES = 5  # that a row counts as by itself when it is visited
LOGISTIC = 2.5  # how many times as many weights the logistic loss keeps, and how much longer it takes


class TreeSize(NamedTuple):
    """What training one tree takes."""

    job_bytes: float  # of the jobs that run at the same time
    n_weights: float
    n_visits: float  # of a row for sixteen labels, if every row of every chunk is visited once

    @classmethod
    def of(cls, data: DataSize, n_dense: int, config: ModelConfig, threads: int) -> TreeSize:
        """Add up the levels of a tree over rows with ``n_dense`` dense columns beside the sparse ones."""
        of_one_row = _count_kept(data.per_row, config)
        held = n_weights = n_visits = 0.0
        for n_parents, n_nodes, visited, positives in _levels(data, config):
            n_groups = -(-n_nodes // (n_parents * LANES))
            per_copy = n_groups if are_few(n_parents, threads) else 1  # jobs that share a copy of their rows
            n_jobs = min(threads, n_parents * per_copy)
            mean = data.n_rows * visited / n_parents
            n_rows = min(_LARGEST * mean, data.n_rows)
            table = job_bytes(data.n_features, n_dense, n_rows, n_rows * data.per_row)
            copy = 0.0 if n_parents == 1 else _NONZERO_BYTES * data.per_row * n_rows
            held = max(held, n_jobs * table + -(-n_jobs // per_copy) * copy)
            # of the weights of a node, so many are large enough, but no more than there are features of its rows
            growth = _GROWTH_OF_SHORT if n_nodes < data.n_labels and data.per_row < _KEPT else _GROWTH
            large, most = of_one_row * positives**growth, min(data.n_features, mean * data.per_row)
            n_weights += n_nodes * (float(np.mean(large * most / np.maximum(large + most, 1e-9))) + n_dense)
            n_visits += data.n_rows * visited * n_groups
        return cls(held, n_weights, n_visits)

    def weight_bytes(self, n_trees: int) -> float:
        """Return what the weights of so many trees take, which are trained one after the other."""
        return self.n_weights * (_WEIGHT_BYTES + _PACKED_BYTES * (n_trees - 1))

    def model_bytes(self, data: DataSize, config: ModelConfig) -> float:
        """Return what the tree takes on disk."""
        widths = shape(data.n_labels, config.tree)
        place = _PLACE_BYTES[math.prod(widths) > _FEW_CHUNKS]
        code = {"int8": 1.0, "float16": 2.0}.get(config.store.weights, 4.0)
        pointers = 8.0 * (len(widths) + 1) * data.n_features
        return (code + place) * self.n_weights + pointers + _LABEL_BYTES * data.n_labels


def _count_kept(per_row: float, config: ModelConfig) -> float:
    """Return how many weights a node with one row keeps: most are of features of the row."""
    times = LOGISTIC if config.linear.loss == "logistic" else 1.0
    return times * min(per_row, _KEPT) * (_USUAL_THRESHOLD / max(config.linear.threshold, 1e-9)) ** 0.7


def job_bytes(n_sparse: int, n_dense: int, n_rows: float, n_nonzeros: float, *, copied: bool = False) -> float:
    """Return what a job holds: a table of weights, the dual variables, and a copy of its rows if it is its own."""
    n_features = min(n_sparse, n_nonzeros) + n_dense
    return 4 * LANES * (n_features + n_rows) + (n_nonzeros * _NONZERO_BYTES if copied else 0)


def are_few(n_chunks: int, threads: int) -> bool:
    """Return whether there are so few chunks that sixteen children are a job each."""
    return n_chunks < 4 * threads


def _levels(data: DataSize, config: ModelConfig) -> Iterator[tuple[int, int, float, float | np.ndarray]]:
    """Yield for each level: parents, nodes, parents whose children a row trains, and rows of a node.

    The rows are a mean for clusters, which are balanced, and an array for labels.
    """
    n_parents, visited, widths = 1, 1.0, shape(data.n_labels, config.tree)
    for children in widths:
        n_nodes = n_parents * children
        carried = min(data.labels_per_row, n_nodes)
        yield n_parents, n_nodes, visited, data.n_rows * carried / n_nodes
        n_parents, visited = n_nodes, carried
    negatives, beam = config.linear.negatives, config.search.beam
    if negatives == "auto":
        negatives, beam = negatives_for(visited, beam)
    if widths and "man" in negatives:
        visited = max(visited, min(config.linear.negatives_beam or beam, n_parents))
    counts = data.label_counts if len(data.label_counts) else np.zeros(1)
    yield n_parents, max(data.n_labels, 1), visited, counts.astype(np.float64)
