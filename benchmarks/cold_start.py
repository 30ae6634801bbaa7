"""Time the first fit and the first answer of a fresh process: empty kernel cache, filled cache, read-only installation.

    python -m benchmarks.cold_start [--repeat 3] [--page docs/benchmarks.md]

Every measurement is a process of its own; its wall time includes the start of Python and all imports. The data is the
demo that comes with the package. For the read-only row the package is copied, ``umpteen warmup`` fills the cache beside
its source, all write permissions are taken away, and the process runs without a cache folder of its own (and without
the privilege to write anywhere where this script is run by root).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import umpteen
from benchmarks.report import machine, replace_between

# Root, for whom permissions mean nothing, runs commands without root's capabilities.
UNPRIVILEGED = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"] if os.getuid() == 0 else []
MARKERS = ("<!-- cold-start:begin -->", "<!-- cold-start:end -->")
TELL = """
import json, sys
from umpteen.kernels.compiling import on_compile
compiled = {}
def keep(kernel, seconds):
    if seconds is not None:
        compiled[kernel] = compiled.get(kernel, 0) + seconds
with on_compile(keep):
%s
print(json.dumps(compiled))
"""
FIT = """
    import umpteen
    from umpteen.data import load_demo
    train = load_demo("train")
    model = umpteen.XRLinear().fit(train.texts, train.Y, label_names=train.labels)
    if len(sys.argv) > 1:
        model.save(sys.argv[1])
"""
ANSWER = """
    import umpteen
    umpteen.load(sys.argv[1]).topk(["play chess against the computer"], k=5)
"""


def main() -> None:
    """Measure and print a table."""
    options = _options()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = list(_rows(folder, options.repeat))
    text = table(rows, options.repeat)
    print(text)
    if options.page:
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(replace_between(page, text, *MARKERS), encoding="utf-8")


def table(rows: list[dict[str, Any]], repeat: int) -> str:
    """Return the table, and what it was measured on."""
    here = machine()
    lines = [
        "| kernel cache | first fit, s | first answer, s | functions compiled here |",
        "| --- | ---: | ---: | ---: |",
    ]
    lines += [f"| {row['case']} | {row['fit_s']} | {row['answer_s']} | {row['compiled']} |" for row in rows]
    about = (
        f"Medians of {repeat} processes. umpteen {umpteen.__version__}, numba {version('numba')}, "
        f"Python {here['python']}, {here['cores']} cores ({here['cpu']})."
    )
    return "\n".join([*lines, "", about])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="processes per measurement; the median counts")
    parser.add_argument("--page", type=Path, help="also write the table between the markers of this page")
    return parser.parse_args()


def _rows(folder: Path, repeat: int) -> Any:
    model, kept = folder / "model", folder / "kept"
    fits, answers = [], []
    for turn in range(repeat):  # each with a cache of its own, so empty
        fits.append(_run(FIT, folder / f"fit-{turn}", model))
        answers.append(_run(ANSWER, folder / f"answer-{turn}", model))
    yield row("empty cache", fits, answers)

    _run(FIT, kept, model)
    _run(ANSWER, kept, model)
    yield row(
        "filled cache",
        [_run(FIT, kept) for _ in range(repeat)],
        [_run(ANSWER, kept, model) for _ in range(repeat)],
    )
    installed = _installed(folder / "image")
    yield row(
        "read-only installation after 'umpteen warmup'",
        [_run(FIT, None, source=installed) for _ in range(repeat)],
        [_run(ANSWER, None, model, source=installed) for _ in range(repeat)],
    )


def _installed(folder: Path) -> Path:
    """Return a folder with a copy of the package, compiled and without permission to write."""
    shutil.copytree(
        Path(umpteen.__file__).parent, folder / "umpteen", ignore=shutil.ignore_patterns("__pycache__", "*.nbi")
    )
    subprocess.run(
        [sys.executable, "-m", "umpteen.cli", "warmup", "--quiet"], env=_env(None, folder), cwd="/", check=True
    )
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
    return folder


def _env(cache: Path | None, source: Path | None) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if key not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    if cache is not None:
        env["NUMBA_CACHE_DIR"] = str(cache)
    return env | {"PYTHONPATH": str(source or Path(umpteen.__file__).parent.parent)}


def _run(code: str, cache: Path | None, *arguments: Path, source: Path | None = None) -> tuple[float, dict[str, float]]:
    """Return the seconds of a process and those of each kernel that it compiled."""
    env = _env(cache, source)
    command = [sys.executable, "-c", TELL % code, *map(str, arguments)]
    if source is not None:
        env["HOME"] = "/dev/null"  # where not even root can make a folder
        command = [*UNPRIVILEGED, *command]
    begun = time.perf_counter()
    done = subprocess.run(command, env=env, cwd="/", stdout=subprocess.PIPE, check=True)
    return time.perf_counter() - begun, json.loads(done.stdout.splitlines()[-1])


def row(case: str, fits: list[Any], answers: list[Any]) -> dict[str, Any]:
    """Return the medians of a case, and how many functions its processes compiled."""
    print(case, file=sys.stderr)
    for name, runs in (("fit", fits), ("answer", answers)):
        compiled = {kernel: round(seconds, 2) for kernel, seconds in runs[-1][1].items() if seconds >= 0.5}
        print(f"  {name}: {[round(seconds, 1) for seconds, _ in runs]} s", compiled or "", file=sys.stderr)
    return {
        "case": case,
        "fit_s": round(statistics.median(seconds for seconds, _ in fits), 1),
        "answer_s": round(statistics.median(seconds for seconds, _ in answers), 1),
        "compiled": sum(len(kernels) for _, kernels in (*fits, *answers)),
    }


if __name__ == "__main__":
    main()
