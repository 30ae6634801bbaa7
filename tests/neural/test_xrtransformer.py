"""The recipe: fit, predict, save, load, resume, and the three kinds of features."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import umpteen
from umpteen import XRLinear, XRTransformer
from umpteen.data import tokens as tokens_module
from umpteen.data.rows import Rows
from umpteen.data.stored_texts import StoredTexts
from umpteen.data.tfidf import Tfidf
from umpteen.data.tokens import Tokens
from umpteen.errors import BadConfig, BadInput, MissingExtra
from umpteen.models import create, fusion
from umpteen.neural import encoder as encoder_module
from umpteen.neural.encoder import Encoder
from umpteen.neural.resolutions import Finetuning
from umpteen.neural.trainer import hold_out
from umpteen.store import Checkpoint
from umpteen.store.mapped import is_mapped

from .conftest import make_corpus, tiny

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
    assert model.neural_ is not None


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


@pytest.mark.parametrize("recipe", ["xr-transformer", "cascadexml-dismec"])
def test_with_bounded_memory_texts_tokens_and_words_are_in_files(
    make: Any, corpus: Any, unseen: Any, monkeypatch: pytest.MonkeyPatch, recipe: str
) -> None:
    given = {"encoder": make().get_params(deep=False)["encoder"], "tree": TREE, "threads": 1}
    given["training"] = {"epochs": (2.0,), "length_warmup": 0.5, "warmup_length": 4, "validation_fraction": 0.2}
    expected, found = (umpteen.models.create(recipe, given) for _ in range(2))
    texts = (corpus[0] * 2)[:260]  # enough that some are held out
    labels = (corpus[1] * 2)[:260]
    expected.fit(texts, labels)
    monkeypatch.setattr(tokens_module, "_COLLECTED", 100)
    seen: list[Any] = []
    tokenize, flat, transform = encoder_module.tokenize, encoder_module.FlatTokens, Tfidf.fit_transform
    monkeypatch.setattr(encoder_module, "tokenize", lambda X, *a, **k: seen.append(type(X)) or tokenize(X, *a, **k))
    monkeypatch.setattr(encoder_module, "FlatTokens", lambda tokens, *a: seen.append(tokens) or flat(tokens, *a))
    monkeypatch.setattr(Tfidf, "fit_transform", lambda self, *a, **k: seen.append("words") or transform(self, *a, **k))
    found.fit(texts, labels, memory="2GB")
    assert seen[0] is StoredTexts
    assert "words" not in seen
    whole = [one for one in seen[1:] if isinstance(one, Tokens) and len(one) > 150]
    assert whole
    assert all(is_mapped(one.ids) for one in whole)
    before, after = expected.topk(unseen[0], 5), found.topk(unseen[0], 5)
    np.testing.assert_array_equal(after.labels, before.labels)
    np.testing.assert_array_equal(after.scores, before.scores)


def test_memory_that_the_libraries_of_an_encoder_fill_is_refused(make: Any, corpus: Any) -> None:
    with pytest.raises(BadInput, match="at least 850MB for a recipe with an encoder, but is 500MB"):
        make().fit(corpus[0], corpus[1], memory="500MB")


@pytest.mark.parametrize(
    ("recipe", "features"), [("xr-transformer", "both"), ("xr-transformer", "encoder"), ("cascadexml-dismec", "both")]
)
def test_with_bounded_memory_embeddings_are_in_files(
    make: Any, corpus: Any, unseen: Any, monkeypatch: pytest.MonkeyPatch, recipe: str, features: str
) -> None:
    settings = make(features=features).get_params(deep=False)
    if recipe != "xr-transformer":
        settings = {"encoder": settings["encoder"], "training": {"epochs": (2.0,)}, "tree": TREE, "threads": 1}
    given = {name: value for name, value in settings.items() if value}
    expected, found = (umpteen.models.create(recipe, given) for _ in range(2))
    made: list[str] = []
    scratch = Checkpoint.scratch
    monkeypatch.setattr(Checkpoint, "scratch", lambda self, layout: made.extend(layout) or scratch(self, layout))
    found.fit(corpus[0], corpus[1], memory="2GB")
    assert ("dense" in made) == (features == "both")  # weighted copies; alone, embeddings are read where they are
    assert any(name.startswith("embeddings" if recipe == "xr-transformer" else "level-") for name in made)
    expected.fit(corpus[0], corpus[1])
    before, after = expected.topk(unseen[0], 5), found.topk(unseen[0], 5)
    np.testing.assert_array_equal(after.labels, before.labels)
    np.testing.assert_array_equal(after.scores, before.scores)


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
    model = make().fit(corpus[0], corpus[1])
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


# How ranker and classifiers are combined

SPLIT = {"validation_fraction": 0.25}


def test_an_encoder_that_does_not_help_is_left_out(make: Any) -> None:
    """The texts say it all in words that occur, and the encoder is not trained: tf-idf wins on held-out texts."""
    texts, lists, _ = make_corpus(400, seed=3)
    frozen = TRAINING | {"epochs": 0.0, "init": "random", **SPLIT}
    model = make(training=frozen, encoder=dict(make().encoder, max_length=4)).fit(texts, lists)
    assert model.neural_ is None
    plain = XRLinear(tree=TREE, linear=model.config.linear, threads=1).fit(texts, lists)
    for texts_ in (texts[:20], texts[:1]):
        np.testing.assert_array_equal(model.topk(texts_, 3).labels, plain.topk(texts_, 3).labels)


def test_an_encoder_that_does_not_help_is_not_saved(make: Any, tmp_path: Path) -> None:
    texts, lists, _ = make_corpus(400, seed=3)
    frozen = TRAINING | {"epochs": 0.0, "init": "random", **SPLIT}
    model = make(training=frozen, encoder=dict(make().encoder, max_length=4)).fit(texts, lists)
    model.save(tmp_path / "model")
    assert not list((tmp_path / "model").glob("encoder-*"))
    again = umpteen.load(tmp_path / "model")
    np.testing.assert_array_equal(again.topk(texts[:5], 3).scores, model.topk(texts[:5], 3).scores)
    with pytest.raises(BadInput, match="has no encoder"):
        again.embed(texts[:2])


def test_an_encoder_that_helps_is_weighed_on_held_out_texts(make: Any, tmp_path: Path) -> None:
    """Tf-idf knows two words only, so the classifiers of the encoder know more."""
    texts, lists, _ = make_corpus(400, seed=4)
    model = make(training=TRAINING | SPLIT, tfidf={"max_features": 2}).fit(texts, lists)
    assert model.neural_ is not None
    ranker, classifiers, *_ = model.config_.fusion
    assert classifiers > 0.1
    assert ranker >= 0
    assert model.describe()["settings"]["fusion"] == model.config_.fusion
    plain = XRLinear(tree=TREE, threads=1, tfidf={"max_features": 2}).fit(texts, lists)
    fresh = make_corpus(200, seed=5)
    assert model.score(fresh[0], fresh[1]) > plain.score(fresh[0], fresh[1]) + 0.1


FEW_TEXTS = {"init": "lda", **SPLIT}
FUSION = (1.0, 1.0, 0.0)  # the classifiers have a say, whatever they gain


@pytest.mark.parametrize("qualities", [(3.0, 2.0), (2.0, 3.0, 1.0), (1.0, 2.0, 2.0)])
def test_clusters_that_make_labels_worse_are_undone(
    make: Any, unseen: Any, qualities: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first quality is that of the pretrained encoder, the others of it after a level of clusters."""
    texts, lists, _ = make_corpus(400, seed=3)
    found, kept = iter(qualities), sum(after >= before for before, after in itertools.pairwise(qualities))
    network, measured = {"levels": (2, 6)}, Finetuning._first_quality
    with monkeypatch.context() as patched:
        patched.setattr(Finetuning, "_first_quality", lambda *job: (measured(*job), next(found))[1])
        model = make(fusion=FUSION, network=network, training=TRAINING | FEW_TEXTS).fit(texts, lists)
    assert next(found, None) is None
    epochs = (2.0, 6.0) if kept == 2 else (2.0,) * kept + (0.0,) * (2 - kept) + (6.0,)
    assert model.config_.training.epochs == epochs
    monkeypatch.setattr(Finetuning, "_can_undo", lambda *_: False)
    same = make(fusion=FUSION, network=network, training=TRAINING | FEW_TEXTS | {"epochs": epochs}).fit(texts, lists)
    np.testing.assert_array_equal(model.embed(unseen[0]), same.embed(unseen[0]))
    np.testing.assert_array_equal(model.decision_function(unseen[0]), same.decision_function(unseen[0]))


