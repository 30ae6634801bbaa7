"""Compare training in memory with training whose arrays are in files: bytes of the model, peak of memory, time.

    python -m benchmarks.arrays_in_files FOLDER [FOLDER …] [--memory 1GB] [--encoder minilm] [--page docs/scale.md]

Each row is ``umpteen train FOLDER`` in a process of its own, from raw text. Ways alternate, and the fastest run of each
counts; the first runs, which may compile kernels, are not counted. The peak is the largest resident memory of the
process (``ru_maxrss``), which includes pages of mapped files; an interpreter that does nothing has about 10 MB.
``--encoder`` adds ``xr-transformer`` on the first folder: 32 tokens of a text, fine-tuned for a hundredth of an epoch,
because memory is measured and not accuracy.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.report import machine, number, replace_between, table

FEW_STEPS = ("encoder.max_length=32", "training.epochs=0.01")
MARKERS = ("<!-- arrays-in-files:begin -->", "<!-- arrays-in-files:end -->")


def main() -> None:
    """Measure, print, and write to a page if asked."""
    options = _options()
    ways = {"in memory": [], f"--memory {options.memory}": ["--memory", options.memory]}
    if options.processes:
        ways["--engine processes"] = ["--engine", "processes", "--workers", "2"]
    found = {folder.name: measure(folder, ways, options.repeat) for folder in options.folders}
    if options.encoder:
        flags = ["--recipe", "xr-transformer", "--encoder", options.encoder, "--device", "cpu"]
        flags += [word for setting in FEW_STEPS for word in ("--set", setting)]
        longer = {way: [*flags, *own] for way, own in ways.items()}
        found[f"{options.folders[0].name}, xr-transformer"] = measure(options.folders[0], longer, options.repeat)
    text = render(found)
    print(text)
    if options.page:
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(replace_between(page, text, *MARKERS), encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="datasets")
    parser.add_argument("--memory", default="1GB", help="the bound")
    parser.add_argument("--encoder", help="also measure xr-transformer, with this encoder")
    parser.add_argument("--processes", action="store_true", help="measure training by two processes, too")
    parser.add_argument("--repeat", type=int, default=2, help="runs of each way")
    parser.add_argument("--page", type=Path, help="also write the table between the markers of this page")
    return parser.parse_args()


def measure(folder: Path, ways: dict[str, list[str]], repeat: int) -> dict[str, dict[str, Any]]:
    """Return seconds, peak and a digest of the model of every way."""
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(dir=".") as name:
        for number_ in range(repeat + 1):
            for way, flags in ways.items():
                out = Path(name, f"model-{number_}-{len(rows)}-{abs(hash(way))}")
                seconds, peak = _run(
                    [sys.executable, "-m", "umpteen", "train", str(folder), "-o", str(out), "-q", *flags]
                )
                row = rows.setdefault(way, {"seconds": [], "peak": [], "digest": set()})
                row["digest"].add(_digest(out))
                if number_:
                    row["seconds"].append(seconds)
                    row["peak"].append(peak)
                print(f"{folder.name}, {way}: {seconds:.1f} s, {peak:.0f} MB", flush=True)
    return rows


def _run(command: list[str]) -> tuple[float, float]:
    """Return seconds, and the peak of resident memory in MB, of a command."""
    begun = time.perf_counter()
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return time.perf_counter() - begun, usage.ru_maxrss * 1024 / 1e6


def _digest(folder: Path) -> str:
    """Return a digest of the model without its history, whose times differ, and the table that has its digest."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "config.json" and not path.match("history-*.jsonl"):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def render(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Render the table."""
    here = machine()
    rows = []
    for dataset, ways in found.items():
        base = min(ways["in memory"]["seconds"])
        for way, row in ways.items():
            seconds, peak = min(row["seconds"]), max(row["peak"])
            is_same = row["digest"] == ways["in memory"]["digest"] and len(row["digest"]) == 1
            rows.append(
                [
                    dataset,
                    way,
                    number(seconds, 1),
                    f"{seconds / base:.2f}×",
                    number(peak, 0),
                    "yes" if is_same else "no",
                ]
            )
    where = f"{here['cores']} cores ({here['cpu']}), {here['memory_gb']} GB, Python {here['python']}"
    head = ("dataset", "training", "seconds", "against memory", "peak MB", "same bytes")
    return f"Measured on {here['date']} on {where}.\n\n{table(head, rows)}"


if __name__ == "__main__":
    main()
