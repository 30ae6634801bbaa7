"""What an encoder costs on a CPU: XR-Transformer with torch and with ONNX Runtime, in float32, bfloat16 and int8.

    python -m benchmarks.encoder_cpu

trains the model of ``umpteen demo`` (MiniLM), exports its encoder, and runs every variant in a process of its own.
The processes take turns, so that all see the same machine: a turn is a number of single texts, then a batch of texts.
Printed are the best turns, P@k on the test texts, memory and sizes, and docs/serve-encoders.md is updated.
``--data FOLDER`` takes other data, ``--profile`` prints where the time of a single text goes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from umpteen.config import GRAPHS

ROOT = Path(__file__).resolve().parent.parent
MARKERS = ("<!-- encoder-cpu:begin -->", "<!-- encoder-cpu:end -->")
VARIANTS = {
    "torch float32": ("torch", "float32"),
    "torch bfloat16": ("torch", "bfloat16"),
    "torch int8": ("torch", "int8"),
    "onnx float32": ("onnx", ""),
    "onnx int8": ("onnx-int8", ""),
}
BASE = "torch float32"
DEPTHS = (1, 3, 5)
_BEST = {"embed_ms": min, "single_ms": min, "texts_per_s": max}  # of the turns: other programs disturb some of them
LONG = "the quick brown fox jumps over the lazy dog " * 20  # more than 128 tokens

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train if necessary, measure, print, write."""
    options = _parse(arguments)
    os.environ |= {"OMP_NUM_THREADS": str(options.threads), "OMP_WAIT_POLICY": "passive"}
    folder = options.work / "model"
    if not (folder / "config.json").exists():
        prepare(folder, options)
    if options.profile:
        profile(folder, options)
        return
    rows = measure(folder, options)
    text = page(rows, options)
    print(text)
    if options.docs.exists() and not options.data:
        options.docs.write_text(report.replace_between(options.docs.read_text(), text, *MARKERS))


def read(options: argparse.Namespace, split: str, **more: Any) -> Any:
    """Return the data of a split."""
    import umpteen

    if options.data is None:
        return umpteen.load_demo(split)
    return umpteen.read(options.data, split, **more)


def prepare(folder: Path, options: argparse.Namespace) -> None:
    """Train the model and export its encoder in both precisions."""
    from umpteen.cli.demo import neural_settings
    from umpteen.models import create

    train = read(options, "train", n_rows=options.rows)
    settings = neural_settings() | {"threads": options.threads} | dict(pair.split("=", 1) for pair in options.set)
    begun = time.perf_counter()
    model = create("xr-transformer", settings).fit(train.texts, train.Y, label_names=train.labels)
    print(f"trained in {time.perf_counter() - begun:.0f} s", flush=True)
    for int8 in (False, True):
        begun = time.perf_counter()
        model.export(folder, int8=int8)
        print(f"exported in {time.perf_counter() - begun:.1f} s", flush=True)


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Row]:
    """Let one process per variant take turns; return the figures by variant."""
    context = multiprocessing.get_context("spawn")
    workers = {}
    for name in VARIANTS:
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs, folder, name, options), daemon=True)
        process.start()
        workers[name] = (process, ours)
        ours.recv()  # one after the other: starts are measured, too
    rows: dict[str, list[Row]] = {name: [] for name in VARIANTS}
    for turn in range(options.turns):
        for name, (_, pipe) in workers.items():
            pipe.send("turn")
            rows[name].append(pipe.recv())
        print(f"turn {turn + 1} of {options.turns}", file=sys.stderr, flush=True)
    found = {}
    for name, (process, pipe) in workers.items():
        pipe.send("end")
        last = pipe.recv()
        process.join()
        found[name] = {key: _BEST[key](row[key] for row in rows[name]) for key in rows[name][0]} | last
    return found


def work(pipe: Any, folder: Path, name: str, options: argparse.Namespace) -> None:
    """Open the model for one variant, and measure whenever asked."""
    begun = time.perf_counter()
    model = open_variant(folder, name)
    test = read(options, "test", labels=model.labels_) if options.data else read(options, "test")
    texts = list(test.texts)[: options.texts]
    model.topk(texts[:1], 5, threads=options.threads)
    started = time.perf_counter() - begun
    pipe.send("ready")
    first = {"start_s": started}
    while pipe.recv() == "turn":
        pipe.send(turn_of(model, texts, options))
    first["memory_mb"] = resident_mb()
    figures = model.evaluate(texts, test.Y[: len(texts)], ks=DEPTHS)
    long = long_reader(model, options.threads)
    long()
    first["long_ms"] = min(statistics.median(timed(long) for _ in range(10)) for _ in range(3)) * 1e3
    pipe.send(first | {f"P@{k}": figures[f"P@{k}"] for k in DEPTHS} | {"file_mb": file_mb(folder, name)})


def open_variant(folder: Path, name: str) -> Any:
    """Open a model whose encoder runs as the variant says."""
    import umpteen

    backend, precision = VARIANTS[name]
    model = umpteen.load(folder, backend=backend)
    saved = model.neural_.encoder
    saved.config = replace(saved.config, precision="bfloat16" if precision == "bfloat16" else "float32")
    if precision == "int8":
        import torch

        encoder = saved.get()
        kinds = {torch.nn.Linear}
        encoder.model = torch.ao.quantization.quantize_dynamic(encoder.model, kinds, torch.qint8)
    return model


