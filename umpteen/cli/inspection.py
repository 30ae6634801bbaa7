"""``umpteen info``, ``umpteen recipes`` and ``umpteen settings``."""

from operator import attrgetter
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from umpteen.cli.label_trees import show_trees, tree_nodes
from umpteen.cli.terminal import Terminal
from umpteen.config import NeuralConfig, describe, describe_all
from umpteen.errors import BadConfig

_DECISION = ("calibrated", "threshold", "limit", "label_thresholds")


def info(
    path: Path, *, terminal: Terminal, as_json: bool = False, with_tree: bool = False, depth: int | None = None,
    verify: bool = False,
) -> None:  # fmt: skip
    """Print the properties of a saved model; with ``verify`` compare all files with their digests."""
    import umpteen
    from umpteen import store
    from umpteen.models.hub import local_folder

    folder = local_folder(path)
    model, stored = umpteen.load(folder, verify="full" if verify else "arrays"), store.read(folder)
    facts = {
        **model.describe(),
        "size_on_disk": stored.size,
        "format": stored.config["format"],
        "umpteen": stored.config["umpteen"],
        **({"verified": True} if verify else {}),
    }
    levels = tree_levels(model) if with_tree else []
    if as_json:
        terminal.json({**facts, "tree": levels, "nodes": tree_nodes(model, depth)} if with_tree else facts)
        return
    members = facts.pop("models", [])
    _show([str(path)], [facts], terminal)
    if members:
        if facts["calibrated"]:  # then the ensemble decides
            members = [{key: value for key, value in member.items() if key not in _DECISION} for member in members]
        _show([f"model {number}" for number in range(1, len(members) + 1)], members, terminal)
    if with_tree:
        columns = [column.replace("_", " ") for column in levels[0]]
        terminal.table(columns, [list(level.values()) for level in levels], title="Label trees")
        show_trees(model, terminal, depth)


def tree_levels(model: Any) -> list[dict[str, Any]]:
    """List the numbers of nodes and of children per parent of every level of every tree."""
    import numpy as np

    levels = []
    trees = [tree for member in getattr(model, "models_", [model]) for tree in member._label_trees()]
    for number, tree in enumerate(trees, start=1):
        for level, starts in enumerate(tree.starts, start=1):
            children = np.diff(starts)
            levels.append(
                {
                    "tree": number,
                    "level": level,
                    "nodes": int(starts[-1]),
                    "fewest_children": int(children.min()),
                    "mean_children": round(float(children.mean()), 2),
                    "most_children": int(children.max()),
                }
            )
    return levels


def _show(names: list[str], models: list[dict[str, Any]], terminal: Terminal) -> None:
    """Print a table with a column for each model: what is so by choice, of a person or of ``fit``, or by the data."""
    models = [_by_origin(facts) for facts in models]
    keys = dict.fromkeys(key for facts in models for key in facts if any(_applies(one.get(key)) for one in models))
    rows = [[key.replace("_", " "), *(_shown(key, facts.get(key)) for facts in models)] for key in keys]
    terminal.table(["", *names], rows)


def _by_origin(facts: dict[str, Any]) -> dict[str, Any]:
    """Separate settings that were given from those that ``fit`` chose, and say what kind of number a threshold is."""
    facts = dict(facts)
    chosen = facts.pop("chosen", {})
    if "settings" in facts:
        facts["settings"] = {key: value for key, value in facts["settings"].items() if key not in chosen}
        facts = _inserted(facts, "settings", "chosen by fit", chosen)
    if "calibrated" in facts:
        facts["threshold"] = f"{facts['threshold']:.4g}, a {'probability' if facts.pop('calibrated') else 'score'}"
    return facts


def _applies(value: Any) -> bool:
    """Return whether there is something to show."""
    return bool(value) or value is False


def _inserted(facts: dict[str, Any], after: str, name: str, value: Any) -> dict[str, Any]:
    """Return the table with one entry more, behind another one."""
    place = list(facts).index(after) + 1
    items = list(facts.items())
    return dict([*items[:place], (name, value), *items[place:]])


def recipes(*, terminal: Terminal, as_json: bool = False) -> None:
    """Print every recipe with the first sentence of its documentation."""
    from umpteen.models import RECIPES

    rows = [[name, (recipe.__doc__ or "").strip().partition("\n")[0]] for name, recipe in RECIPES.items()]
    if as_json:
        terminal.json([{"recipe": name, "doc": doc} for name, doc in rows])
    else:
        terminal.table(["recipe", "what it is"], rows)


def settings(recipe: str | None, *, terminal: Terminal, as_json: bool = False) -> None:
    """Print every setting with its default, or that of the given recipe."""
    rows = describe_all()
    if recipe is not None:
        from umpteen.models import create

        config = create(recipe).config
        rows = [(key, kind, attrgetter(key)(config), doc) for key, kind, _, doc in describe(type(config))]
    if as_json:
        keys = ("key", "type", "default", "doc")
        terminal.json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        terminal.table(["setting", "type", "default", "what it does"], [_row(*row) for row in rows])


def recipe_names(text: str | None) -> list[str]:
    """Split ``a,b,c``; None means all linear recipes."""
    if text is None:
        from umpteen.models import RECIPES

        return [name for name, recipe in RECIPES.items() if not issubclass(recipe.config_class, NeuralConfig)]
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise BadConfig(f"--recipes takes names separated by commas, but got '{text}'")
    return names


def _row(key: str, kind: str, default: Any, doc: str) -> list[str]:
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    return [key, kind, shown, doc]


def _shown(key: str, value: Any) -> str | tuple[str, ...]:
    if key == "verified":
        return "every byte is as it was saved"
    if key in ("size_on_disk", "bytes"):
        return decimal(value)
    if value is None:
        return "–"
    if isinstance(value, dict):
        return tuple(f"{name} = {item}" for name, item in value.items()) or "–"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "–"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
