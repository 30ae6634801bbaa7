"""Heads that are divided among ranks: each has a range of the nodes, with their weights and optimiser state.

The vectors of a batch are gathered from all ranks, every rank scores its own nodes for all of them, and the gradients
of the vectors are summed and scattered. States are stored whole, so that any number of ranks can read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from umpteen.neural.distributed import ranks
from umpteen.neural.stable_topk import stable_topk
from umpteen.neural.truth import Truth

_BY_NODE = ("weight", "bias")  # of a head, a row per node

State = dict[str, torch.Tensor]


class Shard(NamedTuple):
    """The nodes first..last of ``n_nodes`` that this rank has; a head that is not divided has the shard ``WHOLE``."""

    n_nodes: int = 0
    first: int = 0
    last: int = 0
    is_cut: bool = False

    @classmethod
    def own(cls, n_nodes: int) -> Shard:
        """Return the shard of this rank; alone, a rank has all."""
        all_ranks = ranks()
        first, last = (n_nodes * rank // all_ranks.size for rank in (all_ranks.rank, all_ranks.rank + 1))
        return cls(n_nodes, first, last, all_ranks.are_many)

    def take(self, by_node: torch.Tensor) -> torch.Tensor:
        """Return the rows (nodes, …) of the nodes of this rank."""
        return by_node[self.first : self.last] if self.is_cut else by_node

    def places(self, nodes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return which of some nodes (n,) this rank has, bool, and their places among its own."""
        if not self.is_cut:
            return torch.ones_like(nodes, dtype=torch.bool), nodes
        is_own = (nodes >= self.first) & (nodes < self.last)
        return is_own, nodes[is_own] - self.first

    def truth(self, truth: Truth) -> torch.Tensor:
        """Return the values of the nodes of this rank (texts, nodes)."""
        return truth.dense(self.first, self.last) if self.is_cut else truth.dense()

    def best(self, values: torch.Tensor, nodes: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Merge the best nodes of this rank, by their places, and their values (texts, …) with those of the others."""
        if not self.is_cut:
            return values, nodes
        missing = (0, k - values.shape[1])
        every_value = torch.cat(ranks().gather(F.pad(values, missing, value=-torch.inf)), dim=1)
        every_node = torch.cat(ranks().gather(F.pad(nodes + self.first, missing)), dim=1)
        found, at = stable_topk(every_value, min(k, self.n_nodes))
        return found, every_node.gather(1, at)


WHOLE = Shard()


def gather_learning(e: torch.Tensor, shard: Shard) -> torch.Tensor:
    """Return the vectors (texts, d) of all ranks for a head that is divided, with a gradient, float32; else ``e``."""
    return _Gather.apply(e.float()) if shard.is_cut else e


class _Gather(torch.autograd.Function):
    """All-gather of rows, whose gradient is a reduce-scatter."""

    @staticmethod
    def forward(context: Any, e: torch.Tensor) -> torch.Tensor:
        return ranks().gather_batch(e)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return ranks().scatter_batch(gradient)


class Shards:
    """Which tensors of a module are divided, by name, and how their states are made whole and divided again."""

    def __init__(self, module: torch.nn.Module):
        self.by_name = {
            f"{prefix}.{name}" if prefix else name: part.shard
            for prefix, part in module.named_modules()
            for name in _BY_NODE
            if getattr(part, "shard", WHOLE).is_cut
        }
        self.of_tensor = {
            id(tensor): self.by_name[name]
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]
            if name in self.by_name
        }

    def whole(self, state: Mapping[str, torch.Tensor]) -> State:
        """Return a state by the names of the module, with all nodes on rank 0; the others keep their shards."""
        return {name: made_whole(tensor, self.by_name.get(name, WHOLE)) for name, tensor in state.items()}

    def own(self, state: Mapping[str, torch.Tensor]) -> State:
        """Return what this rank needs of a whole state."""
        return {name: divided(tensor, self.by_name.get(name, WHOLE)) for name, tensor in state.items()}


def made_whole(tensor: torch.Tensor, shard: Shard) -> torch.Tensor:
    """Return the rows of all ranks on rank 0, in the memory of the CPU, and those of this rank on the others."""
    if not shard.is_cut or not tensor.ndim:
        return tensor
    found = ranks().to_main(tensor)
    return torch.cat(found) if found else tensor


def divided(tensor: torch.Tensor, shard: Shard) -> torch.Tensor:
    """Return the rows of this rank of what ``made_whole`` has made."""
    return shard.take(tensor).clone() if shard.is_cut and tensor.ndim else tensor
