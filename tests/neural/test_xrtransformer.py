"""The recipe: fit, predict, save, load, resume, and the three kinds of features."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import umpteen
from umpteen import XRLinear, XRTransformer
from umpteen.data.rows import Rows
from umpteen.errors import BadConfig, BadInput, MissingExtra
from umpteen.neural.encoder import Encoder

from .conftest import make_corpus

TREE = {"kind": "halving", "leaf_size": 5, "branching": 4}
TRAINING = {"epochs": (2.0, 6.0), "batch_size": 16, "learning_rate": 1e-3, "head_learning_rate": 1e-2}


@pytest.fixture
def make(encoder_folder: Path) -> Callable[..., XRTransformer]:
    """Make an untrained model with the tiny encoder."""

    def build(**settings: Any) -> XRTransformer:
        encoder = {"name": str(encoder_folder), "max_length": 16, "device": "cpu"}
        given = {"encoder": encoder, "network": {"branching": 4}, "training": TRAINING, "tree": TREE, "threads": 1}
        return XRTransformer(**given | settings)

    return build


@pytest.fixture(scope="module")
def unseen() -> tuple[list[str], list[list[str]], sp.csr_matrix]:
    return make_corpus(80, seed=9)


@pytest.mark.parametrize("features", ["both", "encoder", "tfidf"])
def test_every_kind_of_features_learns(make: Any, corpus: Any, unseen: Any, features: str) -> None:
    model = make(features=features).fit(corpus[0], corpus[1])
    assert model.score(unseen[0], unseen[1]) > (0.45 if features == "encoder" else 0.9)
    assert (model.tfidf_ is None) == (features == "encoder")
    assert (model.neural_ is None) == (features == "tfidf")


def test_without_an_encoder_it_is_xr_linear(make: Any, corpus: Any, unseen: Any) -> None:
    same = {"eps": 0.1, "max_iter": 12, "threshold": 0.1, "cost": 1.0, "negatives": "tfn+man", "negatives_beam": 5}
    linear = XRLinear(tree=TREE, threads=1, linear=same).fit(corpus[0], corpus[1]).topk(unseen[0], 5)
    found = make(features="tfidf", linear=same).fit(corpus[0], corpus[1]).topk(unseen[0], 5)
    np.testing.assert_array_equal(found.labels, linear.labels)
    np.testing.assert_array_equal(found.scores, linear.scores)


@pytest.mark.parametrize("features", ["both", "encoder", "tfidf"])
def test_a_saved_model_predicts_the_same(make: Any, corpus: Any, unseen: Any, tmp_path: Path, features: str) -> None:
    model = make(features=features).fit(corpus[0], corpus[1])
    model.save(tmp_path / "model")
    again = umpteen.load(tmp_path / "model")
    assert type(again) is XRTransformer
    for texts in (unseen[0], unseen[0][:1]):
        before, after = model.topk(texts, 5), again.topk(texts, 5)
        np.testing.assert_array_equal(after.labels, before.labels)
        np.testing.assert_array_equal(after.scores, before.scores)
    again.save(tmp_path / "copy")
    copy = umpteen.load(tmp_path / "copy").topk(unseen[0], 5)
    np.testing.assert_array_equal(copy.labels, model.topk(unseen[0], 5).labels)


def test_zeros_in_an_embedding_are_numbers_like_others(
    make: Any, corpus: Any, unseen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(features="encoder", head_weight=0.3).fit(corpus[0], corpus[1])
    encoder = model.neural_.encoder.get()
    E = encoder.embed(encoder.tokenize(list(unseen[0][:4])))
    E[1] = 0.0
    monkeypatch.setattr(encoder, "embed", lambda tokens, **more: E.copy())
    found = model.topk(unseen[0][:4], 3)
    assert np.isfinite(found.scores).all()
    assert (found.labels[1] >= 0).all()


def test_the_encoder_of_a_saved_model_opens_on_its_own(make: Any, corpus: Any, tmp_path: Path) -> None:
    import transformers

    make().fit(corpus[0], corpus[1]).save(tmp_path / "model")
    folder = next((tmp_path / "model").glob("encoder-*"))
    assert transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False).config.hidden_size == 32
    assert transformers.AutoTokenizer.from_pretrained(folder)("word1")["input_ids"][0] == 2


def test_the_same_seed_gives_the_same_model(make: Any, corpus: Any, unseen: Any) -> None:
    first, second = (make(seed=3).fit(corpus[0], corpus[1]).topk(unseen[0], 5) for _ in range(2))
    np.testing.assert_array_equal(first.scores, second.scores)


@pytest.mark.parametrize("stage", ["tokens", "fine-tuning on 5 nodes", "fine-tuning on 20 nodes", "level 2 of 2"])
def test_a_run_that_was_stopped_anywhere_ends_the_same(
    make: Any, corpus: Any, unseen: Any, tmp_path: Path, stage: str
) -> None:
    expected = make().fit(corpus[0], corpus[1]).topk(unseen[0], 5)

    def interrupt(name: str, done: int, total: int) -> None:
        if name == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make().fit(corpus[0], corpus[1], checkpoint=tmp_path / "stages", progress=interrupt)
    model = make().fit(corpus[0], corpus[1], checkpoint=tmp_path / "stages")
    found = model.topk(unseen[0], 5)
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.scores, expected.scores)
    model.save(tmp_path / "model")
    assert not (tmp_path / "stages").exists()


def test_a_name_stands_for_an_encoder(encoder_folder: Path) -> None:
    assert XRTransformer(encoder=str(encoder_folder)).config.encoder.name == str(encoder_folder)
    assert XRTransformer().config.encoder.name == "minilm"


def test_feature_rows_are_refused(make: Any, corpus: Any) -> None:
    with pytest.raises(BadInput, match="xr-transformer reads texts"):
        make().fit(np.eye(4), [["a"]] * 4)
    model = make(features="tfidf").fit(corpus[0], corpus[1])
    with pytest.raises(BadInput, match="reads texts"):
        model.topk(np.eye(4))


def test_a_linear_recipe_knows_no_encoder() -> None:
    from umpteen.models import create

    with pytest.raises(BadConfig, match=r"xr-linear has no setting 'encoder\.name'"):
        create("xr-linear", {"encoder.name": "minilm"})


def test_labels_without_a_text_are_never_predicted_first(make: Any, corpus: Any) -> None:
    texts, _, Y = corpus
    wider = sp.csr_matrix(sp.hstack([Y, sp.csr_matrix((Y.shape[0], 3), dtype=np.float32)]))
    model = make().fit(texts, wider)
    assert (model.topk(texts, 1).labels[:, 0] < Y.shape[1]).all()


def test_empty_and_long_texts_are_read(make: Any, corpus: Any) -> None:
    texts = [*corpus[0], "", "noise1 " * 400]
    model = make().fit(texts, [*corpus[1], ["label 01"], ["label 02"]])
    assert model.topk(["", "word1 " * 400], 3).labels.shape == (2, 3)


def test_without_torch_the_extra_is_named(make: Any, corpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "umpteen.neural.encoder", None)
    with pytest.raises(MissingExtra, match=r"pip install 'umpteen\[transformers\]'"):
        make().fit(corpus[0], corpus[1])


# How much the embedding counts


def test_an_encoder_that_does_not_help_is_left_out(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts say it all in words that occur, and the encoder learns nothing: tf-idf wins on held-out texts."""
    monkeypatch.setattr("umpteen.neural.trainer._FEWEST_HELD_OUT", 20)
    texts, lists, _ = make_corpus(400, seed=3)
    frozen = TRAINING | {"epochs": 0.0, "init": "random", "validation_fraction": 0.25}
    model = make(training=frozen, encoder=dict(make().encoder, max_length=4)).fit(texts, lists)
    assert model.neural_ is None
    assert model.config_.features == "tfidf"
    plain = make(features="tfidf").fit(texts, lists).topk(texts[:20], 3)
    np.testing.assert_array_equal(model.topk(texts[:20], 3).labels, plain.labels)


