"""Gradients of a batch, accumulated over micro-batches that fit into memory, recorded as CUDA graphs where that pays.

A batch that fits is one call of ``work``, which adds gradients and updates the heads that have no optimiser. For a
batch that was split, ``part`` adds the gradients of each micro-batch while those heads note what to update, and
``finish`` updates them once, so that the result is that of the whole batch. Where several ranks train, each takes its
share of the texts of a batch, in as many micro-batches as the others: its last ones may have no texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import torch

from umpteen.neural.cuda_graphs import Inputs, Recorder, own_stream
from umpteen.neural.distributed import ranks
from umpteen.neural.encoder import Encoder, FlatTokens
from umpteen.neural.training_state import State

_SEED_STEP = 1_000_003  # seeds of the dropout of ranks lie this far apart


class Step(NamedTuple):
    """The texts of an optimiser step, and the number of the form in which they are read."""

    form: int
    rows: np.ndarray


class MicroBatches:
    """Add the gradients of a batch, in as many micro-batches as memory needs.

    Parameters
    ----------
    flats
        The texts, in the forms that steps read them in.
    work
        Takes ids, mask and further tensors of fixed shapes, adds gradients and returns the loss.
    inputs
        Returns those further tensors for the texts of a micro-batch of all ranks, one rank after the other, and the
        whole batch it is part of.
    cuda_graphs
        Whether steps are captured as CUDA graphs, on a GPU.
    part
        What is called in place of ``work`` for the micro-batches of a batch that was cut.
    finish
        What is called after the last of these.
    """

    def __init__(
        self, encoder: Encoder, flats: Sequence[FlatTokens], work: Callable[..., torch.Tensor],
        inputs: Callable[[list[np.ndarray], np.ndarray], Inputs], *, cuda_graphs: bool,
        part: Callable[..., torch.Tensor] | None = None, finish: Callable[[], None] = lambda: None,
    ):  # fmt: skip
        self.encoder, self.flats, self.inputs, self.n_tokens = encoder, flats, inputs, 0
        self.part, self.finish = part or work, finish
        can_record = cuda_graphs and encoder.device.type == "cuda" and not ranks().are_many  # ranks exchange in a step
        self.recorder = Recorder(work, record=can_record)

    def __call__(self, step: Step) -> torch.Tensor:
        """Return the loss of a batch of texts, or of what this rank has of it; its gradients are added."""
        flat, rows = self.flats[step.form], step.rows
        parts = self._parts(flat, rows)
        if len(parts) == 1:
            return self.recorder(*self._inputs(flat, parts[0], rows))
        total = torch.zeros((), device=self.encoder.device)
        for some in parts:
            total += self.part(*self._inputs(flat, some, rows))
        self.finish()
        return total

    def _parts(self, flat: FlatTokens, rows: np.ndarray) -> list[list[np.ndarray]]:
        """Return the micro-batches; each is a list of what every rank has of it."""
        shares = (ranks().share(rows, rank) for rank in range(ranks().size))
        of_ranks = (flat.cut(share, self.encoder.training_budget) for share in shares)
        return [list(part) for part in zip_longest(*of_ranks, fillvalue=rows[:0])]

    def state(self) -> State:
        """Return how many tokens were read."""
        return {"tokens": torch.tensor(self.n_tokens)}

    def load_state(self, state: State) -> None:
        """Count on from there."""
        self.n_tokens = int(state["tokens"])

    def _inputs(self, flat: FlatTokens, some: list[np.ndarray], rows: np.ndarray) -> Inputs:
        ranks().counts = [len(part) for part in some]
        batch = flat.batch(some[ranks().rank])
        self.n_tokens += batch.ids.numel()
        return *batch, *self.inputs(some, rows)


@contextmanager
def learning(module: torch.nn.Module, device: torch.device, seed: int) -> Iterator[None]:
    """Put a module into training, with random numbers of its own; afterwards both are as before."""
    module.train()
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []), own_stream(device):
            torch.manual_seed(seed + _SEED_STEP * ranks().rank)
            yield
    finally:
        module.eval()
