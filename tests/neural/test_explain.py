"""Explanations of models with an encoder: words left out one by one, and the parts of a combined score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from umpteen.models import Model, create
from umpteen.models.explain import EMBEDDING
from umpteen.models.tree_view import text_paths, tree_views

from .conftest import tiny

SMALL = {
    "tree.kind": "halving", "tree.leaf_size": 5, "tree.branching": 4, "network.branching": 4,
    "training.epochs": (1.0, 2.0), "training.batch_size": 16, "training.learning_rate": 1e-3,
    "training.head_learning_rate": 1e-2,
}  # fmt: skip
TEXT = "word3 topic0 noise1 spelled word4"


def fitted(folder: Path, corpus: Any, **settings: Any) -> Model:
    return create("xr-transformer", tiny(folder) | SMALL | settings).fit(corpus[0], corpus[1])


def check(model: Model, text: str = TEXT) -> Any:
    """Explain; check that what is said of each part adds up."""
    found = model.explain(text)
    for step in (step for path in found.paths for step in path.steps if step.bias is not None):
        assert step.bias + sum(one.contribution for one in step.contributions) == pytest.approx(step.margin, abs=1e-4)
    total = sum(part.contribution for part in found.parts)
    expected = 1 / (1 + np.exp(-total)) if found.scale == "log-odds" else total
    assert found.score == pytest.approx(expected, abs=1e-4)
    return found


@pytest.mark.parametrize("features", ["both", "encoder", "tfidf"])
def test_a_fused_score_has_three_parts(encoder_folder: Path, corpus: Any, features: str) -> None:
    model = fitted(encoder_folder, corpus, features=features, fusion=(1.5, 0.5, -0.25))
    found = check(model)
    assert found.scale == found.word_scale == "log-odds"
    assert [part.name for part in found.parts] == ["the ranker", "the classifiers", "the bias"]
    assert [part.weight for part in found.parts] == [1.5, 0.5, 1.0]
    assert found.parts[2].contribution == -0.25
    of_ranker = {one.name for step in found.paths[0].steps for one in step.contributions}
    assert (EMBEDDING in of_ranker) == (features != "tfidf")
    assert bool(of_ranker - {EMBEDDING}) == (features != "encoder")
    (classified,) = found.paths[-1].steps
    assert [one.name for one in classified.contributions] == [EMBEDDING]


def test_the_frequency_of_a_label_is_a_part_of_a_fused_score(encoder_folder: Path, corpus: Any) -> None:
    model = fitted(encoder_folder, corpus, fusion=(1.5, 0.5, -0.3, -0.25))
    found = check(model)
    assert [part.name for part in found.parts] == [
        "the ranker", "the classifiers", "the frequency of the label", "the bias",
    ]  # fmt: skip
    label = model.topk([found.text], 1).labels[0, 0]
    n_texts = sum(found.label in some for some in corpus[1])
    assert model.targets_.counts[label] == n_texts
    assert found.parts[2].contribution == pytest.approx(-0.3 * np.log1p(n_texts), abs=1e-6)


@pytest.mark.parametrize("settings", [{"trees": 2, "head_weight": 0.3}, {"features": "both", "head_weight": 0.0}])
def test_an_averaged_score_has_weights(encoder_folder: Path, corpus: Any, settings: dict[str, Any]) -> None:
    found = check(fitted(encoder_folder, corpus, **settings))
    assert found.scale == found.word_scale == "score"
    if settings["head_weight"]:
        assert [part.name for part in found.parts] == ["tree 1", "tree 2", "the classifiers"]
        assert [part.weight for part in found.parts] == pytest.approx([0.35, 0.35, 0.3])
    else:
        assert [part.name for part in found.parts] == ["the tree"]
    assert sum(part.weight for part in found.parts) == pytest.approx(1.0)


def test_a_word_counts_what_the_label_loses_without_it(encoder_folder: Path, corpus: Any) -> None:
    """``spelled`` has a token for each letter and is one word all the same."""
    model = fitted(encoder_folder, corpus, fusion=(1.5, 0.5, -0.25))
    found = model.explain(TEXT, "label 03")
    assert [word.word for word in found.words] == TEXT.split()
    for word in found.words:
        rest = TEXT[: word.start] + TEXT[word.end :]
        totals = [sum(p.contribution for p in model.explain(t, "label 03").parts) for t in (TEXT, rest)]
        assert word.contribution == pytest.approx(totals[0] - totals[1], abs=2e-3)


def test_long_texts_are_explained_by_their_first_words(encoder_folder: Path, corpus: Any) -> None:
    model = fitted(encoder_folder, corpus, fusion=(1.5, 0.5, -0.25))
    found = model.explain(TEXT * 50, max_words=4)
    assert len(found.words) == 4
    assert len(found.notes) == 1
    assert found.notes[0].startswith("Only the first 4 of 201 words")


@pytest.mark.parametrize("recipe", ["lightxml", "attentionxml", "full"])
def test_networks(encoder_folder: Path, corpus: Any, recipe: str) -> None:
    settings: dict[str, Any] = {"training.epochs": 1.0, "network.hidden": 16}
    if recipe != "full":
        settings |= {"network.levels": (4,), "network.beam": (2,)}
    model = create(recipe, tiny(encoder_folder) | settings).fit(corpus[0], corpus[1])
    found = check(model)
    assert found.word_scale == "log-odds"
    (path,) = found.paths
    assert len(path.steps) == (1 if recipe == "full" else 2)
    assert path.steps[-1].score == pytest.approx(found.score, rel=1e-4)
    assert [path.steps[-1].rank] == [found.rank] == [1]
    second = model.explain(TEXT, found.suggestions[1].id)
    assert second.rank == second.paths[0].steps[-1].rank == 2


@pytest.mark.parametrize("recipe", ["lightxml", "attentionxml", "extremetext", "full"])
def test_where_a_text_went_in_a_network(encoder_folder: Path, corpus: Any, recipe: str) -> None:
    settings: dict[str, Any] = {"training.epochs": 1.0, "network.hidden": 16}
    if recipe != "full":
        settings |= {"network.levels": (4,), "network.beam": (2,)}
    model = create(recipe, tiny(encoder_folder) | settings).fit(corpus[0], corpus[1])
    paths = text_paths(model, TEXT, k=3)
    if recipe == "full":
        assert paths == tree_views(model) == []
        return
    (path,) = paths
    groups, labels = path.levels
    assert (path.part, groups.n_scored, groups.n_kept) == ("the network", 4, 2)
    top = model.topk([TEXT], k=3)
    assert [one.node.name for one in labels.kept] == top.names[0]
    assert [one.score for one in labels.kept] == pytest.approx(top.scores[0].tolist(), rel=1e-4)
    (step, _) = model.explain(TEXT).paths[0].steps
    assert step.node in [one.node.node for one in groups.kept]
    words = {word for name in model.labels_.names() for word in name.split()}
    assert {word for child in tree_views(model)[0].children(0, 0) for word in child.name.split(", ")} <= words | set(
        model.labels_.names()
    )


@pytest.mark.parametrize("features", ["both", "encoder", "tfidf"])
def test_where_a_text_went_in_a_ranker(encoder_folder: Path, corpus: Any, features: str) -> None:
    model = fitted(encoder_folder, corpus, features=features, fusion=(1.5, 0.5, -0.25))
    (path,) = text_paths(model, TEXT, k=3)
    (view,) = tree_views(model)
    assert [len(level.kept) for level in path.levels][-1] == 3
    steps = model.explain(TEXT, path.levels[-1].kept[0].node.id).paths[0].steps
    assert [step.rank for step in steps][-1] == 1
    assert all(
        step.node in [one.node.node for one in level.kept]
        for step, level in zip(steps[:-1], path.levels[:-1], strict=True)
    )
    terms = {term for child in view.children(0, 0) for term in child.name.split(", ")}
    if features == "encoder":
        assert terms <= {word for name in model.labels_.names() for word in name.split()} | set(model.labels_.names())
    else:
        assert terms <= {model.tfidf_.term(column) for column in range(model.tfidf_.n_features)}
