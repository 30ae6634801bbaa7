"""``umpteen plan``: print what a training would take, with the formulas and rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rich.filesize import decimal

from umpteen.cli.terminal import Terminal, duration
from umpteen.data import read
from umpteen.data.size import DataSize
from umpteen.engine import Memory
from umpteen.errors import BadInput

_COUNTS = {"K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}
_SCALED = (
    "Scaled: features and labels per row as in the data; label frequencies keep their shape over relative ranks, so a "
    "label has {:.3g} rows on average; features grow as the square root of rows."
)
_PLANNED = (
    "Assumed: label frequencies fall as rank^-0.8 (Zipf), {:.3g} rows for a label on average; the number of features "
    "grows as the square root of nonzeros."
)


class Wanted(NamedTuple):
    """Sizes and machines as they were given."""

    labels: str | None = None
    rows: str | None = None
    nodes: int = 1
    cores: int = 0
    memory: str | None = None


class Rows(NamedTuple):
    """What rows are like that are not there yet."""

    labels: float
    features: float
    characters: float | None = None


def plan(
    data: str | None, recipe: str, settings: dict[str, Any], wanted: Wanted, kind: Rows, *, terminal: Terminal,
    measure: bool = False, as_json: bool = False, columns: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Print the plan of training a recipe on the train split of ``data``, or on rows of a kind."""
    from umpteen.models import create
    from umpteen.models.plan import Plan
    from umpteen.models.rates import TYPICAL

    config = create(recipe, settings).config
    size, assumption = _size(data, config, wanted, kind, terminal, columns or {})
    memory = None if wanted.memory is None else float(Memory.of(wanted.memory).total)
    found = Plan.of(
        size, config, cores=wanted.cores, nodes=wanted.nodes, memory=memory,
        rates=_measured(terminal) if measure else TYPICAL,
    )  # fmt: skip
    if as_json:
        terminal.json({"recipe": recipe, "assumption": assumption, **found.to_dict()})
        return
    _show(found, recipe, assumption, terminal)


def _measured(terminal: Terminal) -> Any:
    from umpteen.models.rate_benchmark import measure_rates

    with terminal.compiling():
        return measure_rates()


def _size(
    data: str | None, config: Any, wanted: Wanted, kind: Rows, terminal: Terminal, columns: Mapping[str, Any]
) -> tuple[DataSize, str]:
    """Return the size of the data to plan for, and what was assumed of it."""
    labels, rows = (
        None if text is None else round(amount(text, flag, "10M"))
        for text, flag in ((wanted.labels, "--labels"), (wanted.rows, "--rows"))
    )
    if data is None:
        if labels is None or rows is None:
            raise BadInput("a plan needs sizes: name DATA, or give --labels and --rows, such as --labels 1M --rows 2M")
        if kind.characters is None:
            size = DataSize.planned(rows, labels, kind.labels, kind.features)
        else:
            size = DataSize.planned_texts(rows, labels, kind.labels, kind.characters, config.tfidf)
        return size, _PLANNED.format(size.n_positives / size.n_labels)
    terminal.note(f"Reading {data}")
    dataset = read(data, "train", **columns)
    size = DataSize.of(dataset.inputs, dataset.Y, config.tfidf)
    if labels is None and rows is None:
        return size, ""
    size = size.scaled(labels, rows, config.tfidf.max_features if len(size.lengths) else 0)
    return size, _SCALED.format(size.n_positives / size.n_labels)


def amount(text: str, flag: str, example: str) -> float:
    """Read a count.

    >>> amount("10M", "--labels", "10M")
    10000000.0
    """
    word = text.strip().upper().replace("_", "").replace(",", "")
    unit = next((unit for unit in _COUNTS if word.endswith(unit)), "")
    try:
        value = float(word.removesuffix(unit)) * _COUNTS.get(unit, 1.0)
    except ValueError:
        value = 0.0
    if not 1.0 <= value < 1e15:
        raise BadInput(f"{flag} takes a number such as {example}, but got '{text}'")
    return value


def _show(found: Any, recipe: str, assumption: str, terminal: Terminal) -> None:
    from umpteen.models.plan import FORMULAS

    values = found.to_dict()
    sizes, cores = values["sizes"], found.needs[0].machines.cores
    title = f"{recipe}: {sizes['rows']:,} rows, {sizes['features']:,} features, {sizes['labels']:,} labels"
    terminal.table(
        ("machines", "time", "RAM", "RAM of others", "GPU memory", "model", "scratch disk"),
        [_needs(needs) for needs in found.needs],
        title=title,
    )
    stages = [
        (one.name, f"{one.amount:.3g} {one.unit}", f"{one.rate:.2g} s", one.shared_by, duration(one.seconds(cores)))
        for one in found.work.stages
    ]
    terminal.table(("stage", "amount", "rate", "shared by", "on one machine"), stages, title="Time")
    parts = [(name, decimal(round(n))) for name, n in values["memory"].items() if n]
    terminal.table(("part", "memory"), parts, title="RAM without a limit")
    terminal.table(("figure", "formula"), FORMULAS.items(), title="Formulas")
    rates = found.rates
    terminal.say(f"disk rate {decimal(round(rates.disk))}/s, network rate {decimal(round(rates.network))}/s")
    if assumption:
        terminal.say(assumption)


def _needs(needs: Any) -> tuple[str, ...]:
    amounts = (needs.ram_bytes, needs.worker_bytes, needs.gpu_bytes, needs.model_bytes, needs.scratch_bytes)
    return (str(needs.machines), duration(needs.seconds), *(decimal(round(n)) if n else "—" for n in amounts))
