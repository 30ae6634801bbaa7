"""Long texts as windows: an encoder reads each window on its own, while pooling sees the text as a whole.

The padded length of a text with several windows is a multiple of the length of a window. All shapes follow from those
of the batch, and no value is looked at, so that steps can be recorded as CUDA graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def split_windows(
    ids: torch.Tensor, mask: torch.Tensor | None, n_windows: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Turn token numbers and mask (texts, windows · length) into (texts · windows, length).

    A shorter text has windows of nothing but padding. Some attention kernels return NaN where every token is masked,
    so the first token of such a window stays visible; pooling ignores it.
    """
    if n_windows == 1:
        return ids, mask
    windows = ids.reshape(len(ids) * n_windows, ids.shape[1] // n_windows)
    if mask is None:
        return windows, None
    visible = mask.reshape(windows.shape).clone()
    visible[:, 0] = True
    return windows, visible


def join_windows(states: torch.Tensor, n_windows: int) -> torch.Tensor:
    """Turn states (texts · windows, length, d) into (texts, windows · length, d)."""
    n_rows, length, width = states.shape
    return states if n_windows == 1 else states.reshape(n_rows // n_windows, length * n_windows, width)
