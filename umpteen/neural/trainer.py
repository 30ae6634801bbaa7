"""Train a network that scores labels itself: batches, optimiser, weight averaging, training state."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from umpteen.config import NetConfig
from umpteen.data.tokens import Tokens, endless_batches
from umpteen.engine import Progress, silent
from umpteen.neural.cuda_graphs import Inputs
from umpteen.neural.device_rows import DeviceRows
from umpteen.neural.encoder import Encoder
from umpteen.neural.loop import Group, optimise, rate_at
from umpteen.neural.micro_batches import MicroBatches, learning
from umpteen.neural.training_state import State, TrainingState, under
from umpteen.store import Checkpoint

_LEAST = 0.1  # eps of Adam, as a share of the gradient of one text that is completely wrong
_AVERAGE_EVERY = 10  # steps between two states that are averaged


class Report(NamedTuple):
    """What a training took."""

    steps: int
    tokens: int
    seconds: float


@dataclass
class Trainer:
    """Train a network in place.

    Parameters
    ----------
    net
        Returns a loss for ids, mask and truth, as ``Cascade`` does.
    encoder
        What the texts were tokenized for: device, precision and how much is done at a time.
    truth
        For each level, the nodes of every text.
    reading
        Parameters that turn texts into vectors and learn at ``rate``; the others learn at ``head_rate``. What needs no
        gradient stays.
    stage
        The name under which progress is reported and the state is saved.
    chosen
        Where one level is trained below others, the nodes above (texts, beam) that are chosen for each text.
    """

    net: Any
    encoder: Encoder
    tokens: Tokens
    truth: Sequence[sp.csr_matrix]
    config: NetConfig
    reading: Sequence[torch.nn.Parameter]
    seed: int = 0
    checkpoint: Checkpoint | None = None
    progress: Progress = silent
    stage: str = "training the network"
    chosen: np.ndarray | None = None
    report: Report = field(default=Report(0, 0, 0.0))

    @property
    def _state_name(self) -> str:
        return self.stage.replace(" ", "-")

    @property
    def has_state(self) -> bool:
        """Whether the checkpoint has a state from which ``run`` would resume."""
        return self.checkpoint is not None and self.checkpoint.has(self._state_name)

    def run(self) -> None:
        """Train for all epochs."""
        config, device = self.config, self.encoder.device
        per_epoch = math.ceil(len(self.tokens) / config.batch_size)
        n_steps = math.ceil(config.epochs * per_epoch)
        if not n_steps:
            return
        average = _Average(self.net, math.ceil(config.average_from * n_steps))
        backward = self._backward()
        state = TrainingState(
            self.checkpoint, self._state_name, self.net, {"average": average, "pieces": backward},
            per_epoch=per_epoch, n_steps=n_steps, device=device,
        )  # fmt: skip
        with learning(self.net, device, self.seed):
            steps = optimise(
                self._groups(), endless_batches(self.tokens.lengths, config.batch_size, self.seed), backward,
                n_steps=n_steps, rate=lambda step: self._paced(step, n_steps), stage=self.stage,
                progress=self.progress, after=average, saved=state,
            )  # fmt: skip
        average.apply()
        self.report = Report(steps, backward.n_tokens, state.seconds)

    def _paced(self, step: int, n_steps: int) -> float:
        factor = rate_at(step, n_steps, self.config.schedule, self.config.warmup)
        self.net.pace(factor)
        return factor

    def _groups(self) -> list[Group]:
        config, known = self.config, {id(parameter) for parameter in self.reading}
        learners = [parameter for parameter in self.net.parameters() if parameter.requires_grad]
        others = [parameter for parameter in learners if id(parameter) not in known]
        groups = [
            Group([p for p in learners if id(p) in known], config.rate, config.weight_decay, config.clip),
            Group(others, config.head_rate, config.head_decay, least=self._least),
        ]
        return [group for group in groups if len(group.parameters)]

    @property
    def _least(self) -> float:
        """The gradient that counts, for scorers of vectors: a share of that of one text which is all wrong."""
        return Group.least if self.config.reader == "lstm" else _LEAST / self.config.batch_size

    def _backward(self) -> MicroBatches:
        """Return what adds the gradients of a batch."""
        device, truth = self.encoder.device, [DeviceRows(matrix, self.encoder.device) for matrix in self.truth]

        def inputs(some: np.ndarray, rows: np.ndarray) -> Inputs:
            share = torch.tensor(len(some) / len(rows), device=device)
            chosen = None if self.chosen is None else torch.from_numpy(self.chosen[some].astype(np.int64)).to(device)
            return share, chosen, *(rows_of.flags(some) for rows_of in truth)

        return MicroBatches(
            self.encoder, self.encoder.flat(self.tokens), self._work, inputs,
            record=self.config.record, part=partial(self._work, is_whole=False), finish=self.net.step_tables,
        )  # fmt: skip

    def _work(
        self, ids: torch.Tensor, mask: torch.Tensor | None, share: torch.Tensor, chosen: torch.Tensor | None,
        *right: torch.Tensor, is_whole: bool = True,
    ) -> torch.Tensor:  # fmt: skip
        """Add the gradients of texts that are a share of a batch, or the whole of it."""
        given = {} if chosen is None else {"chosen": chosen}
        with self.encoder.autocast():
            loss = self.net.loss(ids, mask, right, is_whole=is_whole, **given) * share
        loss.backward()
        return loss.detach()


class _Average:
    """The mean of the weights over the last part of a training (SWA)."""

    def __init__(self, net: torch.nn.Module, first: int):
        self.net, self.first, self.n = net, first, 0
        self.mean: dict[str, torch.Tensor] = {}

    def __call__(self, step: int) -> bool:
        if step <= self.first or (step - self.first) % _AVERAGE_EVERY:
            return False
        self.n += 1
        for name, tensor in self._weights():
            if name not in self.mean:
                self.mean[name] = tensor.float().clone()
            else:
                self.mean[name].lerp_(tensor.float(), 1.0 / self.n)
        return False

    def apply(self) -> None:
        """Give the network the mean, if there is one."""
        for name, tensor in self._weights():
            if name in self.mean:
                tensor.copy_(self.mean[name])

    def state(self) -> State:
        """Return the mean, and of how many states it is one."""
        return {"n": torch.tensor(self.n), **{f"mean.{name}": tensor for name, tensor in self.mean.items()}}

    def take_up(self, state: State) -> None:
        """Go on from such a mean."""
        self.n = int(state["n"])
        places = {name: tensor.device for name, tensor in self._weights()}
        self.mean = {name: tensor.to(places[name]) for name, tensor in under(state, "mean.").items()}

    def _weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield what learns: parameters, and tables that step themselves."""
        for name, tensor in itertools.chain(self.net.named_parameters(), self.net.named_buffers()):
            is_table = not isinstance(tensor, torch.nn.Parameter) and name.rpartition(".")[2] in ("weight", "bias")
            if tensor.requires_grad or is_table:
                yield name, tensor.detach()
