"""The label tree.

Levels are numbered from the top; the last level is the labels. Nodes of a level are numbered so that the children of
one parent are contiguous: a chunk is a slice. At the last level, ``order`` maps these numbers to labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from umpteen.data.sparse import pointers
from umpteen.errors import BadInput


@dataclass(frozen=True, eq=False)
class LabelTree:
    """An immutable tree over labels.

    Parameters
    ----------
    order
        Label at each position of the last level, a permutation.
    starts
        For each level, the first child of each of its parents and one past the last: ``starts[l]`` has one
        entry more than level ``l - 1`` has nodes (level −1 is the root).

    Examples
    --------
    >>> tree = LabelTree.from_groups([[0, 2], [1, 3, 4]])
    >>> tree.sizes
    (2, 5)
    >>> tree.parents[1].tolist()
    [0, 0, 1, 1, 1]
    """

    order: np.ndarray
    starts: tuple[np.ndarray, ...]

    def __post_init__(self) -> None:
        order = np.asarray(self.order)
        for array in (order, *(np.asarray(start) for start in self.starts)):
            if array.ndim != 1 or array.dtype not in (np.int32, np.int64):
                raise BadInput(f"a label tree has lists of int32 or int64, not {array.ndim}-d {array.dtype}")
        if not _is_permutation(order):
            raise BadInput("a label tree must hold every label exactly once; its order is not a permutation")
        n_parents = 1
        for level, start in enumerate(self.starts):
            if len(start) != n_parents + 1 or start[0] != 0 or (start[1:] < start[:-1]).any():
                raise BadInput(
                    f"level {level} of the tree must have one slice of children for each of its {n_parents} parents"
                )
            n_parents = int(start[-1])
        if not self.starts or n_parents != len(order):
            raise BadInput(f"the last level of the tree has {n_parents} nodes but there are {len(order)} labels")

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the tree as arrays to be stored."""
        return {"order": self.order, **{f"starts-{level}": start for level, start in enumerate(self.starts)}}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> LabelTree:
        """Undo ``arrays``; other arrays are ignored."""
        n_levels = sum(name.startswith("starts-") for name in arrays)
        return cls(arrays["order"], tuple(arrays[f"starts-{level}"] for level in range(n_levels)))

    @classmethod
    def flat(cls, n_labels: int) -> LabelTree:
        """Return a tree with all labels under the root: one versus all."""
        return cls(np.arange(n_labels, dtype=np.int32), (np.array([0, n_labels], np.int32),))

    @classmethod
    def from_groups(cls, groups: Sequence[Sequence[int]]) -> LabelTree:
        """Return a tree of two levels from lists of labels."""
        sizes = np.array([len(group) for group in groups])
        if not sizes.any():
            raise BadInput("a label tree needs at least one label, but every group is empty; pass lists of labels")
        order = np.concatenate([np.asarray(group, np.int32) for group in groups if len(group)])
        return cls(order, (np.array([0, len(groups)], np.int32), pointers(sizes).astype(np.int32)))

    @classmethod
    def from_parents(cls, label_parent: np.ndarray, *above: np.ndarray) -> LabelTree:
        """Return a tree from parent arrays, bottom up.

        ``label_parent[label]`` is a node, ``above[0][node]`` its parent, and so on. All labels have the same depth.
        """
        chain = [np.asarray(parent) for parent in (label_parent, *above)][::-1]
        n_parents, position, starts = 1, np.zeros(1, np.int64), []
        for parent in [np.zeros(int(chain[0].max(initial=0)) + 1, np.int64), *chain]:
            if len(parent) and (parent.min() < 0 or parent.max() >= n_parents):
                raise BadInput(f"parents must be in 0..{n_parents - 1}, but are in {parent.min()}..{parent.max()}")
            key = position[parent]
            order = np.argsort(key, kind="stable")
            starts.append(np.searchsorted(key[order], np.arange(n_parents + 1)).astype(np.int32))
            position = np.empty(len(parent), np.int64)
            position[order] = np.arange(len(parent))
            n_parents = len(parent)
        return cls(order.astype(np.int32), tuple(starts))

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return len(self.order)

    @property
    def n_levels(self) -> int:
        """Number of levels, including the labels."""
        return len(self.starts)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of nodes of each level."""
        return tuple(int(start[-1]) for start in self.starts)

    @cached_property
    def most_children(self) -> tuple[int, ...]:
        """Maximum number of children of a parent, for each level."""
        return tuple(int(np.diff(start).max(initial=0)) for start in self.starts)

    @cached_property
    def parents(self) -> tuple[np.ndarray, ...]:
        """Parent of each node, for each level."""
        return tuple(np.repeat(np.arange(len(start) - 1, dtype=np.int32), np.diff(start)) for start in self.starts)

    @cached_property
    def position(self) -> np.ndarray:
        """Position of each label in the last level: the inverse of ``order``."""
        position = np.empty(self.n_labels, np.int32)
        position[self.order] = np.arange(self.n_labels, dtype=np.int32)
        return position

    def node_of(self, level: int) -> np.ndarray:
        """Return the ancestor of each label at ``level``."""
        node = self.position
        for upper in range(self.n_levels - 1, level, -1):
            node = self.parents[upper][node]
        return node

    def path(self, label: int) -> np.ndarray:
        """Return the ancestor of one label at each level, and its position at the last.

        Examples
        --------
        >>> LabelTree.from_groups([[0, 2], [1, 3, 4]]).path(3).tolist()
        [1, 3]
        """
        nodes = [int(self.position[label])]
        for level in range(self.n_levels - 1, 0, -1):
            nodes.append(int(np.searchsorted(self.starts[level], nodes[-1], side="right")) - 1)
        return np.array(nodes[::-1])

    def lift(self, Y: sp.csr_matrix, level: int, *, binary: bool = True) -> sp.csr_matrix:
        """Convert rows of labels to rows of nodes of ``level``: binary (eq. 5), or sums of the values (eq. 6).

        Examples
        --------
        >>> Y = sp.csr_matrix(np.array([[1, 0, 1, 0, 0], [0, 1, 1, 0, 0]], np.float32))
        >>> tree = LabelTree.from_groups([[0, 2], [1, 3, 4]])
        >>> tree.lift(Y, 0).toarray().tolist()
        [[1.0, 0.0], [1.0, 1.0]]
        >>> tree.lift(Y, 0, binary=False).toarray().tolist()
        [[2.0, 0.0], [1.0, 1.0]]
        """
        data = np.ones(Y.nnz, np.float32) if binary else Y.data.astype(np.float32)
        lifted = sp.csr_matrix(
            (data, self.node_of(level)[Y.indices], Y.indptr.copy()), shape=(Y.shape[0], self.sizes[level])
        )
        lifted.sum_duplicates()
        if binary:
            lifted.data[:] = 1.0
        return lifted

    def allowed_nodes(self, allowed: np.ndarray) -> np.ndarray:
        """Return for every node of all levels, from the top, whether it has an allowed label below it, as uint8."""
        flags = []
        for level in range(self.n_levels):
            flag = np.zeros(self.sizes[level], np.uint8)
            flag[self.node_of(level)[allowed]] = 1
            flags.append(flag)
        return np.concatenate(flags)


def _is_permutation(order: np.ndarray) -> bool:
    """Return whether each of the numbers below its length occurs once; for ten million labels faster than sorting."""
    n = len(order)
    if n == 0:
        return True
    if order.min() < 0 or order.max() >= n:
        return False
    is_there = np.zeros(n, bool)
    is_there[order] = True
    return bool(is_there.all())


def relevance(tree: LabelTree, Y: sp.csr_matrix, level: int, *, normalize: bool) -> sp.csr_matrix:
    """Return the induced relevance of the nodes of a level (eq. 6); with ``normalize`` rows sum to one."""
    R = tree.lift(Y, level, binary=False)
    if normalize:
        total = np.asarray(R.sum(axis=1)).ravel()
        R.data /= np.repeat(np.where(total > 0, total, 1.0), np.diff(R.indptr)).astype(np.float32)
    return R
