"""Training by several processes (torchrun): who they are, and what they exchange.

The only module that knows ``torch.distributed``: gloo on CPUs, NCCL on GPUs. What is divided among the ranks is decided
elsewhere; here are sums, gathered rows, and objects that rank 0 hands to all. For a single process, every exchange is
the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import umpteen.engine.openmp  # noqa: F401  before torch

# isort: split
import numpy as np
import torch
import torch.distributed as dist

from umpteen.engine.ranks import Place, given_place, placed
from umpteen.errors import BadConfig, RankFailed

_TIMEOUT = timedelta(minutes=30)  # of one exchange: a rank may write a checkpoint meanwhile
_LONG = timedelta(days=30)  # what rank 0 does alone may take as long as it takes: a ranker of millions of labels
_AT_ONCE = 1 << 25  # numbers of gradients that are summed at a time


class Ranks:
    """The processes of a training.

    Parameters
    ----------
    place
        That of this process.
    store
        Where ranks leave messages for each other; none is needed alone.
    """

    def __init__(self, place: Place, store: Any = None):
        self.place, self.rank, self.size, self.is_main = place, place.rank, place.size, place.is_main
        self.counts = [0] * place.size  # texts of each rank that are trained on at present
        self._store, self._n_meetings = store, 0

    @property
    def are_many(self) -> bool:
        """Whether there are others."""
        return self.size > 1

    # Which rows are whose

    def share(self, rows: np.ndarray, rank: int | None = None) -> np.ndarray:
        """Return every ``size``-th of some rows: those of this rank, or of another one."""
        return rows[self.rank if rank is None else rank :: self.size]

    def in_shares(self, n: int, work: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Let every rank work on its share of n rows; return the results of all (n, …), in their order."""
        own = work(self.share(np.arange(n)))
        if not self.are_many:
            return own
        parts = self.gather(torch.from_numpy(np.ascontiguousarray(own)))
        out = np.empty((n, *own.shape[1:]), own.dtype)
        for rank, part in enumerate(parts):
            out[rank :: self.size] = part.numpy()
        return out

    # Exchanges; all ranks must call them in the same order

    def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum a tensor over the ranks, in place."""
        if self.are_many:
            dist.all_reduce(tensor)
        return tensor

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of all ranks, which may differ in the number of rows and columns.

        Columns that a rank has fewer are zero.
        """
        if not self.are_many:
            return [tensor]
        shape = torch.tensor(tensor.shape, device=tensor.device)
        shapes = [torch.empty_like(shape) for _ in range(self.size)]
        dist.all_gather(shapes, shape)
        most, counts = torch.stack(shapes).amax(dim=0).tolist(), [int(one[0]) for one in shapes]
        is_flag = tensor.dtype == torch.bool
        sent = _padded(tensor.to(torch.uint8) if is_flag else tensor, most)
        found = [torch.empty_like(sent) for _ in range(self.size)]
        dist.all_gather(found, sent)
        return [(one.bool() if is_flag else one)[:count] for one, count in zip(found, counts, strict=True)]

    def gather_batch(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the vectors (texts, d) of the texts of all ranks that are trained on at present, by rank."""
        if not self.are_many:
            return vectors
        sent = _padded(vectors, [max(self.counts), *vectors.shape[1:]])
        found = [torch.empty_like(sent) for _ in self.counts]
        dist.all_gather(found, sent)
        return torch.cat([part[:count] for part, count in zip(found, self.counts, strict=True)])

    def scatter_batch(self, gradient: torch.Tensor) -> torch.Tensor:
        """Sum over the ranks the gradients of what ``gather_batch`` returned; return that of the texts of this rank."""
        return self.scatter_sum(gradient.split(self.counts)) if self.are_many else gradient

    def scatter_sum(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Sum over the ranks what each has for each rank; return what there is for this one (reduce-scatter)."""
        if not self.are_many:
            return parts[0]
        most = [max(len(part) for part in parts), *parts[0].shape[1:]]
        out = parts[0].new_empty(most)
        dist.reduce_scatter(out, [_padded(part, most) for part in parts])
        return out[: len(parts[self.rank])]

    def to_main(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of all ranks on rank 0, in the memory of its CPU; nothing on the others."""
        shapes = self.objects(tuple(tensor.shape))
        if not self.is_main:
            dist.send(tensor.contiguous(), 0)
            return []
        found = [tensor.cpu()]
        for rank in range(1, self.size):
            place = tensor.new_empty(shapes[rank])
            dist.recv(place, rank)
            found.append(place.cpu())
        return found

    def objects(self, value: Any) -> list[Any]:
        """Return the small values of all ranks."""
        if not self.are_many:
            return [value]
        found = [None] * self.size
        dist.all_gather_object(found, value)
        return found

    def from_main(self, value: Any) -> Any:
        """Return the small value that rank 0 has."""
        if not self.are_many:
            return value
        found = [value if self.is_main else None]
        dist.broadcast_object_list(found, 0)
        return found[0]

    def array_from_main(self, array: np.ndarray | None) -> np.ndarray:
        """Return the array that rank 0 has."""
        shape, dtype = self.from_main(None if array is None else (array.shape, array.dtype.str))
        found = np.array(array) if self.is_main else np.empty(shape, dtype)
        flat = torch.from_numpy(found.reshape(-1).view(np.uint8))
        if flat.numel():
            dist.broadcast(flat, 0)
        return found

    def align(self, tensors: Sequence[torch.Tensor]) -> None:
        """Give tensors the values that they have on rank 0."""
        for tensor in tensors if self.are_many else ():
            dist.broadcast(tensor.detach(), 0)

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter], *figures: torch.Tensor) -> list[torch.Tensor]:
        """Sum gradients over the ranks, in place, and some figures, which are returned.

        A rank without texts has no gradients in the first step; what no rank has a gradient of stays without.
        """
        has = [float(parameter.grad is not None) for parameter in parameters]
        summed = self.sum_(torch.cat([torch.stack(figures).float(), torch.tensor(has, device=figures[0].device)]))
        is_used = summed[len(figures) :].tolist()
        used = [parameter for parameter, count in zip(parameters, is_used, strict=True) if count]
        for parameter in used:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for some in _bounded([parameter.grad for parameter in used]):
            flat = self.sum_(torch.cat([gradient.reshape(-1) for gradient in some]))
            for gradient, part in zip(some, flat.split([one.numel() for one in some]), strict=True):
                gradient.copy_(part.view_as(gradient))
        return list(summed[: len(figures)])

    def meet(self) -> None:
        """Wait until rank 0 arrives here, however long it works alone, without using a processor."""
        if not self.are_many:
            return
        self._n_meetings += 1
        arrived, seen = f"umpteen/main/{self._n_meetings}", f"umpteen/seen/{self._n_meetings}"
        if not self.is_main:
            self._store.wait([arrived], _LONG)
            if self._store.add(seen, 1) == self.size - 1:
                self._store.set(f"{seen}/all", "1")
            return
        self._store.set(arrived, "1")
        self._store.wait([f"{seen}/all"], _TIMEOUT)  # whoever is served by this process has its answer


def _padded(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return a tensor with zeros behind it, up to a shape."""
    if list(tensor.shape) == list(shape):
        return tensor.contiguous()
    out = tensor.new_zeros(tuple(shape))
    out[tuple(slice(size) for size in tensor.shape)] = tensor
    return out


def _bounded(gradients: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yield some gradients of one precision at a time, so that a copy of them takes little memory."""
    some, n = [], 0
    for gradient in gradients:
        if some and (n + gradient.numel() > _AT_ONCE or gradient.dtype != some[0].dtype):
            yield some
            some, n = [], 0
        some.append(gradient)
        n += gradient.numel()
    if some:
        yield some


_ALONE = Ranks(Place())
_ranks = _ALONE


def ranks() -> Ranks:
    """Return the ranks of the training that this process takes part in; alone, it is rank 0 of 1."""
    return _ranks


@contextmanager
def joined() -> Iterator[Ranks]:
    """Take part in a training of several processes that torchrun has started; a single process is alone.

    At the end, all wait for rank 0. A rank that fails does not wait, so that torchrun ends the others.

    Examples
    --------
    >>> with joined() as ranks:
    ...     ranks.size
    1
    """
    global _ranks
    place = given_place() or Place()
    if place.size == 1:
        yield _ALONE
        return
    _take_gpu(place)
    # the store is asked for first, because ``meet`` needs it, too
    store, rank, size = next(dist.rendezvous("env://", timeout=_TIMEOUT))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(
        backend, store=dist.PrefixStore("umpteen", store), rank=rank, world_size=size, timeout=_TIMEOUT
    )
    _ranks = Ranks(place, store)
    try:
        with placed(place), _explained():
            yield _ranks
            _ranks.meet()
        dist.destroy_process_group()
    finally:
        _ranks = _ALONE


@contextmanager
def _explained() -> Iterator[None]:
    """Say that another rank is gone where an exchange fails; that rank has said why."""
    try:
        yield
    except RuntimeError as error:  # which gloo raises as it is
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise RankFailed(
                "another process of the training has ended or cannot be reached, so this one ends, too; look for its "
                "message. With a checkpoint, the same command resumes"
            ) from error
        raise


def own_gpu(wanted: str) -> torch.device | None:
    """Return the GPU of this rank if the settings want one; None alone, or where there is none."""
    if not _ranks.are_many or not torch.cuda.is_available() or not (wanted == "auto" or wanted.startswith("cuda")):
        return None
    if ":" in wanted:
        raise BadConfig(
            f"encoder.device is {wanted}, but each of {_ranks.size} processes takes a GPU of its own; use cuda, and "
            "choose GPUs with CUDA_VISIBLE_DEVICES"
        )
    return torch.device("cuda", _ranks.place.local_rank)


def _take_gpu(place: Place) -> None:
    """Make the GPU of this rank the current one; refuse more processes than a machine has GPUs, if it has any."""
    if not torch.cuda.is_available():
        return
    n_gpus = torch.cuda.device_count()
    if place.local_rank >= n_gpus:  # two ranks of NCCL that share one would wait for each other
        raise BadConfig(
            f"this is process {place.local_rank + 1} of its machine, but torch finds {n_gpus} GPU(s) here; "
            f"start at most {n_gpus} with torchrun --nproc-per-node, or hide the GPUs with CUDA_VISIBLE_DEVICES="
        )
    torch.cuda.set_device(place.local_rank)
