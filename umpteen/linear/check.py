"""Check the arrays of linear classifiers from an untrusted file: kernels do not check bounds."""

from collections.abc import Mapping

import numpy as np

from umpteen.data.finite import is_finite
from umpteen.engine import n_threads, run
from umpteen.errors import BadInput
from umpteen.kernels import lazy
from umpteen.linear.dense import DenseHead
from umpteen.linear.pack import describe_levels
from umpteen.tree import LabelTree

_KINDS = {
    "meta": ("i8",), "children": ("i4",), "bias": ("f4",), "ptr": ("i4", "i8"), "run_ptr": ("i4", "i8"),
    "run_chunk": ("u1", "u2", "u4"), "run_last": ("u1", "u2", "u4"), "local": ("u1", "u2", "u4"),
    "codes": ("u1", "u2", "f4"), "table": ("f4",),
}  # fmt: skip
_DIMENSIONS = {"meta": 2, "ptr": 2, "run_ptr": 2}  # the others have one
PER_TASK = 1 << 20  # postings per task


def check_packed(arrays: Mapping[str, np.ndarray], tree: LabelTree, n_features: int) -> None:
    """Raise BadInput unless the arrays have the types, lengths, order and bounds that the search relies on."""
    for name, kinds in _KINDS.items():
        array, dimensions = arrays[name], _DIMENSIONS.get(name, 1)
        if array.dtype not in [np.dtype(kind) for kind in kinds] or array.ndim != dimensions:
            raise BadInput(f"'{name}' is {array.ndim}-d {array.dtype}, not {dimensions}-d {' or '.join(kinds)}")
    _check_levels(arrays, tree)
    n_in_runs = int(np.count_nonzero(arrays["meta"][:, lazy.score.WHOLE] == 0))
    _check_length("local", arrays["local"], len(arrays["codes"]))
    _check_length("run_last", arrays["run_last"], len(arrays["run_chunk"]))
    _check_pointer("ptr", arrays["ptr"], (tree.n_levels, n_features + 1), len(arrays["codes"]))
    run_shape = (n_in_runs, n_features + 1) if n_in_runs else (1, 1)
    _check_pointer("run_ptr", arrays["run_ptr"], run_shape, len(arrays["run_chunk"]))
    _check_values(arrays)
    for level in range(tree.n_levels):
        _check_postings(arrays, tree, level)


def check_dense(head: DenseHead, n_labels: int, width: int | None) -> None:
    """Raise BadInput unless there is a classifier of finite weights for every label, and all have the same width.

    ``width`` is that of an embedding, if it is known.
    """
    if head.weight.ndim != 2 or head.weight.shape[0] != n_labels or head.bias.shape != (n_labels,):
        raise BadInput(
            f"the encoder's classifiers have the shapes {head.weight.shape} and {head.bias.shape}, but there are "
            f"{n_labels} labels"
        )
    found = head.weight.shape[1]
    if width is not None and found != width:
        raise BadInput(f"the encoder's classifiers are for embeddings of {found} numbers, not {width}")
    arrays = [head.weight, head.bias, *(head.projection or ())]
    if any(array.dtype != np.float32 or not is_finite(array) for array in arrays):
        raise BadInput("the encoder's classifiers hold weights that are not finite numbers of a usual size")
    if head.projection is not None and [part.shape for part in head.projection] != [(found,), (found, found)]:
        raise BadInput("the projection of the encoder's classifiers does not fit their weights")


def _check_levels(arrays: Mapping[str, np.ndarray], tree: LabelTree) -> None:
    """Check that ``meta``, ``children`` and ``bias`` describe the levels of the tree."""
    score, meta = lazy.score, arrays["meta"]
    if meta.shape != (tree.n_levels, score.N_META):
        raise BadInput(f"'meta' has the shape {meta.shape}, not {(tree.n_levels, score.N_META)}")
    whole = meta[:, score.WHOLE]
    if not np.isin(whole, (0, 1)).all():
        raise BadInput("'meta' names a layout of a level that does not exist")
    if not np.array_equal(meta, describe_levels(tree, whole)):
        raise BadInput("'meta' does not describe the levels of its tree")
    if not np.array_equal(arrays["children"], np.concatenate(tree.starts)):
        raise BadInput("'children' does not list the children of its tree")
    _check_length("bias", arrays["bias"], sum(tree.sizes))


def _check_length(name: str, array: np.ndarray, length: int) -> None:
    if len(array) != length:
        raise BadInput(f"'{name}' has {len(array)} entries, not {length}")


def _check_pointer(name: str, pointer: np.ndarray, shape: tuple[int, int], length: int) -> None:
    """Check that a pointer array ascends from 0 to ``length`` over all levels."""
    if pointer.shape != shape:
        raise BadInput(f"'{name}' has the shape {pointer.shape}, not {shape}")
    flat = pointer.reshape(-1)
    if flat[0] != 0 or flat[-1] != length or (flat[1:] < flat[:-1]).any():
        raise BadInput(f"'{name}' does not lead from 0 to {length} without a step back")


def _check_values(arrays: Mapping[str, np.ndarray]) -> None:
    """Check that weights are finite, and that every code has an entry in the table."""
    codes, table = arrays["codes"], arrays["table"]
    if codes.dtype == np.uint16:  # half precision
        half = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
        if not np.array_equal(table, half, equal_nan=True):
            raise BadInput("'table' does not decode half precision")
        weights = codes.view(np.float16)
    else:
        if codes.dtype == np.uint8:
            _check_length("table", table, 256)
        weights = codes if codes.dtype == np.float32 else table
    for name, values in (("codes", weights), ("bias", arrays["bias"])):
        if not is_finite(values):
            raise BadInput(f"'{name}' holds weights that are not finite numbers of a usual size")


def _check_postings(arrays: Mapping[str, np.ndarray], tree: LabelTree, level: int) -> None:
    """Check the postings of a level: node numbers, or in runs, numbers of chunks and of their children."""
    score, ptr, local = lazy.score, arrays["ptr"][level], arrays["local"]
    spec = arrays["meta"][level]
    if spec[score.WHOLE] == 1:
        if local[ptr[0] : ptr[-1]].max(initial=0) >= max(int(spec[score.NODES]), 1):
            raise BadInput(f"'local' names nodes beyond the {spec[score.NODES]} of level {level}")
        return
    run_ptr, starts = arrays["run_ptr"][spec[score.RUN_ROW]], arrays["children"][spec[score.PARENT_AT] :]
    starts = starts[: int(spec[score.PARENTS]) + 1]
    n_tasks = max(1, int(ptr[-1] - ptr[0]) // PER_TASK)
    cuts = np.searchsorted(ptr, np.linspace(ptr[0], ptr[-1], n_tasks + 1).astype(np.int64)[1:-1])
    cuts = np.concatenate([[0], cuts, [len(ptr) - 1]])
    runs = (ptr, run_ptr, arrays["run_chunk"], arrays["run_last"], local, starts)
    found = run(
        lambda task: int(lazy.check.check_runs(*runs, cuts[task], cuts[task + 1])), n_tasks, threads=n_threads()
    )
    if bad := [feature for feature in found if feature >= 0]:
        raise BadInput(f"'run_chunk', 'run_last' or 'local' of feature {bad[0]} do not fit level {level}")
