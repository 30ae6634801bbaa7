"""The paper's presets: whole settings that a model takes."""

from __future__ import annotations

import pytest

from umpteen.errors import BadConfig
from umpteen.models import create
from umpteen.models.ensemble_rules import RULES
from umpteen.models.presets import PRESETS, preset
from umpteen.tree import resolutions

# labels, and the resolutions that the published configurations fine-tune on
SIZES = {
    "eurlex-4k": (3_956, (16, 256, 3_956)),
    "wiki10-31k": (30_938, (128, 2_048, 30_938)),
    "amazoncat-13k": (13_330, (128, 1_024, 13_330)),
    "wiki-500k": (501_070, (64, 512, 4_096, 32_768)),
    "amazon-670k": (670_091, (128, 2_048, 32_768)),
    "amazon-3m": (2_812_281, (128, 2_048, 32_768)),
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_model(name: str) -> None:
    found = preset(name)
    config = create("xr-transformer", found.settings).config
    n_labels, expected = SIZES[name]
    assert resolutions(n_labels, config.network) == expected
    assert len(config.training.epochs) == len(expected)
    assert found.ensemble in RULES
    assert len(found.encoders) == len(found.seeds) == 3


def test_an_unknown_preset_is_told_the_nearest() -> None:
    with pytest.raises(BadConfig, match="did you mean 'wiki10-31k'"):
        preset("wiki10")
