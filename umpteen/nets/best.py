"""The best of many scores, in an order that does not depend on how many are wanted."""

from __future__ import annotations

import torch

_SPARE = 16  # places beyond those that are wanted, for ties at the last of them


def best(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k largest of each row and their columns, the first column first where scores are equal.

    Labels that the same texts carry learn the same and tie; ``topk`` of torch would take any of them.

    Examples
    --------
    >>> best(torch.tensor([[0.1, 0.7, 0.2, 0.7]]), 1)[1].tolist()
    [[1]]
    """
    found, columns = scores.topk(min(k + _SPARE, scores.shape[1]), dim=1)
    columns, by_column = columns.sort(dim=1)
    found, by_score = found.gather(1, by_column).sort(dim=1, descending=True, stable=True)
    return found[:, :k], columns.gather(1, by_score)[:, :k]
