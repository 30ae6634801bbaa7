"""Where scorers begin: linear discriminants, against the formula in plain numpy."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import umpteen
from umpteen.config import FEW_TEXTS
from umpteen.models import create
from umpteen.neural import heads, network
from umpteen.neural.lda_init import Covariance, Whitening, discriminants
from umpteen.neural.sharding import Shard

from .conftest import make_corpus, neural, tiny

shapes = st.tuples(st.integers(2, 30), st.integers(1, 6), st.integers(1, 5), st.integers(0, 10**6))


def made(n_texts: int, width: int, n_nodes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw vectors that lie away from zero, and which of them belong to which node."""
    rng = np.random.default_rng(seed)
    return rng.normal(2.0, rng.uniform(0.5, 3.0, width), (n_texts, width)), rng.random((n_texts, n_nodes)) < 0.4


def settled(X: np.ndarray) -> Whitening:
    """Measure vectors in two batches."""
    spread, standard = Covariance(X.shape[1], torch.device("cpu")), Whitening(X.shape[1])
    for part in np.array_split(X, 2):
        spread.add(torch.from_numpy(part).float())
    standard.fit(spread)
    return standard


@settings(max_examples=60, deadline=None)
@given(shapes)
def test_scores_are_those_of_linear_discriminants(shape: Any) -> None:
    X, Y = made(*shape)
    mean, covariance = X.mean(axis=0), np.cov(X.T, bias=True).reshape(X.shape[1], -1)
    ridge = 0.3 * np.trace(covariance) / X.shape[1] + 1e-3 * (X**2).mean()
    inverse = np.linalg.inv(covariance + ridge * np.eye(X.shape[1]))
    counts = Y.sum(axis=0)
    away = (Y.T @ X - counts[:, None] * mean) / (counts + 2.0)[:, None]  # nodes begin with two texts like all others
    expected = 0.3 * ((X - mean) @ inverse @ away.T - 0.5 * np.einsum("ij,jk,ik->i", away, inverse, away))

    standard = settled(X)
    z, weight = standard(torch.from_numpy(X)), torch.zeros(Y.shape[1], X.shape[1])
    text, node = (torch.from_numpy(part) for part in np.nonzero(Y))
    weight.index_add_(0, node, z[text])
    offset = discriminants(weight, torch.from_numpy(counts).float())
    np.testing.assert_allclose((z @ weight.T + offset).numpy(), expected, rtol=2e-2, atol=2e-2)


@settings(max_examples=30, deadline=None)
@given(shapes)
def test_standard_vectors_lie_around_zero_and_differ_most_in_the_first_direction(shape: Any) -> None:
    X, _ = made(*shape)
    z = settled(X)(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=1e-3)
    covariance = np.cov(z.T, bias=True).reshape(X.shape[1], -1)
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-2)
    assert (np.diff(np.diag(covariance)) < 1e-2).all()
    assert (np.diag(covariance) < 1.0).all()


def test_texts_that_do_not_differ_are_not_blown_up() -> None:
    X = np.full((10, 3), 5.0) + 1e-6 * np.arange(30).reshape(10, 3)
    assert float(settled(X).matrix.abs().max()) < 100


@pytest.mark.parametrize("recipe", [umpteen.LightXML, umpteen.CascadeXML, umpteen.FullHead])
def test_what_texts_have_in_common_says_much_before_anything_is_learned(recipe: Any, encoder_folder: Path) -> None:
    texts, lists, _ = make_corpus(300)
    more = {} if recipe is umpteen.FullHead else {"network.levels": 4, "network.few_labels": 0}
    found = {}
    for init in ("lda", "prior"):
        net = {"training.epochs": (0.0,), "network.pooling": "mean", "training.init": init, **more}
        model = create(recipe.recipe, tiny(encoder_folder) | net)
        found[init] = model.fit(texts[:240], lists[:240]).evaluate(texts[240:], lists[240:])["P@1"]
    assert found["lda"] > max(40.0, 2 * found["prior"])


