"""How many labels the head of ``full`` can have on one GPU: ``python -m benchmarks.largest_head``.

Trains an encoder of random weights and a classifier for every label, for a few steps on random texts, with more and
more labels until the memory of the device ends; then halves the distance between what fits and what does not. For each
size it prints the time of a step, the peak of the device's memory, and what a text takes to be tagged. Nothing can be
learned from such texts; the weights start as on real data with few texts per label (linear discriminants).
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from benchmarks import report
from benchmarks.gpu import NoTokenizer, now, random_bert
from umpteen.config import EncoderConfig
from umpteen.data.tokens import Tokens
from umpteen.errors import OutOfMemory
from umpteen.models import create
from umpteen.neural.encoder import Encoder
from umpteen.neural.network import Network
from umpteen.tree import LabelTree

HEAD = ("labels", "ms/step", "labels/s of a step, billions", "peak GB", "bytes per label", "ms/text")
LENGTH, BATCH, LABELS_PER_TEXT, K = 32, 256, 15, 5  # tokens of a text, texts of a step
_FIRST_TIMED = 4  # step: those before record the CUDA graph
_CLOSE = 1.1  # ratio of what does not fit to what fits at which the search ends


class Shape(NamedTuple):
    """The encoder: gte-small's by default."""

    layers: int = 12
    width: int = 384
    heads: int = 12


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=float, nargs="+", default=[3e6, 30e6, 100e6], help="sizes to begin with")
    parser.add_argument("--most", type=float, default=1e9, help="where to stop, even if the device has memory left")
    parser.add_argument("--steps", type=int, default=16, help=f"more than {_FIRST_TIMED + 1}")
    options = parser.parse_args(arguments)
    rows, fits, too_many = [], 0, None
    sizes = [int(size) for size in options.labels]
    while sizes:
        n_labels = sizes.pop(0)
        row = measured(n_labels, Shape(), options.steps)
        print(f"{n_labels:,} labels: {'out of memory' if row is None else row}", flush=True)
        if row is None:
            too_many, sizes = n_labels, []
        else:
            rows.append(row)
            fits = n_labels
        if not sizes:
            sizes = next_size(fits, too_many, int(options.most))
    print(report.table(HEAD, rows))


def next_size(fits: int, too_many: int | None, most: int) -> list[int]:
    """Return the size to try next, none if the end is known well enough."""
    if too_many is None:
        return [min(3 * fits // 2, most)] if fits < most else []
    middle = (fits + too_many) // 2
    return [middle] if too_many > _CLOSE * fits else []


def measured(n_labels: int, shape: Shape, n_steps: int) -> list[str] | None:
    """Train for some steps and tag the texts; return the row of the table, or None if memory does not suffice."""
    gc.collect()
    has_gpu = torch.cuda.is_available()  # tests run without one
    if has_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        step_s, text_s = trained(n_labels, shape, n_steps)
    except (OutOfMemory, torch.OutOfMemoryError):
        return None
    peak = torch.cuda.max_memory_allocated() if has_gpu else 0
    return [
        f"{n_labels:,}", report.number(1e3 * step_s, 0), report.number(n_labels / step_s / 1e9, 2),
        report.number(peak / 1e9, 1), report.number(peak / n_labels, 0), report.number(1e3 * text_s, 2),
    ]  # fmt: skip


def trained(n_labels: int, shape: Shape, n_steps: int) -> tuple[float, float]:
    """Return the seconds of a step, and those of a text that is tagged."""
    n_texts = n_steps * BATCH
    rng = np.random.default_rng(0)
    tokens = Tokens(np.arange(n_texts + 1) * LENGTH, rng.integers(2, 30_000, n_texts * LENGTH).astype(np.int32))
    drawn = rng.integers(0, n_labels, n_texts * LABELS_PER_TEXT).astype(np.int32)
    ends = np.arange(n_texts + 1) * LABELS_PER_TEXT
    Y = sp.csr_matrix((np.ones(len(drawn), np.float32), drawn, ends), shape=(n_texts, n_labels))
    Y.sum_duplicates()
    config = create("full", {
        "training.batch_size": BATCH, "training.epochs": 1.0, "training.init": "lda", "training.swa_start": 1.0,
        "training.validation_fraction": 0.0,
    }).config  # fmt: skip
    encoder = Encoder(random_bert(*shape), NoTokenizer(), EncoderConfig(max_length=LENGTH, compile="off"))
    network = Network(encoder, LabelTree.flat(n_labels), config)
    begun: list[float] = []  # when each step begins
    set_lr = network.module.set_lr

    def timed(factor: float) -> None:
        begun.append(now())
        set_lr(factor)

    network.module.set_lr = timed
    network.train(tokens, Y)
    some, started = tokens.take(np.arange(BATCH)), now()
    network.topk(some, K)
    return float(np.median(np.diff(begun[_FIRST_TIMED:]))), (now() - started) / BATCH


if __name__ == "__main__":
    main()
