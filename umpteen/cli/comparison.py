"""``umpteen compare``: print the metrics of two models on the same data, and which differences are significant."""

from collections.abc import Mapping, Sequence
from typing import Any

from umpteen.cli.evaluation import MANY_UNSEEN, unseen_note
from umpteen.cli.options import data_name
from umpteen.cli.terminal import Terminal, printable
from umpteen.data import Dataset
from umpteen.evaluation import Comparison, compare_models, read_for

_RESAMPLES = 1_000
_CHARACTERS = 60  # of a text that are shown


def compare(
    models: Sequence[Any],
    names: Sequence[str],
    data: str,
    *,
    split: str,
    terminal: Terminal,
    ks: Sequence[int] = (1, 3, 5),
    seed: int = 0,
    threads: int | None = None,
    as_json: bool = False,
    columns: Mapping[str, Any] | None = None,
) -> None:
    """Print the metrics of two models on a split of ``data`` with their differences."""
    dataset, of_b = read_for(models[0], data, split, **(columns or {})), None
    if models[1].labels_ != models[0].labels_:
        of_b = read_for(models[1], data, split, **(columns or {}))
    with terminal.progress() as progress:
        options = {"dataset_b": of_b, "n_resamples": _RESAMPLES, "seed": seed, "threads": threads, "progress": progress}
        found = compare_models(*models, dataset, ks, **options)
    for name, share in zip(names, found.unseen_labels, strict=True):
        if share >= MANY_UNSEEN:
            terminal.note(f"{name}: {unseen_note(share, data_name(data))}")
    if as_json:
        terminal.json(_json_values(found, dataset))
        return
    header = ["%", "A", "B", "B - A", "95 % interval", "significant"]
    terminal.table(header, _metric_rows(found), title=f"{dataset.name or data} ({split})")
    terminal.say(f"A: {names[0]}")
    terminal.say(f"B: {names[1]}")
    terminal.say(f"{found.n_rows:,} rows, {_RESAMPLES:,} resamples, seed {seed}")
    if found.texts:
        rows = [[text.row, _beginning(dataset, text.row), text.a, text.b] for text in found.texts]
        terminal.table(["row", "text", f"P@{found.k} of A", f"P@{found.k} of B"], rows, title="Texts that differ most")


def _metric_rows(found: Comparison) -> list[list[Any]]:
    return [
        [name, one.a, one.b, f"{one.difference:+.2f}", f"{one.low:+.2f} to {one.high:+.2f}",
         "yes" if one.is_significant else "no"]
        for name, one in found.metrics.items()
    ]  # fmt: skip


def _json_values(found: Comparison, dataset: Dataset) -> dict[str, Any]:
    metrics = {
        name: {key: round(value, 4) for key, value in one._asdict().items()} | {"significant": one.is_significant}
        for name, one in found.metrics.items()
    }
    texts = [
        {"row": text.row, "text": _beginning(dataset, text.row), f"P@{found.k}": [text.a, text.b]}
        for text in found.texts
    ]
    return {"metrics": metrics, "rows": found.n_rows, "resamples": _RESAMPLES, "texts": texts}


def _beginning(dataset: Dataset, row: int) -> str | None:
    """Return the beginning of a text with control characters escaped; None if there are feature rows only."""
    return None if dataset.texts is None else printable(dataset.texts[row][:_CHARACTERS])
