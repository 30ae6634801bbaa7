"""The recipes by name: ``create`` makes an untrained model, ``create_members`` several for an ensemble."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from umpteen.config import describe, update
from umpteen.errors import BadConfig, nearest
from umpteen.models.base import Model
from umpteen.models.network import XMLCNN, AttentionXML, CascadeDiSMEC, CascadeXML, ExtremeText, FullHead, LightXML
from umpteen.models.xrlinear import PLT, Bonsai, DiSMEC, Parabel, XRLinear
from umpteen.models.xrtransformer import XRTransformer, XTransformer

_LINEAR = (XRLinear, Parabel, Bonsai, PLT, DiSMEC)
_NETWORKS = (LightXML, CascadeXML, CascadeDiSMEC, FullHead, AttentionXML, XMLCNN, ExtremeText)
_NEURAL = (XRTransformer, XTransformer, *_NETWORKS)
RECIPES: dict[str, type[Model]] = {cls.recipe: cls for cls in (*_LINEAR, *_NEURAL)}

_MOST_MEMBERS = 99


def create(recipe: str, settings: Mapping[str, Any] | None = None) -> Model:
    """Make an untrained model from a recipe's name and settings with dotted or nested keys.

    Examples
    --------
    >>> create("xr-linear", {"tree.branching": 16}).config.tree.branching
    16
    """
    if recipe not in RECIPES:
        known = ", ".join(RECIPES)
        raise BadConfig(f"the recipe must be one of {known}, but is {recipe!r}{nearest(str(recipe), RECIPES)}")
    cls = RECIPES[recipe]
    for key in settings or {}:
        _refuse_foreign(key, recipe)
    return cls.from_config(update(cls.defaults(), settings or {}))


def create_members(
    recipes: str, settings: Mapping[str, Any] | None = None, own: Mapping[str, Mapping[str, Any]] | None = None
) -> list[Model]:
    """Make the untrained models of an ensemble; models of one recipe get consecutive seeds.

    Parameters
    ----------
    recipes
        Names joined by ``+``; ``NAME*3`` stands for three models of a recipe.
    settings
        For all; a recipe that does not have a setting goes without if another one has it.
    own
        Settings of single recipes, by name.

    Examples
    --------
    >>> [(model.recipe, model.seed) for model in create_members("plt*2+dismec", {"seed": 5})]
    [('plt', 5), ('plt', 6), ('dismec', 5)]
    """
    names = member_names(recipes)
    models = []
    for number, name in enumerate(names):
        model = create(name, own_settings([name], names, settings or {}) | dict((own or {}).get(name, {})))
        models.append(with_seed(model, names[:number].count(name)))
    return models


def member_names(recipes: str) -> list[str]:
    """Return the recipe of each model of an ensemble.

    Examples
    --------
    >>> member_names("xr-transformer*2+plt"), member_names("plt")
    (['xr-transformer', 'xr-transformer', 'plt'], ['plt'])
    """
    names: list[str] = []
    for part in recipes.split("+"):
        name, star, count = part.partition("*")
        if star and not (count.strip().isdecimal() and 0 < int(count) <= _MOST_MEMBERS):
            raise BadConfig(f"write NAME*3 for three models of a recipe, up to {_MOST_MEMBERS}, not '{part.strip()}'")
        names += [name.strip()] * (int(count) if star else 1)
    return names


def own_settings(recipes: Iterable[str], others: Iterable[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the settings that none of these recipes has but one of the others has, such as an encoder's."""
    foreign = _keys(others) - _keys(recipes)
    return {key: value for key, value in settings.items() if key not in foreign}


def _keys(recipes: Iterable[str]) -> set[str]:
    """Return the settings of recipes; a name that is none is told of when a model is made."""
    return {key for name in {*recipes} & {*RECIPES} for key, *_ in describe(RECIPES[name].config_class)}


def with_seed(model: Model, offset: int) -> Model:
    """Return an untrained model whose seed lies so far behind the one it was given."""
    return model.set_params(seed=model.config.seed + offset)


def _refuse_foreign(key: str, recipe: str) -> None:
    """Say of a setting that other recipes have which ones do."""
    noun = key.partition(".")[0]
    having = [name for name, cls in RECIPES.items() if any(spec.name == noun for spec in fields(cls.config_class))]
    if having and recipe not in having:
        raise BadConfig(f"{recipe} has no setting '{key}'; those that have are {', '.join(having)}")
