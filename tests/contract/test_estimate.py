"""Estimates before training: positive, growing with the work, and cheap."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen.data import load_demo
from umpteen.errors import BadInput
from umpteen.models import create
from umpteen.models.estimate import Estimate
from umpteen.models.time_budget import LENGTHS, with_time_budget
from umpteen.neural.size import EncoderSize, NetworkSize
from umpteen.tree import LabelTree

from .conftest import LINEAR, N_LABELS, Made

WORDLESS = ("lightxml", "full", "attentionxml", "xml-cnn")  # have neither clusters, of so few labels, nor a ranker


def estimate(recipe: str, X: Any, Y: Any, **settings: Any) -> Estimate:
    return create(recipe, {"threads": 1, **settings}).estimate(X, Y)


def network_size(recipe: str, n_labels: int, device: str = "cuda", **settings: Any) -> NetworkSize:
    config = create(recipe, settings).config
    return NetworkSize.of(config, n_labels, 0, device)


def test_positive_and_in_words(recipe: str, made: Made, rows: sp.csr_matrix) -> None:
    of_rows = (rows, rows.toarray(), rows.toarray().tolist()) if recipe in LINEAR else ()
    for X in (made.texts, *of_rows, iter(made.texts)):
        found = estimate(recipe, X, made.lists)
        words = {"n_features", "n_nonzeros"} if recipe in WORDLESS else set()
        sizes = {name: value for name, value in asdict(found).items() if name not in ("device", "gpu_mb", *words)}
        assert all(value > 0 for value in sizes.values())
        assert all(getattr(found, name) == 0 for name in words)
        assert (f"{found.n_features:,} features" in str(found)) == (recipe not in WORDLESS)
        assert (found.n_rows, found.n_labels) == made.Y.shape
        assert f"{len(made):,} rows" in str(found)
        assert "MB of memory" in str(found)


def test_rows_are_counted_exactly(linear_recipe: str, made: Made, rows: sp.csr_matrix) -> None:
    for X in (rows, rows.toarray()):
        found = estimate(linear_recipe, X, made.Y)
        assert (found.n_features, found.n_nonzeros) == (rows.shape[1], rows.nnz)


def test_texts_are_guessed_well(recipe: str) -> None:
    train = load_demo()
    found = estimate(recipe, train.texts, train.Y)
    if recipe in WORDLESS:
        assert (found.n_features, found.n_nonzeros) == (0, 0)
        return
    assert 100_000 <= found.n_features <= 200_000  # it is 200 000
    assert 0.5 < found.n_nonzeros / 1_398_000 < 2  # by count


def test_more_rows_take_more(recipe: str, made: Made, rows: sp.csr_matrix) -> None:
    of_rows = [(rows, sp.vstack([rows] * 3))] if recipe in LINEAR else []
    for X, tripled in (*of_rows, (made.texts, made.texts * 3)):
        less, more = estimate(recipe, X, made.Y), estimate(recipe, tripled, sp.vstack([made.Y] * 3))
        assert more.seconds > 2 * less.seconds
        assert more.memory_mb > less.memory_mb


def test_more_trees_take_more_and_threads_less(linear_recipe: str, made: Made, rows: sp.csr_matrix) -> None:
    base = estimate(linear_recipe, rows, made.Y, trees=1)
    assert estimate(linear_recipe, rows, made.Y, trees=4).seconds > 3 * base.seconds
    assert estimate(linear_recipe, rows, made.Y, trees=1, threads=4).seconds < base.seconds


def with_columns(n_labels: int) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """A hundred rows of fifty features with three labels each, of so many."""
    rng = np.random.default_rng(0)
    X = sp.random(100, 1_000, 0.05, random_state=0, format="csr", dtype=np.float32)
    where = np.repeat(np.arange(100), 3), rng.integers(0, n_labels, 300)
    return X, sp.csr_matrix((np.ones(300, np.float32), where), shape=(100, n_labels))


def test_columns_cost_even_if_no_text_has_them() -> None:
    """Measured on one core: 50 s and 1,250 MB for twenty million, 3.9 s and 138 MB for two million."""
    many, fewer = (estimate("xr-linear", *with_columns(n)) for n in (20_000_000, 2_000_000))
    assert 50 / 3 < many.seconds < 50 * 3
    assert 1_250 / 1.5 < many.memory_mb < 1_250 * 1.5
    assert 3.9 / 3 < fewer.seconds < 3.9 * 3
    assert 138 / 1.5 < fewer.memory_mb < 138 * 1.5


@pytest.mark.parametrize(
    ("recipe", "seconds", "memory_mb"), [("parabel", 3.6, 50), ("bonsai", 11.4, 199), ("plt", 0.87, 25)]
)
def test_columns_cost_in_every_tree(recipe: str, seconds: float, memory_mb: float) -> None:
    """Measured on one core for half a million."""
    found = estimate(recipe, *with_columns(500_000))
    assert seconds / 3 < found.seconds < seconds * 3
    assert memory_mb / 2 < found.memory_mb < memory_mb * 2


def chosen_length(recipe: str, texts: list[str], **settings: Any) -> int:
    config = create(recipe, {"threads": 1, "encoder.device": "cpu", **settings}).config
    return with_time_budget(config, texts, three_labels(texts)).encoder.max_length


def three_labels(texts: list[str]) -> sp.csr_matrix:
    return sp.csr_matrix(np.ones((len(texts), 3), np.float32))


@pytest.mark.parametrize("recipe", ["xr-transformer", "lightxml"])
def test_a_time_budget_chooses_how_much_of_a_text_is_read(recipe: str) -> None:
    long, short = ["word " * 2_000] * 50, ["word " * 10] * 47 + ["word " * 2_000] * 3
    assert chosen_length(recipe, long) == (0 if recipe == "xr-transformer" else 128)  # 0 is left to the device
    assert chosen_length(recipe, long, **{"encoder.max_length": 77}) == 77
    seconds = {
        length: estimate(
            recipe, long, three_labels(long), **{"encoder.device": "cpu", "encoder.max_length": length}
        ).seconds
        for length in LENGTHS
    }
    for budget in (0.5 * min(seconds.values()), *(1.01 * time for time in seconds.values())):
        in_time = [length for length, time in seconds.items() if time <= budget]
        assert chosen_length(recipe, long, **{"training.time_budget": budget}) == max(in_time, default=32)
    assert chosen_length(recipe, short, **{"training.time_budget": 1e6}) == 512
    assert chosen_length(recipe, short[:48] * 2, **{"training.time_budget": 1e6}) == 32
    assert chosen_length(recipe, long, **{"training.time_budget": 1e6, "encoder.windows": 16}) == 256


def test_the_estimate_is_that_of_the_length_that_is_chosen() -> None:
    texts = ["word " * 2_000] * 50
    brief, usual, long = (
        estimate(
            "lightxml", texts, three_labels(texts), **{"encoder.device": "cpu", "training.time_budget": budget}
        ).seconds
        for budget in (1.0, 0.0, 1e6)
    )
    assert brief < usual < long


@pytest.mark.parametrize("recipe", ["xr-transformer", "lightxml"])
def test_the_length_that_was_chosen_is_stored(recipe: str, made: Made, encoder_folder: Path, tmp_path: Path) -> None:
    settings = {"training.epochs": 0.0, "encoder.name": str(encoder_folder), "training.time_budget": 1e6, "threads": 1}
    model = create(recipe, settings).fit(made.texts, made.lists)
    model.save(tmp_path / "model")
    assert model.config_.encoder.max_length == umpteen.load(tmp_path / "model").config_.encoder.max_length == 32


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("lightxml", {"network.pooling": "last5"}),
        ("cascadexml", {"network.levels": (6,), "network.few_labels": 0}),
        ("cascadexml", {"network.levels": (6,), "network.few_labels": 0, "network.pooling": "mean@1,mean@1+2"}),
        ("full", {}),
        ("attentionxml", {}),
        ("xml-cnn", {}),
    ],
)
def test_the_widths_are_those_of_the_network(
    recipe: str, settings: dict[str, Any], made: Made, encoder_folder: Path
) -> None:
    settings = settings | {
        "training.epochs": 0.0,
        "encoder.name": str(encoder_folder),
        "encoder.max_length": 16,
        "threads": 1,
    }
    model = create(recipe, settings).fit(made.texts, made.lists)
    network, found = model.neural_.net.get(), network_size(recipe, len(model.labels_), **settings)
    assert found.text_width == network.module.reader.widths[-1]
    assert [(n, found.node_width) for n in found.levels[-1:]] == [tuple(network.module.heads[-1].weight.shape)]
    assert found.levels == network.tree.sizes


@pytest.mark.parametrize(("pooling", "n_states"), [("mean", 1), ("mean@6+12", 13)])
def test_states_that_are_read_at_the_end_are_counted(pooling: str, n_states: int) -> None:
    settings = {"network.pooling": pooling, "training.init": "lda", "training.batch_size": 1, "encoder.name": "a/model"}
    size = network_size("full", 2, **settings)._replace(encoder=EncoderSize(12, 384))
    weights = 16 * (12 * 12 * 384**2 + 30_522 * 384)
    found = size.training_bytes(1_000_000, 128) - weights
    assert found == pytest.approx(262_144 * 384 * (2 * n_states + 24), rel=1e-3)


def test_what_makes_a_step_larger() -> None:
    """Long texts, copies of the weights, float32; gradient checkpointing and small micro-batches make it smaller."""

    def of_step(longest: int = 128, **settings: Any) -> float:
        dotted = {key.replace("__", "."): value for key, value in settings.items()}
        return network_size("cascadexml", 10_000, **{"encoder.name": "a/model", **dotted}).training_bytes(
            1_000, longest
        )

    usual = of_step()
    assert of_step(longest=256) > 1.5 * usual
    assert of_step(encoder__precision="float32") > 1.5 * usual
    n_weights = 12 * 12 * 768**2 + 30_522 * 768
    assert of_step(training__swa_start=0.5) - usual > 4 * n_weights
    assert of_step(training__validation_fraction=0.1) - usual > 4 * n_weights
    assert of_step(encoder__gradient_checkpointing=True) < 0.6 * usual
    assert of_step(encoder__batch_tokens=1_024) < 0.6 * usual


def test_more_labels_than_an_optimiser_trains_are_trained_in_blocks() -> None:
    settings = {"encoder.name": "a/model", "training.batch_size": 32}
    few, many = (network_size("xr-transformer", n, **settings) for n in (30_000, 40_000))
    assert (few.levels[-1], many.levels[-1]) == (30_000, 40_000)
    assert many.head_bytes(len(many.levels) - 1, 10) == 40_000 * 768 * 2 + 32 * 40_000 * 16  # in bfloat16
    assert few.head_bytes(len(few.levels) - 1, 10) > 30_000 * 768 * 16
    on_cpu = network_size("xr-transformer", 40_000, "cpu", **settings)
    assert on_cpu.head_bytes(len(many.levels) - 1, 10) == 40_000 * 768 * 4 + 32 * 40_000 * 16


def test_levels_of_which_none_can_be_trained_are_no_error() -> None:
    settings = {"network.levels": (100_000,), "network.head": "tree", "training.batch_size": 32, "training.epochs": 1}
    assert network_size("xr-transformer", 60_000, **settings, **{"encoder.name": "a/model"}).training_bytes(9, 9) > 0


def test_levels_that_are_trained_one_after_the_other_share_memory() -> None:
    settings = {"encoder.name": "a/model", "network.few_labels": 0}
    joint, own, shared = (
        network_size("lightxml", 50_000, **settings, **{"training.order": order}).training_bytes(1, 128)
        for order in ("joint", "own-reader", "shared-reader")
    )
    assert joint > own > shared


# With an encoder


def on_cpu(made: Made, **settings: Any) -> Estimate:
    words = [text * 20 for text in made.texts]  # longer than the encoder reads
    changed = {key.replace("__", "."): value for key, value in settings.items()}
    usual = {"encoder.device": "cpu", "encoder.name": "some/model"}
    return estimate("xr-transformer", words, made.Y, **usual | changed)


def test_a_ranker_sees_the_vector_of_a_text_beside_its_words(made: Made) -> None:
    def of_one_tree(features: str) -> tuple[float, float]:
        """Return the seconds and megabytes of a second tree; the encoder is trained once for both."""
        one, two = (on_cpu(made, features=features, trees=n) for n in (1, 2))
        return two.seconds - one.seconds, two.memory_mb - one.memory_mb

    (words_s, words_mb), (both_s, both_mb) = map(of_one_tree, ("tfidf", "both"))
    assert both_s > 2 * words_s  # 768 numbers more
    assert both_mb - words_mb >= 768 * N_LABELS / 1e6  # at least a byte for each weight of them


def test_an_encoder_is_counted_by_its_work(made: Made) -> None:
    """Two operations per parameter and token, three times for every epoch; and once for each pass that embeds."""
    alone = create("xr-linear", {"threads": 1}).estimate(made.texts, made.Y)
    less, found = (
        on_cpu(made, encoder__max_length=n, training__epochs=(1.0, 4.0), network__levels=(8,)) for n in (40, 100)
    )
    expected = 600 * (100 - 40) * 2 * (12 * 12 * 768**2) * 3 * (1 + 4) / 5e10
    assert found.seconds - less.seconds == pytest.approx(expected)
    of_paper = {"training__loss": "squared-hinge", "features": "both"}
    less, found = (
        on_cpu(made, encoder__max_length=n, training__epochs=(1.0, 4.0), network__levels=(8,), **of_paper)
        for n in (40, 100)
    )
    assert found.seconds - less.seconds == pytest.approx(expected * (3 * (1 + 4) + 2 + 1) / (3 * (1 + 4)))
    assert alone.seconds < less.seconds
    assert (alone.device, found.device) == ("", "cpu")
    assert "with the encoder on cpu" in str(found)
    assert "encoder" not in str(alone)


def test_windows_count_by_their_tokens(made: Made) -> None:
    for device in ("cpu", "cuda"):
        one, two = (
            on_cpu(made, encoder__device=device, encoder__max_length=length, encoder__windows=windows)
            for length, windows in ((100, 1), (50, 2))
        )
        assert one == two


def test_what_makes_an_encoder_slower_and_faster(made: Made) -> None:
    base = on_cpu(made)
    assert on_cpu(made, encoder__max_length=32).seconds < base.seconds
    assert on_cpu(made, training__epochs=(11.0,)).seconds > base.seconds
    assert on_cpu(made, threads=4).seconds < base.seconds
    assert on_cpu(made, encoder__device="cuda").seconds < base.seconds / 100
    assert "with the encoder on cuda" in str(on_cpu(made, encoder__device="cuda"))


def test_an_encoder_in_a_folder_is_looked_at(made: Made, tmp_path: Path) -> None:
    base = on_cpu(made)
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 24, "hidden_size": 1024}')
    assert on_cpu(made, encoder__name=str(tmp_path)).seconds > 3 * base.seconds
    (tmp_path / "config.json").write_text('{"n_layers": 6, "dim": 768}')
    half = on_cpu(made, encoder__name=str(tmp_path))
    assert base.seconds / 3 < half.seconds < base.seconds
    assert half.memory_mb < base.memory_mb
    (tmp_path / "config.json").write_text("{")
    assert on_cpu(made, encoder__name=str(tmp_path)) == base
    with pytest.raises(BadInput, match="is neither a folder nor a name on the hub"):
        on_cpu(made, encoder__name=str(tmp_path / "not" / "there"))


def test_a_ranker_that_fits_the_fusion_counts(made: Made) -> None:
    chosen, given = (on_cpu(made, head_weight=weight) for weight in (None, 0.2))
    assert chosen.memory_mb > given.memory_mb
    assert chosen.seconds > given.seconds


def test_without_torch_a_cpu_is_assumed(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umpteen.neural.encoder", None)
    assert on_cpu(made, encoder__device="auto") == on_cpu(made)


def test_one_versus_all_is_what_auto_means_for_few_labels(made: Made) -> None:
    few, none = (on_cpu(made, features="tfidf", tree__kind=kind) for kind in ("auto", "none"))
    assert few == none


def test_long_runs_are_told_in_minutes() -> None:
    assert "about 10 min and 2,000 MB" in str(Estimate(1, 1, 1, 1, memory_mb=2_000, seconds=600))


def test_wrong_data_is_refused_here_too(made: Made) -> None:
    with pytest.raises(BadInput, match="Y has 2 rows but X has 3"):
        estimate("plt", made.texts[:3], made.lists[:2])
    with pytest.raises(BadInput, match="wrap it"):
        estimate("plt", "a text", [["a"]])
    assert estimate("plt", np.zeros((0, 3)), np.zeros((0, 2))).seconds == 0
    with pytest.raises(BadInput, match="xr-transformer reads texts"):
        estimate("xr-transformer", np.eye(3), np.eye(3))
    assert estimate("xr-transformer", [], np.zeros((0, 2))).seconds == 0


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_memory_on_a_gpu_is_told_apart(made: Made, encoder_folder: Path, device: str) -> None:
    settings = {"encoder.name": str(encoder_folder), "encoder.device": device}
    found = create("lightxml", settings).estimate(made.texts, made.lists)
    assert found.gpu_mb > 0
    assert f"and {found.gpu_mb:,.0f} MB on the GPU" in str(found)


@pytest.mark.parametrize("by_row", [10, 1_000])
@pytest.mark.parametrize("recipe", ["lightxml", "cascadexml"])
def test_the_bytes_of_heads_are_those_of_the_network(recipe: str, by_row: int, encoder_folder: Path) -> None:
    """Weights, gradients and an optimiser's two averages, or weights and one number a row."""
    from umpteen.neural.encoder import Encoder
    from umpteen.neural.network import Network

    settings = {
        "network.levels": (6,),
        "network.few_labels": 0,
        "network.sparse_update_from": by_row,
        "training.batch_size": 1,
        "training.swa_start": 1.0,
        "encoder.name": str(encoder_folder),
        "encoder.max_length": 16,
    }
    config = create(recipe, settings).config
    tree = LabelTree.from_groups([list(range(i, i + 10)) for i in range(0, N_LABELS, 10)])
    table = Network(Encoder.load(config.encoder), tree, config).module.heads[-1].weight
    held = 16 * table.numel() if table.requires_grad else 4 * table.numel()
    found = network_size(recipe, N_LABELS, **settings).head_bytes(1, 16)
    assert held <= found < 2.0 * held + 5_000  # beside them, what is gathered for a text


def test_smaller_thresholds_and_logistic_loss_keep_more_weights(made: Made, rows: sp.csr_matrix) -> None:
    usual = estimate("xr-linear", rows, made.Y).memory_mb
    assert estimate("xr-linear", rows, made.Y, **{"linear.threshold": 0.01}).memory_mb > usual
    assert estimate("xr-linear", rows, made.Y, **{"linear.loss": "logistic"}).memory_mb > usual
