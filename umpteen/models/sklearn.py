"""scikit-learn's contract by duck typing: parameters, tags, and targets in the form they came in.

Nothing here imports scikit-learn unless scikit-learn itself asks for its tags.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from umpteen.config import update
from umpteen.data.labels import Labels
from umpteen.errors import BadConfig, BadInput, nearest
from umpteen.shortlist import TopK

# Constructor arguments of a linear recipe, which are also the fields of ModelConfig.
SETTINGS = (
    "tree", "linear", "search", "tfidf", "store", "trees", "ensemble", "normalize", "seed", "threads",
)  # fmt: skip


class Contract:
    """``get_params``, ``set_params`` and tags, so that clone, pipelines and searches work."""

    @classmethod
    def _parameters(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return what was passed to the constructor; with ``deep`` also ``tree__branching`` and the like."""
        params = {name: getattr(self, name) for name in self._parameters()}
        if not deep:
            return params
        config = self.config  # type: ignore[attr-defined]
        for name in params:
            part = getattr(config, name, None)
            if dataclasses.is_dataclass(part):
                params = params | {f"{name}__{field.name}": getattr(part, field.name) for field in dataclasses.fields(part)}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change parameters, nested ones as ``tree__branching=16``."""
        known = self._parameters()
        for key, value in params.items():
            name, _, inner = key.partition("__")
            if name not in known:
                raise BadConfig(f"{type(self).__name__} has no parameter '{key}'{nearest(name, known)}")
            if not inner:
                setattr(self, name, value)
                continue
            current = getattr(self, name)
            if current is None or isinstance(current, Mapping):
                value = {**(current or {}), inner: value}
                update(self.config, {name: value})  # type: ignore[attr-defined]  # refuse unknown keys now
                setattr(self, name, value)
            else:
                setattr(self, name, update(current, {inner: value}))
        return self

    def __repr__(self) -> str:
        given = {name: value for name, value in self.get_params(deep=False).items() if value is not None}
        defaults = inspect.signature(type(self).__init__).parameters
        shown = [f"{name}={value!r}" for name, value in given.items() if value != defaults[name].default]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "heads_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True, multi_output=True, single_output=True),
            classifier_tags=ClassifierTags(multi_class=True, multi_label=True),
            input_tags=InputTags(two_d_array=True, sparse=True, string=True),
        )


def is_texts(X: Any) -> bool:
    """Tell a list of texts from a matrix; a bare str is refused."""
    if isinstance(X, (str, bytes)):
        raise BadInput("texts must be a list, but a single text was passed; wrap it: [text]")
    if sp.issparse(X):
        return False
    if isinstance(X, np.ndarray):
        return X.ndim == 1 and (X.dtype.kind in "UT" or (X.dtype == object and len(X) > 0 and isinstance(X[0], str)))
    if hasattr(X, "iloc"):  # a pandas column
        return getattr(X, "ndim", 0) == 1 and len(X) > 0 and isinstance(X.iloc[0], str)
    try:
        first = next(iter(X), None)
    except TypeError:
        raise BadInput(f"X must be a list of texts or a matrix, but is a {type(X).__name__}") from None
    return first is None or isinstance(first, str)


def kind_of(Y: Any) -> str:
    """Name the form of the targets: sparse, dense, single (one label per row) or lists."""
    if Y is None:
        raise BadInput("fit requires y to be passed, but the target y is None; pass one list of labels per text")
    if sp.issparse(Y):
        return "sparse"
    array = Y if isinstance(Y, np.ndarray) else None
    if array is None and hasattr(Y, "to_numpy"):
        array = Y.to_numpy()
    if array is not None:
        if array.ndim == 2:
            return "dense"
        return "lists" if array.dtype == object and len(array) and isinstance(array[0], (list, tuple, set)) else "single"
    rows = list(Y)
    if rows and all(isinstance(row, (str, int, float, np.number, np.bool_)) for row in rows):
        return "single"
    width = {len(row) for row in rows if isinstance(row, (list, tuple, np.ndarray))}
    if len(width) == 1 and all(
        isinstance(value, (int, np.integer)) and value in (0, 1) for row in rows for value in row
    ) and width.pop() > 1:  # fmt: skip
        return "dense"
    return "lists"


def as_names(Y: Any, kind: str) -> Any:
    """Prepare targets for ``as_targets``: single labels of any type become text."""
    if kind == "dense":
        return np.asarray(Y)
    if kind != "single":
        return Y
    values = np.asarray(Y)
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise BadInput("Input y contains NaN or infinity; remove those rows")
        if (values != np.rint(values)).any():
            raise BadInput("Unknown label type: continuous. Labels must be names or whole numbers")
    names, inverse = np.unique(values, return_inverse=True)
    return sp.csr_matrix(
        (np.ones(len(values), np.float32), (np.arange(len(values)), inverse.ravel())), shape=(len(values), len(names))
    )


def classes_of(Y: Any, kind: str, labels: Labels) -> np.ndarray:
    """The labels by column: the values themselves for single labels, else column numbers or names."""
    if kind == "single":
        return np.unique(np.asarray(Y))
    return np.arange(len(labels)) if labels.is_numbered else np.array(labels.names(), dtype=object)


def classes_to_json(classes: np.ndarray) -> Any:
    """Keep the classes of single labels; the others follow from the labels."""
    return {"kind": classes.dtype.kind, "values": classes.tolist()} if classes.dtype.kind not in "O" else None


def classes_from_json(stored: Any) -> np.ndarray:
    """Undo ``classes_to_json``."""
    return np.array([]) if stored is None else np.array(stored["values"])


def above(top: TopK, threshold: float, kind: str, labels: Labels) -> Any:
    """Turn the labels that reach the threshold into the form the targets had."""
    keep = (top.labels >= 0) & (top.scores >= threshold)
    if kind == "lists":
        names = top.label_names or labels.names()
        return [[names[i] for i in row[kept]] for row, kept in zip(top.labels, keep, strict=True)]
    rows, places = np.nonzero(keep)
    found = sp.csr_matrix(
        (np.ones(len(rows), np.int64), (rows, top.labels[rows, places])), shape=(len(top), len(labels))
    )
    return np.asarray(found.todense()) if kind == "dense" else found


def check_n_features(model: Any, n_features: int) -> None:
    """Refuse rows of another width, in scikit-learn's words and ours."""
    if n_features != model.n_features_in_:
        raise BadInput(
            f"X has {n_features} features, but {type(model).__name__} is expecting {model.n_features_in_} features "
            "as input; prepare the rows as for training"
        )