def test_an_encoder_that_helps_is_weighed(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the words of a new text never occurred, so only what the encoder has learned of its topic is left."""
    from umpteen.models import fusion

    monkeypatch.setattr("umpteen.neural.trainer._FEWEST_HELD_OUT", 20)
    tried: list[float] = []
    ranked = fusion._ranked

    def watched(features: Any, E: np.ndarray, weight: float, *rest: Any) -> Any:
        tried.append(weight)
        return ranked(features, E, weight, *rest)

    monkeypatch.setattr(fusion, "_ranked", watched)
    texts, lists, _ = make_corpus(400, seed=4)
    blind = {"max_features": 2}  # tf-idf that knows two words
    model = make(training=TRAINING | {"validation_fraction": 0.25}, tfidf=blind).fit(texts, lists)
    assert tuple(tried) == fusion._WEIGHTS
    assert model.neural_ is not None
    assert model.config_.embedding_weight in fusion._WEIGHTS[1:]
    assert model.config_.head_weight in fusion._SHARES


@pytest.mark.parametrize(("weight", "lengths"), [(0.5, (1.0, 0.5)), (1.0, (1.0, 1.0)), (4.0, (0.25, 1.0))])
def test_the_block_that_counts_more_keeps_its_length(weight: float, lengths: tuple[float, float]) -> None:
    X, E = sp.csr_matrix([[0.6, 0.0, 0.8]], dtype=np.float32), np.array([[0.0, 1.0]], np.float32)
    rows = Rows.mixed(X, E, weight)
    np.testing.assert_allclose([np.linalg.norm(rows.data), np.linalg.norm(rows.dense)], lengths, rtol=1e-6)
    np.testing.assert_array_equal(X.data, np.float32([0.6, 0.8]))


def test_scorers_of_an_embedding_that_counts_most_see_it_as_it_is(make: Any, corpus: Any) -> None:
    model = make(embedding_weight=3.0).fit(corpus[0], corpus[1])
    texts = corpus[0][:7]
    np.testing.assert_allclose(model._embeddings(model._rows(texts, 1)), model.embed(texts), rtol=1e-5)


def test_weights_that_are_given_are_used(make: Any, corpus: Any) -> None:
    model = make(embedding_weight=0.7, head_weight=0.0).fit(corpus[0], corpus[1])
    assert (model.config_.embedding_weight, model.config_.head_weight) == (0.7, 0.0)
    assert model.neural_.head is None
    usual = make().fit(corpus[0], corpus[1])  # too few texts to choose on
    assert (usual.config_.embedding_weight, usual.config_.head_weight) == (0.6, 0.2)


def test_threads_of_a_call_reach_the_encoder(make: Any, corpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(training={"epochs": 0.0, "init": "random"}).fit(corpus[0], corpus[1])
    seen, real = [], Encoder.embed

    def embed(self: Encoder, *given: Any, **named: Any) -> np.ndarray:
        seen.append(torch.get_num_threads())
        return real(self, *given, **named)

    monkeypatch.setattr(Encoder, "embed", embed)
    before = torch.get_num_threads()
    for threads in (1, 2):
        model.topk(corpus[0][:3], 2, threads=threads)
    assert seen == [1, 2]
    assert torch.get_num_threads() == before