@pytest.mark.parametrize("recipe", ["full", "lightxml"])
def test_first_weights_do_not_depend_on_how_many_are_summed_at_a_time(
    recipe: str, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, lists, _ = make_corpus(60)
    first = {"training.init": "lda", "training.epochs": 0.0, "network.few_labels": 0, "network.levels": 4}
    settings = tiny(encoder_folder) | (first if recipe != "full" else dict(list(first.items())[:2]))
    whole = create(recipe, settings).fit(texts, lists)
    width = whole.neural_.net.arrays["heads.0.weight"].shape[1]
    monkeypatch.setattr(heads, "NUMBERS_SUMMED_AT_ONCE", 7 * width)  # 20 labels, seven at a time
    monkeypatch.setattr(network, "_MOVED_AT_ONCE", 3 * width)
    parts = create(recipe, settings).fit(texts, lists)
    for name, array in whole.neural_.net.arrays.items():
        np.testing.assert_array_equal(parts.neural_.net.arrays[name], array)
    assert np.ptp(whole.neural_.net.arrays["heads.0.weight"]) > 0


@pytest.mark.parametrize("n_labels", [2, 7, 8, 9, 13])
def test_all_ranks_sum_first_weights_in_as_many_parts(n_labels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "NUMBERS_SUMMED_AT_ONCE", 2 * 4)  # two labels
    monkeypatch.setattr(heads, "ranks", lambda: SimpleNamespace(size=4))
    found = []
    for rank in range(4):
        first, last = (n_labels * place // 4 for place in (rank, rank + 1))
        head = heads.FullHead(4, last - first)
        head.shard = Shard(n_labels, first, last, is_cut=True)
        assert [i for ends in head.parts for i in range(*ends)] == list(range(last - first))
        found.append(len(head.parts))
    assert len(set(found)) == 1  # or some would wait for others to read the texts
    assert found[0] >= 1


def test_labels_with_few_texts_begin_at_them(encoder_folder: Path) -> None:
    assert neural().with_init(FEW_TEXTS - 0.1).training.init == "lda"
    assert neural().with_init(FEW_TEXTS).training.init == "prior"
    assert neural({"training.init": "lda"}).with_init(1_000).training.init == "lda"
    clusters = neural({"training.order": "coarse-to-fine"}).with_init(1.0)
    assert [clusters.init_at(level, 3) for level in range(3)] == ["prior", "prior", "lda"]
    hinge = {"training.order": "coarse-to-fine", "training.loss": "hinge"}
    assert neural(hinge).with_init(1_000).training.init == "newton"
    texts, lists, _ = make_corpus(60)
    encoder = tiny(encoder_folder)
    net = {"training.epochs": (0.0,), "network.pooling": "mean"}
    for labels, init in ((lists, "prior"), ([[str(number)] for number in range(60)], "lda")):
        model = create(umpteen.FullHead.recipe, encoder | net).fit(texts, labels)
        assert model.config_.training.init == init  # what was chosen is kept with the model


@pytest.mark.parametrize("order", ["joint", "shared-reader", "own-reader"])
def test_scorers_begin_once(order: str, encoder_folder: Path, tmp_path: Path) -> None:
    texts, lists, _ = make_corpus(64)
    net = {
        "network.levels": 4, "training.epochs": 1.0, "training.batch_size": 16, "network.pooling": "mean",
        "training.order": order, "network.few_labels": 0, "training.init": "lda",
    }  # fmt: skip
    encoder = tiny(encoder_folder)
    stages: list[str] = []

    def note(stage: str, done: int, total: int) -> None:
        if done == total:
            stages.append(stage)

    create(umpteen.LightXML.recipe, encoder | net).fit(texts, lists, checkpoint=tmp_path, progress=note)
    assert stages.count("first weights") == (1 if order == "joint" else 2)  # anew for a level that learns by itself
    stages.clear()
    create(umpteen.LightXML.recipe, encoder | net).fit(texts, lists, checkpoint=tmp_path, progress=note)
    assert "first weights" not in stages  # what was learned is taken up
