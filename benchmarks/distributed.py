"""What a second process brings: steps a second and the memory of a head, with one thread per process on a CPU.

    python -m benchmarks.distributed

fine-tunes an encoder of random weights (6 layers of 384 numbers, as MiniLM has) on random texts, by 1 and by 2 ranks
that torchrun starts, in turns. Printed are the best turns, and docs/distributed.md is updated.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import report

ROOT = Path(__file__).resolve().parent.parent
MARKERS = ("<!-- distributed:begin -->", "<!-- distributed:end -->")
SHAPE = (6, 384, 12)  # layers, width, heads
LENGTH, BATCH, N_TEXTS = 64, 32, 256
CASES = {  # labels, and the settings of the head
    "full": (131_072, {"network.head": "full"}),
    "dense, with AdamW": (32_768, {"network.head": "tree"}),
}
RATES = ("steps_per_s", "texts_per_s")
_UNMEASURED = 2  # steps at the beginning

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every case by every number of ranks, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs" / "distributed.md")
    parser.add_argument("--case", choices=CASES, help="what a rank measures; torchrun starts it")
    options = parser.parse_args(arguments)
    if options.case:
        work(options.case, options.steps)
        return
    text = page([row for case in CASES for row in measure(case, options)])
    print(text)
    if options.docs.exists():
        options.docs.write_text(report.replace_between(options.docs.read_text(), text, *MARKERS))


def measure(case: str, options: argparse.Namespace) -> list[Row]:
    """Return for each number of ranks the best of some turns, which alternate so that all see the same machine."""
    turns: dict[int, list[Row]] = {n: [] for n in options.ranks}
    for n_ranks in options.ranks * options.turns:
        turns[n_ranks].append(start(case, n_ranks, options.steps))
    best = {n: {key: max(turn[key] for turn in some) for key in RATES} for n, some in turns.items()}
    return [{"head": case, "ranks": n, "bytes": turns[n][0]["bytes"], **best[n]} for n in turns]


def start(case: str, n_ranks: int, n_steps: int) -> Row:
    """Let torchrun start the ranks; return what rank 0 has measured."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n_ranks)]
    command = [*launcher, "-m", "benchmarks.distributed", "--case", case, "--steps", str(n_steps)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    print(case, n_ranks, found, file=sys.stderr, flush=True)
    return found


def work(case: str, n_steps: int) -> None:
    """Fine-tune and embed as one of the ranks."""
    from benchmarks.gpu import NoTokenizer, random_bert
    from umpteen.config import EncoderConfig
    from umpteen.data.tokens import Tokens
    from umpteen.models import create
    from umpteen.neural.distributed import joined
    from umpteen.neural.encoder import Encoder
    from umpteen.neural.resolutions import Finetuning
    from umpteen.tree import LabelTree

    n_labels, settings = CASES[case]
    rng, marks = np.random.default_rng(0), []
    tokens = Tokens(np.arange(N_TEXTS + 1) * LENGTH, rng.integers(2, 30_000, N_TEXTS * LENGTH).astype(np.int32))
    Y = sp.random(N_TEXTS, n_labels, 5 / n_labels, format="csr", random_state=0, dtype=np.float32)
    common = {
        "training.epochs": n_steps * BATCH / N_TEXTS, "training.batch_size": BATCH, "training.init": "prior",
        "training.learning_rate": 1e-4,
        "training.negatives": "all", "training.validation_fraction": 0.0, "threads": 1,
    }  # fmt: skip
    config = create("xr-transformer", common | settings).config

    def progress(stage: str, done: int, total: int) -> None:
        if stage.startswith("fine-tuning"):
            marks.append(time.perf_counter())

    with joined() as ranks:
        encoder = Encoder(random_bert(*SHAPE), NoTokenizer(), EncoderConfig(max_length=LENGTH, device="cpu"))
        n_bytes = _noted_bytes()
        network = Finetuning(encoder, LabelTree.flat(n_labels), config)
        network.train(tokens, Y, progress=progress)
        begun = time.perf_counter()
        network.embeddings(tokens)
        texts_per_s = N_TEXTS / (time.perf_counter() - begun)
        steps = np.diff(marks[_UNMEASURED:])  # the median, because other programs may disturb some of them
        found = {"steps_per_s": 1.0 / float(np.median(steps)), "texts_per_s": texts_per_s}
        most = max(ranks.objects(n_bytes[-1]))
        if ranks.is_main:
            print(json.dumps(found | {"bytes": most}), flush=True)


def _noted_bytes() -> list[int]:
    """Note after every step what the head of this rank takes: weights, gradients and the optimiser's state."""
    from umpteen.neural.training_state import TrainingState

    found: list[int] = []
    save = TrainingState.save

    def noted(self: TrainingState, step: int, optimiser: Any) -> None:
        head = self.net.head
        tensors = [head.weight, head.bias]
        tensors += [one.grad for one in tensors if one.grad is not None]
        tensors += [moment for one in (head.weight, head.bias) for moment in optimiser.state.get(one, {}).values()]
        found.append(sum(tensor.numel() * tensor.element_size() for tensor in tensors))
        save(self, step, optimiser)

    TrainingState.save = noted
    return found


def page(rows: Sequence[Row]) -> str:
    """Write a line for each case and number of ranks, with what it is relative to one rank."""
    lines, alone = [], {}
    for row in rows:
        base = alone.setdefault(row["head"], row)
        figures = {"steps_per_s": row["steps_per_s"], "bytes": row["bytes"] / 1e6, "texts_per_s": row["texts_per_s"]}
        pairs = ((f"{value:.2f}", f"{row[key] / base[key]:.2f}×") for key, value in figures.items())
        labels = f"{CASES[row['head']][0]:,}"
        lines.append([row["head"], labels, str(row["ranks"]), *(cell for pair in pairs for cell in pair)])
    head = ["head", "labels", "ranks", "steps/s", "", "head of a rank, MB", "", "texts embedded/s", ""]
    about, (layers, width, _) = report.machine(), SHAPE
    return (
        f"{report.table(head, lines)}\n\n{about['cpu']}, {about['date']}: an encoder of {layers} layers of {width} "
        f"numbers, {BATCH} texts of {LENGTH} tokens a step, one thread per rank, by `python -m benchmarks.distributed`."
    )


if __name__ == "__main__":
    main()
