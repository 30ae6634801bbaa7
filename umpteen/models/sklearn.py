"""scikit-learn's contract by duck typing: parameters, tags and errors as its tools expect them.

Nothing here imports scikit-learn unless scikit-learn itself asks for its tags.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from umpteen.config import ModelConfig, difference, update
from umpteen.errors import BadConfig, BadInput, NotFitted, nearest

_PLAIN = ("seed", "threads")  # arguments whose default is a value, the same for all recipes
# Settings, or groups of them, that a fitted model takes up without training
AT_ONCE = (
    "threads", "search", "ensemble", "head_weight", "fusion", "encoder.backend", "encoder.device", "encoder.precision",
    "encoder.compile", "encoder.batch_tokens", "network.beam", "network.score",
)  # fmt: skip


class Contract:
    """``get_params``, ``set_params`` and tags, so that clone, pipelines and searches work."""

    config: ModelConfig
    config_class: ClassVar[type[ModelConfig]]
    defaults: Callable[[], ModelConfig]

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.__init__ = _constructor(cls.config_class)  # type: ignore[method-assign]

    @classmethod
    def _parameters(cls) -> dict[str, inspect.Parameter]:
        """Return the constructor's arguments, which are the fields of the recipe's settings."""
        parameters = inspect.signature(cls.__init__).parameters
        return {name: parameter for name, parameter in parameters.items() if name != "self"}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return what was passed to the constructor; with ``deep`` also ``tree__branching`` and the like."""
        params = {name: getattr(self, name) for name in self._parameters()}
        if not deep:
            return params
        config = self.config
        parts = {name: getattr(config, name) for name in params}
        return params | {
            f"{name}__{field.name}": getattr(part, field.name)
            for name, part in parts.items()
            if dataclasses.is_dataclass(part)
            for field in dataclasses.fields(part)
        }

    def set_params(self, **params: Any) -> Self:
        """Change parameters, nested ones as ``tree__branching=16``.

        A fitted model takes up what needs no training at once: ``search``, ``ensemble``, ``threads``, where and how
        its encoder runs, ``head_weight``, ``fusion``, and ``beam`` and ``score`` of a network. It refuses all others;
        set them on a new model, such as a clone. If one is refused, none is changed.
        """
        known = self._parameters()
        before = dict(self.__dict__)
        is_fitted = self.__sklearn_is_fitted__()
        settled = self.config if is_fitted else None
        try:
            for key in sorted(params, key=lambda key: "__" in key):  # whole nouns first, then their parts
                name, _, inner = key.partition("__")
                if name not in known:
                    raise BadConfig(f"{type(self).__name__} has no parameter '{key}'{nearest(name, known)}")
                setattr(self, name, self._nested(name, inner, params[key]) if inner else params[key])
            if is_fitted:
                changed = difference(self.config, settled)
                self._check_untrained(changed)
                self._take_up(changed)
        except BadConfig:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _check_untrained(self, changed: Mapping[str, Any]) -> None:
        """Refuse to change settings of a fitted model that need training."""
        for key, value in changed.items():
            is_free = key in AT_ONCE or key.partition(".")[0] in AT_ONCE
            if not is_free or (key == "fusion" and not value):  # an empty one is fitted
                raise BadConfig(
                    f"{key} cannot be changed to {value!r:.40} because this {type(self).__name__} is fitted and that "
                    "needs training; set it on a new model, such as sklearn.base.clone(model), and fit that"
                )

    def _take_up(self, changed: Mapping[str, Any]) -> None:
        """Let a fitted model predict with settings that were changed."""

    def _nested(self, name: str, inner: str, value: Any) -> Any:
        """Return a noun's settings with one of them replaced; an unknown one is refused now, not in fit."""
        update(self.config, {f"{name}.{inner}": value})
        current = getattr(self, name)
        if current is None or isinstance(current, Mapping):
            return {**(current or {}), inner: value}
        return update(getattr(self.config, name), {inner: value})

    def __repr__(self) -> str:
        given = {name: _shown(getattr(self, name), getattr(self.defaults(), name)) for name in self._parameters()}
        shown = [f"{name}={value!r}" for name, value in given.items() if value is not None]
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

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise _not_fitted(f"this {type(self).__name__} is not fitted yet; call fit first")

    def _check_n_features(self, n_features: int, expected: int) -> None:
        """Refuse rows of another width, in scikit-learn's words and ours."""
        if n_features != expected:
            raise BadInput(
                f"X has {n_features} features, but {type(self).__name__} is expecting {expected} features "
                "as input; prepare the rows as for training"
            )


def _shown(value: Any, default: Any) -> Any:
    """Return what of a parameter differs from the recipe's default; None if nothing does."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return difference(value, default) or None
    return None if value == default else value


def _constructor(config_class: type[ModelConfig]) -> Callable[..., None]:
    """Return a constructor whose keyword arguments are the fields of a configuration; None means the recipe's own."""
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = {
        spec.name: inspect.Parameter(
            spec.name, kind, default=spec.default if spec.name in _PLAIN else None, annotation=spec.type
        )
        for spec in sorted(dataclasses.fields(config_class), key=lambda spec: spec.name in _PLAIN)
        if spec.name != "recipe"
    }

    def __init__(self: Any, **settings: Any) -> None:
        for name in settings:
            if name not in parameters:
                raise TypeError(f"{type(self).__name__} has no setting '{name}'{nearest(name, parameters)}")
        for name, parameter in parameters.items():
            setattr(self, name, settings.get(name, parameter.default))

    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    __init__.__signature__ = inspect.Signature([itself, *parameters.values()])  # type: ignore[attr-defined]
    return __init__


def _not_fitted(message: str) -> NotFitted:
    """Return our error, which is scikit-learn's too where that package is in use."""
    exceptions = sys.modules.get("sklearn.exceptions")
    if exceptions is None:
        return NotFitted(message)
    return type("NotFitted", (NotFitted, exceptions.NotFittedError), {})(message)
