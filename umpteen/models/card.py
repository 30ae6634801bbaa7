"""The model card: ``README.md`` of a model folder, with front matter that the Hugging Face hub reads.

It says what a model is and how it was trained, from the model itself. It contains no training texts and no label names;
settings and names that it shows are escaped, so that they are neither Markdown nor HTML.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any

from umpteen import __version__, store
from umpteen.engine.printable import printable
from umpteen.errors import BadInput, MissingExtra

CARD = "README.md"
PLOT = "history.png"
_MARK = "<!-- This card was written by umpteen; remove this line to keep your own changes. -->"
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#!|~&$])")
_LONGEST = 200  # characters of a value that is shown
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_AUTOMATIC = (None, 0, (), "auto")  # defaults in whose place ``fit`` chooses a value


@dataclass(frozen=True)
class CardFacts:
    """What a model card says beside what the model knows itself.

    Parameters
    ----------
    metrics
        An evaluation, as ``Model.evaluate`` returns it.
    dataset, split
        Name of the data of the evaluation, and which part of it.
    language
        Languages of the texts, such as ``en``.
    license
        Licence of the model, such as ``apache-2.0``.
    repo_id
        Name of the repository on the hub, for the example.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    dataset: str = ""
    split: str = "test"
    language: str | Sequence[str] = ()
    license: str = ""
    repo_id: str = ""

    def __post_init__(self) -> None:
        for tag in (*self.languages, *filter(None, [self.license])):
            if not _TAG.fullmatch(tag):
                raise BadInput(f"a language or a licence is a tag such as en or apache-2.0, but not {tag!r:.80}")

    @property
    def languages(self) -> list[str]:
        """The languages as a list."""
        return [self.language] if isinstance(self.language, str) else list(self.language)

    @property
    def figures(self) -> dict[str, float]:
        """The metrics that are numbers."""
        return {name: float(value) for name, value in self.metrics.items() if _is_number(value)}


def write_card(model: Any, folder: str | os.PathLike[str], facts: CardFacts | None = None) -> Path:
    """Write ``README.md``, and a plot of the learning curves, into the folder of a saved model; return its path.

    A ``README.md`` that was not written by umpteen, or whose first comment was removed, is left as it is, and so is a
    ``history.png`` that the card does not show. The plot needs matplotlib and is left out without it.
    """
    path = Path(folder, CARD)
    if path.is_file() and not is_generated(path.read_bytes()):
        return path
    plot = Path(folder, PLOT)
    is_foreign = plot.exists() and not (path.is_file() and PLOT.encode() in path.read_bytes())
    has_plot = not is_foreign and _write_plot(model, plot)
    store.atomic_write(path, card(model, facts or CardFacts(), has_plot=has_plot))
    return path


def is_generated(content: bytes) -> bool:
    """Return whether a card may be replaced: it is empty or was written by umpteen."""
    return not content.strip() or _MARK.encode() in content


