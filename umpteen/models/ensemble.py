"""Several models whose predictions are merged: other recipes, other encoders, other seeds, in any mix.

Trains them one after the other and keeps each in a folder inside its own. The rules live in ``ensemble_rules``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from umpteen import store
from umpteen.calibration import Calibration
from umpteen.data.columns import readable
from umpteen.data.labels import Labels
from umpteen.data.targets import Targets, read_targets
from umpteen.engine import Callback, Engine, Progress, Record, check_callbacks, silent, with_model
from umpteen.errors import BadInput, BadModelFile, NotFitted
from umpteen.models.base import Model, check_export
from umpteen.models.encoder_model import EncodedModel
from umpteen.models.ensemble_rules import merge, merge_by_tiers, tiers
from umpteen.models.estimate import Estimate
from umpteen.models.explain import explain_ensemble
from umpteen.models.explanation import Explanation
from umpteen.models.folder import calibration_arrays, check_digests, count_of, read_calibration, whole
from umpteen.models.predictor import Predictor
from umpteen.models.recipes import RECIPES, create_members
from umpteen.models.training_inputs import begun
from umpteen.shortlist import TopK, check_k
from umpteen.tree import LabelTree

_MEMBER = "model-{}"  # folder of a model inside the ensemble's
_KEPT = 0.15  # share of the memory of its training that a model keeps: 3 of 25 bytes a weight, an encoder's 4 of 16


class Ensemble(Predictor):
    """Merge the predictions of several models over the same labels.

    Parameters
    ----------
    models
        Models of any recipes. If all are fitted, on the same labels, the ensemble can predict at once; ``fit`` trains
        those that are not.
    rule
        average, rank-average, sigmoid-average, softmax-average or round-robin.
    weights
        How much each model counts; equally by default.

    Attributes
    ----------
    models_
        The fitted models.

    Examples
    --------
    >>> from umpteen import DiSMEC, Ensemble, XRLinear
    >>> texts, labels = ["red apple", "green pear", "red cherry"], [["red"], ["green"], ["red"]]
    >>> ensemble = Ensemble([XRLinear(), DiSMEC()], rule="rank-average").fit(texts, labels)
    >>> ensemble.topk(["a red plum"], k=1).names
    [['red']]
    """

    recipe: ClassVar[str] = "ensemble"

    def __init__(self, models: Sequence[Model], rule: str = "average", weights: Sequence[float] | None = None):
        if not isinstance(models, Sequence):
            raise BadInput(f"an ensemble needs a list of models, but got a {type(models).__name__}; wrap it: [model]")
        if not models:
            raise BadInput("an ensemble needs at least one model; pass a list of models")
        for number, model in enumerate(models):
            if not isinstance(model, Model):
                raise BadInput(f"an ensemble is made of models of a recipe, but model {number} is {model!r:.80}")
        nothing = TopK(np.zeros((0, 1)), np.zeros((0, 1)))
        merge([nothing] * len(models), rule, 1, weights)  # a wrong rule or weight is told now
        self.models, self.rule = list(models), rule
        self.weights = None if weights is None else [float(weight) for weight in weights]
        if all(map(_is_fitted, self.models)):
            _check_labels(self.models, self.models[0].labels_, "model 0")
            self.models_ = list(models)

    @classmethod
    def of(
        cls,
        recipes: str,
        settings: Mapping[str, Any] | None = None,
        *,
        rule: str = "average",
        weights: Sequence[float] | None = None,
    ) -> Self:
        """Make an ensemble of untrained models by the names of their recipes.

        Parameters
        ----------
        recipes
            Names joined by ``+``; ``NAME*3`` stands for three models of a recipe, with consecutive seeds.
        settings
            With dotted or nested keys, for all models that have them.
        rule, weights
            As for the class.

        Examples
        --------
        >>> Ensemble.of("plt*2+dismec", {"tree.branching": 8}).models[1].seed
        1
        """
        return cls(create_members(recipes, settings), rule, weights)

    def __repr__(self) -> str:
        weights = "" if self.weights is None else f", weights={self.weights!r}"
        return f"Ensemble({self.models!r}, rule={self.rule!r}{weights})"

    # Training

    def fit(
        self,
        X: Any,
        Y: Any,
        *,
        tree: LabelTree | None = None,
        label_names: Labels | list[str] | None = None,
        progress: Progress = silent,
        checkpoint: str | os.PathLike[str] | None = None,
        callbacks: Iterable[Callback] = (),
        memory: str | int | None = None,
        engine: str | Engine | None = None,
    ) -> Self:
        """Train the models that are not fitted, one after the other; parameters as in ``Model.fit``.

        The models that were passed stay as they are: ``models_`` has trained copies, all at once at the end. With
        ``checkpoint``, the same call after an interruption goes on with the model, and the stage, where it stopped.
        Records that callbacks get have the number of the ``model``, from 1.
        """
        calls, given = check_callbacks(callbacks), {"checkpoint": checkpoint, "memory": memory, "engine": engine}
        configs, fitted = [model.config for model in self._untrained()], []

        def count_held_out(matrix: sp.csr_matrix) -> int:
            return configs[0].calibration.count(matrix.shape[0])

        with begun(configs, X, Y, label_names, count_held_out, **given) as data:
            _check_labels(self.models, data.targets.labels, "Y")
            for number, model in enumerate(self.models):
                if not _is_fitted(model):
                    model = type(model)(**model.get_params(deep=False))
                    numbered = [with_model(call, number + 1) for call in calls]
                    model._learn(data, tree, _named(progress, number), numbered)
                fitted.append(model)
        self.models_, self._checkpoint, self.calibration_ = fitted, data.run, None
        self._calibrate_on(data.held_out)
        return self

    def estimate(self, X: Any, Y: Any) -> Estimate:
        """Say what training would take: the time of all models, the memory of the largest and of what others keep."""
        X, matrix = readable(X), read_targets(Y)[0]
        parts = [model.estimate(X, matrix) for model in self._untrained()]
        return replace(
            max(parts, key=lambda part: part.n_features),
            seconds=sum(part.seconds for part in parts),
            memory_mb=_memory([part.memory_mb for part in parts]),
            gpu_mb=_memory([part.gpu_mb for part in parts]),
            device=next((part.device for part in parts if part.device), ""),
        )

    def _untrained(self) -> list[Model]:
        """Return the models that ``fit`` trains; refuse if there are none."""
        models = [model for model in self.models if not _is_fitted(model)]
        if not models:
            raise BadInput("all models of this ensemble are fitted, so there is nothing to train; pass untrained ones")
        return models

    # Prediction

    def topk(
        self, X: Any, k: int = 10, *, beam: int | None = None, allowed: Any = None, threads: int | None = None
    ) -> TopK:
        """Return the k best labels by the merged score; parameters as in ``Model.topk``.

        Each model proposes twice as many, and 50 at least; what it does not propose counts 0.
        """
        check_k(k)
        X, wanted = readable(X), tiers(k, len(self.labels_))
        depth = wanted[-1].depth
        tops = [model.topk(X, depth, beam=beam, allowed=allowed, threads=threads) for model in self._fitted()]
        return self._with_probabilities(merge_by_tiers(tops, self.rule, wanted, self.weights))

    def score_labels(self, X: Any, pairs: Any, *, threads: int | None = None) -> sp.csr_matrix:
        """Score selected labels as ``Model.score_labels`` does: the weighted mean of the models' scores."""
        X = readable(X)
        parts = [model.score_labels(X, pairs, threads=threads) for model in self._fitted()]
        weights = None if self.weights is None else np.divide(self.weights, max(self.weights))  # whatever their scale
        mean = np.average([part.data for part in parts], axis=0, weights=weights)
        return sp.csr_matrix((mean.astype(np.float32), parts[0].indices, parts[0].indptr), shape=parts[0].shape)

    def explain(
        self, text: Any, label: Any = None, k: int = 5, *, max_words: int = 200, threads: int | None = None
    ) -> Explanation:
        """Explain a label by each of the models; see ``Predictor.explain``."""
        self._fitted()
        return explain_ensemble(self, text, label, k, max_words, threads)

    # Fitted state

    @property
    def takes_texts(self) -> bool:
        """Whether the models were trained on texts; otherwise they take feature rows."""
        return self._fitted()[0].takes_texts

    def _fitted(self) -> list[Model]:
        """Return the fitted models."""
        if not hasattr(self, "models_"):
            raise NotFitted("this Ensemble has models that are not fitted yet; call fit first")
        return self.models_

    @property
    def labels_(self) -> Labels:
        """The label vocabulary, the same for all."""
        return self._fitted()[0].labels_

    @property
    def classes_(self) -> np.ndarray:
        """The labels by column, as scikit-learn wants them."""
        return self._fitted()[0].classes_

    @property
    def targets_(self) -> Targets:
        """The form in which labels came to the first model, and in which ``predict`` returns them."""
        return self._fitted()[0].targets_

    @property
    def n_features_in_(self) -> int:
        """The width of feature rows."""
        return self._fitted()[0].n_features_in_

    def score_at(self, threshold: float | None) -> float:
        """Return the score of a threshold: by its own calibration, or else by that of the first model."""
        if self.calibration_ is None:
            return self._fitted()[0].score_at(threshold)
        return super().score_at(threshold)

    def _own_calibration(self) -> Calibration | None:
        return self.calibration_ or self._fitted()[0].calibration_

    @property
    def _given_threshold(self) -> float | None:
        return self._fitted()[0]._given_threshold

    @property
    def history_(self) -> list[Record]:
        """The records of the training of all models; each has the number of its ``model``, from 1."""
        models = enumerate(self._fitted(), start=1)
        return [{"model": number, **record} for number, model in models for record in model.history_]

    def describe(self) -> dict[str, Any]:
        """Summarise the ensemble in plain values, and each of its models."""
        models = [model.describe() for model in self._fitted()]
        return {
            "recipe": self.recipe,
            "rule": self.rule,
            "model_weights": self.weights,
            **{key: models[0][key] for key in ("labels", "input")},
            **{key: sum(facts[key] for facts in models) for key in ("weights", "bytes")},
            **self._decision(),
            "models": models,
        }

    # Storage

    def export(self, path: str | os.PathLike[str], *, to: str = "onnx", int8: bool = False) -> None:
        """Export the encoders of all models that have one; parameters as in ``XRTransformer.export``."""
        check_export(to)
        with_encoder = [model for model in self._fitted() if isinstance(model, EncodedModel)]
        if not with_encoder:
            raise BadInput("no model of this ensemble has an encoder, so there is nothing to export")
        for model in with_encoder:
            model._export_encoder(int8=int8)
        self._write(path)

    def _run_on(self, backend: str) -> None:
        for model in self._fitted():
            model._run_on(backend)

    def _write(self, path: str | os.PathLike[str]) -> None:
        files: dict[str, Any] = {}
        for number, model in enumerate(self._fitted()):
            inside = store.files_of(**model._contents())
            files |= {f"{_MEMBER.format(number)}/{name}": content for name, content in inside.items()}
        settings, meta = {"rule": self.rule, "weights": self.weights}, {"models": len(self.models_)}
        if self.calibration_ is not None:
            meta["calibration"] = self.calibration_.to_dict()
        config = {"recipe": self.recipe, "settings": settings, "meta": meta}
        store.write(path, config=config, arrays=calibration_arrays(self.calibration_), extra=files)

    @classmethod
    def _from_stored(cls, stored: store.Stored, verify: str = "arrays") -> Self:
        check_digests(stored, verify)
        inside = "arrays" if verify == "full" else verify  # the digests of the folder are those of all files inside
        with whole(stored):
            numbers = range(count_of(stored.config["meta"], "models"))
            models = [open_model(stored.nested(_MEMBER.format(number)), inside) for number in numbers]
            settings = stored.config["settings"]
            ensemble = cls(models, settings["rule"], settings["weights"])
            ensemble.calibration_ = read_calibration(stored, len(ensemble.labels_))
            return ensemble


def open_model(stored: store.Stored, verify: str) -> Model:
    """Open a folder that holds one model of any recipe."""
    recipe = stored.config["recipe"]
    if recipe not in RECIPES:
        raise BadModelFile(
            f"'{stored.path}' holds a model of the unknown recipe {recipe!r:.80}; upgrade umpteen to open it"
        )
    return RECIPES[recipe]._from_stored(stored, verify)


def _is_fitted(model: Model) -> bool:
    return model.__sklearn_is_fitted__()


def _check_labels(models: Sequence[Model], labels: Labels, whose: str) -> None:
    """Refuse fitted models with other labels."""
    for number, model in enumerate(models):
        if _is_fitted(model) and model.labels_ != labels:
            raise BadInput(
                f"model {number} has {len(model.labels_)} labels that differ from the {len(labels)} of {whose}; "
                "train all models on the same labels"
            )


def _named(progress: Progress, number: int) -> Progress:
    return lambda stage, done, total: progress(f"model {number + 1}: {stage}", done, total)


def _memory(each: Sequence[float]) -> float:
    """Return what training one after the other takes at most: the largest, beside what the others keep."""
    return max(each) + _KEPT * (sum(each) - max(each))
