"""The presets of papers: whole settings that a model takes."""

from __future__ import annotations

import pytest

from umpteen.errors import BadConfig
from umpteen.models import create
from umpteen.models.ensemble_rules import RULES
from umpteen.models.presets import BY_RECIPE, CASCADEXML, PRESETS, preset
from umpteen.tree import resolutions
from umpteen.tree.build import network_levels

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


@pytest.mark.parametrize(
    ("recipe", "name"),
    [(recipe, name) for recipe in ("lightxml", "cascadexml", "cascadexml-dismec") for name in BY_RECIPE[recipe]],
)
def test_a_preset_of_a_network_is_a_model(recipe: str, name: str) -> None:
    found = preset(name, recipe)
    config = create(recipe, found.settings).config
    sizes = network_levels(SIZES[name][0], config.network)
    is_flat = recipe == "lightxml" and name in ("eurlex-4k", "wiki10-31k", "amazoncat-13k")
    n_levels = 1 if is_flat else len(config.network.levels) + 1
    assert len(sizes) == n_levels
    if recipe != "lightxml":
        assert len(config.network.poolings) == len(config.network.dropout) == len(config.network.beam) + 1 == n_levels
        assert not set(config.unused) & set(found.settings)  # nothing that has no effect
    assert 0 < config.training.swa_start <= 1
    assert found.ensemble in RULES
    assert len(found.encoders) == len(found.seeds) == 3


def test_candidates_are_as_many_as_in_the_paper() -> None:
    """Table 9 of CascadeXML: the children of the nodes that are kept."""
    shortlists = {
        "wiki10-31k": (2**9, 2**9), "amazoncat-13k": (2**8, 2**8), "wiki-500k": (2**10, 2**11, 2**12),
        "amazon-670k": (2**10, 2**11, 2**12), "amazon-3m": (2**10, 2**11, 2**12),
    }  # fmt: skip
    for name, expected in shortlists.items():
        network = create("cascadexml", CASCADEXML[name].settings).config.network
        sizes = network_levels(SIZES[name][0], network)
        found = [beam * sizes[i + 1] / sizes[i] for i, beam in enumerate(network.beam)]
        assert found == pytest.approx(expected, rel=0.07)


def test_a_recipe_without_presets_is_refused() -> None:
    with pytest.raises(BadConfig, match=r"there are presets for xr-transformer, .* but the recipe is parabel"):
        preset("eurlex-4k", "parabel")
    with pytest.raises(BadConfig, match=r"must be one of wiki10-31k, .* for cascadexml, but is 'eurlex-4k'"):
        preset("eurlex-4k", "cascadexml")


def test_an_unknown_preset_is_told_the_nearest() -> None:
    with pytest.raises(BadConfig, match="did you mean 'wiki10-31k'"):
        preset("wiki10")
