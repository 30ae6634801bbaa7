"""What every recipe promises of its explanations."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen.calibration import Calibration
from umpteen.errors import BadInput, NotFitted
from umpteen.models import Ensemble, Model, XRLinear, create
from umpteen.models.explanation import Explanation, Step

from .conftest import LINEAR, Made, needs_torch, params


def steps_of(found: Explanation) -> Iterator[Step]:
    for one in (found, *found.models):
        for path in one.paths:
            yield from path.steps


def check_sums(found: Explanation) -> None:
    """Check that contributions add up: to margins, and parts to the score or its log-odds."""
    for step in steps_of(found):
        if step.bias is not None:
            total = step.bias + sum(one.contribution for one in step.contributions)
            assert total == pytest.approx(step.margin, abs=1e-4)
    for one in (found, *found.models):
        total = sum(part.contribution for part in one.parts)
        expected = 1 / (1 + np.exp(-total)) if one.scale == "log-odds" else total
        assert one.score == pytest.approx(expected, abs=1e-4)
        assert sum(part.fraction for part in one.parts) == pytest.approx(1.0)


class _Page(HTMLParser):
    """Collect the tags, the attributes and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_every_recipe_explains(recipe: str, fitted: Callable[[str], Model], held_out: Made) -> None:
    model, text = fitted(recipe), held_out.texts[0]
    top = model.topk([text], 5)
    found = model.explain(text)
    assert (found.id, found.label, found.rank) == (top.labels[0, 0], top.names[0][0], 1)
    assert [one.label for one in found.suggestions] == top.names[0]
    assert found.is_suggested
    check_sums(found)
    pair = sp.csr_matrix(([1.0], ([0], [found.id])), shape=(1, len(model.labels_)))
    assert found.score == pytest.approx(model.score_labels([text], pair).data[0], rel=1e-4)
    assert [text[word.start : word.end] for word in found.words] == [word.word for word in found.words]
    assert " ".join(word.word for word in found.words) == text
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["reason"] == found.reason
    assert found.label in _Page(found.to_html()).text


def test_every_recipe_explains_a_label_that_is_not_suggested(
    recipe: str, fitted: Callable[[str], Model], held_out: Made
) -> None:
    model, text = fitted(recipe), held_out.texts[0]
    ranked = model.topk([text], len(model.labels_)).labels[0]
    found = model.explain(text, int(ranked[-1]), k=2)
    assert not found.is_suggested
    assert "not suggested" in found.reason
    assert len(found.suggestions) == 2
    check_sums(found)
    assert model.explain(text, int(ranked[2]), k=2).rank == 3


def test_every_recipe_says_whether_a_label_is_predicted(
    recipe: str, fitted: Callable[[str], Model], held_out: Made
) -> None:
    model = fitted(recipe)
    for text in held_out.texts[:3]:
        ranked, chosen = model.topk([text], 4).labels[0], model.decision().chosen(model.topk([text], 100))[0]
        for label, is_chosen in zip(ranked, chosen, strict=False):
            found = model.explain(text, int(label), k=2)
            assert found.is_predicted == is_chosen
            assert ("It is predicted." in found.reason) == is_chosen


def test_a_list_of_one_text_is_explained_as_the_text(fitted: Callable[[str], Model], held_out: Made) -> None:
    model, text = fitted("xr-linear"), held_out.texts[0]
    assert model.explain([text]).words == model.explain(text).words != ()


def test_why_a_suggested_label_is_not_predicted(fitted: Callable[[str], Model], held_out: Made) -> None:
    text, plain = held_out.texts[0], fitted("xr-linear")
    model = copy.copy(plain)
    for threshold, limit, because in ((0.999, None, "is below the threshold of"), (0.0, 2, "no more than 2 labels")):
        model.calibration_ = Calibration(np.array([0.0, 1.0]), np.array([0.0, 1.0]), threshold, limit)
        third = model.explain(text, int(model.topk([text], 3).labels[0, 2]), k=5)
        assert third.is_suggested
        assert not third.is_predicted
        assert because in third.reason
    model.calibration_ = Calibration(np.array([0.0, 1.0]), np.array([0.0, 0.5]), 0.9)
    assert "no score reaches the threshold" in model.explain(text).reason
    model.calibration_ = None
    assert (
        "its score is below the threshold of 0.3"
        in model.explain(text, int(plain.topk([text], 60).labels[0, -1])).reason
    )


@pytest.mark.parametrize("name", params(["xr-linear", "xr-transformer", "cascadexml-dismec", "full"]))
def test_words_of_a_label_speak_for_it(name: str, fitted: Callable[[str], Model], held_out: Made) -> None:
    """The keywords of a label give it away; what else a text says does not matter."""
    model, n_right = fitted(name), 0
    for text, labels in zip(held_out.texts[:20], held_out.lists[:20], strict=True):
        label = next((name for name in model.topk([text], 3).names[0] if name in labels), None)
        if label is None:
            n_right += 1
            continue
        strongest = model.explain(text, label).top_words(1)[0][0]
        number = int(label.split()[1])
        n_right += strongest.startswith(f"key{number}x") or strongest == f"topic{number // 10}"
    assert n_right >= 17


