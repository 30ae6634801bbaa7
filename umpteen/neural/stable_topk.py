"""The best of many scores, in an order that does not depend on how many are wanted."""

from __future__ import annotations

import torch

_SPARE = 16  # places beyond those that are wanted, which settle most ties at the last of them


def stable_topk(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k largest of each row and their columns, the first column first where scores are equal.

    Labels that the same texts carry learn the same and tie; ``topk`` of torch would take any of them. Columns at −∞
    hold nothing, and their order is left alone.

    Examples
    --------
    >>> stable_topk(torch.tensor([[0.1, 0.7, 0.2, 0.7]]), 1)[1].tolist()
    [[1]]
    """
    columns = scores.topk(min(k + _SPARE, scores.shape[1]), dim=1).indices
    found, columns = _ordered(scores, columns)
    if k < columns.shape[1] < scores.shape[1]:
        open_ended = (found[:, k - 1] == found[:, -1]) & found[:, -1].isfinite()  # columns left out may tie, too
        rows = torch.nonzero(open_ended)[:, 0]
        if len(rows):
            some = scores[rows]
            found[rows, :k], columns[rows, :k] = _ordered(some, _first_tied(some, found[rows, k - 1 : k], k))
    return found[:, :k], columns[:, :k]


def _ordered(scores: torch.Tensor, columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scores in some columns (rows, n), the largest first, and the columns in that order."""
    columns = columns.sort(dim=1).values
    found, by_score = scores.gather(1, columns).sort(dim=1, descending=True, stable=True)
    return found, columns.gather(1, by_score)


def _first_tied(scores: torch.Tensor, least: torch.Tensor, k: int) -> torch.Tensor:
    """Return the columns (rows, k) of scores above the least (rows, 1), and the first that are equal to it."""
    larger, equal = scores > least, scores == least
    missing = k - larger.sum(dim=1, keepdim=True)
    chosen = larger | (equal & (equal.cumsum(dim=1, dtype=torch.int32) <= missing))
    return torch.nonzero(chosen)[:, 1].view(-1, k)
