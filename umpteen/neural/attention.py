"""Attention masks that are made without a look at their values.

``transformers`` asks the GPU whether a mask hides anything, so as to drop one that does not: a wait in every step, and
a question that no recorded step can ask. Here the caller knows, and passes no mask where nothing is padded.
"""

from __future__ import annotations

from typing import Any

import umpteen.engine.openmp  # noqa: F401  before torch

# isort: split
import torch

_NAME = "umpteen"


def use_given_masks(model: Any) -> None:
    """Let a model take its mask as it is given; one that makes masks its own way is left alone."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if model.config._attn_implementation != "sdpa" or not getattr(model, "_supports_attention_backend", False):
        return
    AttentionInterface.register(_NAME, sdpa_attention_forward)
    AttentionMaskInterface.register(_NAME, given_mask)
    model.set_attn_implementation(_NAME)


def given_mask(
    *,
    q_length: int,
    attention_mask: torch.Tensor | None = None,
    allow_is_bidirectional_skip: bool = False,
    local_size: int | None = None,
    **more: Any,
) -> torch.Tensor | None:
    """Return which tokens (texts, 1, tokens, tokens) see which, None for all.

    Called by ``transformers``, which says by the last two named arguments whether every token may see every other.
    """
    if not allow_is_bidirectional_skip or local_size is not None:
        from transformers.masking_utils import sdpa_mask

        return sdpa_mask(
            q_length=q_length, attention_mask=attention_mask, local_size=local_size,
            allow_is_bidirectional_skip=False, **more,
        )  # fmt: skip
    return None if attention_mask is None else attention_mask[:, None, None, :].bool().expand(-1, 1, q_length, -1)
