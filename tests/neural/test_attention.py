"""Masks as they are given: the states are those of transformers' own masks, for every kind of encoder."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel

from umpteen.neural.attention import given_mask, use_given_masks

_SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 90,
}
_TINY = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 90}
_ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
KINDS: dict[str, dict[str, Any]] = {
    "bert": _SMALL,
    "xlm-roberta": _SMALL,
    "distilbert": _TINY,
    "modernbert": {**_SMALL, **_ENDS, "local_attention": 6},  # two layers of three see a window only
    "mpnet": _SMALL,  # makes its masks its own way
}


@pytest.mark.parametrize("kind", KINDS)
def test_states_are_the_same(kind: str) -> None:
    torch.manual_seed(0)
    model = AutoModel.from_config(AutoConfig.for_model(kind, **KINDS[kind])).eval()
    ids = torch.randint(3, 90, (3, 24))
    mask = torch.ones_like(ids)
    mask[1, 10:] = mask[2, 20:] = 0
    with torch.no_grad():
        padded, full = model(input_ids=ids, attention_mask=mask)[0], model(input_ids=ids)[0]
        use_given_masks(model)
        torch.testing.assert_close(model(input_ids=ids, attention_mask=mask)[0][mask.bool()], padded[mask.bool()])
        torch.testing.assert_close(model(input_ids=ids)[0], full)


def test_nothing_is_asked_of_the_values() -> None:
    """A mask on the device called meta has no values."""
    mask = torch.ones(2, 5, device="meta", dtype=torch.bool)
    found = given_mask(q_length=5, attention_mask=mask, allow_is_bidirectional_skip=True)
    assert found is not None
    assert found.shape == (2, 1, 5, 5)
    assert given_mask(q_length=5, allow_is_bidirectional_skip=True) is None
