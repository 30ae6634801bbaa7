"""Summarise the results of ``umpteen bench --seeds``: mean and standard deviation over trainings with other seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def summarize(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a row of means, with the standard deviations under ``std`` and the rows of the seeds under ``runs``.

    The standard deviation is that of a sample (n - 1), and 0 for a single row.

    >>> runs = [{"recipe": "plt", "P@1": 80.0, "settings": {"seed": "0"}},
    ...         {"recipe": "plt", "P@1": 84.0, "settings": {"seed": "1"}}]
    >>> row = summarize(runs)
    >>> row["P@1"], round(row["std"]["P@1"], 3), row["seeds"]
    (82.0, 2.828, [0, 1])
    """
    first = runs[0]
    values = {key: [run.get(key) for run in runs] for key in first}
    values = {key: some for key, some in values.items() if all(_is_number(value) for value in some)}
    settings = {key: value for key, value in first["settings"].items() if key != "seed"}
    return {
        "recipe": first["recipe"],
        **{key: round(float(np.mean(some)), 4) for key, some in values.items()},
        **{key: first[key] for key in ("propensity", "propensity_counts") if key in first},
        "std": {key: round(_deviation(some), 4) for key, some in values.items()},
        "seeds": [int(run["settings"]["seed"]) for run in runs],
        "settings": settings,
        "runs": list(runs),
    }


def with_deviation(row: Mapping[str, Any], key: str) -> Any:
    """Return the value of a row as it is shown, with its standard deviation as a second line if there is one.

    >>> with_deviation({"P@1": 82.0, "std": {"P@1": 2.828}}, "P@1")
    ('82.00', '± 2.83')
    """
    deviation = row.get("std", {}).get(key)
    if deviation is None:
        return row.get(key)
    digits = 2 if abs(row[key]) >= 1 else 3
    return f"{row[key]:,.{digits}f}", f"± {deviation:,.{digits}f}"


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
