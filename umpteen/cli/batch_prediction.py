"""``umpteen predict -o``: write the predictions of all rows of a file to another file."""

from pathlib import Path
from typing import Any

import umpteen
from umpteen.cli.prediction import read_allowed, renamed
from umpteen.cli.terminal import Terminal, duration
from umpteen.cli.training import Interrupted
from umpteen.engine.select import make_engine
from umpteen.models.batch import Written, predict_to_file


def predict(
    model: Path,
    source: str,
    output: Path,
    *,
    terminal: Terminal,
    engine: str = "local",
    workers: int | None = None,
    threads: int | None = None,
    address: str | None = None,
    allowed: Path | None = None,
    columns: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """Predict with an engine, and say how long it took; ``options`` are those of ``predict_to_file``."""
    runner = make_engine(engine, workers=workers or 0, threads=threads or 0, address=address)
    if allowed is not None:
        options["allowed"] = read_allowed(allowed, umpteen.load(model).labels_)
    if options.get("vocab") is not None:  # says how many names are missing
        renamed(umpteen.load(model).labels_, options["vocab"], options["language"], terminal)
    try:
        with terminal.progress() as progress:
            written = predict_to_file(
                model, source, output, engine=runner, progress=progress, **(columns or {}), **options
            )
    except KeyboardInterrupt as error:
        raise Interrupted("Interrupted. The same command continues with the rows that are not predicted.") from error
    finally:
        runner.close()
    terminal.note(_summary(written, output))


def _summary(written: Written, output: Path) -> str:
    rows = "row" if written.n_rows == 1 else "rows"
    kept = f", {written.n_kept:,} of them predicted before" if written.n_kept else ""
    n_new = written.n_rows - written.n_kept
    speed = f", {n_new / max(written.seconds, 1e-9):,.0f} rows/s" if n_new else ""
    return f"{written.n_rows:,} {rows} in {output}{kept}, in {duration(written.seconds)}{speed}"
