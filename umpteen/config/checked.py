"""Base class and functions for settings: frozen dataclasses whose fields are checked in ``__post_init__``.

The command line, ``set_params``, the JSON files and the docs are all generated from these classes.
"""

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field, fields, replace
from typing import Any, ClassVar, NamedTuple, TypeVar, get_type_hints

from umpteen.errors import BadConfig, nearest

Settings = TypeVar("Settings")

_LARGEST = 2**62  # limit of integer settings: compiled code uses 64-bit integers


class Form(NamedTuple):
    """Pattern that a string must match, and its description in error messages."""

    pattern: str
    words: str


class When(NamedTuple):
    """Condition under which an option has an effect: its description, and a predicate of the root settings."""

    words: str
    holds: Callable[[Any], bool]


def option(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Collection[str] | None = None,
    form: Form | None = None,
    when: When | None = None,
) -> Any:
    """Declare a setting: default, description, allowed values, and when it has an effect (``None``: always)."""
    rules = {"doc": doc, "low": low, "high": high, "choices": choices, "form": form, "when": when}
    return field(default=default, metadata=rules)


def unused(group: Any, root: Any = None, prefix: str = "") -> dict[str, str]:
    """Map the settings, or groups of settings, that have no effect to the condition under which they would."""
    root = group if root is None else root
    found: dict[str, str] = {}
    for spec in fields(group):
        when, value = spec.metadata.get("when"), getattr(group, spec.name)
        if when is not None and not when.holds(root):
            found[prefix + spec.name] = when.words
        elif dataclasses.is_dataclass(value):
            found |= unused(value, root, f"{prefix}{spec.name}.")
    return found


class Checked:
    """Check the type and range of every field when an instance is created."""

    by_text: ClassVar[str] = ""  # field that is set if a string is given in place of this group

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for spec in fields(self):  # type: ignore[arg-type]
            value = _coerce(spec.name, getattr(self, spec.name), hints[spec.name])
            _check_range(spec.name, value, spec.metadata)
            object.__setattr__(self, spec.name, value)


def describe(cls: type) -> list[tuple[str, str, Any, str]]:
    """List every setting as ``(dotted key, type, default, doc)``, nested ones included."""
    rows = []
    hints = get_type_hints(cls)
    for spec in fields(cls):
        default = spec.default if spec.default is not dataclasses.MISSING else spec.default_factory()  # type: ignore[misc]
        if dataclasses.is_dataclass(default):
            rows += [(f"{spec.name}.{key}", *rest) for key, *rest in describe(type(default))]
        else:
            rows.append((spec.name, _type_name(hints[spec.name]), default, spec.metadata.get("doc", "")))
    return rows


def _type_name(hint: Any) -> str:
    if isinstance(hint, types.UnionType):
        return f"{typing.get_args(hint)[0].__name__} or none"
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def to_dict(settings: Any) -> dict[str, Any]:
    """Convert settings to plain JSON values."""
    return json.loads(json.dumps(dataclasses.asdict(settings)))


