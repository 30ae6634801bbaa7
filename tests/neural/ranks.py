"""Train small models by 1, 2 and 4 ranks, resume and kill some of them, and write down what they have found.

``python -m tests.neural.ranks ENCODER FOLDER``, which ``test_distributed.py`` starts. Ranks are forked, so that
packages are imported once; they exchange by gloo, and know of each other what torchrun would tell them.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import umpteen.neural.extremetext
import umpteen.neural.layers
import umpteen.neural.network
import umpteen.neural.resolutions  # noqa: F401  before ranks are forked
from tests.neural.conftest import N_LABELS, make_corpus
from umpteen.models import create
from umpteen.neural.distributed import joined, ranks
from umpteen.neural.training_state import TrainingState

SHORT = {
    "training.epochs": 2.0,
    "training.batch_size": 14,
    "training.learning_rate": 1e-3,
    "training.validation_fraction": 0.1,
    "network.dropout": 0.0,
}
NETWORK = SHORT | {"network.pooling": "mean", "training.swa_start": 0.5}
TREE = NETWORK | {"network.levels": (3,), "network.beam": (3,), "training.head_learning_rate": 0.05}
RECURSIVE = SHORT | {
    "network.branching": 4, "features": "both", "head_weight": 0.5,
    "training.learning_rate": 1e-4, "training.head_learning_rate": 1e-3,
}  # fmt: skip
N_TEXTS = 252  # less the 25 that are held out, the last batch of an epoch has 3: one of 4 ranks has none

# Recipe and settings of every kind of head and reader.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "full": ("full", NETWORK),
    "full, cut": ("full", NETWORK | {"encoder.batch_tokens": 64}),
    "one level": ("cascadexml", NETWORK | {"network.few_labels": 100, "training.head_learning_rate": 0.05}),
    "tables, cut": ("lightxml", TREE | {"network.sparse_update_from": 1, "encoder.batch_tokens": 64}),
    "ranker": ("cascadexml-dismec", TREE),
    "levels in turn": ("cascadexml", TREE | {"training.order": "shared-reader"}),
    "fine-tuning": ("xr-transformer", RECURSIVE | {"training.negatives": "tfn+man", "training.init": "newton"}),
    "fine-tuning, full": ("xr-transformer", RECURSIVE | {"network.head": "full"}),
    "features": ("extremetext", {"training.epochs": 3.0, "network.branching": 4, "training.validation_fraction": 0.1}),
}
AT_FOUR = ["full, cut", "tables, cut", "fine-tuning"]
KINDS_BY_RANKS = {1: list(KINDS), 2: [kind for kind in KINDS if kind != "full, cut"], 4: AT_FOUR}
LONGER = "three epochs, with dropout"
OTHERS = {LONGER: ("full", NETWORK | {"training.epochs": 3.0, "network.dropout": 0.3, "training.patience": 9})}
DIVIDED = ("full", "full, cut", "one level", "fine-tuning", "fine-tuning, full")  # kinds whose heads are
PER_EPOCH = 17  # steps
NEVER = -1
TIMEOUT = 100  # seconds that a rank may take

Found = dict[str, Any]


def train(kind: str, encoder: str, checkpoint: Path | None = None) -> Found:
    """Train a model of a kind; return the size of the last head of each rank, and on rank 0 history and scores."""
    texts, lists, _ = make_corpus(N_TEXTS)
    recipe, settings = (KINDS | OTHERS)[kind]
    reads = {} if recipe == "extremetext" else {"encoder.name": encoder, "encoder.max_length": 16}
    model = create(recipe, settings | reads | {"encoder.device": "cpu", "threads": 1, "calibration.rows": 0})
    model.fit(texts, lists, checkpoint=checkpoint)
    found: Found = {"sizes": ranks().objects(SIZES[0])}
    if not ranks().is_main:
        return found
    unseen = make_corpus(40, seed=9)[0]
    scores = model.score_labels(unseen, np.ones((len(unseen), N_LABELS), np.float32)).toarray()
    losses = [[one["stage"], one["step"], one["loss"]] for one in model.history_ if "loss" in one]
    return found | {"losses": losses, "scores": scores.tolist()}


SIZES, SAVE = [0], TrainingState.save


def watch(victim: int, last: int) -> None:
    """Note the numbers that the last head has, weights and optimiser state; kill a rank after its last step."""
    save = SAVE

    def watched(self: TrainingState, step: int, optimiser: torch.optim.Optimizer) -> None:
        heads = getattr(self.net, "heads", None)
        head = self.net.head if heads is None else heads[-1]  # of a level that learns by itself, or of all levels
        tensors = [head.weight, head.bias]
        tensors += [moment for one in tensors for moment in optimiser.state.get(one, {}).values() if moment.ndim]
        SIZES[0] = sum(tensor.numel() for tensor in tensors)
        if ranks().rank == victim and step == last:
            os.kill(os.getpid(), signal.SIGKILL)
        save(self, step, optimiser)

    TrainingState.save = watched


def rank_main(
    place: dict[str, str], kinds: Sequence[str], encoder: str, output: Path, checkpoint: Path | None, victim: int,
    last: int,
) -> None:  # fmt: skip
    """Be one of the ranks."""
    os.environ |= place
    watch(victim, last)
    with joined():
        train_kinds(kinds, encoder, output, checkpoint)


def train_kinds(kinds: Sequence[str], encoder: str, output: Path, checkpoint: Path | None) -> None:
    """Train models of some kinds one after the other; rank 0 writes what it has found."""
    for kind in kinds:
        found = train(kind, encoder, checkpoint)
        if ranks().is_main:
            (output / f"{kind}, {ranks().size}.json").write_text(json.dumps(found))


def run(
    n_ranks: int, kinds: Sequence[str], encoder: str, output: Path, checkpoint: Path | None = None, *,
    victim: int = 0, last: int = NEVER,
) -> list[int | None]:  # fmt: skip
    """Start ranks and wait for them; return their exit codes, None for one that had to be ended."""
    output.mkdir(exist_ok=True)
    if n_ranks == 1:  # here, so that kernels are loaded before others are forked
        train_kinds(kinds, encoder, output, checkpoint)
        return [0]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": str(n_ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    context, processes = multiprocessing.get_context("fork"), []
    for rank in range(n_ranks):
        place = common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        given = (place, kinds, encoder, output, checkpoint, victim, last)
        processes.append(context.Process(target=rank_main, args=given))
        processes[-1].start()
    for process in processes:
        process.join(TIMEOUT)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    return codes


def resumed(encoder: str, output: Path) -> list[int | None]:
    """Stop two ranks in the midst of their second epoch; one process and four go on."""
    stages = output / "stages"
    codes = run(2, ["full"], encoder, output / "unused", stages / "2", last=PER_EPOCH + 5)
    for n_ranks in (1, 4):
        shutil.copytree(stages / "2", stages / str(n_ranks))
        codes += run(n_ranks, ["full"], encoder, output / "resumed", stages / str(n_ranks))
    return codes


def killed(encoder: str, output: Path) -> list[int | None]:
    """Kill rank 1, start again, kill rank 0, start again; train without an interruption."""

    def train_on(**more: int) -> list[int | None]:
        return run(2, [LONGER], encoder, output / "killed", output / "kept", **more)

    codes = train_on(victim=1, last=PER_EPOCH + 8) + train_on(victim=0, last=2 * PER_EPOCH + 3) + train_on()
    return codes + run(2, [LONGER], encoder, output / "whole")


def main(encoder: str, folder: str) -> None:
    """Run all of it, and write the exit codes of all ranks."""
    torch.set_num_threads(1)
    watch(0, NEVER)
    output = Path(folder)
    plans: dict[str, Callable[[], list[int | None]]] = {
        **{str(n): lambda n=n: run(n, KINDS_BY_RANKS[n], encoder, output / "kinds") for n in KINDS_BY_RANKS},
        "resumed": lambda: resumed(encoder, output),
        "killed": lambda: killed(encoder, output),
    }
    codes = {name: plan() for name, plan in plans.items()}
    (output / "codes.json").write_text(json.dumps(codes))


if __name__ == "__main__":
    main(*sys.argv[1:])
