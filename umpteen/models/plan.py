"""Plan a training: time, memory and disk on one machine, within a limit of memory, and on several machines.

Every figure is a formula of sizes and rates; ``FORMULAS`` says which.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from umpteen.config import ModelConfig
from umpteen.data.size import DataSize
from umpteen.engine import n_threads
from umpteen.models.rates import TYPICAL, Rates
from umpteen.models.work import Work

_PROCESS_BYTES = 2.5e8  # of Python, its libraries and compiled kernels
_PASSES = 3.0  # times that a byte on scratch storage is written or read
_STORED_WEIGHT, _STORED_ENTRY = 12.0, 8.0  # bytes of a trained weight and of an entry of a label vector in a file
_SENT_WEIGHT = 9.0  # bytes of a trained weight that a machine sends back

FORMULAS = {
    "time": "Σ amount × rate / share; share = machines × cores^0.6 for stages that cores share, machines for a GPU "
    "each, else 1",
    "storage time": f"+ {_PASSES:g} × scratch / disk rate, if a limit of memory makes scratch storage necessary",
    "network time": f"+ ((machines − 1) × rows + {_SENT_WEIGHT:g} × weights) / network rate, with several machines",
    "RAM": "process + data + tf-idf + max(clustering, jobs + weights) + vectors + network; with a limit, the limit or "
    "process + jobs if that is more; other machines than the first hold process + rows + jobs",
    "scratch": f"rows + {_STORED_WEIGHT:g} × weights + {_STORED_ENTRY:g} × entries of label vectors + vectors, if RAM "
    "without it exceeds the limit",
}


class Machines(NamedTuple):
    """What a training runs on."""

    nodes: int = 1
    cores: int = 1
    memory: float | None = None  # limit in bytes

    def __str__(self) -> str:
        many = f"{self.nodes} machines" if self.nodes > 1 else "1 machine"
        limit = "" if self.memory is None else f", limit {self.memory / 1e9:g} GB"
        return f"{many} × {self.cores} cores{limit}"


class Needs(NamedTuple):
    """What a training takes on some machines."""

    machines: Machines
    seconds: float
    ram_bytes: float  # of the first machine, which has the most
    worker_bytes: float  # of each other machine; 0 if there is none
    gpu_bytes: float  # of each GPU
    model_bytes: float
    scratch_bytes: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**self._asdict(), "machines": self.machines._asdict()}


@dataclass(frozen=True)
class Plan:
    """What a training takes, where from, and by which rates."""

    work: Work
    rates: Rates
    needs: tuple[Needs, ...]

    @classmethod
    def of(
        cls, data: DataSize, config: ModelConfig, *, cores: int = 0, nodes: int = 1, memory: float | None = None,
        rates: Rates = TYPICAL,
    ) -> Plan:  # fmt: skip
        """Plan a training on one machine, within a limit of memory if there is one, and on ``nodes`` machines.

        Parameters
        ----------
        data
            The size of the data.
        config
            Settings of a recipe.
        cores
            Cores of each machine; 0 means those of this one.
        nodes
            Number of machines.
        memory
            Limit of memory in bytes.
        rates
            How fast a core, a disk and the network are.

        Examples
        --------
        >>> from umpteen import XRLinear
        >>> data = DataSize.planned(2_000_000, 1_000_000, labels_per_row=3.5, per_row=32)
        >>> plan = Plan.of(data, XRLinear().config, cores=2, nodes=4, memory=8e9)
        >>> [str(needs.machines) for needs in plan.needs]
        ['1 machine × 2 cores', '1 machine × 2 cores, limit 8 GB', '4 machines × 2 cores, limit 8 GB']
        """
        cores = cores or n_threads(config.threads)
        work = Work.of(data, replace(config, threads=cores), rates)
        wanted = [Machines(1, cores)]
        wanted += [Machines(1, cores, memory)] if memory is not None else []
        wanted += [Machines(nodes, cores, memory)] if nodes > 1 else []
        return cls(work, rates, tuple(_needs(work, one, rates) for one in wanted))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: sizes, stages, memory by part, needs, rates and formulas."""
        data = self.work.data
        sizes = {
            "rows": data.n_rows, "features": data.n_features, "nonzeros": data.n_nonzeros, "labels": data.n_labels,
            "labels_with_rows": round(data.n_seen), "positives": data.n_positives,
            "weights": round(self.work.n_weights),
        }  # fmt: skip
        return {
            "sizes": sizes,
            "stages": [stage._asdict() for stage in self.work.stages],
            "memory": {"process": _PROCESS_BYTES, "data": data.input_bytes, **self.work.memory._asdict()},
            "needs": [needs.to_dict() for needs in self.needs],
            "rates": self.rates._asdict(),
            "formulas": FORMULAS,
        }


def _needs(work: Work, machines: Machines, rates: Rates) -> Needs:
    """Return what the work takes on some machines."""
    data, memory = work.data, work.memory
    rows = 8.0 * data.n_nonzeros
    seconds = work.seconds(machines.cores, machines.nodes)
    ram, worker, scratch = _PROCESS_BYTES + data.input_bytes + memory.total, 0.0, 0.0
    if machines.nodes > 1:
        worker = _PROCESS_BYTES + rows + memory.jobs + memory.network
        seconds += ((machines.nodes - 1) * rows + _SENT_WEIGHT * work.n_weights) / rates.network
    if machines.memory is not None and ram > machines.memory:
        scratch = rows + _STORED_WEIGHT * work.n_weights + _STORED_ENTRY * work.n_entries + memory.vectors
        least = _PROCESS_BYTES + memory.jobs + memory.network
        ram, worker = max(machines.memory, least), min(worker, max(machines.memory, least))
        seconds += _PASSES * scratch / rates.disk
    return Needs(machines, seconds, ram, worker, work.gpu_bytes, work.model_bytes, scratch)
