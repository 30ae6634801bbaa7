"""Load tests of ``umpteen serve``, on this machine only and bounded in time:

    python -m benchmarks.serve_load --data folder/of/EURLEX57K --page docs/serve.md

A linear model of EURLEX57K's titles and XR-Transformer of the demo are trained in ``benchmarks/work`` unless they are
there. ``--quick`` runs everything for a short time, ``--only rate,overload`` some of it. Results are kept in a JSON
file beside the page.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import shutil
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import machine, replace_between, table
from benchmarks.serve_processes import Client, load, serving, serving_nothing, wait_for

BEGIN, END = "<!-- serve-bench:begin -->", "<!-- serve-bench:end -->"
CONNECTIONS = 32
_QUIET = ("--set", "access_log=false")
_TEXTS_AT_ONCE = 64  # of a request that makes a model work
_ENCODER_TEXTS = 32

Result = dict[str, Any]


class Bench:
    """Models, texts and lengths of the measurements."""

    def __init__(self, data: Path, work: Path, quick: bool):
        self.data, self.work, self.quick = data, work, quick
        self.texts = _lines(data / "test_titles.txt.xz")[:2000]
        self.one = [json.dumps({"texts": [text]}) for text in self.texts[:500]]

    def seconds(self, full: float) -> float:
        """Return how long to measure."""
        return max(1.0, full / 10) if self.quick else full

    def model(self, seed: int = 0) -> Path:
        """Return the folder of the linear model, which is trained at the first call."""
        folder = self.work / f"eurlex57k-titles-{seed}"
        if not (folder / "config.json").exists():
            from umpteen import XRLinear
            from umpteen.data.labels import Labels

            names = dict(line.split("\t", 1) for line in _lines(self.data / "label_names.txt.xz"))
            rows = [line.split() for line in _lines(self.data / "train_labels.txt.xz")]
            labels, Y = Labels.from_lists(rows, names)
            XRLinear(seed=seed).fit(_lines(self.data / "train_titles.txt.xz"), Y, label_names=labels).save(folder)
        return folder

    def answers(self, *folders: Path) -> list[list[list[list[str]]]]:
        """Return, per request with one text, the labels that one of the models may answer, alone or in a batch."""
        import umpteen

        found: list[list[list[list[str]]]] = [[] for _ in self.one]
        for folder in folders:
            model = umpteen.load(folder)
            batch = model.topk(self.texts[:500], 5)
            for i in range(len(found)):
                alone = model.topk(self.texts[i : i + 1], 5)
                found[i] += [[model.labels_.keys(top[place][0])] for top, place in ((alone, 0), (batch, i))]
        return found


def rate(bench: Bench) -> Result:
    """Compare the rate of one-text requests with that of an empty route, in turns."""
    ours, empty = [], []
    with serving(bench.model()) as server, serving_nothing() as nothing:
        for one in (server, nothing):
            load(one, bench.one, CONNECTIONS, seconds=bench.seconds(3))
        for _ in range(5):
            empty.append(load(nothing, bench.one, CONNECTIONS, seconds=bench.seconds(6)))
            ours.append(load(server, bench.one, CONNECTIONS, seconds=bench.seconds(6)))
    ratios = [a["rate"] / b["rate"] for a, b in zip(ours, empty, strict=True)]
    middle = {key: statistics.median(one[key] for one in ours) for key in ("rate", "p50_ms", "p99_ms")}
    nothing_middle = {f"empty_{key}": statistics.median(one[key] for one in empty) for key in middle}
    return {**middle, **nothing_middle, "ratio": statistics.median(ratios)}


def sizing(bench: Bench) -> Result:
    """Measure start, memory and rate for one and for two workers."""
    found: Result = {}
    for workers in (1, 2):
        with serving(bench.model(), "--workers", str(workers), *_QUIET) as server:
            wait_for(lambda n=workers: len(server.pids()) == n and len(server.events("ready")) == n)
            load(server, bench.one, CONNECTIONS, seconds=bench.seconds(3))
            measured = load(server, bench.one, CONNECTIONS, seconds=bench.seconds(8))
            found[str(workers)] = {
                "start_s": server.start_s, "rss_mb": server.memory_mb("Rss"), "pss_mb": server.memory_mb("Pss"),
                "rate": measured["rate"], "p50_ms": measured["p50_ms"], "p99_ms": measured["p99_ms"],
            }  # fmt: skip
    return found


def overload(bench: Bench) -> Result:
    """Send four times as much as the server can answer, then as much as it can."""
    many = [json.dumps({"texts": bench.texts[i : i + _TEXTS_AT_ONCE]}) for i in range(0, 1900, _TEXTS_AT_ONCE)]
    with serving(bench.model(), *_QUIET) as server:
        load(server, many, 8, seconds=bench.seconds(3))
        capacity = load(server, many, 8, seconds=bench.seconds(8))["rate"]
        load(server, many, 256, rate=4 * capacity, seconds=bench.seconds(10))  # buffers grow to their size
        before = server.memory_mb()
        client = Client(server, many, 256, rate=4 * capacity, seconds=bench.seconds(60))
        memory = []
        while client.is_running():
            memory.append(server.memory_mb())
            time.sleep(0.5)
        crowd = client.result()
        time.sleep(2)
        after = load(server, many, 8, seconds=bench.seconds(8))["rate"]
        return {
            "capacity": capacity, "sent": crowd["sent"], "shed": crowd["shed"], "statuses": crowd["statuses"],
            "lost": crowd["lost"], "ok_per_s": crowd["ok_per_s"], "p99_ms": crowd["p99_ms"],
            "memory_before_mb": before, "memory_most_mb": max(memory), "memory_after_mb": server.memory_mb(),
            "rate_after": after, "seconds": bench.seconds(60),
        }  # fmt: skip


def requests(bench: Bench) -> Result:
    """Send 50,000 requests and look at the memory after the first 5,000 and at the end."""
    n = 50_000 // (10 if bench.quick else 1)
    with serving(bench.model(), *_QUIET) as server:
        load(server, bench.one, CONNECTIONS, requests=n // 10)
        first = server.memory_mb()
        rest = load(server, bench.one, CONNECTIONS, requests=n - n // 10)
        last = server.memory_mb()
    return {"requests": n, "first_mb": first, "last_mb": last, "growth": last / first - 1, "statuses": rest["statuses"]}


def swaps(bench: Bench) -> Result:
    """Replace the model 20 times under load, then stop the server under load."""
    versions = [bench.model(0), bench.model(1)]
    folder = bench.work / "swapped"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(versions[0], folder)
    expected = bench.answers(*versions)
    n = 4 if bench.quick else 20
    with serving(folder, *_QUIET, "--set", "watch=0.2") as server:
        client = Client(server, bench.one, CONNECTIONS, expected=expected, seconds=600)
        time.sleep(1)
        for turn in range(n):
            _copy_model(versions[(turn + 1) % 2], folder)
            wait_for(lambda turn=turn: len(server.events("reloaded")) > turn)
        time.sleep(1)
        code = server.stop()
        found = client.result()
    return {"swaps": n, "exit_code": code, **_counts(found)}


def kill(bench: Bench) -> Result:
    """Kill one of two workers under load."""
    expected = bench.answers(bench.model())
    with serving(bench.model(), "--workers", "2", *_QUIET) as server:
        wait_for(lambda: len(server.events("ready")) == 2)
        client = Client(server, bench.one, CONNECTIONS, expected=expected, seconds=bench.seconds(40))
        time.sleep(2)
        begun = time.perf_counter()
        os.kill(server.pids()[0], signal.SIGKILL)
        wait_for(lambda: len(server.events("ready")) == 3)
        replaced = time.perf_counter() - begun
        found = client.result()
    return {"replaced_s": replaced, "connections": CONNECTIONS, **_counts(found)}


def encoder(bench: Bench) -> Result:
    """Compare the texts per second of XR-Transformer behind the server with those of the model in batches."""
    import umpteen

    folder, texts = _encoder_model(bench.work), umpteen.load_demo("test").texts[:2048]
    bodies = [json.dumps({"texts": list(texts[i : i + _ENCODER_TEXTS])}) for i in range(0, 2048, _ENCODER_TEXTS)]
    served, bare = [], []
    with serving(folder, *_QUIET) as server:
        load(server, bodies, 8, seconds=bench.seconds(5))
        for _ in range(3):
            served.append(load(server, bodies, 8, seconds=bench.seconds(12))["rate"] * _ENCODER_TEXTS)
        memory, start = server.memory_mb(), server.start_s
    model = umpteen.load(folder)
    model.topk(list(texts[:256]), 5)
    for _ in range(3):
        bare.append(_texts_per_s(model, list(texts), bench.seconds(12)))
    ratio = statistics.median(served) / statistics.median(bare)
    return {
        "served": statistics.median(served), "bare": statistics.median(bare), "ratio": ratio, "rss_mb": memory,
        "start_s": start,
    }  # fmt: skip


def _texts_per_s(model: Any, texts: list[str], seconds: float) -> float:
    """Predict in batches of 256, the most that the server predicts at once."""
    done, begun = 0, time.perf_counter()
    while (passed := time.perf_counter() - begun) < seconds:
        first = done % len(texts)
        done += len(model.topk(texts[first : first + 256], 5))
    return done / passed


def _encoder_model(work: Path) -> Path:
    folder = work / "demo-xr-transformer"
    if not (folder / "config.json").exists():
        import umpteen
        from umpteen.cli.demo import NEURAL, neural_settings
        from umpteen.models import create

        train = umpteen.load_demo("train")
        model = create(NEURAL, neural_settings())
        model.fit(train.texts, train.Y, label_names=train.labels).save(folder)
    return folder


def _copy_model(source: Path, target: Path) -> None:
    """Put another model into a folder as a save does: its files first, ``config.json`` last, at once."""
    for path in source.rglob("*"):
        if path.is_file() and path.name != "config.json" and not (target / path.relative_to(source)).exists():
            shutil.copy(path, target / path.relative_to(source))
    shutil.copy(source / "config.json", target / "config.json.new")
    (target / "config.json.new").replace(target / "config.json")


def _counts(found: Result) -> Result:
    return {key: found[key] for key in ("sent", "statuses", "lost", "wrong", "rate")}


def _lines(path: Path) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


# The page


def bars(results: dict[str, Result]) -> list[list[str]]:
    """Return what was required and what was measured."""
    rows = []

    def row(what: str, required: str, measured: str, is_met: bool) -> None:
        rows.append([what, required, measured, "yes" if is_met else "**no**"])

    if (one := results.get("rate")) is not None:
        row(
            "one text, 32 connections: rate ÷ that of an empty FastAPI route",
            "≥ 0.50",
            f"{one['ratio']:.2f}",
            one["ratio"] >= 0.5,
        )
        times = one["p99_ms"] / one["p50_ms"]
        row("the same: p99 ÷ p50", "≤ 5", f"{times:.1f}", times <= 5)
    if (one := results.get("encoder")) is not None:
        row(
            "XR-Transformer: texts/s ÷ those of the model in batches",
            "≥ 0.70",
            f"{one['ratio']:.2f}",
            one["ratio"] >= 0.7,
        )
    if (one := results.get("overload")) is not None:
        is_met = set(one["statuses"]) <= {"200", "429"} and one["lost"] == 0
        counts = ", ".join(f"{n:,} × {status}" for status, n in one["statuses"].items())
        row(f"4× capacity for {one['seconds']:.0f} s", "only 200 and 429", f"{counts}; {one['lost']} lost", is_met)
        growth = one["memory_most_mb"] / one["memory_before_mb"] - 1
        row("the same: memory", "flat", f"{growth:+.1%}", growth < 0.05)
        again = one["rate_after"] / one["capacity"]
        row("the same: rate 2 s later ÷ before", "full", f"{again:.2f}", again >= 0.9)
    if (one := results.get("requests")) is not None:
        what = f"{one['requests']:,} requests: memory after the first {one['requests'] // 10:,}"
        row(what, "≤ +2 %", f"{one['growth']:+.1%}", one["growth"] <= 0.02)
    if (one := results.get("swaps")) is not None:
        measured = f"{one['lost']} of {one['sent']:,} lost, {one['wrong']} wrong"
        is_met = one["lost"] == 0 and one["wrong"] == 0 and set(one["statuses"]) == {"200"}
        row(f"{one['swaps']} swaps and SIGTERM under load", "none lost", measured, is_met)
    if (one := results.get("kill")) is not None:
        measured = f"{one['lost']} of {one['sent']:,} lost, {one['wrong']} wrong; replaced in {one['replaced_s']:.1f} s"
        is_met = one["lost"] <= one["connections"] and one["wrong"] == 0 and set(one["statuses"]) == {"200"}
        row("SIGKILL of one of 2 workers", "≤ those in flight, none wrong", measured, is_met)
    return rows


def section(results: dict[str, Result], here: Result) -> str:
    """Render everything between the markers."""
    parts = [
        f"By `make serve-bench` on {here['cores']} cores ({here['cpu']}), which the load generator uses too, "
        f"{here['system']}, Python {here['python']}, {here['date']}. Linear: `xr-linear` of EURLEX57K's titles "
        "(4,108 labels). Encoder: the demo's `xr-transformer`, MiniLM on the CPU.",
        table(("bar", "required", "measured", "met"), bars(results)),
    ]
    if (sizes := results.get("sizing")) is not None:
        head = ("workers", "start s", "RSS MB", "PSS MB", "requests/s", "p50 ms", "p99 ms")
        rows = [[n, *(f"{one[key]:,.{digits}f}" for key, digits in _DIGITS.items())] for n, one in sizes.items()]
        parts += [table(head, rows)]
    if (one := results.get("encoder")) is not None:
        parts.append(
            f"XR-Transformer: {one['served']:,.0f} texts/s behind the server in requests of {_ENCODER_TEXTS} texts, "
            f"{one['bare']:,.0f} by the model in batches of 256; {one['rss_mb']:,.0f} MB, ready after "
            f"{one['start_s']:.1f} s."
        )
    return "\n\n".join(parts)


_DIGITS = {"start_s": 1, "rss_mb": 0, "pss_mb": 0, "rate": 0, "p50_ms": 1, "p99_ms": 1}

MEASURES: dict[str, Callable[[Bench], Result]] = {
    "rate": rate, "sizing": sizing, "overload": overload, "requests": requests, "swaps": swaps, "kill": kill,
    "encoder": encoder,
}  # fmt: skip


def main() -> None:
    """Measure, print, and write the page if one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of EURLEX57K")
    parser.add_argument("--work", type=Path, default=Path("benchmarks/work"), help="folder of the models")
    parser.add_argument("--page", type=Path, help="page whose part between the markers is replaced")
    parser.add_argument("--quick", action="store_true", help="a tenth of the time")
    parser.add_argument("--only", default=",".join(MEASURES), help="measurements, separated by commas")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(args.data, args.work, args.quick)
    kept = args.page.with_suffix(".json") if args.page else None
    before = json.loads(kept.read_text()) if kept and kept.exists() else {}
    results = before.get("results", {})
    for name in args.only.split(","):
        results[name] = MEASURES[name](bench)
        print(name, json.dumps(results[name]), flush=True)
        if kept is not None:
            kept.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + "\n")
    text = section(results, machine())
    print(text)
    if args.page is not None:
        page = args.page.read_text(encoding="utf-8") if args.page.exists() else ""
        args.page.write_text(replace_between(page, text, BEGIN, END), encoding="utf-8")


if __name__ == "__main__":
    main()
