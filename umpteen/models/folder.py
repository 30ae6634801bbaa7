"""A model on disk: which of its parts goes into which file of the folder.

Knows the model's parts and the store; knows nothing about training or prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from umpteen import store
from umpteen.calibration import Calibration
from umpteen.config import ModelConfig, NeuralConfig, from_dict, to_dict, update
from umpteen.config.upgrade import array_from_format_1
from umpteen.data.corpus import check_separator
from umpteen.data.labels import Labels
from umpteen.data.targets import Targets
from umpteen.data.tfidf import Tfidf
from umpteen.engine import Record
from umpteen.errors import BadInput, BadModelFile, nearest
from umpteen.linear import DenseHead, LinearTree
from umpteen.linear.check import check_dense, check_packed
from umpteen.models.examples import Examples
from umpteen.models.lazy_neural import FeatureSource, Neural, SavedEncoder, SavedNet
from umpteen.thresholds import LabelThresholds
from umpteen.tree import LabelTree

VERIFY = ("none", "arrays", "full")  # what is checked of a folder beside names, headers and sizes

_MOST = 2**31 - 1  # labels, features, trees
_EXAMPLES = "examples.txt"
_TARGETS = ("lists", "dense", "sparse", "single")
_USUAL_WIDTH = 4096  # that settings may ask for although no array is as wide: some readers do not use them
_HISTORY = "history.jsonl"
_THRESHOLDS = "thresholds"


class Parts(NamedTuple):
    """Everything a fitted model consists of."""

    config: ModelConfig
    targets: Targets
    tfidf: Tfidf | None
    n_features: int
    heads: list[LinearTree]
    neural: Neural | None = None
    calibration: Calibration | None = None
    examples: Examples | None = None
    history: Sequence[Record] = ()


def contents(parts: Parts) -> dict[str, Any]:
    """Return the files of a model in the form that ``store.write`` takes."""
    arrays = {f"tree-{i}": {**head.arrays, **head.tree.arrays()} for i, head in enumerate(parts.heads)}
    if parts.tfidf is not None:
        arrays["tfidf"] = parts.tfidf.arrays()
    labels, extra = parts.targets.labels, {}
    if parts.targets.counts is not None:
        arrays["counts"] = {"labels": parts.targets.counts}
    if not labels.is_numbered and labels.keys() != labels.names():
        extra["keys.txt"] = store.format_labels(labels.keys())
    if parts.examples is not None:
        arrays["examples"] = parts.examples.arrays()
        extra[_EXAMPLES] = store.format_labels(parts.examples.texts)
    arrays |= calibration_arrays(parts.calibration)
    if parts.history:
        extra[_HISTORY] = store.format_bounded(parts.history)
    if parts.neural is not None:
        extra |= {f"encoder/{name}": content for name, content in parts.neural.encoder.files().items()}
        exported = parts.neural.encoder.exported
        extra |= {f"onnx/{name}": content.tobytes() for name, content in exported.items()}
        if parts.neural.head is not None:
            arrays["head"] = parts.neural.head.arrays()
        if parts.neural.net is not None:
            arrays["net"] = {**parts.neural.net.arrays, **parts.neural.net.tree.arrays()}
    settings = to_dict(parts.config)
    del settings["threads"]  # a property of the machine, not of the model
    settings.get("encoder", {}).pop("backend", None)  # so is this
    meta = {
        "n_labels": len(labels),
        "n_features": parts.n_features,
        "trees": len(parts.heads),
        "targets": {"kind": parts.targets.kind, "dtype": parts.targets.dtype, "n_rows": parts.targets.n_rows},
        "data": {"separator": labels.separator},
        "calibration": None if parts.calibration is None else parts.calibration.to_dict(),
    }
    config = {"recipe": parts.config.recipe, "settings": settings, "meta": meta}
    return {"config": config, "arrays": arrays, "labels": parts.targets.names, "extra": extra}


def read(stored: store.Stored, config_class: type[ModelConfig] = ModelConfig, *, verify: str = "arrays") -> Parts:
    """Return the parts of an open folder, checked as ``verify`` says."""
    check_digests(stored, verify)
    with whole(stored):
        parts = _parts(stored, stored.config["meta"], config_class)
        if verify != "none":
            _check_arrays(parts)
        return parts


def check_digests(stored: store.Stored, verify: str) -> None:
    """Compare every byte with the digests that were saved, if ``verify`` says so."""
    if verify not in VERIFY:
        raise BadInput(f"verify must be one of {', '.join(VERIFY)}, but is {verify!r}{nearest(str(verify), VERIFY)}")
    if verify == "full":
        stored.verify()


@contextmanager
def whole(stored: store.Stored) -> Iterator[None]:
    """Turn what is wrong with the content of a folder into an error that names the folder."""
    try:
        yield
    except BadModelFile:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise BadModelFile(f"'{stored.path}' is not a whole umpteen model ({why}); save it again") from error


def _parts(stored: store.Stored, meta: Mapping[str, Any], config_class: type[ModelConfig]) -> Parts:
    config = from_dict(config_class, {**stored.config["settings"], "recipe": stored.config["recipe"]})
    n_features = count_of(meta, "n_features")
    labels = _labels(stored, count_of(meta, "n_labels"))
    heads = [_head(stored.arrays(f"tree-{i}"), n_features, config) for i in range(count_of(meta, "trees"))]
    has_net = "net" in stored.stems
    if not (heads or has_net) or any(head.tree.n_labels != len(labels) for head in heads):
        raise BadInput(f"its trees do not fit its {len(labels)} labels")
    tfidf = Tfidf.from_arrays(config.tfidf, stored.arrays("tfidf")) if "tfidf" in stored.stems else None
    neural, has_embedding = None, False
    if isinstance(config, NeuralConfig):
        if config.is_recursive == has_net:
            raise BadInput(f"its training.order is {config.training.order}, which its files are not from")
        has_encoder = config.network.reads != "features" and bool(stored.inside("encoder"))
        if has_net:
            neural = _network(stored, config, len(labels), n_features)
        elif has_encoder:
            neural = _neural(stored, config)
        elif config.features != "tfidf":
            raise BadInput(f"its features are {config.features}, but it has no encoder")
        has_embedding = config.network.reads != "features" and (has_net or config.features != "tfidf")
    if not has_embedding and tfidf is not None and tfidf.n_features != n_features:
        raise BadInput(f"its tf-idf has {tfidf.n_features} terms where {n_features} were saved")
    labels.separator = _separator(meta.get("data", {}))
    targets = replace(_targets(labels, **meta["targets"]), counts=_label_counts(stored, len(labels)))
    examples = _examples(stored, len(labels))
    calibration = read_calibration(stored, len(labels))
    return Parts(config, targets, tfidf, n_features, heads, neural, calibration, examples, _history(stored))


def read_given(stored: store.Stored, config: ModelConfig) -> ModelConfig:
    """Return the settings that a model was trained with, where ``config`` has what ``fit`` chose in place of some."""
    given = stored.config["meta"].get("given", {})
    with whole(stored):
        if not isinstance(given, dict):
            raise BadInput(f"its settings as given must be a table, but are a {type(given).__name__}")
        return update(config, given)


def calibration_arrays(calibration: Calibration | None) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of a calibration in the form that ``store.write`` takes; the rest is in ``config.json``."""
    if calibration is None or calibration.labels is None:
        return {}
    return {_THRESHOLDS: calibration.labels.arrays()}


