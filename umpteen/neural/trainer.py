"""The trainer of all neural recipes: batches, optimiser, learning rates, early stopping, SWA, training state."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
import torch

from umpteen.config import FEWEST_HELD_OUT, MOST_HELD_OUT, TrainingConfig
from umpteen.data.tokens import Tokens, endless_batches
from umpteen.engine import Callback, Progress, ignore, silent
from umpteen.neural.cuda_graphs import Inputs
from umpteen.neural.curve import Curve
from umpteen.neural.distributed import ranks
from umpteen.neural.encoder import Encoder
from umpteen.neural.loop import Group, lr_factor, optimise
from umpteen.neural.micro_batches import MicroBatches, Step, learning
from umpteen.neural.sharding import Shards
from umpteen.neural.training_state import State, TrainingState, under
from umpteen.neural.truth import Truth, TruthTable
from umpteen.store import Checkpoint
from umpteen.store.tensors import Allocate, in_memory

_AVERAGE_EVERY = 10  # steps between two states that are averaged
_FEWEST_TO_SPLIT = 250  # texts; of fewer, none are held out
_DEPTHS = (1, 3, 5)  # of the precisions that early stopping looks at

Metrics = dict[str, float]


class Trainable(Protocol):
    """A module that the trainer can train."""

    def loss(
        self, ids: torch.Tensor, mask: torch.Tensor | None, truth: Sequence[Truth], *, is_whole: bool,
        predicted: Truth | None,
    ) -> torch.Tensor:  # fmt: skip
        """Return the mean loss of some texts; ``is_whole`` says that they are a whole batch.

        Where a rank has no text of a batch of which others have some, what it returns counts as that of one text. Where
        nodes are divided among ranks (``is_divided``), the loss is that of the nodes of this rank over the texts of all
        ranks, and the truth is theirs.
        """
        ...

    def set_lr(self, factor: float) -> None:
        """Multiply the learning rates by a factor; for what the optimiser does not train."""
        ...

    def step(self) -> None:
        """Called after the backward pass of a batch; for what the optimiser does not train."""
        ...


class Report(NamedTuple):
    """What a training took: of one level, or of all of them together."""

    nodes: int  # of the finest level that was trained
    steps: int
    tokens: int
    seconds: float

    @classmethod
    def of(cls, numbers: np.ndarray) -> Report:
        """Undo ``np.array(report)``."""
        return cls(*(int(count) for count in numbers[:3]), float(numbers[3]))


@dataclass
class Trainer:
    """Train a module in place.

    Parameters
    ----------
    module
        What is trained, a ``torch.nn.Module`` with the methods of ``Trainable``.
    encoder
        What the texts were tokenized for: device, precision and the size of micro-batches.
    tokens
        All texts.
    truth
        The true nodes of every text, for each level.
    config
        How it is trained.
    readers
        Parameters that read texts and learn at ``learning_rate``; the others learn at ``head_learning_rate``. What
        needs no gradient stays as it is.
    stage
        The name under which progress is reported and the state is saved.
    predicted
        Where one level is trained below others, the nodes above that are predicted for each text.
    rows
        Numbers of the texts to train on; all without it.
    quality
        Measures precisions on held-out texts, after every epoch.
    stops_early
        Whether training ends where their mean no longer rises, with the best weights.
    record
        Called with every record: loss, learning rate, and what ``quality`` measures.
    allocate
        Makes the array of truncated texts.
    """

    module: Any
    encoder: Encoder
    tokens: Tokens
    truth: Sequence[sp.csr_matrix]
    config: TrainingConfig
    readers: Sequence[torch.nn.Parameter]
    epochs: float
    head_eps: float = Group.eps
    seed: int = 0
    checkpoint: Checkpoint | None = None
    progress: Progress = silent
    stage: str = "training the network"
    predicted: sp.csr_matrix | None = None
    rows: np.ndarray | None = None
    quality: Callable[[], Metrics] | None = None
    stops_early: bool = True
    record: Callback = ignore
    allocate: Allocate = in_memory
    curve: Curve = field(default_factory=Curve)

    @property
    def state_name(self) -> str:
        """The name of the training state in the checkpoint."""
        return state_name(self.stage)

    @property
    def has_state(self) -> bool:
        """Whether the checkpoint has a state from which ``run`` would resume."""
        return self.checkpoint is not None and self.checkpoint.has(self.state_name)

    def run(self) -> Report:
        """Train for all epochs, or until the quality no longer rises."""
        config, device = self.config, self.encoder.device
        rows = np.arange(len(self.tokens)) if self.rows is None else self.rows
        per_epoch = math.ceil(len(rows) / config.batch_size)
        n_steps = math.ceil(self.epochs * per_epoch)
        n_nodes = self.truth[-1].shape[1]
        if not n_steps:
            return Report(n_nodes, 0, 0, 0.0)
        n_short = math.floor(config.length_warmup * n_steps) if self._has_long_texts else 0
        average = _Average(self.module, math.ceil(config.swa_start * n_steps))
        self.curve = Curve(self.stage, per_epoch, self.record)
        patience = config.patience if self.stops_early else None
        stop = _EarlyStopping(self.module, self.quality, patience, per_epoch, (n_short, n_steps), self.curve)
        backward = self._backward()
        learn = self._summed(backward) if ranks().are_many else backward
        parts = {"average": average, "stop": stop, "batches": backward, "curve": self.curve}
        state = TrainingState(
            self.checkpoint, self.state_name, self.module, parts, per_epoch=per_epoch, n_steps=n_steps, device=device
        )
        self.curve.seconds = lambda: state.seconds
        batches = endless_batches(self.tokens.lengths[rows], config.batch_size, self.seed)
        plan = (Step(int(step < n_short), rows[batch]) for step, batch in enumerate(batches))
        with learning(self.module, device, self.seed):
            steps = optimise(
                self._groups(), plan, learn, n_steps=n_steps, lr=lambda step: self._set_lr(step, n_steps),
                stage=self.stage, progress=self.progress, after=lambda step: average(step) or stop(step), saved=state,
                curve=self.curve,
            )  # fmt: skip
        stop.finish(steps, has_changed=average.apply())
        return Report(n_nodes, steps, backward.n_tokens, state.seconds)

    @property
    def _has_long_texts(self) -> bool:
        """Whether texts are truncated in the steps of the length warm-up."""
        config = self.config
        return config.length_warmup > 0 and int(self.tokens.lengths.max(initial=0)) > config.warmup_length

    def _set_lr(self, step: int, n_steps: int) -> float:
        factor = lr_factor(step, n_steps, self.config.lr_schedule, self.config.warmup)
        self.module.set_lr(factor)
        return factor

    def _groups(self) -> list[Group]:
        config, known = self.config, {id(parameter) for parameter in self.readers}
        learners = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        reading = [parameter for parameter in learners if id(parameter) in known]
        others = [parameter for parameter in learners if id(parameter) not in known]
        groups = [
            Group(reading, config.learning_rate, config.weight_decay, config.max_grad_norm),
            Group(others, config.head_learning_rate, config.head_weight_decay, eps=self.head_eps),
        ]
        return [group for group in groups if len(group.parameters)]

    def _backward(self) -> MicroBatches:
        """Return what adds the gradients of a batch."""
        device = self.encoder.device
        tables = [TruthTable(matrix, device) for matrix in self.truth]
        predicted = None if self.predicted is None else TruthTable(self.predicted, device)
        self._n_nodes = [table.n_nodes for table in ([] if predicted is None else [predicted]) + tables]

        def inputs(some: list[np.ndarray], rows: np.ndarray) -> Inputs:
            own = some[ranks().rank]
            share = torch.tensor(max(len(own), 1) / len(rows), device=device)
            scored = np.concatenate(some) if getattr(self.module, "is_divided", False) else own
            truths = [table.of(scored) for table in ([] if predicted is None else [predicted]) + tables]
            return share, *(tensor for truth in truths for tensor in truth[:2])

        forms = [self.tokens]
        if self._has_long_texts:
            forms.append(self.tokens.truncated(self.config.warmup_length, self.allocate))
        return MicroBatches(
            self.encoder, [self.encoder.flat(tokens) for tokens in forms], self._work, inputs,
            cuda_graphs=self.config.cuda_graphs, part=partial(self._work, is_whole=False), finish=self.module.step,
        )  # fmt: skip

    def _work(
        self, ids: torch.Tensor, mask: torch.Tensor | None, share: torch.Tensor, *tensors: torch.Tensor,
        is_whole: bool = True,
    ) -> torch.Tensor:  # fmt: skip
        """Add the gradients of texts that are a share of a batch, or the whole of it."""
        truths = [Truth(*tensors[2 * i : 2 * i + 2], n_nodes) for i, n_nodes in enumerate(self._n_nodes)]
        predicted, truth = (None, truths) if self.predicted is None else (truths[0], truths[1:])
        with self.encoder.autocast():
            loss = self.module.loss(ids, mask, truth, is_whole=is_whole, predicted=predicted) * share
        if loss.requires_grad:  # not where a rank has no texts
            loss.backward()
        if is_whole:
            self.module.step()
        return loss.detach()

    def _summed(self, backward: MicroBatches) -> Callable[[np.ndarray], torch.Tensor]:
        """Return what adds the gradients of all ranks, and returns the loss of the whole batch."""
        shards = Shards(self.module)
        ranks().align([tensor for name, tensor in _weights(self.module) if name not in shards.by_name])
        learners = [one for one in self.module.parameters() if one.requires_grad and id(one) not in shards.of_tensor]

        def learn(step: Step) -> torch.Tensor:
            before = backward.n_tokens
            loss = backward(step)
            n_tokens = torch.tensor(float(backward.n_tokens - before), device=loss.device)
            loss, n_tokens = ranks().sum_gradients(learners, loss, n_tokens)
            backward.n_tokens = before + int(n_tokens)
            return loss

        return learn


class _EarlyStopping:
    """Measure the quality after every epoch, keep the best state, and stop when it has not risen for some epochs.

    A last epoch that is not whole counts, too. Training does not stop while texts are truncated for the warm-up:
    ``steps`` are the number of those steps and of all. Without ``patience`` the quality is measured, and that is all.
    """

    def __init__(
        self, module: torch.nn.Module, quality: Callable[[], Metrics] | None, patience: int | None, per_epoch: int,
        steps: tuple[int, int], curve: Curve,
    ):  # fmt: skip
        self.module, self.quality, self.patience = module, quality, patience
        self.per_epoch, (self.n_short, self.n_steps), self.curve = per_epoch, steps, curve
        self.best, self.waited, self.best_state = -1.0, 0, State()

    def __call__(self, step: int) -> bool:
        if self.quality is None or (step % self.per_epoch and step != self.n_steps):
            return False
        quality = self._measured(step)
        if self.patience is None:
            return False
        if quality > self.best:
            self.best, self.waited = quality, 0
            self.best_state = {name: tensor.clone() for name, tensor in self.module.state_dict().items()}
            return False
        self.waited += step > self.n_short
        return self.waited >= self.patience

    def finish(self, step: int, *, has_changed: bool) -> None:
        """Go back to the best state, unless the weights were averaged since and are better."""
        if self.quality is None or not (has_changed or self.best_state):
            return
        is_better = has_changed and self._measured(step) >= self.best
        self.curve.write(weights="averaged")
        if self.best_state and not is_better:
            self.module.load_state_dict(self.best_state)

    def _measured(self, step: int) -> float:
        """Return the mean precision on held-out texts; all precisions go into the record of the step."""
        precisions = ranks().from_main(self.quality())  # all ranks decide alike
        self.curve.measure(step, precisions)
        return float(np.mean(list(precisions.values())))

    def state(self) -> State:
        """Return the best state so far, how good it is, and how long it has been the best."""
        counts = {"best": torch.tensor(self.best, dtype=torch.float64), "waited": torch.tensor(self.waited)}
        whole = Shards(self.module).whole(self.best_state)
        return counts | {f"best.{name}": tensor for name, tensor in whole.items()}

    def load_state(self, state: State) -> None:
        """Go on from there."""
        self.best, self.waited = float(state["best"]), int(state["waited"])
        self.best_state = Shards(self.module).own(under(state, "best."))


class _Average:
    """The mean of the weights over the last part of a training (SWA)."""

    def __init__(self, module: torch.nn.Module, first: int):
        self.module, self.first, self.n = module, first, 0
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

    def apply(self) -> bool:
        """Give the module the mean; return whether there is one."""
        for name, tensor in self._weights():
            if name in self.mean:
                tensor.copy_(self.mean[name])
        return bool(self.mean)

    def state(self) -> State:
        """Return the mean, and the number of states that it is the mean of."""
        whole = Shards(self.module).whole(self.mean)
        return {"n": torch.tensor(self.n), **{f"mean.{name}": tensor for name, tensor in whole.items()}}

    def load_state(self, state: State) -> None:
        """Go on from such a mean."""
        self.n = int(state["n"])
        places = {name: tensor.device for name, tensor in self._weights()}
        own = Shards(self.module).own(under(state, "mean."))
        self.mean = {name: tensor.to(places[name]) for name, tensor in own.items()}

    def _weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield what learns: parameters, and weights of heads that update themselves."""
        for name, tensor in _weights(self.module):
            is_table = not isinstance(tensor, torch.nn.Parameter) and name.rpartition(".")[2] in ("weight", "bias")
            if tensor.requires_grad or is_table:
                yield name, tensor.detach()


