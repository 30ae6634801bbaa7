"""Where the stages of a training are kept, and what runs its tasks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from umpteen.config import ModelConfig, NeuralConfig
from umpteen.engine import Engine, LocalEngine, Memory, n_threads
from umpteen.engine.memory import TORCH
from umpteen.engine.ranks import present
from umpteen.engine.select import make_engine
from umpteen.store import Run, check_checkpoint, check_output
from umpteen.store.tensors import Allocate, in_memory

TEXTS, FEATURES = "texts", "features"  # folders of texts and their tf-idf rows, if these are in files
FINETUNING = "finetuning"  # folder of the stages of an encoder
TREES = "trees"  # folder of the stages of the trees of a ranker


def check_places(
    configs: Iterable[ModelConfig],
    checkpoint: str | os.PathLike[str] | None,
    output: str | os.PathLike[str] | None = None,
) -> None:
    """Refuse folders that cannot take the stages of a training or its model, before time is spent on it."""
    if output is not None:
        check_output(output)
    if checkpoint is not None:
        check_checkpoint(checkpoint, {part for config in configs for part in _parts(config)}, output)


def _parts(config: ModelConfig) -> list[str]:
    """Return the folders of the stages of a training."""
    return [TEXTS, FEATURES, TREES, *([FINETUNING] if isinstance(config, NeuralConfig) else [])]


def begin_run(
    configs: Sequence[ModelConfig],
    checkpoint: str | os.PathLike[str] | None,
    memory: Any = None,
    engine: str | Engine | None = None,
) -> Run | None:
    """Return the checkpoint of a training of one or several models, in a folder that can take its stages.

    It is None if all arrays are to be in memory. Bounded memory and engines need files: without a folder, these are in
    a temporary one.
    """
    bound = Memory.of(memory)
    if any(isinstance(config, NeuralConfig) for config in configs):
        bound = bound.beside(TORCH)
    in_files = bool(bound.total) or engine is not None
    if checkpoint is None and not in_files:
        return None
    if checkpoint is not None and present().is_main:
        check_places(configs, checkpoint)
    if engine is None:
        engine = LocalEngine(max((n_threads(config.threads) for config in configs), default=1))
    elif isinstance(engine, str):
        engine = make_engine(engine)
    return Run(checkpoint, engine, bound, in_files=in_files)


def allocator(run: Run | None) -> Allocate:
    """Return what makes large arrays of a training: in memory, or in files that end with the process."""
    run = only_in_files(run)
    return in_memory if run is None else run.part(TEXTS, "").scratch


def only_in_files(run: Run | None) -> Run | None:
    """Return the run where all arrays are in files; otherwise None, for what is not kept as a stage."""
    return None if run is None or not run.in_files else run


def end_tasks(run: Run | None, engine: str | Engine | None) -> None:
    """End the processes of an engine that was made for a training; one that was passed is left alone."""
    if run is not None and (engine is None or isinstance(engine, str)):
        run.engine.close()