def test_a_saved_model_explains_the_same(fitted: Callable[[str], Model], held_out: Made, tmp_path: Path) -> None:
    model = fitted("xr-linear")
    model.save(tmp_path / "m")
    assert umpteen.load(tmp_path / "m").explain(held_out.texts[0]) == model.explain(held_out.texts[0])


@pytest.mark.parametrize("precision", ["int8", "float16", "float32"])
def test_every_precision_adds_up(precision: str, made: Made, small: Callable[..., Model]) -> None:
    model = small("parabel", **{"store.weights": precision}).fit(made.texts[:200], made.lists[:200])
    for text in made.texts[:10]:
        found = model.explain(text)
        check_sums(found)
        assert [path.part for path in found.paths] == ["tree 1", "tree 2", "tree 3"]
        of_words = sum(word.contribution for word in found.words)
        assert of_words == pytest.approx(sum(one.contribution for one in found.features), abs=1e-6)


@pytest.mark.parametrize("analyzer", ["char", "char_wb"])
def test_terms_of_characters_are_shown_at_words(analyzer: str, made: Made, small: Callable[..., Model]) -> None:
    model = small("xr-linear", **{"tfidf.analyzer": analyzer, "tfidf.ngram_max": 4}).fit(made.texts, made.lists)
    found = model.explain("noise1 key7x0 noise2 key7x1 topic0", "label 07")
    assert found.top_words(1)[0][0].startswith("key7x")


# Feature rows


@pytest.mark.parametrize("name", params(["xr-linear", "parabel", "extremetext"]))
def test_features_of_rows_are_named_by_their_column(
    name: str, made: Made, rows: sp.csr_matrix, small: Callable[..., Model]
) -> None:
    model = small(name).fit(rows, made.Y)
    found = model.explain(rows[0])
    assert found.text is None
    assert not found.words
    assert found.features
    columns = {int(one.name.removeprefix("column ")) for one in found.features}
    assert columns <= set(rows[0].indices.tolist())
    check_sums(found)
    assert "column" in _Page(found.to_html()).text
    dense = model.explain(rows[0].toarray())
    assert (dense.id, dense.score) == (found.id, pytest.approx(found.score, rel=1e-5))


@needs_torch
def test_many_features_are_left_out_up_to_a_bound(made: Made, rows: sp.csr_matrix, small: Callable[..., Model]) -> None:
    found = small("extremetext").fit(rows, made.Y).explain(rows[0], max_words=3)
    assert len(found.features) == 3
    assert found.notes == (
        f"Only the first 3 of {rows[0].nnz} features were left out one by one; max_words changes that.",
    )


def test_one_row_at_a_time(made: Made, rows: sp.csr_matrix, fitted: Callable[[str], Model]) -> None:
    with pytest.raises(BadInput, match="explain takes one text or one feature row, but got 2"):
        fitted("xr-linear").explain(made.texts[:2])
    with pytest.raises(BadInput, match="cannot read texts"):
        XRLinear(threads=1).fit(rows, made.Y).explain("a text")


# Ensembles


@pytest.mark.parametrize("weights", [None, [3.0, 1.0]])
def test_an_ensemble_explains_each_of_its_models(
    weights: list[float] | None, fitted: Callable[[str], Model], held_out: Made
) -> None:
    ensemble = Ensemble([fitted("xr-linear"), fitted("plt")], weights=weights)
    found = ensemble.explain(held_out.texts[0])
    assert [one.recipe for one in found.models] == ["xr-linear", "plt"]
    assert {one.id for one in found.models} == {found.id} == {int(ensemble.topk(held_out.texts[:1], 1).labels[0, 0])}
    assert [part.weight for part in found.parts] == ([0.75, 0.25] if weights else [0.5, 0.5])
    check_sums(found)
    assert len(found.words) == len(held_out.texts[0].split())
    assert "Model 2" in _Page(found.to_html()).text
    assert len(found.to_dict()["models"]) == 2


def test_an_ensemble_that_ranks_otherwise_says_so(fitted: Callable[[str], Model], held_out: Made) -> None:
    ensemble = Ensemble([fitted("xr-linear"), fitted("plt")], rule="rank-average")
    assert ensemble.explain(held_out.texts[0]).notes == ("Labels are ranked by rank-average, not by this score.",)


# Why not


