"""Predict the labels of all rows of a file, and write them to another file.

The rows are cut into blocks, and each block is a task, so that any engine can run it. A finished block is a part in a
folder beside the output, under a name that carries a digest of everything that it depends on: the model, the options
and the rows. A run that was killed leaves these parts, and the next run makes only those that are missing. At the end
the parts are joined.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from umpteen.engine import Engine, LocalEngine, Progress, silent
from umpteen.errors import BadConfig, BadInput
from umpteen.models.batch_input import open_source
from umpteen.models.batch_job import Job, check_nodes, forget, model_digest, open_model
from umpteen.models.batch_output import format_of
from umpteen.models.batch_run import Run
from umpteen.models.hub import local_folder
from umpteen.models.predictor import check_threshold
from umpteen.shortlist import check_k
from umpteen.store import OutputParts

LINEAR_ROWS, NEURAL_ROWS = 16_384, 1_024  # rows of a block: some seconds on one core


class Written(NamedTuple):
    """Result of ``predict_to_file``: rows of the output, those of them that an earlier run had predicted, seconds."""

    n_rows: int
    n_kept: int
    seconds: float


def predict_to_file(
    model: str | os.PathLike[str], data: str | os.PathLike[str], output: str | os.PathLike[str], *,
    k: int | None = None, threshold: float | None = None, beam: int | None = None,
    allowed: Iterable[Any] | None = None, text_column: str | int | None = None, has_header: bool = True,
    id_column: str | int | None = None, whole_file: bool = False, vocab: str | os.PathLike[str] | None = None,
    language: str | None = None, backend: str | None = None, block_rows: int | None = None,
    engine: Engine | None = None, progress: Progress = silent,
) -> Written:  # fmt: skip
    """Predict the labels of every row of a file, and write them to another file, as ``umpteen predict -o`` does.

    The output has a row for each row of the input, in the same order, and is written atomically. If the call is
    interrupted or the process killed, the same call continues where it was: finished blocks of rows are kept in the
    folder ``OUTPUT.parts`` until the output is complete.

    Parameters
    ----------
    model
        The folder of a saved model, or its name on the hub.
    data
        Texts in any format that ``umpteen predict`` reads, or feature rows; ``-`` is standard input.
    output
        A file that ends in ``.parquet``, ``.jsonl`` or ``.jsonl.gz``.
    k, threshold, beam, allowed
        Which labels, as in ``predict`` and ``topk``; by default the five best ones if the model is not calibrated.
    text_column, has_header, vocab, language
        Where the texts are in a table, and where the names of the labels are, as in :func:`umpteen.read`.
    id_column
        A column of the input that is copied to the output, in place of the number of the row.
    whole_file
        Take every file as one text.
    backend
        What an encoder runs on, as in ``load``.
    block_rows
        Rows of a block; by default 16,384, or 1,024 if the model has an encoder or is a network.
    engine
        Where blocks are predicted, see :func:`umpteen.engine.select.make_engine`; by default in this process.
    progress
        Called as ``progress(stage, done, total)``.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from umpteen import XRLinear
    >>> with TemporaryDirectory() as folder:
    ...     XRLinear().fit(["red apple", "green pear"], [["red"], ["green"]]).save(f"{folder}/model")
    ...     _ = Path(folder, "texts.txt").write_text("a red plum\\na green plum\\n")
    ...     predict_to_file(f"{folder}/model", f"{folder}/texts.txt", f"{folder}/out.jsonl", k=1).n_rows
    2
    """
    begun, target = time.perf_counter(), check_target(output, data)
    suffix = format_of(target)
    _check_options(k, threshold, block_rows)
    folder = Path(local_folder(model)).absolute()
    opened = open_model(str(folder), model_digest(folder), backend)
    columns = {"text_column": text_column, "has_header": has_header}
    source = open_source(opened, str(data), id_column=id_column, whole_file=whole_file, **columns)
    labels = {"k": k, "threshold": threshold, "beam": beam, "allowed": _ids(opened, allowed)}
    place = {"model": str(folder), "model_digest": model_digest(folder), "backend": backend}
    job = Job(**place, **labels, **_names(vocab, language), suffix=suffix, id_name=source.id_name)
    try:
        check_nodes(engine, folder, vocab, target)
        run = Run(OutputParts(target), job, source, engine or LocalEngine(), progress)
        n_rows, n_kept = run.write(block_rows or default_rows(opened))
    finally:
        forget()
    return Written(n_rows, n_kept, time.perf_counter() - begun)


def check_target(output: str | os.PathLike[str], data: str | os.PathLike[str]) -> Path:
    """Return the path of an output; refuse one that cannot be written."""
    target = Path(output)
    if target.is_dir():
        raise BadInput(f"predictions are written to a file, but '{target}' is a folder; name a file in it")
    if not target.absolute().parent.is_dir():
        raise BadInput(f"'{target}' cannot be written: the folder '{target.parent}' does not exist; create it first")
    if target.exists() and os.path.exists(data) and os.path.samefile(target, data):
        raise BadInput(f"'{target}' is the input and would be replaced by its predictions; choose another output")
    return target


def default_rows(model: Any) -> int:
    """Return how many rows a block has."""
    members = getattr(model, "models_", [model])
    is_neural = any(getattr(member, "neural_", None) is not None for member in members)
    return NEURAL_ROWS if is_neural else LINEAR_ROWS


def _check_options(k: int | None, threshold: float | None, block_rows: int | None) -> None:
    check_threshold(threshold)
    if k is not None:
        check_k(k)
    if block_rows is not None and block_rows < 1:
        raise BadConfig(f"block_rows must be at least 1, but is {block_rows}")


def _ids(model: Any, allowed: Iterable[Any] | None) -> list[int] | None:
    return None if allowed is None else sorted(set(model.targets_.ids(allowed).tolist()))


def _names(vocab: str | os.PathLike[str] | None, language: str | None) -> dict[str, str | None]:
    """Return where the names of labels are, with a digest of that file."""
    if vocab is None:
        return {"vocab": None, "vocab_digest": None, "language": language}
    try:
        with open(vocab, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BadInput(f"the vocabulary {vocab} cannot be read: {error.strerror or error}; check the path") from error
    return {"vocab": str(Path(vocab).absolute()), "vocab_digest": digest, "language": language}