def test_labels_are_tried_before_and_after_clusters(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, lists, _ = make_corpus(400, seed=3)
    found, measured = [], Finetuning._first_quality
    monkeypatch.setattr(Finetuning, "_first_quality", lambda *job: found.append(measured(*job)) or found[-1])
    training = TRAINING | FEW_TEXTS | {"epochs": (6.0, 1.0)}
    model = make(fusion=FUSION, network={"levels": (4,)}, training=training).fit(texts, lists)
    before, after = found
    assert 40.0 < before <= 100.0 > after > 0.0  # a label is known by its own word
    assert model.config_.training.epochs == ((0.0, 1.0) if after < before else (6.0, 1.0))
    make(fusion=FUSION, network={"levels": (4,)}, training=training | {"init": "prior"}).fit(texts, lists)
    make(fusion=FUSION, network={"levels": (4,)}, training=training | {"validation_fraction": 0.0}).fit(texts, lists)
    make(fusion=FUSION, network={"levels": (4,)}, training=training | {"negatives": "tfn+man"}).fit(texts, lists)
    assert len(found) == 2


def test_undone_clusters_are_undone_again_when_resumed(make: Any, unseen: Any, tmp_path: Path) -> None:
    texts, lists, _ = make_corpus(400, seed=3)
    pretrained = {"learning_rate": 0.1, **FEW_TEXTS}  # steps so large that clusters spoil the encoder
    untrained = make(fusion=FUSION, network={"levels": (4,)}, training=TRAINING | pretrained)

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "fine-tuning on 20 nodes" and done > total // 4:
            raise KeyboardInterrupt

    whole = untrained.fit(texts, lists).decision_function(unseen[0])
    assert untrained.config_.training.epochs == (0.0, 6.0)
    with pytest.raises(KeyboardInterrupt):
        untrained.fit(texts, lists, checkpoint=tmp_path, progress=stop)
    again = untrained.fit(texts, lists, checkpoint=tmp_path)
    assert again.config_.training.epochs == (0.0, 6.0)
    np.testing.assert_array_equal(again.decision_function(unseen[0]), whole)


@pytest.mark.parametrize(("recipe", "own"), [("xr-transformer", {}), ("cascadexml", {"ranker": True})])
def test_labels_of_held_out_texts_do_not_count_where_fusion_is_fitted(
    recipe: str, own: dict[str, Any], encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a label that only one held-out text has would be known to be right there."""
    texts, lists, Y = make_corpus(400, seed=4)
    seen: list[np.ndarray] = []
    counted = fusion.frequency
    monkeypatch.setattr(fusion, "frequency", lambda counts: seen.append(counts) or counted(counts))
    settings = {"training.epochs": 1.0, "training.validation_fraction": 0.25}
    model = create(recipe, tiny(encoder_folder) | settings | own).fit(texts, lists)
    trained_on, held_out = hold_out(400, 0.25, 0)
    assert len(held_out) == 100
    np.testing.assert_array_equal(seen[0], Y[trained_on].getnnz(axis=0))
    np.testing.assert_array_equal(model.targets_.counts, Y.getnnz(axis=0))  # predictions use all


@pytest.mark.parametrize(
    ("search", "to_margins"),
    [({}, lambda scores: -np.cbrt(-np.log(scores))), ({"leaf_post": "identity"}, lambda scores: scores)],
    ids=["product", "raw margins"],
)
def test_scores_are_the_probabilities_of_the_logistic_model(
    search: dict[str, str], to_margins: Callable[[np.ndarray], np.ndarray], make: Any, corpus: Any, unseen: Any
) -> None:
    model = make(fusion=(1.5, 0.5, -0.25), search=search).fit(corpus[0], corpus[1])
    texts, every = unseen[0][:9], sp.csr_matrix(np.ones((9, 20), np.float32))
    rows = model._rows(texts, 1)
    by_words = model.heads_[0].score_labels(rows.ranked, every).toarray().astype(float)
    by_encoder = model.neural_.head.score_labels(rows.seen, every).reshape(9, 20).astype(float)
    margin = to_margins(by_words)
    odds = np.log(by_encoder / (1 - by_encoder))
    expected = 1 / (1 + np.exp(-(1.5 * margin + 0.5 * odds - 0.25)))
    np.testing.assert_allclose(model.score_labels(texts, every).toarray(), expected, rtol=1e-4)
    top = model.topk(texts, 20)
    np.testing.assert_allclose(top.scores, -np.sort(-expected, axis=1), rtol=1e-4)


def test_an_encoder_that_nothing_reads_is_left_out(make: Any, corpus: Any, unseen: Any, tmp_path: Path) -> None:
    model = make(head_weight=0.0, features="tfidf").fit(corpus[0], corpus[1])
    assert model.neural_ is None
    assert model.takes_texts
    assert model.describe()["input"] == "texts"
    model.save(tmp_path / "model")
    again = umpteen.load(tmp_path / "model")
    np.testing.assert_array_equal(again.topk(unseen[0], 3).labels, model.topk(unseen[0], 3).labels)


def test_the_same_labels_come_first_whatever_k_is(make: Any, corpus: Any, unseen: Any) -> None:
    model = make().fit(corpus[0], corpus[1])
    one, many = model.topk(unseen[0], 1), model.topk(unseen[0], 15)
    np.testing.assert_array_equal(one.labels, many.labels[:, :1])


def test_only_allowed_labels_are_ranked(make: Any, corpus: Any, unseen: Any) -> None:
    model = make().fit(corpus[0], corpus[1])
    top = model.topk(unseen[0], 5, allowed=[3, 7])
    assert set(np.unique(top.labels)) == {-1, 3, 7}


@pytest.mark.parametrize(("weight", "lengths"), [(0.5, (1.0, 0.5)), (1.0, (1.0, 1.0)), (4.0, (0.25, 1.0))])
def test_the_block_that_counts_more_keeps_its_length(weight: float, lengths: tuple[float, float]) -> None:
    X, E = sp.csr_matrix([[0.6, 0.0, 0.8]], dtype=np.float32), np.array([[0.0, 1.0]], np.float32)
    rows = Rows.mixed(X, E, weight)
    np.testing.assert_allclose([np.linalg.norm(rows.data), np.linalg.norm(rows.dense)], lengths, rtol=1e-6)
    np.testing.assert_array_equal(X.data, np.float32([0.6, 0.8]))


def test_weights_that_are_given_are_used(make: Any, corpus: Any) -> None:
    model = make(features="both", embedding_weight=0.7, head_weight=0.0).fit(corpus[0], corpus[1])
    assert (model.config_.embedding_weight, model.config_.head_weight) == (0.7, 0.0)
    assert model.neural_.head is None
    usual = make().fit(corpus[0], corpus[1])  # too few texts to choose on
    assert usual.config_.fusion == ()
    with pytest.raises(BadConfig, match="fusion must be three or four numbers or empty, but has 2"):
        make(fusion=(1.0, 2.0)).fit(corpus[0], corpus[1])


def test_an_average_with_a_given_weight(make: Any, corpus: Any, unseen: Any) -> None:
    model = make(head_weight=0.25).fit(corpus[0], corpus[1])
    texts, every = unseen[0][:4], sp.csr_matrix(np.ones((4, 20), np.float32))
    rows = model._rows(texts, 1)
    by_words = model.heads_[0].score_labels(rows.ranked, every).toarray()
    by_encoder = model.neural_.head.score_labels(rows.seen, every).reshape(4, 20)
    expected = 0.75 * by_words + 0.25 * by_encoder
    np.testing.assert_allclose(model.score_labels(texts, every).toarray(), expected, rtol=1e-5)


def test_what_is_left_open_is_chosen_and_stored(make: Any, corpus: Any) -> None:
    open_ = {"epochs": (), "batch_size": 0, "learning_rate": None}
    model = make(training=open_, network={"branching": 20}).fit(corpus[0][:40], corpus[1][:40])
    training = model.config_.training
    assert training.epochs == (0.5, 10.0)
    assert training.batch_size == 16
    assert training.learning_rate > 0
    assert model.config_.features == "tfidf"


def test_the_ranker_may_be_trained_while_another_processor_works(make: Any, corpus: Any, unseen: Any) -> None:
    from umpteen.models import xrtransformer

    expected = make().fit(corpus[0], corpus[1]).topk(unseen[0], 5)
    begun = []
    real = xrtransformer._Ranking.begin

    def begin(ranking: Any) -> Any:
        begun.append(real(ranking))
        return begun[-1]

    model = make()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xrtransformer._Ranking, "begin", begin)
        patch.setattr(xrtransformer, "_has_own_processor", lambda encoder: True)
        found = model.fit(corpus[0], corpus[1]).topk(unseen[0], 5)
    assert len(begun) == 1
    np.testing.assert_array_equal(found.scores, expected.scores)


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


def test_the_pooling_that_was_found_is_stored(make: Any, encoder_folder: Path, corpus: Any, tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(encoder_folder, folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    encoder = {"name": str(folder), "max_length": 16, "device": "cpu"}
    model = make(encoder=encoder, training=TRAINING | {"epochs": (0.2, 0.2)}).fit(corpus[0], corpus[1])
    assert (model.config.encoder.pooling, model.config_.encoder.pooling) == ("auto", "cls")
    model.save(tmp_path / "model")
    shutil.rmtree(folder)
    again = umpteen.load(tmp_path / "model")
    assert again.config_.encoder.pooling == "cls"
    np.testing.assert_array_equal(again.embed(corpus[0][:5]), model.embed(corpus[0][:5]))


@pytest.mark.parametrize(("recipe", "own"), [("xr-transformer", {}), ("cascadexml", {"ranker": True})])
def test_probabilities_cost_no_texts_where_fusion_is_fitted(
    recipe: str, own: dict[str, Any], encoder_folder: Path
) -> None:
    texts, lists, _ = make_corpus(400, seed=4)
    learn = {"training.epochs": 2.0, "training.learning_rate": 1e-3, "training.head_learning_rate": 1e-2}
    usual = tiny(encoder_folder) | learn | {"training.validation_fraction": 0.25}
    calibrated, plain = (create(recipe, usual | own | rows).fit(texts, lists) for rows in ({}, {"calibration.rows": 0}))
    assert calibrated.calibration_ is not None
    assert plain.calibration_ is None
    unseen = make_corpus(60, seed=9)[0]
    one, other = calibrated.topk(unseen, 20), plain.topk(unseen, 20)
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_array_equal(one.scores, other.scores)