def read_calibration(stored: store.Stored, n_labels: int) -> Calibration | None:
    """Return the calibration of a model or an ensemble, if it has one."""
    values = stored.config["meta"].get("calibration")
    if values is None:
        return None
    calibration = Calibration.from_dict(values)
    if _THRESHOLDS not in stored.stems:
        return calibration
    own = LabelThresholds.from_arrays(stored.arrays(_THRESHOLDS), n_labels)
    return calibration.with_decision(calibration.threshold, calibration.limit, own)


def count_of(meta: Mapping[str, Any], name: str) -> int:
    """Return a number of things as it was saved; nothing may be made of this size before it is compared."""
    value = meta[name]
    if type(value) is not int or not 0 <= value <= _MOST:
        raise BadInput(f"its '{name}' must be a whole number up to {_MOST}, but is {str(value)[:80]!r}")
    return value


def _targets(labels: Labels, kind: str, dtype: str = "", n_rows: int = 0) -> Targets:
    """Return the labels in the form in which they came."""
    count_of({"n_rows": n_rows}, "n_rows")
    if kind not in _TARGETS or not isinstance(dtype, str):
        raise BadInput(f"its labels must be one of {', '.join(_TARGETS)}, but are {str(kind)[:80]!r}")
    if dtype and kind == "single":
        wanted = np.dtype(dtype)
        longest = max((len(name) for name in labels.names()), default=1)
        if wanted.kind not in "biufUSO" or wanted.itemsize > max(4 * longest, 16):
            dtype = "U" if wanted.kind in "US" else "O"  # no room is made for more than the names take
        _ = Targets(labels, kind, dtype).classes  # tells whether the names can be of this type
    return Targets(labels, kind, dtype, n_rows)


def _check_arrays(parts: Parts) -> None:
    """Check the content of all arrays against each other, before any kernel walks them."""
    for number, head in enumerate(parts.heads):
        try:
            check_packed(head.arrays, head.tree, parts.n_features)
        except BadInput as error:
            raise BadInput(f"the weights of tree {number} are damaged: {error}") from None
    if parts.neural is not None and parts.neural.head is not None:
        check_dense(parts.neural.head, len(parts.targets.labels), _embedding_width(parts))
    if parts.neural is not None and parts.neural.net is not None:
        _check_net(parts.neural.net)


