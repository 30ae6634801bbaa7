"""XR-Transformer on a CPU: umpteen against PECOS on the data that comes with the package.

Same rows, same encoder (MiniLM), same number of tokens, same threads, one after the other. umpteen reads raw texts and
trains with the settings of ``umpteen demo``. PECOS is given the tf-idf rows too, and making them is not counted; it
trains with the parameters that its authors publish for Eurlex-4K, the set of the paper with as many texts.

    python -m benchmarks.bench_xrtransformer

prints a table and writes docs/benchmarks-xr-transformer.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scipy import sparse

from benchmarks import environments, report, summary
from benchmarks.jobs import call, environment
from benchmarks.plan import BEAM, TFIDF, THREADS, K
from benchmarks.prepare import plain, scale_rows
from umpteen.cli.demo import neural_settings
from umpteen.config import TfidfConfig
from umpteen.data import load_demo
from umpteen.data.locate import locate
from umpteen.data.tfidf import Tfidf

Row = dict[str, Any]

OURS, PECOS = "umpteen_xt", "pecos_xt"
_HERE = Path(__file__).resolve().parent
_DEPTHS = (1, 3, 5)
_COLUMNS = {"fit_s": "fit s", "P@1": "P@1", "P@3": "P@3", "P@5": "P@5", "p50_ms": "one text, p50 ms"}
_ONE_TEXT_MS = 25.0
_QUERIES = 50
_TIMEOUT_S = 3 * 3600.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Prepare, measure both, print, write."""
    options = _parse(arguments)
    data = options.work / "xr-transformer"
    about = prepare(data, options.rows)
    settings = neural_settings()
    peer = {"encoder": str(locate("minilm")), "tokens": settings["encoder.max_length"], "steps": options.steps}
    rows = {OURS: measure(OURS, settings, data, options.venvs), PECOS: measure(PECOS, peer, data, options.venvs)}
    rows[PECOS]["settings"] = {name: value for name, value in peer.items() if name != "encoder"}
    rows[OURS]["settings"] = settings
    checked = bars(rows)
    show(rows, checked)
    result = {"machine": report.machine(), "data": about, "threads": THREADS, "results": rows, "bars": checked}
    options.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def prepare(folder: Path, n_rows: int | None) -> Row:
    """Write the texts, the targets and the tf-idf rows that both are fed."""
    train, test = load_demo("train"), load_demo("test")
    texts = {"trn": list(train.texts)[:n_rows], "tst": list(test.texts)}
    targets = {"trn": train.Y[:n_rows], "tst": test.Y}
    tfidf = Tfidf(TfidfConfig(**TFIDF), threads=THREADS)
    features = {"trn": tfidf.fit_transform(texts["trn"]), "tst": tfidf.transform(texts["tst"])}
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("trn", "tst"):
        (folder / f"texts.{part}.json").write_text(json.dumps(texts[part]), encoding="utf-8")
        sparse.save_npz(folder / f"X.{part}.npz", plain(scale_rows(features[part])), compressed=False)
        sparse.save_npz(folder / f"Y.{part}.npz", plain(targets[part]), compressed=False)
    return {"n_train": len(texts["trn"]), "n_test": len(texts["tst"]), "n_labels": train.Y.shape[1]}


def measure(runner: str, settings: Row, data: Path, venvs: Path) -> Row:
    """Fit, predict the test part and single texts, each in a process of its own; return all figures."""
    python, predictions = environments.python_of(runner, venvs), data / "predictions" / f"{runner}.npy"
    row: Row = {}
    for stage in ("fit", "batch", "single"):
        print(f"  {runner} {stage} … ", end="", flush=True)
        given = {
            "data": data, "model": data / "models" / runner, "settings": json.dumps(settings), "threads": THREADS,
            "k": K, "beam": BEAM, "repeats": 1, "queries": _QUERIES, "predictions": predictions,
        }  # fmt: skip
        command = [str(python), str(_HERE / "peers" / f"{runner}_run.py"), stage]
        command += [word for name, value in given.items() for word in (f"--{name}", str(value))]
        figures = call(command, environment(runner.partition("_")[0], THREADS), _TIMEOUT_S)
        if figures is None:
            raise SystemExit(f"{runner} failed at {stage}")
        print({name: round(value, 3) for name, value in figures.items() if isinstance(value, float)}, flush=True)
        row |= figures
    return row | summary.quality(predictions, data)


def bars(rows: dict[str, Row]) -> list[Row]:
    """Say what is asked of umpteen and whether it is so."""
    ours, theirs = rows[OURS], rows[PECOS]
    higher = all(ours[f"P@{k}"] > theirs[f"P@{k}"] for k in _DEPTHS)
    return [
        {"bar": "higher P@1, P@3 and P@5 than PECOS", "met": higher},
        {"bar": "less time to fit than PECOS", "met": ours["fit_s"] < theirs["fit_s"]},
        {"bar": f"one text at p50 in {_ONE_TEXT_MS:.0f} ms", "met": ours["p50_ms"] <= _ONE_TEXT_MS},
    ]


def show(rows: dict[str, Row], checked: list[Row]) -> None:
    """Print the table and the bars."""
    print("  ".join(f"{title:>16s}" for title in ("", *_COLUMNS.values())))
    for runner, row in rows.items():
        print("  ".join([f"{runner:>16s}", *(f"{row[name]:16.2f}" for name in _COLUMNS)]))
    for bar in checked:
        print(f"{'met' if bar['met'] else 'MISSED':>8s}: {bar['bar']}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rows", type=int, help="train on the first rows only")
    parser.add_argument("--steps", type=int, nargs="+", default=[600, 800, 1200], help="of PECOS at each level")
    parser.add_argument("--work", type=Path, default=_HERE / "work")
    parser.add_argument("--venvs", type=Path, default=_HERE / "work" / "venvs")
    parser.add_argument("--out", type=Path, default=_HERE.parent / "docs" / "benchmarks-xr-transformer.json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