def _weights(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return itertools.chain(module.named_parameters(), module.named_buffers())


def state_name(stage: str) -> str:
    """Return the name of a training's state in the checkpoint, by that of the stage.

    Examples
    --------
    >>> state_name("fine-tuning on 4,271 nodes")
    'fine-tuning-on-4271-nodes'
    """
    return stage.replace(" ", "-").replace(",", "")


def hold_out(n: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split the texts into those to train on and those for validation, of which there are none if texts are few."""
    n_held = min(max(int(fraction * n), min(FEWEST_HELD_OUT, n // 5)), MOST_HELD_OUT)
    if not fraction or n < _FEWEST_TO_SPLIT:
        n_held = 0
    held = np.sort(np.random.default_rng(seed).permutation(n)[:n_held])
    return np.setdiff1d(np.arange(n), held), held


def precisions(top: np.ndarray, truth: sp.csr_matrix) -> Metrics:
    """Return P@1, P@3 and P@5 in per cent of the best nodes (texts, 5), −1 where there are fewer."""
    rows = np.repeat(np.arange(len(top)), top.shape[1])
    hits = np.asarray(truth[rows, top.ravel()] > 0).reshape(top.shape) & (top >= 0)
    return {f"P@{depth}": float(100.0 * hits[:, :depth].sum(axis=1).mean() / depth) for depth in _DEPTHS}


BEST = max(_DEPTHS)  # nodes of a text that ``precisions`` looks at