def _embedding_width(parts: Parts) -> int | None:
    """Return the length of an embedding as far as the ranker knows it."""
    n_terms = 0 if parts.tfidf is None else parts.tfidf.n_features
    return parts.n_features - n_terms or None


def _check_net(net: SavedNet) -> None:
    """Check what can be known before a network is built: its weights are floats, and as wide as its settings say."""
    for name, array in net.arrays.items():
        if array.dtype.kind != "f":
            raise BadInput(f"the network's '{name}' is {array.dtype}, not a float type")
    widest = max((max(array.shape, default=0) for array in net.arrays.values()), default=0)
    for name in ("hidden", "bottleneck"):
        if getattr(net.config.network, name) > max(widest, _USUAL_WIDTH):
            raise BadInput(f"network.{name} is {getattr(net.config.network, name)}, but its arrays reach {widest}")


def _label_counts(stored: store.Stored, n_labels: int) -> np.ndarray | None:
    """Return how many training rows have each label, if the model says so."""
    if "counts" not in stored.stems:
        return None
    counts = stored.arrays("counts")["labels"]
    if counts.shape != (n_labels,) or counts.dtype != np.int32 or counts.min(initial=0) < 0:
        raise BadInput(f"its counts are not one number for each of {n_labels} labels")
    return counts


def _examples(stored: store.Stored, n_labels: int) -> Examples | None:
    """Return the training texts that were kept, if any were."""
    if "examples" not in stored.stems and _EXAMPLES not in stored.extra:
        return None
    texts = store.parse_labels(stored.content(_EXAMPLES), stored.path)
    return Examples.from_arrays(texts, stored.arrays("examples"), n_labels)


def _history(stored: store.Stored) -> list[Record]:
    """Return the records of the training, if the model has them."""
    if _HISTORY not in stored.extra:
        return []
    return store.parse_records(stored.content(_HISTORY), stored.path / _HISTORY)


def _separator(data: Mapping[str, Any]) -> str | None:
    """Return what separated labels in the file of the training data."""
    separator = data.get("separator") if isinstance(data, dict) else data
    if separator is not None:
        check_separator(separator)
    return separator


def _neural(stored: store.Stored, config: NeuralConfig) -> Neural:
    head = None
    if "head" in stored.stems:
        arrays = stored.arrays("head")
        head = DenseHead.from_arrays(arrays, head_post(config))
    return Neural(_encoder(stored, config), head)


def _encoder(stored: store.Stored, config: NeuralConfig) -> SavedEncoder:
    """Return the encoder of a folder, with what was exported of it."""
    content, exported = stored.inside("encoder"), stored.inside("onnx")
    return SavedEncoder(config.encoder, content=content, folder=stored.folder("encoder"), exported=exported)


def _network(stored: store.Stored, config: NeuralConfig, n_labels: int, n_features: int) -> Neural:
    encoder: SavedEncoder | FeatureSource = FeatureSource(n_features, config)
    if config.network.reads != "features":
        encoder = _encoder(stored, config)
    arrays = stored.arrays("net")
    tree = LabelTree.from_arrays(arrays)
    if tree.n_labels != n_labels:
        raise BadInput(f"its network scores {tree.n_labels} labels, not {n_labels}")
    weights = {name: array for name, array in arrays.items() if name not in tree.arrays()}
    if stored.config["meta"].get("arrays") == 1:
        weights = {array_from_format_1(name): array for name, array in weights.items()}
    if config.network.reads == "features" and weights["reader.weight"].shape != (n_features, config.network.hidden):
        raise BadInput(f"its embeddings are not those of {n_features} features")
    return Neural(encoder, net=SavedNet(config, encoder, tree, weights))


def head_post(config: NeuralConfig) -> str:
    """Return the function that turns the margin of an encoder's classifier into a score: it follows the loss."""
    return "sigmoid" if config.training.loss == "bce" else "l2-hinge"


def _head(arrays: Mapping[str, np.ndarray], n_features: int, config: ModelConfig) -> LinearTree:
    weights = {name: arrays[name] for name in LinearTree.KERNEL}
    return LinearTree(weights, LabelTree.from_arrays(arrays), n_features, config.search)


def _labels(stored: store.Stored, n_labels: int) -> Labels:
    if stored.labels is None:
        return Labels.numbered(n_labels)
    keys = store.parse_labels(stored.content("keys.txt"), stored.path) if "keys.txt" in stored.extra else None
    labels = Labels(stored.labels, keys)
    if len(labels) != n_labels:
        raise BadInput(f"it names {len(labels)} labels where {n_labels} were saved")
    return labels