def from_dict(cls: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Build settings from a nested dict; missing keys keep their defaults."""
    return update(cls(), values)


def update(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """Return a copy with values replaced.

    Keys may be nested dicts or dotted (``"tree.branching"``); strings are converted to the field's type.
    An unknown key is an error that suggests the nearest known one.
    """
    names = {spec.name for spec in fields(settings)}  # type: ignore[arg-type]
    changes: dict[str, Any] = {}
    for key, value in values.items():
        head, _, rest = key.partition(".")
        if head not in names:
            known = {*names, *(key for key, *_ in describe(type(settings)))}
            raise BadConfig(f"unknown setting '{key}'{nearest(key, known)}")
        current = changes.get(head, getattr(settings, head))
        if rest and not dataclasses.is_dataclass(current):
            raise BadConfig(f"setting '{head}' has no parts, so '{key}' does not exist")
        if rest or (dataclasses.is_dataclass(current) and isinstance(value, Mapping)):
            with _prefixed(head, type(current)):
                changes[head] = update(current, {rest: value} if rest else value)
        else:
            changes[head] = value
    return replace(settings, **changes)  # type: ignore[type-var]


@contextmanager
def _prefixed(group: str, cls: type) -> Iterator[None]:
    """Put the name of the group before a setting that an error is about: ``training.epochs``, not ``epochs``."""
    try:
        yield
    except BadConfig as error:
        text = str(error)
        is_own = text.split(" ", 1)[0] in {spec.name for spec in fields(cls)}
        raise BadConfig(f"{group}.{text}" if is_own else text) from None


def difference(settings: Any, base: Any) -> dict[str, Any]:
    """Return the settings that differ from ``base``, by dotted key."""
    changed: dict[str, Any] = {}
    for spec in fields(settings):
        ours, theirs = getattr(settings, spec.name), getattr(base, spec.name)
        if dataclasses.is_dataclass(ours):
            changed |= {f"{spec.name}.{key}": value for key, value in difference(ours, theirs).items()}
        elif ours != theirs:
            changed[spec.name] = ours
    return changed


def _coerce(name: str, value: Any, hint: Any) -> Any:
    """Convert a value from the command line or from JSON to the type of its field."""
    if dataclasses.is_dataclass(hint):
        if hint.by_text and isinstance(value, str):
            return hint(**{hint.by_text: value})
        if isinstance(value, Mapping):
            with _prefixed(name, hint):
                return from_dict(hint, value)  # type: ignore[type-var]
        if not isinstance(value, hint):  # type: ignore[arg-type]
            raise BadConfig(f"{name} must be a {hint.__name__} or a dict, but is {value!r}")
        return value
    if typing.get_origin(hint) is tuple:
        if isinstance(value, str):
            value = value.replace(",", " ").split()
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = [value]
        if not isinstance(value, (list, tuple)):
            raise BadConfig(f"{name} must be a list, but is {value!r}")
        return tuple(_coerce(name, part, typing.get_args(hint)[0]) for part in value)
    if hint is bool:
        return _as_bool(name, value)
    if hint in (int, float):
        return _as_number(name, value, hint)
    if isinstance(hint, types.UnionType):  # a number or None
        is_none = value is None or (isinstance(value, str) and value.strip().lower() == "none")
        return None if is_none else _coerce(name, value, typing.get_args(hint)[0])
    if hint is str and not isinstance(value, str):
        raise BadConfig(f"{name} must be text, but is {value!r}")
    return value


def _as_bool(name: str, value: Any) -> bool:
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ("true", "yes", "on", "1"):
            return True
        if word in ("false", "no", "off", "0"):
            return False
    elif value in (True, False):
        return bool(value)
    raise BadConfig(f"{name} must be true or false, but is {value!r}")


def _as_number(name: str, value: Any, kind: type) -> int | float:
    try:
        number = float(value) if not isinstance(value, bool) else float("nan")
        if kind is int and isinstance(value, str):
            with suppress(ValueError):  # "1e3" is an integer too, but large integers lose digits as floats
                value = int(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not math.isfinite(number):
        raise BadConfig(f"{name} must be a number, but is {value!r}")
    if kind is int:
        if number != int(number):
            raise BadConfig(f"{name} must be a whole number, but is {value!r}")
        if abs(number) > _LARGEST:
            raise BadConfig(f"{name} must be at most {_LARGEST}, but is {value!r}")
        return int(value) if not isinstance(value, str) else int(number)
    return number


def _check_range(name: str, value: Any, rules: Mapping[str, Any]) -> None:
    if isinstance(value, tuple):
        for part in value:
            _check_range(name, part, rules)
        return
    if value is None:
        return
    choices, low, high, form = (rules.get(rule) for rule in ("choices", "low", "high", "form"))
    if choices and value not in choices:
        raise BadConfig(f"{name} must be one of {', '.join(choices)}, but is {value!r}{nearest(str(value), choices)}")
    if low is not None and value < low:
        raise BadConfig(f"{name} must be at least {low}, but is {value!r}")
    if high is not None and value > high:
        raise BadConfig(f"{name} must be at most {high}, but is {value!r}")
    if form and not re.fullmatch(form.pattern, value):
        raise BadConfig(f"{name} must be {form.words}, but is {value!r}")
