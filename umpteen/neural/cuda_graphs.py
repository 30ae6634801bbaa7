"""CUDA graphs: the work of a batch is recorded once per shape and replayed.

A small encoder keeps a large GPU waiting for Python, which launches a thousand kernels a step. A replayed step is one
launch. Off a GPU, and for shapes that are too rare to record, the work simply runs.
"""

from __future__ import annotations

import gc
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

Inputs = tuple[torch.Tensor | None, ...]

_BEFORE = 3  # times a shape must have been seen before it is recorded; the first ones also compile
_MOST = 48  # shapes that are recorded


class Recorder:
    """Run ``work`` on tensors; on a GPU record and replay it.

    ``work`` takes tensors of fixed shapes, adds to gradients and returns the loss. A gradient
    must be there before it is called, so clear gradients to zero, not to nothing.
    """

    def __init__(self, work: Callable[..., torch.Tensor], *, record: bool):
        self.work, self.can_record = work, record
        self.seen: Counter[tuple[torch.Size | None, ...]] = Counter()
        self.recorded: dict[tuple[torch.Size | None, ...], tuple[torch.cuda.CUDAGraph, Inputs, torch.Tensor]] = {}
        self.places: dict[tuple[int, torch.Size], torch.Tensor] = {}  # one graph runs at a time, so all share them
        self.pool = torch.cuda.graph_pool_handle() if self.can_record else None

    def __call__(self, *inputs: torch.Tensor | None) -> torch.Tensor:
        """Run on these inputs."""
        key = tuple(None if tensor is None else tensor.shape for tensor in inputs)
        self.seen[key] += 1
        if not self.can_record:
            return self.work(*inputs)
        if key not in self.recorded:
            if self.seen[key] <= _BEFORE or len(self.recorded) >= _MOST:
                return self.work(*inputs)
            try:
                self.recorded[key] = self._record(inputs)
            except RuntimeError as error:  # an encoder that looks at its tensors' values cannot be recorded
                warnings.warn(f"steps are not recorded as CUDA graphs: {error}", stacklevel=2)
                self.can_record = False
                _stop_recording_random_numbers()
                return self.work(*inputs)
        graph, places, loss = self.recorded[key]
        for place, tensor in zip(places, inputs, strict=True):
            if place is not None and tensor is not None:
                place.copy_(tensor)
        graph.replay()
        return loss

    def _record(self, inputs: Inputs) -> tuple[torch.cuda.CUDAGraph, Inputs, torch.Tensor]:
        places = tuple(self._place(number, tensor) for number, tensor in enumerate(inputs))
        graph = torch.cuda.CUDAGraph()
        # What other threads do meanwhile is not recorded, and no mistake.
        kept = torch.cuda.graph(
            graph, pool=self.pool, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
        )
        with _without_garbage_collection(), kept:
            loss = self.work(*places)
        return graph, places, loss

    def _place(self, number: int, tensor: torch.Tensor | None) -> torch.Tensor | None:
        """Return where a recorded step looks for an input of this shape, with the input in it."""
        if tensor is None:
            return None
        return self.places.setdefault((number, tensor.shape), torch.empty_like(tensor)).copy_(tensor)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Put off the collection of garbage, which may have to end a graph of an earlier training: that cannot be recorded.

    Whichever thread allocates last collects, so it is put off for all.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _stop_recording_random_numbers() -> None:
    """Let random numbers be drawn as usual after a recording that failed, which leaves its mark on their generator."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(generator.clone_state())


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Leave the default stream, on which nothing can be recorded."""
    if device.type != "cuda":
        yield
        return
    stream, current = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        yield
    current.wait_stream(stream)
