"""The task that predicts one block of rows, in any process."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from umpteen import __version__
from umpteen.data import Labels, Vocabulary
from umpteen.engine import Engine, task
from umpteen.engine.tasks import SharesFiles
from umpteen.errors import BadInput
from umpteen.models import load
from umpteen.models.answers import Answers, printed_decision
from umpteen.models.batch_input import read_block
from umpteen.models.batch_output import Format, make_format
from umpteen.store import atomic_write, fingerprint
from umpteen.store.folder import config_bytes
from umpteen.store.table import CONFIG


@dataclass(frozen=True)
class Job:
    """What all blocks have in common: plain values, which other processes read from a file."""

    model: str
    model_digest: str
    backend: str | None
    k: int | None
    threshold: float | None
    beam: int | None
    allowed: list[int] | None
    vocab: str | None
    vocab_digest: str | None
    language: str | None
    suffix: str
    id_name: str

    @property
    def mark(self) -> str:
        """A digest of all that decides the predictions: not of where the model and the vocabulary lie."""
        values = {name: value for name, value in asdict(self).items() if name not in ("model", "vocab")}
        return fingerprint(__version__, values)[:16]

    @property
    def format(self) -> Format:
        """The format of the output."""
        return make_format(self.suffix, self.id_name)


@task
def predict_block(*, folder: str, run: str, rows: str, part: str, temporary: str, first_row: int, threads: int) -> int:
    """Predict the rows of a block, write its part, and return the number of rows."""
    place = Path(folder)
    job = Job(**json.loads((place / run).read_bytes()))
    model = open_model(job.model, job.model_digest, job.backend)
    labels = model.labels_
    if job.vocab is not None:
        labels = _renamed(job.model, job.model_digest, job.backend, job.vocab, job.language)
    ids, X = read_block(place / rows)
    decision = printed_decision(model, job.k, job.threshold)
    top = model.topk(X, decision.depth, beam=job.beam, allowed=job.allowed, threads=threads)
    content = job.format.encode(ids or range(first_row, first_row + len(top)), Answers.of(top, decision), labels)
    with suppress(FileNotFoundError):
        (place / temporary).unlink()  # left by a process of this run that was killed
    atomic_write(place / part, content, place / temporary)
    return len(top)


def model_digest(folder: Path) -> str:
    """Return a digest of a model folder: its config names every file by the digest of its content."""
    return hashlib.sha256(config_bytes(folder)).hexdigest()


@lru_cache(maxsize=1)
def open_model(folder: str, digest: str, backend: str | None) -> Any:
    """Open a model, once per process."""
    model = load(folder, backend=backend)
    if model_digest(Path(folder)) != digest:
        raise BadInput(f"the model in '{folder}' was replaced while predictions were made; run the same command again")
    return model


@lru_cache(maxsize=1)
def _renamed(folder: str, digest: str, backend: str | None, vocab: str, language: str | None) -> Labels:
    return Vocabulary.read(vocab).rename(open_model(folder, digest, backend).labels_, language)


def check_nodes(
    engine: Engine | None, model: Path, vocab: str | os.PathLike[str] | None = None, output: Path | None = None
) -> None:
    """Let an engine that uses other machines check that tasks find there what they read, and can write their parts."""
    if isinstance(engine, SharesFiles):
        engine.check_file(model / CONFIG)  # it names all other files by their digests
        if vocab is not None:
            engine.check_file(vocab)
        if output is not None:
            engine.check_storage(output.absolute().parent, "write the output (-o) to a folder that is shared")


def forget() -> None:
    """Close what was opened in this process."""
    open_model.cache_clear()
    _renamed.cache_clear()
