"""The loop: forward, backward, clip, step, for any loss over any parameters.

Knows optimisers and schedules; knows nothing about texts, labels or trees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import torch

from umpteen.engine import Progress, silent
from umpteen.neural.curve import Curve
from umpteen.neural.encoder import explained_memory

_LOOK_EVERY = 50  # steps between two looks at the loss: a look waits for the GPU
_LAST = 0.2  # fraction of the steps in which a plateau ends


@dataclass(frozen=True)
class Group:
    """Parameters that share a learning rate.

    ``max_grad_norm`` bounds the norm of their gradient, 0 does not. ``eps`` is that of Adam: gradients much smaller
    than it move the weights little.
    """

    parameters: Sequence[torch.nn.Parameter]
    learning_rate: float
    weight_decay: float = 0.0
    max_grad_norm: float = 0.0
    eps: float = 1e-8

    def for_adam(self) -> list[dict[str, Any]]:
        """Matrices decay, vectors (biases, scales) do not."""
        matrices = [p for p in self.parameters if p.ndim > 1]
        vectors = [p for p in self.parameters if p.ndim <= 1]
        return [
            {"params": some, "lr": self.learning_rate, "weight_decay": decay, "eps": self.eps}
            for some, decay in ((matrices, self.weight_decay), (vectors, 0.0))
            if some
        ]


def lr_factor(step: int, n_steps: int, kind: str = "linear", warmup: float = 0.0) -> float:
    """Return the factor of the learning rate at a step.

    ``linear`` rises in the fraction ``warmup`` of the steps and then falls to zero, ``plateau`` rises and falls along a
    cosine at both ends and stays constant between, ``constant`` is constant.

    Examples
    --------
    >>> [lr_factor(step, 10, "linear", 0.2) for step in (0, 2, 9)]
    [0.5, 0.8, 0.09999999999999998]
    >>> [round(lr_factor(step, 10, "plateau", 0.2), 2) for step in (0, 1, 5, 9)]
    [0.1, 0.55, 1.0, 0.5]
    """
    if kind == "constant":
        return 1.0
    rising = max(1, math.ceil(warmup * n_steps))
    if kind == "linear":
        return min((step + 1) / rising, 1.0) * max(0.0, 1.0 - step / n_steps)
    if step < rising:
        return 0.55 - 0.45 * math.cos(math.pi * step / rising)
    falling = max(1, math.ceil(_LAST * n_steps))
    return 0.5 + 0.5 * math.cos(math.pi * max(0.0, step - (n_steps - falling)) / falling)


class Saved(Protocol):
    """Where the state of a training is kept while it runs."""

    def load(self, optimiser: torch.optim.Optimizer) -> int:
        """Take up the state that was kept, if any; return the steps taken before it was."""
        ...

    def save(self, step: int, optimiser: torch.optim.Optimizer) -> None:
        """Called after every step; keeps the state now and then."""
        ...


def optimise(
    groups: Sequence[Group],
    steps: Iterable[Any],
    backward: Callable[[Any], torch.Tensor],
    *,
    n_steps: int,
    lr: Callable[[int], float],
    stage: str = "training",
    progress: Progress = silent,
    after: Callable[[int], bool] | None = None,
    saved: Saved | None = None,
    curve: Curve | None = None,
) -> int:
    """Take one optimiser step for each item of ``steps``; return how many were taken, earlier ones included.

    Parameters
    ----------
    groups
        What is trained, and how fast.
    steps
        Batches from the first on, at least ``n_steps`` of them.
    backward
        Adds the gradients of a batch and returns its loss.
    lr
        Returns the factor of the learning rates at a step.
    after
        Called after every step with its number; true ends the training.
    saved
        Keeps the state, so that a training that was interrupted goes on.
    curve
        Reports loss and learning rate.
    """
    parts, on_gpu = [part for group in groups for part in group.for_adam()], groups[0].parameters[0].is_cuda
    optimiser = torch.optim.AdamW(parts, betas=(0.9, 0.98), fused=on_gpu)
    full_rates = [part["lr"] for part in optimiser.param_groups]
    curve = Curve() if curve is None else curve
    done = 0 if saved is None else saved.load(optimiser)
    if done < n_steps:
        progress(stage, done, n_steps)
    for batch in islice(steps, done, n_steps):
        factor = lr(done)
        for part, full in zip(optimiser.param_groups, full_rates, strict=True):
            part["lr"] = full * factor
        with explained_memory():
            loss = backward(batch)
            curve.add(loss, optimiser.param_groups[0]["lr"])
            for group in groups:
                if group.max_grad_norm:
                    torch.nn.utils.clip_grad_norm_(group.parameters, group.max_grad_norm)
            optimiser.step()
        optimiser.zero_grad(set_to_none=False)  # gradients keep their place, which a recorded step relies on
        done += 1
        is_looked_at = done % _LOOK_EVERY == 0 or done == n_steps
        if is_looked_at:
            curve.look(done)
        is_last = after is not None and after(done)
        curve.write()
        if is_looked_at or not on_gpu:  # a GPU is still busy with steps that were not waited for
            progress(stage, done, n_steps)
        if is_last:
            break
        if saved is not None:
            saved.save(done, optimiser)
    optimiser.zero_grad(set_to_none=True)  # nobody needs them any more
    return done
