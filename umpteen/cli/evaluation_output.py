"""What ``umpteen evaluate`` adds to the metrics on request: a breakdown, results per text, and plots."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from umpteen.cli.terminal import Terminal, printable
from umpteen.errors import BadInput
from umpteen.evaluation import (
    Breakdown,
    BreakdownMetrics,
    Evaluation,
    TextResults,
    ThresholdCurve,
    draw_precision_recall,
    draw_reliability,
    training_counts,
)
from umpteen.evaluation.curves import FORMATS, import_matplotlib
from umpteen.store import atomic_write

_TABLES = (".tsv", ".jsonl")
_TEXT_DEPTHS = (1, 3, 5)


@dataclass(frozen=True)
class Requests:
    """The flags of ``umpteen evaluate`` that ask for more than metrics."""

    breakdown: bool = False
    per_text: Path | None = None
    reliability: Path | None = None
    pr_curve: Path | None = None

    def check(self) -> None:
        """Raise an error if a file cannot be written, before anything is predicted."""
        check_file(self.per_text, _TABLES, "--per-text")
        check_file(self.reliability, FORMATS, "--reliability")
        check_file(self.pr_curve, FORMATS, "--pr-curve")
        if self.reliability is not None or self.pr_curve is not None:
            import_matplotlib()

    def collectors(self, model: Any, ks: Sequence[int]) -> dict[str, Any]:
        """Return the objects that collect what was asked for."""
        found: dict[str, Any] = {}
        if self.breakdown:
            found["breakdown"] = BreakdownMetrics(training_counts(model), ks)
        if self.per_text is not None:
            found["per_text"] = TextResults(_TEXT_DEPTHS)
        if self.pr_curve is not None:
            found["pr_curve"] = ThresholdCurve()
        return found

    def write(self, found: Evaluation, collected: dict[str, Any], k: int) -> None:
        """Write the files that were asked for."""
        if self.per_text is not None:
            write_rows(self.per_text, collected["per_text"].rows())
        if self.pr_curve is not None:
            draw_precision_recall({"micro-averaged": collected["pr_curve"].result()}, self.pr_curve)
        if self.reliability is not None:
            if found.reliability is None:
                raise BadInput("--reliability needs probabilities, but this model predicts scores only; leave it out")
            draw_reliability({f"the best {k} labels of each text": found.reliability}, self.reliability)


def check_file(path: Path | None, endings: Sequence[str], flag: str) -> None:
    """Raise BadInput unless the file has one of the endings and its folder exists."""
    if path is None:
        return
    if path.suffix.lower() not in endings:
        raise BadInput(f"{flag} writes {' or '.join(endings)} files, but got '{path}'; change the ending")
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise BadInput(f"{flag} must be a file in an existing folder, but is '{path}'")


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as tab-separated values with a header, or as JSON lines, according to the ending of the path."""
    lines = _json_lines(rows) if path.suffix.lower() == ".jsonl" else _tab_lines(rows)
    atomic_write(path, (line.encode() for line in lines))


def show_breakdown(found: Breakdown, ks: Sequence[int], terminal: Terminal) -> None:
    """Print the two tables of a breakdown."""
    measures = [f"{name}@{k}" for name in ("P", "recall") for k in ks]
    header = ["labels", "training texts", "number", "training assignments", "assignments", *measures]
    rows = [
        [group["group"], _range(group["fewest"], group["most"]), group["labels"], group["training_assignments"],
         group["assignments"], *(group[name] for name in measures)]
        for group in found.by_frequency
    ]  # fmt: skip
    terminal.table(header, rows, title="By training texts of the labels (%): parts of P@k, and recall")
    measures = [f"{name}@{k}" for name in ("P", "R", "F1") for k in ks]
    names = ["labels_per_text", "texts", *measures]
    rows = [[group[name] for name in names] for group in found.by_number]
    terminal.table(["labels of a text", "texts", *measures], rows, title="By number of labels of the texts (%)")


def breakdown_values(found: Breakdown) -> dict[str, Any]:
    """Return a breakdown for JSON, with rounded numbers."""
    return {
        name: [{key: round(v, 4) if isinstance(v, float) else v for key, v in group.items()} for group in groups]
        for name, groups in found._asdict().items()
    }


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _json_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    return (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _tab_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        if number == 0:
            yield "\t".join(row) + "\n"
        yield "\t".join("" if value is None else printable(str(value)) for value in row.values()) + "\n"
