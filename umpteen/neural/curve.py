"""The learning curve of a stage: loss, learning rate and held-out metrics, as records.

Losses are added up on the device that computes them. Only a look at them waits for it, so the loop looks now and then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch

from umpteen.engine import Callback, Record, ignore
from umpteen.errors import BadConfig
from umpteen.neural.training_state import State
from umpteen.store import format_records, parse_records


class Curve:
    """Report the mean loss since the last record, the learning rate, and metrics of held-out texts.

    Parameters
    ----------
    stage
        The name of the stage in every record.
    per_epoch
        Steps of an epoch.
    record
        What is called with every record.

    Attributes
    ----------
    records
        All records of the stage, those before an interruption included.
    seconds
        Returns the time since the stage began.
    """

    def __init__(self, stage: str = "training", per_epoch: int = 1, record: Callback = ignore):
        self.stage, self.per_epoch, self.record = stage, per_epoch, record
        self.records: list[Record] = []
        self.seconds: Callable[[], float] = lambda: 0.0
        self._total: torch.Tensor | None = None
        self._n, self._lr = 0, 0.0
        self._next: Record = {}

    def add(self, loss: torch.Tensor, lr: float) -> None:
        """Add the loss of a step, which may still be computed, and the learning rate of that step."""
        self._total = loss.float().clone() if self._total is None else self._total + loss
        self._n, self._lr = self._n + 1, lr

    def look(self, step: int) -> None:
        """Wait for the losses since the last look; refuse one that is not a number."""
        if self._total is None:
            return
        mean = float(self._total) / self._n
        if not math.isfinite(mean):
            raise BadConfig(
                "the loss is no longer a number; lower training.learning_rate and training.head_learning_rate"
            )
        self._total, self._n = None, 0
        self._next |= self._at(step) | {"loss": _rounded(mean), "lr": _rounded(self._lr)}

    def measure(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add metrics of held-out texts to the record of a step; they have waited for its loss."""
        self.look(step)
        self._next |= self._at(step) | {name: _rounded(value) for name, value in metrics.items()}

    def write(self, **more: str) -> None:
        """Report what was seen since the last record, if anything."""
        if self._next:
            self._emit(self._next | more | {"seconds": round(self.seconds(), 3)})
            self._next = {}

    def state(self) -> State:
        """Return the records so far, and the losses since the last."""
        kept = torch.from_numpy(np.frombuffer(format_records(self.records), np.uint8).copy())
        total = torch.zeros(()) if self._total is None else self._total
        return {"records": kept, "total": total, "n": torch.tensor(self._n)}

    def load_state(self, state: State) -> None:
        """Go on from there; the records before an interruption are reported again, so that a log has all of them."""
        self._n = int(state["n"])
        self._total = state["total"] if self._n else None
        for record in parse_records(state["records"].numpy().tobytes(), self.stage):
            self._emit(record)

    def _at(self, step: int) -> Record:
        return {"stage": self.stage, "step": step, "epoch": round(step / self.per_epoch, 4)}

    def _emit(self, record: Record) -> None:
        self.records.append(record)
        self.record(record)


def _rounded(value: float) -> float:
    """Round to six digits, which is what a float32 holds."""
    return float(f"{value:.6g}")
