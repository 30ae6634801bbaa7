"""The loop: forward, backward, clip, step, for any loss over any parameters.

Knows optimisers and schedules; knows nothing about texts, labels or trees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from umpteen.engine import Progress, silent
from umpteen.errors import BadConfig
from umpteen.features.encoder import explained_memory

_LOOK_EVERY = 50  # steps between two looks at the loss: a look waits for the GPU


@dataclass(frozen=True)
class Group:
    """Parameters that share a learning rate; ``clip`` bounds the length of their gradient, 0 does not."""

    parameters: Sequence[torch.nn.Parameter]
    rate: float
    weight_decay: float = 0.0
    clip: float = 0.0

    def for_adam(self) -> list[dict[str, Any]]:
        """Matrices decay, vectors (biases, scales) do not."""
        matrices = [p for p in self.parameters if p.ndim > 1]
        vectors = [p for p in self.parameters if p.ndim <= 1]
        return [
            {"params": some, "lr": self.rate, "weight_decay": decay}
            for some, decay in ((matrices, self.weight_decay), (vectors, 0.0))
            if some
        ]


def optimise(
    groups: Sequence[Group],
    steps: Iterable[Any],
    backward: Callable[[Any], torch.Tensor],
    *,
    n_steps: int,
    warmup: float = 0.0,
    stage: str = "training",
    progress: Progress = silent,
    after: Callable[[int], bool] | None = None,
) -> int:
    """Take one optimiser step for each item of ``steps``; return how many were taken.

    Parameters
    ----------
    groups
        What is trained, and how fast.
    steps
        Batches, at least ``n_steps`` of them.
    backward
        Adds the gradients of a batch and returns its loss.
    warmup
        Share of the steps in which the rates rise; after that they fall linearly to zero.
    after
        Called after every step with its number; true ends the training.
    """
    parts, on_gpu = [part for group in groups for part in group.for_adam()], groups[0].parameters[0].is_cuda
    optimiser = torch.optim.AdamW(parts, betas=(0.9, 0.98), eps=1e-8, fused=on_gpu)
    rising = max(1, math.ceil(warmup * n_steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / rising, 1.0) * max(0.0, 1.0 - step / n_steps)
    )
    done, total = 0, None
    progress(stage, 0, n_steps)
    for batch in steps:
        with explained_memory():
            loss = backward(batch)
            total = loss.clone() if total is None else total + loss
            for group in groups:
                if group.clip:
                    torch.nn.utils.clip_grad_norm_(group.parameters, group.clip)
            optimiser.step()
        optimiser.zero_grad(set_to_none=False)  # gradients keep their place, which a recorded step relies on
        schedule.step()
        done += 1
        if done % _LOOK_EVERY == 0 or done == n_steps:
            _check_loss(total)
            total = None
            progress(stage, done, n_steps)
        if done == n_steps or (after is not None and after(done)):
            break
    return done


def _check_loss(total: torch.Tensor | None) -> None:
    if total is not None and not math.isfinite(float(total)):
        raise BadConfig("the loss is no longer a number; lower finetune.rate or finetune.head_rate")
