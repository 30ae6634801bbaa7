"""``umpteen evaluate``: print the metrics of a model on labelled data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from umpteen.cli.evaluation_output import Requests, breakdown_values, show_breakdown
from umpteen.cli.options import data_name, numbers
from umpteen.cli.terminal import Terminal
from umpteen.cli.training import Resources
from umpteen.engine import Progress
from umpteen.errors import BadInput, nearest
from umpteen.evaluation import Evaluation, evaluate_model, read_for
from umpteen.evaluation.model import BLOCK, finite
from umpteen.metrics import N_BINS, PROPENSITY
from umpteen.models.hub import local_folder
from umpteen.models.predictor import check_threshold

MANY_UNSEEN = 30.0  # per cent of the labels from which on a wrong separator or vocabulary is likely


def evaluate(
    model: Any,
    data: str,
    *,
    split: str,
    terminal: Terminal,
    ks: Sequence[int] = (1, 3, 5),
    propensity: str | None = None,
    threshold: float | None = None,
    requests: Requests | None = None,
    threads: int | None = None,
    as_json: bool = False,
    columns: Mapping[str, Any] | None = None,
    resources: Resources | None = None,
    folder: Path | None = None,
    backend: str | None = None,
) -> None:
    """Print the metrics of a model on a split of ``data``, and what else was asked for.

    An engine of the ``resources`` predicts with the model in ``folder``, opened with ``backend``.
    """
    requests = requests or Requests()
    requests.check()
    constants = None if propensity is None else propensity_constants(propensity)
    collected = requests.collectors(model, ks)
    dataset = read_for(model, data, split, **(columns or {}))
    options = {"propensity": constants, "threshold": _as_score(model, threshold), "threads": threads}
    with terminal.progress() as progress:
        collectors = list(collected.values())
        with _predicting(resources, folder, model.targets_.names, backend, progress) as predict:
            options |= {"collectors": collectors, "progress": progress, "predict": predict}
            found = evaluate_model(model, dataset, ks, **options)
    if found.unseen_labels >= MANY_UNSEEN:
        terminal.note(unseen_note(found.unseen_labels, data_name(data)))
    groups = collected["breakdown"].result() if requests.breakdown else None
    try:
        requests.write(found, collected, max(ks))  # first: who reads what is printed may stop at any line
    finally:
        if as_json:
            more = {} if groups is None else {"breakdown": breakdown_values(groups)}
            terminal.json(
                _json_values(found) | _decision_values(model, threshold) | _propensity_values(model, constants) | more
            )
        else:
            _show(model, found, threshold, constants, ks, f"{dataset.name or data} ({split})", terminal)
            if groups is not None:
                show_breakdown(groups, ks, terminal)


@contextmanager
def _predicting(
    resources: Resources | None, folder: Path | None, names: Sequence[str] | None, backend: str | None,
    progress: Progress,
) -> Iterator[Any]:  # fmt: skip
    """Yield what predicts with an engine, or None if the model predicts in this process."""
    if resources is None or resources.engine is None or folder is None:
        yield None
        return
    from umpteen.models.batch_job import forget
    from umpteen.models.block_predictions import BlockPredictions

    with TemporaryDirectory(prefix="umpteen-") as temporary:
        storage = resources.storage or Path(temporary)
        try:
            resources.check_storage(storage)
            place, engine = Path(local_folder(folder)), resources.engine
            yield BlockPredictions(place, storage, engine, BLOCK, progress, label_names=names, backend=backend)
        finally:
            forget()
            resources.close()


def _show(
    model: Any, found: Evaluation, threshold: float | None, constants: tuple[float, float] | None, ks: Sequence[int],
    title: str, terminal: Terminal,
) -> None:  # fmt: skip
    """Print the table of metrics and the lines below it."""
    table = figure_table(found.metrics | {"unseen labels": found.unseen_labels}, ks)
    terminal.table(*table, title=title)
    for line in [*_lines(found), _decision_line(model, threshold), *_propensity_lines(model, constants)]:
        terminal.say(line)
    if found.shortlist_recall:
        terminal.say(_recall_line(model.describe()["levels"][1:], found.shortlist_recall))


def unseen_note(share: float, data: str) -> str:
    """Return a note that many labels are unseen, with a possible cause."""
    if share == 100.0:
        return f"no label of {data} is known to the model, so every figure is 0; was it trained on other labels?"
    return (
        f"{share:.0f} % of the labels of {data} were never seen in training and count as missed; "
        "check that they are written and separated as in training"
    )


def propensity_constants(text: str) -> tuple[float, float]:
    """Parse A and B: ``0.55,1.5``, or the name of a dataset in ``PROPENSITY``."""
    if text.lower() in PROPENSITY:
        return PROPENSITY[text.lower()]
    if any(character.isalpha() for character in text):
        known = ", ".join(PROPENSITY)
        hint = nearest(text.lower(), PROPENSITY)
        raise BadInput(f"--propensity takes A,B or one of {known}, but got '{text}'{hint}")
    values = numbers(text, float, "--propensity")
    if len(values) != 2:
        raise BadInput(f"--propensity takes two numbers A,B, but got '{text}'")
    return values[0], values[1]


def figure_table(figures: dict[str, float], ks: Sequence[int]) -> tuple[list[str], list[list[Any]]]:
    """Return the header and rows of a table: a row per metric, a column per depth; metrics without depth last.

    Calibration errors, which are no percentages, are left out.
    """
    figures = {name: value for name, value in figures.items() if not name.startswith("ECE@")}
    measures = dict.fromkeys(name.partition("@")[0] for name in figures if "@" in name)
    rows = [[measure, *(figures[f"{measure}@{k}"] for k in ks)] for measure in measures]
    rows += [[name, value, *[None] * (len(ks) - 1)] for name, value in figures.items() if "@" not in name]
    return ["%", *(f"@{k}" for k in ks)], rows


def _json_values(found: Evaluation) -> dict[str, Any]:
    values: dict[str, Any] = {name: round(value, 4) for name, value in found.metrics.items()}
    values["unseen_labels"] = round(found.unseen_labels, 4)
    if found.shortlist_recall:
        values["shortlist_recall"] = [round(value, 4) for value in found.shortlist_recall]
    return values | {"rows": found.n_rows, "rows_per_s": round(_speed(found), 1)}


def _lines(found: Evaluation) -> list[str]:
    """Return the lines below the table."""
    lines = [f"{found.n_rows:,} rows, {_speed(found):,.0f} texts/s"]
    errors = [f"{name} {value:.4f}" for name, value in found.metrics.items() if name.startswith("ECE@")]
    if errors:
        lines.append(f"calibration error of the probabilities: {', '.join(errors)} (0 to 1, {N_BINS} bins)")
    return lines


def _as_score(model: Any, threshold: float | None) -> float | None:
    """Return the score of a threshold, which is a probability if the model has these."""
    if threshold is None:
        return None
    check_threshold(threshold)
    return finite(model.score_at(threshold))


def _decision_values(model: Any, threshold: float | None) -> dict[str, Any]:
    """Return at which threshold F1 was measured, and what else decides."""
    if threshold is not None:
        return {"threshold": threshold}
    facts = model.describe()
    return {name: facts[name] for name in ("threshold", "limit", "label_thresholds") if facts.get(name) is not None}


def _decision_line(model: Any, threshold: float | None) -> str:
    values = _decision_values(model, threshold)
    scale = "a probability of" if model.calibration_ is not None else "a score of"
    words = [f"micro-F1 and macro-F1 of the labels with {scale} at least {values['threshold']:.3g}"]
    if values.get("label_thresholds"):
        words.append(f"{values['label_thresholds']:,} of them with their own thresholds")
    if values.get("limit"):
        words.append(f"at most {values['limit']} per text")
    return ", ".join(words)


def _speed(found: Evaluation) -> float:
    return found.n_rows / max(found.seconds, 1e-9)


def _propensity_values(model: Any, constants: tuple[float, float] | None) -> dict[str, Any]:
    if constants is None:
        return {}
    return {"propensity": list(constants), "propensity_counts": "training", "propensity_rows": model.targets_.n_rows}


def _propensity_lines(model: Any, constants: tuple[float, float] | None) -> list[str]:
    if constants is None:
        return []
    a, b = constants
    n_rows = model.targets_.n_rows
    return [f"PSP by the label counts of the {n_rows:,} training rows, stored in the model; A = {a:g}, B = {b:g}"]


def _recall_line(sizes: Sequence[int], recall: Sequence[float]) -> str:
    *groups, labels = [f"{value:.1f} % of {size:,}" for size, value in zip(sizes, recall, strict=True)]
    shares = ", ".join([*(f"{share} groups" for share in groups), f"{labels} labels"])
    return f"shortlist recall by level: {shares}"
