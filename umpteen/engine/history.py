"""Records of a training: loss, learning rate, held-out metrics and times, kept in a list and passed to callbacks.

What trains takes ``record``, a ``Callback``, and calls it with one record at a time: a dict of plain values.

    {"stage": "training the network", "step": 350, "epoch": 0.5, "loss": 1.23, "lr": 1.8e-4, "seconds": 12.3}
    {"stage": "training the network", "step": 700, "epoch": 1.0, "loss": 1.01, "lr": 1.2e-4, "seconds": 25.1,
     "P@1": 71.3, "P@3": 52.0, "P@5": 40.9}
    {"stage": "level 2 of 2", "nodes": 4271, "seconds": 3.2}

``stage`` is the name under which progress is reported, ``seconds`` the time since the stage began.
"""

from collections.abc import Callable, Sequence
from typing import Any

from umpteen.errors import BadInput

Record = dict[str, Any]
Callback = Callable[[Record], None]


def ignore(record: Record) -> None:
    """Keep nothing."""


class History:
    """A list of records that passes each new one to callbacks; it is a callback itself.

    Parameters
    ----------
    callbacks
        Called with a copy of every record, in the thread that called ``fit``.

    Examples
    --------
    >>> history = History([lambda record: print(record["loss"])])
    >>> history({"stage": "training", "step": 50, "loss": 0.5})
    0.5
    >>> len(history.records)
    1
    """

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self.callbacks, self.records = callbacks, []  # type: Sequence[Callback], list[Record]

    def __call__(self, record: Record) -> None:
        self.records.append(record)
        for callback in self.callbacks:
            callback(dict(record))


def check_callbacks(callbacks: Any) -> list[Callback]:
    """Return the callbacks as a list; refuse what cannot be called, before time is spent on training."""
    if callable(callbacks):
        raise BadInput("callbacks must be a list of functions, but is a function; wrap it: callbacks=[function]")
    found = list(callbacks)
    for callback in found:
        if not callable(callback):
            raise BadInput(f"a callback must be a function that takes a record, but is {callback!r:.80}; pass one")
    return found


def with_model(callback: Callback, number: int) -> Callback:
    """Return a callback that adds the number of a model of an ensemble, counted from 1."""
    return lambda record: callback({"model": number, **record})


def with_prefix(callback: Callback, prefix: str) -> Callback:
    """Return a callback that puts a prefix before the name of the stage."""
    return lambda record: callback({**record, "stage": f"{prefix}{record['stage']}"})


def stage_name(record: Record) -> str:
    """Return the name of the stage of a record as progress has it, with the model of an ensemble.

    Examples
    --------
    >>> stage_name({"model": 2, "stage": "level 1 of 2"})
    'model 2: level 1 of 2'
    """
    stage = str(record.get("stage", ""))
    return f"model {record['model']}: {stage}" if "model" in record else stage


def number(record: Record, name: str) -> float | None:
    """Return a value of a record if it is a number; records of a model folder may hold anything plain."""
    value = record.get(name)
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e300 else None
