"""Parse settings on the command line: ``--set tree.branching=16``, ``--tree.branching 16`` and JSON files."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from umpteen.config import describe_all
from umpteen.errors import BadConfig, BadInput, nearest

DEFAULT_RECIPE = "xr-linear"
PRESET_RECIPE = "xr-transformer"  # if a preset is named and no recipe is
DEMO = Path(__file__).parent.parent / "data" / "demo"


def spell_out(args: Sequence[str], own_flags: Collection[str]) -> list[str]:
    """Turn ``--tree.branching 16`` and ``--trees 3`` into ``--set tree.branching=16 --set trees=3``.

    A flag with a dot is a setting; a flag without is one if the command has no such flag.

    >>> spell_out(["data", "--tree.branching", "8", "--trees=3", "-o", "m"], ["--output"])
    ['data', '--set', 'tree.branching=8', '--set', 'trees=3', '-o', 'm']
    """
    names = {key for key, *_ in describe_all()}
    spelled: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*spelled, word, *rest]
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--")
        if not flag.startswith("--") or flag in own_flags or not ("." in name or name in names):
            spelled.append(word)
            continue
        if not equals:
            if not rest:
                raise BadConfig(f"{flag} needs a value, but none follows; write {flag} VALUE")
            value = rest.pop(0)
        spelled += ["--set", f"{name}={value}"]
    return spelled


def collect(
    config: Path | None, pairs: Sequence[str], recipe: str | None = None, *, preset: str | None = None, **direct: Any
) -> tuple[str, dict[str, Any]]:
    """Return the recipe and its settings by dotted name; later sources override: preset, file, ``--set``, flags."""
    settings = flatten(_read_config(config)) if config is not None else {}
    named = settings.pop("recipe", DEFAULT_RECIPE if preset is None else PRESET_RECIPE)
    settings |= by_key(pairs)
    if "encoder" in settings:
        settings["encoder.name"] = settings.pop("encoder")
    settings |= {key: value for key, value in direct.items() if value is not None}
    chosen = recipe or settings.get("recipe", named)
    settings = _of_preset(preset, chosen) | settings
    _check_keys(settings)
    settings.pop("recipe", None)
    return chosen, settings


def by_key(pairs: Sequence[str]) -> dict[str, Any]:
    """Return the values of ``--set`` by key.

    >>> by_key(["tree.branching=16"])
    {'tree.branching': '16'}
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise BadConfig(f"--set takes key=value, but got '{pair}'; write for example --set tree.branching=16")
        values[key.strip()] = value.strip()
    return values


def of_recipes(pairs: Sequence[str]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Separate settings of all recipes from those of a single one: ``lightxml:training.epochs=8``."""
    common: list[str] = []
    own: dict[str, list[str]] = {}
    for pair in pairs:
        recipe, colon, rest = pair.partition(":")
        if colon and recipe.strip() and "=" not in recipe:
            own.setdefault(recipe.strip(), []).append(rest)
        else:
            common.append(pair)
    return common, {recipe: collect(None, some)[1] for recipe, some in own.items()}


def check_own(own: Collection[str], names: Collection[str]) -> None:
    """Refuse settings of recipes that are not trained."""
    for name in own:
        if name not in names:
            raise BadConfig(f"--set names the recipe {name}, which is not one of {', '.join(sorted(names))}")


def check_all_encoders(preset: str | None, recipe: str, settings: dict[str, Any]) -> None:
    """Refuse --all-encoders without a preset, or with another encoder."""
    if preset is None:
        raise BadConfig(
            "--all-encoders trains a model for each encoder of a preset; name it, as in --preset wiki10-31k"
        )
    if settings["encoder.name"] != _of_preset(preset, recipe)["encoder.name"]:
        raise BadConfig(f"--all-encoders takes the encoders of {preset}, but {settings['encoder.name']} is named, too")


def _of_preset(name: str | None, recipe: str) -> dict[str, Any]:
    """Return the settings of the recipe's paper for a dataset."""
    if name is None:
        return {}
    from umpteen.models.presets import preset

    return dict(preset(name, recipe).settings)


def data_name(path: str) -> str:
    """Return the name of data for a title: ``demo`` for that of the package, the path of others."""
    return "demo" if path == str(DEMO) else path


def data_path(text: str) -> str:
    """Return the path of the data; ``demo`` is the data that comes with the package, unless a file has that name."""
    return str(DEMO) if text == "demo" and not Path(text).exists() else text


def table_options(
    text_column: str | None = None,
    label_column: str | None = None,
    label_separator: str | None = None,
    no_header: bool = False,
) -> dict[str, Any]:
    """Return what was given of the columns of a table, as arguments of :func:`umpteen.read`.

    >>> table_options("title", label_separator="\\\\t")
    {'text_column': 'title', 'label_separator': '\\t'}
    """
    given = {"text_column": text_column, "label_column": label_column}
    given["label_separator"] = "\t" if label_separator == "\\t" else label_separator
    columns: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return columns | {"has_header": False} if no_header else columns


def check_language(vocab: Path | None, language: str | None) -> None:
    """Refuse a language without the vocabulary whose names it chooses."""
    if language is not None and vocab is None:
        raise BadConfig(f"--language {language} chooses names of a vocabulary; name its file, too: --vocab FILE")


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted name.

    >>> flatten({"tree": {"branching": 8}, "seed": 1})
    {'tree.branching': 8, 'seed': 1}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def numbers(text: str, kind: type, what: str) -> tuple[Any, ...]:
    """Parse ``1,3,5``.

    >>> numbers("1,3,5", int, "-k")
    (1, 3, 5)
    """
    try:
        found = tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        found = ()
    if not found:
        raise BadInput(f"{what} takes numbers separated by commas, but got '{text}'")
    return found


def _check_keys(settings: dict[str, Any]) -> None:
    known = [key for key, *_ in describe_all()]
    for key in settings:
        if key not in known:
            hint = nearest(key, known) or "; umpteen settings lists them all"
            raise BadConfig(f"unknown setting '{key}'{hint}")


def _read_config(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"the config file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BadConfig(f"the config file {path} is not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise BadConfig(f'the config file {path} must hold a JSON object such as {{"seed": 1}}')
    return values


def check_output_flags(given: Mapping[str, Any]) -> None:
    """Refuse flags that only have a meaning where predictions are written to a file."""
    for flag, value in given.items():
        if value is not None:
            raise BadConfig(f"{flag} is for predictions that are written to a file; name it, too: -o OUT.parquet")
