"""What passes over texts have in common: prediction mode, progress, and the levels that are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from umpteen.engine import Progress
from umpteen.neural.encoder import explained_memory

Batch = tuple[np.ndarray, Iterator[Any]]  # numbers of some texts, and what each level reads of them


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Switch the parts that are in training to prediction, and back."""
    learning = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in learning:
            part.training = True


def of_levels(reads: Iterable[Any], levels: Sequence[int]) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield what some levels read."""
    return ((one, e) for one, e in zip(range(max(levels) + 1), reads, strict=False) if one in levels)


@contextmanager
def predicting() -> Iterator[None]:
    """Learn nothing."""
    with torch.inference_mode(), explained_memory():
        yield


def reported(batches: Iterable[Batch], stage: str, n_texts: int, progress: Progress) -> Iterator[Batch]:
    """Yield batches, and tell after each how far it is."""
    done = 0
    for rows, reads in batches:
        yield rows, reads
        done += len(rows)
        progress(stage, done, n_texts)
