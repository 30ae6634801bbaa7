"""What comes into a training: checked, split into rows to train on and rows held out, written to files, and weighed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from umpteen import __version__
from umpteen.config import ModelConfig, to_dict
from umpteen.data.columns import is_stream, readable
from umpteen.data.rows import Rows
from umpteen.data.sparse import as_csr, check_rows_match, check_width, normalize_rows
from umpteen.data.stored_rows import StoredRows
from umpteen.data.stored_texts import StoredTexts, digest_of
from umpteen.data.stored_tfidf import StoredTfidf
from umpteen.data.targets import Targets, is_texts, read_targets
from umpteen.data.tfidf import Tfidf
from umpteen.engine import Progress, n_threads
from umpteen.engine.tasks import SharesFiles, Task
from umpteen.errors import BadConfig, BadInput
from umpteen.kernels import ahead
from umpteen.linear.stored_arrays import ROWS, load_rows
from umpteen.models.ahead import TRAIN
from umpteen.models.runs import FEATURES, TEXTS, begin_run, end_tasks
from umpteen.store import Run, fingerprint
from umpteen.store.mapped import resident_limit

_WARM_UP = "umpteen.models.warmup:warm_up_tasks"
_CALIBRATION_SEED = 1  # keeps this random split apart from others of the same seed


def split(
    X: Any, matrix: sp.csr_matrix, n_held_out: int, seed: int
) -> tuple[tuple[Any, sp.csr_matrix], tuple[Any, sp.csr_matrix] | None]:
    """Split inputs and labels into those to train on, and those held out, if any."""
    if not n_held_out:
        return (X, matrix), None
    rows = X if isinstance(X, StoredTexts | StoredRows) else list(X) if is_texts(X) else as_csr(X)
    check_rows_match(rows, matrix)
    order = np.random.default_rng((seed, _CALIBRATION_SEED)).permutation(matrix.shape[0])
    held_out, kept = np.sort(order[:n_held_out]), np.sort(order[n_held_out:])

    def take(some: np.ndarray) -> tuple[Any, sp.csr_matrix]:
        return [rows[i] for i in some] if isinstance(rows, Sequence) else rows[some], matrix[some]

    if isinstance(rows, StoredTexts):
        return (rows.take(kept), matrix[kept]), take(held_out)
    if isinstance(rows, StoredRows):
        return (rows.take(kept), matrix[kept]), (rows.take(held_out).csr(), matrix[held_out])
    return take(kept), take(held_out)


class Inputs(NamedTuple):
    """What a training begins with."""

    X: Any
    Y: sp.csr_matrix
    targets: Targets
    held_out: tuple[Any, sp.csr_matrix] | None  # rows to calibrate on, and their labels
    run: Run | None


@contextmanager
def begun(
    configs: Sequence[ModelConfig], X: Any, Y: Any, label_names: Any, count_held_out: Callable[[sp.csr_matrix], int], *,
    checkpoint: Any, memory: Any, engine: Any,
) -> Iterator[Inputs]:  # fmt: skip
    """Yield the inputs of a training of one or several models, and its run; end the tasks of its engine, come what may.

    ``count_held_out`` says how many rows with such labels are held out.
    """
    run = begin_run(configs, checkpoint, memory, engine)
    try:
        if run is not None and isinstance(run.engine, SharesFiles):
            run.engine.check_storage(run.folder)
        ahead.plan(TRAIN)
        matrix, targets = read_targets(Y, label_names)
        check_width(matrix.shape[1], "labels", 0.0 if run is None else run.memory.total)
        with resident_limit(None if run is None else run.memory.maps):
            X = in_file(X, run)
            kept, held_out = split(X, matrix, count_held_out(matrix), configs[0].seed)
            yield Inputs(*kept, targets, held_out, run)
    except BaseException:
        if run is not None:
            run.release()
        raise
    finally:
        end_tasks(run, engine)


def in_file(X: Any, run: Run | None) -> Any:
    """Write texts to a file if a training has little memory, or other processes are to read them.

    The texts of a stream are then not held in memory. The processes of a cluster warm up meanwhile.
    """
    if run is None or not run.in_files:
        return readable(X)
    X = X if is_stream(X) else readable(X)
    from_texts = is_texts(X)
    if isinstance(run.engine, SharesFiles):
        run.engine.warm_up(Task(_WARM_UP, {"from_texts": from_texts}))
    if not from_texts:
        return StoredRows(as_csr(readable(X)))
    if isinstance(X, StoredTexts):
        return X
    return StoredTexts.write(run.part(TEXTS, digest_of(X)), X)


def fit_stored(texts: StoredTexts, config: ModelConfig, progress: Progress, run: Run) -> tuple[Tfidf, Rows]:
    """Turn texts in a file into rows in a file."""
    stages = run.part(FEATURES, fingerprint(__version__, to_dict(config.tfidf), texts.digest()))
    threads = n_threads(config.threads)
    tfidf = StoredTfidf(stages, texts, config.tfidf, run.engine, run.memory, threads, progress).fit_transform()
    return tfidf, load_rows(stages.place)


def store_rows(X: StoredRows, config: ModelConfig, run: Run) -> Rows:
    """Write feature rows to a file as the settings want them."""
    threads = n_threads(config.threads)
    arrays = (X.matrix.indptr, X.matrix.indices, X.matrix.data)
    chosen = () if X.rows is None else (X.rows,)
    settings = to_dict(config) | {"threads": 0}  # all of them: a training that ends removes its stages, and no other's
    stages = run.part(FEATURES, fingerprint(__version__, settings, X.shape, *arrays, *chosen))
    X.write(stages, ROWS, threads, normalize=config.normalize)
    return load_rows(stages.place)


def fit_rows(
    X: Any, matrix: sp.csr_matrix, config: ModelConfig, progress: Progress, run: Run | None
) -> tuple[Tfidf | None, Rows]:
    """Turn what came in into rows, in files if it is in files; what could not be trained on is refused before."""
    features = check_trainable(X, matrix)
    if features is None:
        return fit_words(X, config, progress, run)
    if isinstance(features, StoredRows) and run is not None:
        return None, store_rows(features, config, run)
    features = features.csr() if isinstance(features, StoredRows) else features
    return None, Rows.of(normalize_rows(features, n_threads(config.threads)) if config.normalize else features)


def fit_words(X: Any, config: ModelConfig, progress: Progress, run: Run | None) -> tuple[Tfidf, Rows]:
    """Turn texts that can be trained on into rows of words."""
    if isinstance(X, StoredTexts) and run is not None:
        return fit_stored(X, config, progress, run)
    tfidf = Tfidf(config.tfidf, threads=config.threads)
    return tfidf, Rows.of(tfidf.fit_transform(X, progress=progress))


def check_trainable(X: Any, matrix: sp.csr_matrix) -> sp.csr_matrix | StoredRows | None:
    """Refuse what could not be trained on; return feature rows, None for texts."""
    features = X if isinstance(X, StoredRows) else None if is_texts(X) else as_csr(X)
    check_rows_match(X if features is None else features, matrix)
    if matrix.shape[0] == 0:
        raise BadInput("there is nothing to train on: X has 0 samples; pass at least one row")
    if features is not None and features.shape[1] == 0:
        raise BadInput(f"X has 0 feature(s) (shape={features.shape}) while a minimum of 1 is required.")
    if features is not None:
        check_width(features.shape[1], "features")
    if features is None and not any(str(text).strip() for text in X):
        raise BadInput("all texts are empty, so there is nothing to learn from; check that they were read")
    if matrix.nnz == 0:
        raise BadInput("no row has a label, so there is nothing to learn; check that labels were read")
    return features


def as_sequence(X: Any) -> Sequence[str]:
    """Return texts that can be sliced; those in a file stay there."""
    return X if isinstance(X, StoredTexts) else list(X)


def check_names(targets: Targets, config: ModelConfig, *, has_words: bool) -> None:
    """Refuse a tree that is to see the labels' names where there are none, or no words of texts to read them by."""
    if config.tree.vectors != "pifa" and not (has_words and targets.names is not None):
        raise BadConfig("tree.vectors needs texts and label names; use pifa, or name the labels of texts")


def name_vectors(tfidf: Tfidf, targets: Targets, config: ModelConfig) -> sp.csr_matrix | None:
    """Return the labels' names as rows, if the tree is to see them."""
    return None if config.tree.vectors == "pifa" else tfidf.transform(targets.names)
