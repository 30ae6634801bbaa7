"""Predict all rows of a dataset block by block with an engine: in other processes, or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from umpteen import __version__
from umpteen.data.stored_texts import StoredTexts, digest_of
from umpteen.engine import Engine, Progress, silent
from umpteen.linear.stored_arrays import load_matrix, save_matrix
from umpteen.models.batch_job import check_nodes, model_digest, open_model
from umpteen.shortlist import TopK
from umpteen.store import Checkpoint, Run, fingerprint
from umpteen.store.parts import Part, blocks, make_parts, part_task
from umpteen.store.tensors import Tensors

_INPUTS, _BLOCKS, _FEATURES = "inputs", "blocks", "features"


@part_task
def predict_rows(
    checkpoint: Checkpoint, *, model: str, digest: str, inputs: dict[str, str], are_texts: bool, first: int, last: int,
    k: int, backend: str | None, threads: int,
) -> Tensors:  # fmt: skip
    """Return the k best labels of a range of rows."""
    X = StoredTexts(inputs) if are_texts else load_matrix(Checkpoint(**inputs), _FEATURES)
    top = open_model(model, digest, backend).topk(X[first:last], k, threads=threads)
    found = {"labels": top.labels, "scores": top.scores}
    return found if top.probabilities is None else found | {"probabilities": top.probabilities}


@dataclass(frozen=True)
class BlockPredictions:
    """Predictions of a saved model, a file per block of rows in a folder that all processes see.

    Parameters
    ----------
    model
        Folder of the model.
    folder
        Where the inputs and the predictions are until :meth:`clear`.
    engine
        What runs the tasks.
    block_rows
        Rows of a block.
    label_names
        Names of the model's labels, for the predictions.
    backend
        What computes the encoder, as in ``umpteen.load``.
    """

    model: Path
    folder: str | os.PathLike[str]
    engine: Engine
    block_rows: int
    progress: Progress = silent
    label_names: Sequence[str] | None = None
    backend: str | None = None

    def __call__(self, X: Any, k: int) -> Iterator[TopK]:
        """Predict all blocks, then yield them in order."""
        check_nodes(self.engine, self.model)
        run, digest = Run(self.folder, self.engine), model_digest(self.model)
        inputs = self._place(run, X)
        n_rows = X.shape[0] if sp.issparse(X) else len(X)
        stages = run.part(_BLOCKS, fingerprint(__version__, digest, inputs["key"], k, self.block_rows, self.backend))
        parts = [
            Part(f"{first}-{last}", {"first": first, "last": last}, last - first)
            for first, last in blocks(n_rows, self.block_rows)
        ]
        common = {"model": str(self.model.absolute()), "digest": digest, "inputs": dict(inputs), "k": k}
        common |= {"are_texts": not sp.issparse(X), "backend": self.backend}
        names = make_parts(
            stages, self.engine, predict_rows, parts, common=common, stage="predict", progress=self.progress
        )
        try:
            for name in names:
                arrays = stages.load(name)
                top = TopK(arrays["labels"], arrays["scores"], self.label_names)
                top.probabilities = arrays.get("probabilities")
                yield top
        finally:
            run.clear()

    def _place(self, run: Run, X: Any) -> Mapping[str, str]:
        """Return where other processes find the inputs."""
        if not sp.issparse(X):
            return StoredTexts.write(run.part(_INPUTS, digest_of(X)), X).place
        checkpoint = run.part(_INPUTS, fingerprint(X.indptr, X.indices, X.data, list(X.shape)))
        save_matrix(checkpoint, _FEATURES, X)
        return checkpoint.place