def test_a_lost_label_is_explained_by_its_level(made: Made) -> None:
    """Ten groups of labels, of which two are kept: the sentence names the level, the rank and the scores."""
    tree = umpteen.LabelTree.from_groups([list(range(first, first + 6)) for first in range(0, 60, 6)])
    settings = {"tree.kind": "given", "search.beam": 2, "threads": 1}
    model = create("xr-linear", settings).fit(made.texts, made.Y, tree=tree, label_names=made.labels)
    text = "key7x0 key7x1 topic0"
    found = model.explain(text, "label 55", k=3)
    first, last = found.paths[0].steps
    assert found.paths[0].lost_at is first
    assert (first.level, first.node, first.n_kept) == (1, 9, 2)
    assert first.rank is not None
    assert 3 <= first.rank <= 10
    assert first.last_kept_score is not None
    assert first.score <= first.last_kept_score
    assert (last.rank, last.is_kept) == (None, None)
    assert "its ancestor at level 1 has rank" in found.reason
    reached = model.explain(text, "label 08", k=1)
    assert reached.paths[0].lost_at is None
    assert reached.reason.startswith(f"The label is not suggested because it is ranked at place {reached.rank}. It is")


@needs_torch
def test_a_network_names_the_level_as_well(made: Made, small: Callable[..., Model]) -> None:
    model = small("lightxml", **{"network.levels": (6,), "network.beam": (2,)}).fit(made.texts, made.lists)
    lost = {}
    for label in range(60):
        found = model.explain("key7x0 key7x1 topic0", label, k=1, max_words=1)
        if (step := found.paths[0].lost_at) is not None:
            lost[label] = step
            assert step.rank > step.n_kept == 2
            assert step.score <= step.last_kept_score
            assert found.paths[0].steps[1].rank is None
    assert {step.level for step in lost.values()} == {1}
    assert len({step.node for step in lost.values()}) == 4  # of six


# Safety and errors


def test_texts_and_names_are_escaped() -> None:
    evil = "<script>alert('x')</script>"
    names = [f'{evil} "red"', "green & <b>", "blue"]
    texts = [f"{evil} apple", "pear & plum", "sky"]
    model = XRLinear(threads=1).fit(texts, [[name] for name in names])
    page = model.explain(f"{evil} apple & <img src=x onerror=alert(1)> pear").to_html()
    assert "<script" not in page
    assert "<img" not in page
    seen = _Page(page)
    assert evil in seen.text
    assert seen.tags <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "mark", "table", "tr", "th", "td", "ol",
        "li", "section",
    }  # fmt: skip
    assert seen.attributes <= {"lang", "charset", "http-equiv", "content", "name", "class", "title"}
    assert not re.search(r"https?:|url\(|@import", page)
    assert "prefers-color-scheme" in page


def test_the_highlighted_text_is_the_text(fitted: Callable[[str], Model]) -> None:
    text = "  key7x0,\tKEY7X1 --- topic0\n中文 \N{GRINNING FACE} noise1 "
    assert text in _Page(fitted("xr-linear").explain(text).to_html()).text


@pytest.mark.parametrize("text", ["", "...", "unknown"])
def test_a_text_without_known_words(text: str, fitted: Callable[[str], Model]) -> None:
    found = fitted("xr-linear").explain(text)
    check_sums(found)
    assert all(word.contribution == 0 for word in found.words)


def test_wrong_arguments(fitted: Callable[[str], Model], made: Made) -> None:
    model = fitted("xr-linear")
    with pytest.raises(BadInput, match="label names 'label 0', which is none of the 60"):
        model.explain(made.texts[0], "label 0")
    with pytest.raises(BadInput, match="k must be"):
        model.explain(made.texts[0], k=0)
    with pytest.raises(BadInput, match="max_words must be"):
        model.explain(made.texts[0], max_words=0)
    with pytest.raises(NotFitted):
        XRLinear().explain("text")


# The demo data


def without(text: str, words: set[str]) -> str:
    return re.sub(r"\w+", lambda found: "" if found[0].lower() in words else found[0], text)


def test_a_label_falls_without_its_strongest_words() -> None:
    data = umpteen.load_demo()
    model = XRLinear(threads=1).fit(data.texts[:4000], data.Y[:4000], label_names=data.labels)
    texts = [text for text in umpteen.load_demo("test").texts if len(text.split()) >= 8][:100]
    n_lower = 0
    for text in texts:
        found = model.explain(text)
        strongest = {word for word, _ in found.top_words(3)}
        pair = sp.csr_matrix(([1.0], ([0], [found.id])), shape=(1, len(model.labels_)))
        n_lower += model.score_labels([without(text, strongest)], pair).data[0] < found.score
    assert n_lower >= 95


@pytest.mark.parametrize("name", LINEAR)
def test_linear_explanations_do_not_depend_on_threads(name: str, fitted: Callable[[str], Model], made: Made) -> None:
    model = fitted(name)
    assert model.explain(made.texts[3], threads=1) == model.explain(made.texts[3], threads=2)
