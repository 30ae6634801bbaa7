"""Settings left to the data: what ``auto`` means once the rows are known.

Two choices depend on how long a text is, both measured on held-out parts of training sets (docs/design.md).
"""

from __future__ import annotations

from dataclasses import replace

from umpteen.config import LinearConfig, SearchConfig

_LONG_ROW = 50  # features of a row, on average, from which a text counts as long


def settle(mean_features: float, linear: LinearConfig, search: SearchConfig) -> tuple[LinearConfig, SearchConfig]:
    """Replace ``auto`` by what suits rows with so many features on average.

    Rows that a parent attracts wrongly are good teachers when texts are long. Of short ones, such as titles,
    too many are simply not labelled in full, and what they teach is wrong. A label of a short text is therefore
    trained under its true parent alone and knows nothing of wrong ones, so the parent's own score must count for
    more: the steeper curve above it.

    Examples
    --------
    >>> linear, search = settle(12.0, LinearConfig(), SearchConfig())
    >>> linear.negatives, search.post
    ('tfn', 'l2-hinge')
    """
    is_long = mean_features >= _LONG_ROW
    if linear.negatives == "auto":
        linear = replace(linear, negatives="tfn+man" if is_long else "tfn")
    if search.post == "auto":
        search = replace(search, post="l3-hinge" if is_long else "l2-hinge")
    return linear, search