def turn_of(model: Any, texts: list[str], options: argparse.Namespace) -> Row:
    """Measure one turn: single texts, embedded and tagged, and all texts at once."""
    some, threads = texts[: options.singles], options.threads
    embedding = [timed(lambda text=text: model.embed([text], threads=threads)) for text in some]
    single = [timed(lambda text=text: model.topk([text], 5, threads=threads)) for text in some]
    batch = timed(lambda: model.topk(texts, 5, threads=threads))
    return {
        "embed_ms": statistics.median(embedding) * 1e3,
        "single_ms": statistics.median(single) * 1e3,
        "texts_per_s": len(texts) / batch,
    }


def long_reader(model: Any, threads: int) -> Callable[[], Any]:
    """Return a function that embeds one text of 128 tokens."""
    saved = model.neural_.encoder
    saved.config = replace(saved.config, max_length=128)
    if saved.backend != "torch":
        saved._onnx = None
        return lambda: saved.embed([LONG], threads=threads)
    encoder = saved.get()
    encoder.config = saved.config
    encoder.tokenizer.backend_tokenizer.enable_truncation(128)
    return lambda: saved.embed([LONG], threads=threads)


def timed(function: Callable[[], Any]) -> float:
    """Return the seconds of a call."""
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def resident_mb() -> float:
    """Return the resident memory of this process in MB, without pages of files that others can share."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(fields["RssAnon"].split()[0]) * 1024 / 1e6


def file_mb(folder: Path, name: str) -> float:
    """Return the size of the file of weights that a variant reads."""
    pattern = {"torch": "encoder-*/model.safetensors"} | {name: f"onnx-*/{file}" for name, file in GRAPHS.items()}
    (path,) = folder.glob(pattern[VARIANTS[name][0]])
    return path.stat().st_size / 1e6


def page(rows: dict[str, Row], options: argparse.Namespace) -> str:
    """Return the table and what was measured."""
    base = rows[BASE]
    head = ["encoder", "one text, ms", "encoder alone", "128 tokens", "texts/s", "P@1/3/5", "memory MB", "file MB"]
    head.append("start s")
    lines = []
    for name, row in rows.items():
        cells = [f"{row[key]:.2f} ({base[key] / row[key]:.1f}×)" for key in ("single_ms", "embed_ms", "long_ms")]
        cells.append(f"{row['texts_per_s']:,.0f} ({row['texts_per_s'] / base['texts_per_s']:.1f}×)".replace(",", " "))
        cells.append("/".join(f"{row[f'P@{k}']:.2f}" for k in DEPTHS))
        lines.append([name, *cells, *(f"{row[key]:.0f}" for key in ("memory_mb", "file_mb")), f"{row['start_s']:.1f}"])
    data = options.data.name if options.data else "the demo data"
    here = report.machine()
    sentence = (
        f"XR-Transformer with MiniLM on {data}: {options.texts:,} test texts of at most 24 tokens, {options.threads} "
        f"threads ({here['cpu']}), {options.turns} turns in which the variants alternate, of which the best one "
        "counts; in brackets how many times as fast as torch in float32. Other programs on the machine affect times "
        "more than ratios. *One text* is the whole prediction of `topk`, *encoder alone* is its `embed`, *128 tokens* "
        "the embedding of one longer text. Memory is what the process has for itself, without mapped files. "
        "`python -m benchmarks.encoder_cpu` prints this table."
    )
    return f"{report.table(head, lines)}\n\n{sentence}"


def profile(folder: Path, options: argparse.Namespace) -> None:
    """Print the parts of the time of a single text, for torch and ONNX Runtime."""
    for name in (BASE, "onnx float32", "onnx int8"):
        model = open_variant(folder, name)
        texts = list(read(options, "test").texts)[: options.singles]
        parts = parts_of(model, texts, options.threads)
        print(name, {part: f"{ms:.3f} ms" for part, ms in parts.items()}, flush=True)


def parts_of(model: Any, texts: list[str], threads: int) -> dict[str, float]:
    """Return the median milliseconds of the steps of a prediction, each for a single text."""
    saved = model.neural_.encoder
    encoder = saved.get() if saved.backend == "torch" else saved._exported_encoder()
    steps: dict[str, list[float]] = {}

    @contextmanager
    def step(name: str):
        begun = time.perf_counter()
        yield
        steps.setdefault(name, []).append(time.perf_counter() - begun)

    for text in [*texts[:10], *texts]:
        with step("whole"):
            model.topk([text], 5, threads=threads)
        with step("tokens"):
            tokens = encoder.tokenize([text])
        with step("encoder"):
            saved.embed([text], threads=threads)
        with step("tf-idf"):
            model.tfidf_.transform([text], threads=threads)
        with step("rows"):
            rows = model._rows([text], threads)
        with step("search and fusion"):
            model._ranked(rows, 5, None, None, threads)
    if saved.backend != "torch":
        ids = np.zeros((1, len(tokens.ids)), np.int64)
        for _ in range(len(texts)):
            with step("graph"):
                encoder.graph.states(ids, None, threads)
    return {name: statistics.median(found[10:]) * 1e3 for name, found in steps.items()}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder of data; default: the demo data")
    parser.add_argument("--rows", type=int, help="train on the first rows only")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings of the training")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--texts", type=int, default=1500, help="test texts")
    parser.add_argument("--singles", type=int, default=60, help="texts that are predicted one at a time in a turn")
    parser.add_argument("--work", type=Path, default=ROOT / "benchmarks" / "work" / "encoder-cpu")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs" / "serve-encoders.md")
    parser.add_argument("--profile", action="store_true", help="print where the time of a single text goes")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
