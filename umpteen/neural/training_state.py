"""The state of a training, saved after every epoch, from which an interrupted training resumes.

It is the same for any number of ranks: what is divided among them is stored whole, by rank 0.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch

from umpteen.engine import Callback, Record
from umpteen.neural.distributed import ranks
from umpteen.neural.sharding import WHOLE, Shard, Shards, divided, made_whole
from umpteen.store import Checkpoint, format_records, parse_records

State = dict[str, torch.Tensor]


class Part(Protocol):
    """What has a state beside the weights: an average, the best so far, a count."""

    def state(self) -> State:
        """Return all that changes during training."""
        ...

    def load_state(self, state: State) -> None:
        """Go on from such a state, which lies in the processor's memory."""
        ...


class TrainingState:
    """The state at the end of every epoch, in a checkpoint: weights, parts, the optimiser's numbers, random ones.

    Parameters
    ----------
    checkpoint
        Where the state is kept; None keeps nothing.
    stage
        Its name there.
    net
        What learns.
    parts
        What else changes, by name.
    per_epoch, n_steps
        Steps of an epoch, and of all.
    """

    def __init__(
        self, checkpoint: Checkpoint | None, stage: str, net: torch.nn.Module, parts: Mapping[str, Part], *,
        per_epoch: int, n_steps: int, device: torch.device,
    ):  # fmt: skip
        self.checkpoint, self.stage, self.net, self.parts = checkpoint, stage, net, parts
        self.per_epoch, self.n_steps, self.device = per_epoch, n_steps, device
        self.shards = Shards(net)
        self._before, self._begun = 0.0, time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long it has taken so far, before an interruption and since."""
        return self._before + time.perf_counter() - self._begun

    def save(self, step: int, optimiser: torch.optim.Optimizer) -> None:
        """Keep the state if an epoch has ended."""
        if self.checkpoint is None or (step % self.per_epoch and step != self.n_steps):
            return
        arrays = {f"net.{name}": tensor for name, tensor in self.shards.whole(self.net.state_dict()).items()}
        for part, of_part in self.parts.items():
            arrays |= {f"part.{part}.{name}": tensor for name, tensor in of_part.state().items()}
        shards = self._shards_of(optimiser)
        for number, state in optimiser.state_dict()["state"].items():
            whole = {name: made_whole(torch.as_tensor(value), shards[number]) for name, value in state.items()}
            arrays |= {f"optimiser.{number}.{name}": tensor for name, tensor in whole.items()}
        arrays |= {"step": torch.tensor(step), "seconds": torch.tensor(self.seconds)} | self._random()
        self.checkpoint.save(self.stage, {name: _plain(tensor) for name, tensor in arrays.items()})

    def load(self, optimiser: torch.optim.Optimizer) -> int:
        """Take up the last state that was kept; return the steps before it."""
        if self.checkpoint is None or not self.checkpoint.has(self.stage):
            return 0
        stored = self.checkpoint.load(self.stage, mmap=False)
        arrays = {name: torch.from_numpy(array.copy()) for name, array in stored.items()}
        self._set_random(arrays)
        self.net.load_state_dict(self.shards.own(under(arrays, "net.")))
        for part, of_part in self.parts.items():
            of_part.load_state(under(arrays, f"part.{part}."))
        states: dict[int, State] = {}
        shards = self._shards_of(optimiser)
        for name, tensor in under(arrays, "optimiser.").items():
            number, _, what = name.partition(".")
            states.setdefault(int(number), {})[what] = divided(tensor, shards[int(number)])
        optimiser.load_state_dict({"state": states, "param_groups": optimiser.state_dict()["param_groups"]})
        self._before += float(arrays["seconds"])
        return int(arrays["step"])

    def _shards_of(self, optimiser: torch.optim.Optimizer) -> list[Shard]:
        """Return the shard of each parameter, by its number in the optimiser's state."""
        parameters = (parameter for group in optimiser.param_groups for parameter in group["params"])
        return [self.shards.of_tensor.get(id(parameter), WHOLE) for parameter in parameters]

    def _random(self) -> State:
        """Return the states of the random numbers of all ranks, under a name for each."""
        own = {"random": torch.get_rng_state()}
        if self.device.type == "cuda":
            own["random_cuda"] = torch.cuda.get_rng_state(self.device)
        of_ranks = ranks().objects(own)
        return {_of_rank(name, rank): state for rank, some in enumerate(of_ranks) for name, state in some.items()}

    def _set_random(self, arrays: State) -> None:
        """Go on with the random numbers of this rank; a rank that there was not has its own from here on."""
        random, random_cuda = (arrays.get(_of_rank(name, ranks().rank)) for name in ("random", "random_cuda"))
        if random is None:
            torch.manual_seed(torch.initial_seed() + int(arrays["step"]))
            return
        torch.set_rng_state(random)
        if random_cuda is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(random_cuda, self.device)


class FinishedTraining:
    """What a finished training leaves in the checkpoint in place of its state: weights, what it took, and records.

    Parameters
    ----------
    checkpoint
        Where it is kept; None keeps nothing.
    state_name
        The name of the training's state there.
    module
        What was trained.
    """

    def __init__(self, checkpoint: Checkpoint | None, state_name: str, module: torch.nn.Module):
        self.checkpoint, self.state_name, self.module = checkpoint, state_name, module
        self.name, self.shards = f"finished-{state_name}", Shards(module)

    @property
    def is_there(self) -> bool:
        """Whether the training has finished before."""
        return self.checkpoint is not None and self.checkpoint.has(self.name)

    def save(self, report: Sequence[float], records: Sequence[Record]) -> None:
        """Keep the weights and forget the state."""
        if self.checkpoint is None:
            return
        arrays = {f"net.{name}": _plain(tensor) for name, tensor in self.shards.whole(self.module.state_dict()).items()}
        arrays["report"] = np.array(report, np.float64)
        arrays["records"] = np.frombuffer(format_records(records), np.uint8)
        self.checkpoint.save(self.name, arrays)
        self.checkpoint.drop(self.state_name)

    def load(self, record: Callback) -> np.ndarray:
        """Take up the weights, report the records again, and return what the training took."""
        stored = dict(self.checkpoint.load(self.name, mmap=False))
        report, records = stored.pop("report"), stored.pop("records")
        state = {name: torch.from_numpy(array.copy()) for name, array in stored.items()}
        self.module.load_state_dict(self.shards.own(under(state, "net.")))
        for one in parse_records(records.tobytes(), self.name):
            record(one)
        return report


def _of_rank(name: str, rank: int) -> str:
    return f"{name}.{rank}" if rank else name


def _plain(tensor: torch.Tensor) -> np.ndarray:
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).detach().cpu().numpy()


def under(arrays: State, prefix: str) -> State:
    """Return what has a name with this beginning, by the rest of it."""
    return {name.removeprefix(prefix): tensor for name, tensor in arrays.items() if name.startswith(prefix)}
