"""Write docs/settings.md, the table of all settings, from the classes that define them.

Run ``python scripts/make_settings_page.py`` after a change of ``umpteen/config/`` or of a recipe's preset; a
test says when the page is out of date.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from umpteen.config import (
    EncoderConfig,
    ModelConfig,
    NetworkConfig,
    NeuralConfig,
    TrainingConfig,
    describe,
    describe_all,
    to_dict,
)
from umpteen.models import RECIPES

_NEURAL = (NeuralConfig, EncoderConfig, NetworkConfig, TrainingConfig)  # whose options may have no effect
PAGE = Path(__file__).parents[1] / "docs" / "settings.md"

HEAD = """\
# Settings

All settings of all recipes; those of [neural recipes](#neural-recipes) come last. This page is generated from the
classes in `umpteen/config/` by `python scripts/make_settings_page.py`; do not edit it by hand. `umpteen settings`
prints the same list.

A setting has a group and a name, such as `tree.branching`. There are four equivalent ways to set it:

| where | how |
|---|---|
| Python | `XRLinear(tree={"branching": 16})` |
| scikit-learn | `model.set_params(tree__branching=16)` |
| command | `--tree.branching 16`, or `--set tree.branching=16` |
| JSON file for `--config` | `{"tree": {"branching": 16}}`, or `{"tree.branching": 16}` |

A setting that is not given has the default of the recipe: the default below, unless the
[recipe](#what-the-recipes-change) has another. A setting that does not exist, or a value out of its range, is an error
that names the rule and the nearest known name. A fitted model records what `fit` chose for the whole model, such as
`linear.negatives`; `umpteen info` shows it.
"""

NEURAL = """\
## Neural recipes

Neural recipes have the settings above and those below. The settings above apply to the linear ranker, if the recipe has
one, and `tfidf` and `tree` also to the clustering of labels. The ranker has different defaults:
{ranker}.

`encoder` can be given as a name: `XRTransformer(encoder="minilm")` or `--encoder minilm`. `--device` is short for
`--encoder.device`. Settings that are lists can be given as a single number.

Some settings have an effect only in combination with others, which is stated in the last column. `umpteen train` warns
if a setting is given that has no effect.
"""

PRESETS = """\
## What the recipes change

A recipe is a set of differences from the defaults above. [Recipes](recipes/index.md) describes their use.
"""


def page() -> str:
    """Return the text of the page."""
    linear = {key for key, *_ in describe(ModelConfig)}
    own = [row for row in describe(NeuralConfig) if row[0] not in linear]
    parts = [HEAD, "## Whole model\n", *_tables(ModelConfig, describe(ModelConfig), "##")]
    parts += [NEURAL.format(ranker=_ranker_defaults()), *_tables(NeuralConfig, own, "###")]
    return "\n".join([*parts, PRESETS, _presets()])


def _ranker_defaults() -> str:
    """List the settings of linear recipes that have another default in recipes with an encoder."""
    linear, encoded = to_dict(ModelConfig().linear), to_dict(NeuralConfig().linear)
    return ", ".join(f"`linear.{key}` = `{_json(encoded[key])}`" for key in linear if linear[key] != encoded[key])


def _tables(cls: type, rows: list[tuple[str, str, Any, str]], heading: str) -> list[str]:
    """Return a table of the settings without a noun, then one per noun under a heading."""
    parts = [_table(cls, [row for row in rows if "." not in row[0]])]
    for spec in dataclasses.fields(cls):
        nested = [row for row in rows if row[0].startswith(f"{spec.name}.")]
        if nested and isinstance(spec.default_factory, type):
            doc = (spec.default_factory.__doc__ or "").strip()
            parts += [f"{heading} {spec.name}\n", f"{doc}\n", _table(spec.default_factory, nested)]
    return parts


def _table(cls: type, rows: list[tuple[str, str, Any, str]]) -> str:
    specs = {spec.name: spec.metadata for spec in dataclasses.fields(cls)}
    lines = ["| setting | type | default | may be | what it does |", "|---|---|---|---|---|"]
    for key, kind, default, doc in rows:
        rules = specs[key.rpartition(".")[2]]
        only = f". Only if {rules['when'].words}" if rules.get("when") and cls in _NEURAL else ""
        lines.append(f"| `{key}` | {_kind(kind)} | `{_json(default)}` | {_range(rules)} | {doc}{only} |")
    return "\n".join(lines) + "\n"


def _range(rules: Any) -> str:
    """Say what values a setting takes."""
    if rules.get("choices"):
        return ", ".join(f"`{choice}`" for choice in rules["choices"])
    low, high = (
        (f"{rules[end]:g}" if abs(rules[end]) < 2**53 else f"{rules[end]:,}") if rules.get(end) is not None else ""
        for end in ("low", "high")
    )
    if low and high:
        return f"{low} to {high}"
    return f"at least {low}" if low else ""


def _kind(name: str) -> str:
    words = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}
    words["float or none"] = "number or none"
    lists = {"tuple[int, ...]": "list of whole numbers", "tuple[float, ...]": "list of numbers"}
    return (words | lists).get(name, name)


def _presets() -> str:
    lines = ["| recipe | differs from the defaults in |", "|---|---|"]
    for name, recipe in RECIPES.items():
        changed = [key for key, *_ in describe_all() if key in recipe.preset]
        changes = [f"`{key}` = `{_json(recipe.preset[key])}`" for key in changed]
        lines.append(f"| [`{name}`](recipes/{name}.md) | {', '.join(changes) or 'nothing: it is the default'} |")
    return "\n".join(lines) + "\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