def card(model: Any, facts: CardFacts, *, has_plot: bool = False) -> str:
    """Return the text of a model card."""
    about = model.describe()
    members = about.get("models", [about])
    parts = [
        _front_matter(about, members, facts),
        _MARK,
        _introduction(about, members),
        _usage(about, facts.repo_id),
        _data(model, about),
        _evaluation(facts),
        _decision(about),
        *(_settings(one, number, len(members)) for number, one in enumerate(_models(model), start=1)),
        _training(model, has_plot),
        f"Written by umpteen {__version__}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _models(model: Any) -> list[Any]:
    return getattr(model, "models_", [model])


def _front_matter(about: Mapping[str, Any], members: Sequence[Mapping[str, Any]], facts: CardFacts) -> str:
    """Return the YAML block; every value is JSON, which is YAML as well, so nothing in it can be anything else."""
    recipes = dict.fromkeys(
        ["extreme-multi-label", "multi-label", about["recipe"], *(one["recipe"] for one in members)]
    )
    values: dict[str, Any] = {"library_name": "umpteen", "pipeline_tag": "text-classification", "tags": list(recipes)}
    if facts.languages:
        values["language"] = facts.languages
    if facts.license:
        values["license"] = facts.license
    if facts.figures:
        values["model-index"] = [{"name": facts.repo_id or about["recipe"], "results": [_result(facts)]}]
    lines = [f"{name}: {json.dumps(value, ensure_ascii=True)}" for name, value in values.items()]
    return "\n".join(["---", *lines, "---"])


def _result(facts: CardFacts) -> dict[str, Any]:
    """Return the evaluation in the form of the hub."""
    name = facts.dataset or "unnamed"
    kind = re.sub(r"[^A-Za-z0-9._/-]+", "-", name).strip("-/") or "unnamed"
    return {
        "task": {"type": "text-classification", "name": "Extreme multi-label classification"},
        "dataset": {"type": kind, "name": name, "split": facts.split},
        "metrics": [
            {"type": key.lower(), "name": key, "value": round(value, 4)} for key, value in facts.figures.items()
        ],
    }


def _introduction(about: Mapping[str, Any], members: Sequence[Mapping[str, Any]]) -> str:
    what = f"an ensemble of {len(members)} models ({about['rule']})" if "models" in about else f"`{about['recipe']}`"
    lines = [f"# {about['recipe']} with {about['labels']:,} labels", ""]
    lines.append(
        f"A model of umpteen, {what}: it ranks {about['labels']:,} labels for "
        f"{'a text' if about['input'] == 'texts' else 'a feature row'}."
    )
    papers = dict.fromkeys(one["paper"] for one in members if one.get("paper"))
    lines += [f"Paper: {escaped(paper)}." for paper in papers]
    encoders = dict.fromkeys(one["encoder"] for one in members if one.get("encoder"))
    lines += [f"Encoder: {_code(_place(name))}." for name in encoders]
    return "\n".join(lines)


def _usage(about: Mapping[str, Any], repo_id: str) -> str:
    name = repo_id if _is_repository(repo_id) else "org/name"
    inputs = '["a text"]' if about["input"] == "texts" else "X"
    extras = "hub,transformers" if _has_encoder(about) else "hub"
    return "\n".join(
        [
            "## Use", "", "```sh", f"pip install 'umpteen[{extras}]'", "```", "", "```python",
            "import umpteen", "", f'model = umpteen.load("hf://{name}")',
            f"top = model.topk({inputs}, k=5)", "print(top.names, top.scores)", "```",
        ]
    )  # fmt: skip


def _has_encoder(about: Mapping[str, Any]) -> bool:
    return any("encoder" in one for one in about.get("models", [about]))


def _data(model: Any, about: Mapping[str, Any]) -> str:
    """Say how many rows and labels there were; neither texts nor names."""
    targets = model.targets_
    rows = [("labels", f"{about['labels']:,}")]
    if targets.counts is not None and targets.n_rows:
        counts = targets.counts
        rows.insert(0, ("training rows", f"{targets.n_rows:,}"))
        rows.append(("labels with at least one training row", f"{int((counts > 0).sum()):,}"))
        rows.append(("labels per training row", f"{float(counts.sum()) / targets.n_rows:.2f}"))
    rows.append(("input", about["input"]))
    return "## Data\n\n" + _table(("", ""), rows)


def _evaluation(facts: CardFacts) -> str:
    """Return a table with a row for each metric and a column for each k."""
    if not facts.figures:
        return ""
    where = f" on {_code(facts.dataset)} ({escaped(facts.split)})" if facts.dataset else ""
    by_name: dict[str, dict[str, str]] = {}
    for key, value in facts.figures.items():
        name, _, k = key.partition("@")
        by_name.setdefault(name, {})[k] = f"{value:.3f}" if name == "ECE" else f"{value:.2f}"
    ks = sorted({k for row in by_name.values() for k in row if k}, key=lambda k: (len(k), k))
    rows = [[escaped(name), row.get("", ""), *(row.get(k, "") for k in ks)] for name, row in by_name.items()]
    note = "In per cent; ECE is a fraction." if "ECE" in by_name else "In per cent."
    return f"## Evaluation{where}\n\n{note}\n\n{_table(('metric', '', *(f'@{escaped(k)}' for k in ks)), rows)}"


def _decision(about: Mapping[str, Any]) -> str:
    least = f"{about['threshold']:.3g}"
    if not about["calibrated"]:
        text = f"The model is not calibrated: `predict` returns labels with a score of at least {least}."
    else:
        text = (
            "Scores are calibrated to probabilities on held-out rows. `predict` returns labels with a probability of "
        )
        text += f"at least {least}" + (f", {about['limit']} per row at most." if about.get("limit") else ".")
    return f"## Calibration\n\n{text}"


def _settings(model: Any, number: int, n_models: int) -> str:
    """List settings that differ from the defaults, apart those that ``fit`` chooses where they are not given."""
    about, usual = model.describe(), model.defaults()
    changed = {name: value for name, value in about["settings"].items() if name not in _PLACES}
    chosen = {name: value for name, value in changed.items() if attrgetter(name)(usual) in _AUTOMATIC}
    given = {name: value for name, value in changed.items() if name not in chosen}
    title = "## Settings" + (f" of model {number}, {about['recipe']}" if n_models > 1 else "")
    parts = [title]
    for words, some in (
        ("Chosen from the data, unless they were given:", chosen),
        ("Different from the recipe's defaults:", given),
    ):
        if some:
            parts += [words, _table(("setting", "value", "default"), _setting_rows(some, usual))]
    return "\n\n".join(parts) if len(parts) > 1 else f"{title}\n\nThose of the recipe."


def _setting_rows(settings: Mapping[str, Any], usual: Any) -> list[list[str]]:
    pairs = {name: (value, attrgetter(name)(usual)) for name, value in settings.items()}
    return [[_code(name), *(_code(_shown(one)) for one in pair)] for name, pair in pairs.items()]


_PLACES = ("encoder.name", "encoder.device")  # may be a folder of the author's machine; the name is shown elsewhere


def _training(model: Any, has_plot: bool) -> str:
    """Say how long the stages took, and show the learning curves."""
    seconds: dict[str, float] = {}
    for record in model.history_:
        if _is_number(record.get("seconds")):
            prefix = f"model {record['model']}: " if "model" in record else ""
            seconds[prefix + str(record.get("stage", ""))] = float(record["seconds"])
    if not seconds:
        return ""
    rows = [(escaped(stage), f"{value:.1f}") for stage, value in seconds.items()]
    parts = ["## Training", _table(("stage", "seconds"), rows)]
    if has_plot:
        parts.append(f"![Loss, learning rate and held-out precision]({PLOT})")
    return "\n\n".join(parts)


def _write_plot(model: Any, path: Path) -> bool:
    """Draw the learning curves, if there are any and matplotlib is installed."""
    from umpteen.models.history_plot import curves, plot_history

    if not any(curves(model.history_, name) for name in ("loss", "P@1")):
        return False
    with TemporaryDirectory() as folder:
        drawn = Path(folder, PLOT)
        try:
            plot_history(model.history_, drawn)
        except MissingExtra:
            return False
        store.atomic_write(path, drawn.read_bytes())
    return True


def escaped(text: Any) -> str:
    """Return a text that Markdown and HTML show as it is, on one line.

    Examples
    --------
    >>> escaped("a|b <i>")
    'a\\\\|b \\\\<i\\\\>'
    """
    return _SPECIAL.sub(r"\\\1", printable(str(text))[:_LONGEST])


def _code(text: Any) -> str:
    """Return a text in backticks; those in it, and what ends a cell of a table, are replaced."""
    plain = printable(str(text))[:_LONGEST].replace("`", "'").replace("|", "¦")
    return f"`{plain}`" if plain.strip() else ""


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return ", ".join(map(_shown, value)) or "()"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _place(name: str) -> str:
    """Return the name of an encoder; of a folder the last part only, for the rest is about the author's machine."""
    return PurePath(name).name if PurePath(name).is_absolute() or name.startswith(".") else name


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_repository(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name, re.ASCII) is not None
