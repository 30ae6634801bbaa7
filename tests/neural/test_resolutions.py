"""Recursive fine-tuning: masks, relevance, first weights, learning, resuming."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from umpteen.config import EncoderConfig, NetworkConfig, NeuralConfig
from umpteen.errors import BadConfig
from umpteen.linear import DenseHead
from umpteen.models import create
from umpteen.neural import newton
from umpteen.neural.encoder import Encoder
from umpteen.neural.heads import FullHead
from umpteen.neural.losses import LOSSES, weighted
from umpteen.neural.resolutions import Finetuning
from umpteen.neural.trainer import Report
from umpteen.store import Checkpoint
from umpteen.tree import LabelTree, resolutions

from .conftest import N_LABELS, PER_TOPIC

TREE = LabelTree.from_groups([list(range(first, first + PER_TOPIC)) for first in range(0, N_LABELS, PER_TOPIC)])
LEARNING = {"training.batch_size": 16, "training.learning_rate": 1e-3, "training.head_learning_rate": 1e-2}


def fine_tuned(settings: dict[str, Any]) -> NeuralConfig:
    """Return the settings of xr-transformer with some changed; what is left open is chosen for the corpus."""
    return create("xr-transformer", settings).config.with_schedule(np.array([12]), 160, 32)


PAPER = {"training.negatives": "tfn+man", "training.loss": "squared-hinge", "training.validation_fraction": 0.0}
QUICK = fine_tuned({"training.epochs": (2.0, 3.0), **LEARNING, **PAPER, "network.beam": 2})


class Run:
    """A fine-tuning of an encoder on the corpus."""

    def __init__(self, encoder: Encoder, corpus: Any, config: NeuralConfig = QUICK, **more: Any):
        texts, _, self.Y = corpus
        self.encoder, self.tokens, self.more = encoder, encoder.tokenize(texts), more
        self.network = Finetuning(encoder, TREE, config)
        self.trained_on, self.held_out = self.network.split(len(self.tokens))
        self.report: list[Report] = []

    def train(self) -> Run:
        self.report = self.network.train(self.tokens, self.Y, **self.more)
        return self

    def embeddings(self) -> np.ndarray:
        return self.network.embeddings(self.tokens)

    def with_random_classifiers(self) -> Run:
        """Give every level random classifiers."""
        torch.manual_seed(1)
        for head in self.network.module.heads:
            torch.nn.init.normal_(head.weight)
            torch.nn.init.normal_(head.bias)
        return self


# Masks and relevance


def test_the_mask_is_the_one_of_equations_7_and_8(encoder: Encoder, corpus: Any) -> None:
    run = Run(encoder, corpus).with_random_classifiers()
    E, above = encoder.embed(run.tokens), run.network.module.head(0)
    found = run.network.selected_parents(1, E, run.Y).toarray()
    scores = E @ above.weight.detach().numpy().T * np.sqrt(encoder.dim) + above.bias.detach().numpy()
    predicted = np.zeros_like(scores)
    np.put_along_axis(predicted, np.argsort(-scores, axis=1)[:, :2], 1.0, axis=1)
    C = np.zeros((N_LABELS, TREE.sizes[0]))
    C[np.arange(N_LABELS), TREE.node_of(0)] = 1.0
    true = (run.Y.toarray() @ C > 0).astype(float)
    np.testing.assert_array_equal(found, np.maximum(true, predicted))


@pytest.mark.parametrize("negatives", ["tfn", "all"])
def test_other_masks(encoder: Encoder, corpus: Any, negatives: str) -> None:
    run = Run(encoder, corpus, fine_tuned({"training.negatives": negatives}))
    alive = run.network.selected_parents(1, np.zeros((len(run.tokens), encoder.dim), np.float32), run.Y)
    if negatives == "all":
        assert alive is None
    else:
        np.testing.assert_array_equal(alive.toarray(), TREE.lift(run.Y, 0).toarray())


def test_the_loss_is_the_one_of_equation_9() -> None:
    """Worked by hand: a text with labels 0, 1 (one cluster) and 3 (another), three clusters, the last one masked."""
    R = torch.tensor([[2 / 3, 1 / 3, 0.0]])
    scores = torch.tensor([[0.5, -1.0, 3.0]])
    alive = torch.tensor([[1.0, 1.0, 0.0]])
    expected = 2 / 3 * 0.5**2 + 1 / 3 * 2.0**2
    assert float(weighted("squared-hinge", scores, R, alive, 0.1)) == pytest.approx(expected)
    everywhere = expected + 0.1 * 4.0**2
    assert float(weighted("squared-hinge", scores, R, None, 0.1)) == pytest.approx(everywhere)


def test_the_three_losses() -> None:
    scores, positive = torch.tensor([0.5, 0.5, 3.0]), torch.tensor([True, False, True])
    assert LOSSES["squared-hinge"](scores, positive).tolist() == [0.25, 2.25, 0.0]
    assert LOSSES["hinge"](scores, positive).tolist() == [0.5, 1.5, 0.0]
    bce = torch.nn.functional.binary_cross_entropy_with_logits(scores, positive.float(), reduction="none")
    torch.testing.assert_close(LOSSES["bce"](scores, positive), bce)


# First weights


def test_scorers_start_at_the_linear_solution(encoder: Encoder, corpus: Any) -> None:
    run = Run(encoder, corpus).with_random_classifiers()
    E, R = encoder.embed(run.tokens), run.network.relevance(1, run.Y)
    alive = run.network.selected_parents(1, E, run.Y)
    run.network.first_weights(1, E, R, alive)
    scores = run.network.module.head(1).all(torch.from_numpy(E)).detach()
    for parent in range(TREE.sizes[0]):
        rows = np.flatnonzero(alive.toarray()[:, parent])
        some = slice(int(TREE.starts[1][parent]), int(TREE.starts[1][parent + 1]))
        X = torch.from_numpy(np.hstack([E[rows], np.ones((len(rows), 1), np.float32)]))
        weight = torch.from_numpy(R[rows][:, some].toarray())
        W = newton.solve(X, weight > 0, torch.where(weight > 0, weight, 1.0))
        torch.testing.assert_close(scores[rows][:, some], X @ W, atol=1e-3, rtol=1e-3)


# Resolutions


@pytest.mark.parametrize(
    ("n_labels", "settings", "expected"),
    [
        (4_193, {}, (65, 4_193)),
        (20, {"branching": 4}, (5, 20)),
        (20, {}, (20,)),
        (2_812_281, {"levels": (128, 2_048, 32_768)}, (128, 2_048, 32_768)),
        (30_938, {"levels": (128, 2_048)}, (128, 2_048, 30_938)),
    ],
)
def test_resolutions_grow_by_a_factor(n_labels: int, settings: dict[str, Any], expected: tuple[int, ...]) -> None:
    assert resolutions(n_labels, NetworkConfig(**{"branching": 64} | settings)) == expected


# Learning


def quality(E: np.ndarray, Y: sp.csr_matrix) -> float:
    """How often the nearest other text shares a label: better embeddings, better neighbours."""
    near = E @ E.T
    np.fill_diagonal(near, -1)
    labels = Y.toarray()
    return float((labels * labels[near.argmax(axis=1)]).max(axis=1).mean())


@pytest.mark.parametrize("loss", list(LOSSES))
def test_fine_tuning_brings_texts_of_a_label_together(encoder: Encoder, corpus: Any, loss: str) -> None:
    config = fine_tuned({**LEARNING, "training.epochs": (6.0, 8.0), "training.loss": loss})
    run = Run(encoder, corpus, config)
    before = quality(encoder.embed(run.tokens), run.Y)
    after = quality(run.train().embeddings(), run.Y)
    assert after > before + 0.1
    assert [step.nodes for step in run.report] == [4, 20]


def test_the_same_seed_gives_the_same_embeddings(encoder_folder: Path, corpus: Any) -> None:
    def once(seed: int) -> np.ndarray:
        encoder = Encoder.load(EncoderConfig(name=str(encoder_folder), max_length=16, device="cpu"))
        return Run(encoder, corpus, replace(QUICK, seed=seed)).train().embeddings()

    np.testing.assert_array_equal(once(1), once(1))
    assert np.abs(once(1) - once(2)).max() > 1e-3


def test_an_interrupted_run_goes_on_and_ends_the_same(encoder_folder: Path, corpus: Any, tmp_path: Path) -> None:
    def make(**more: Any) -> Run:
        encoder = Encoder.load(EncoderConfig(name=str(encoder_folder), max_length=16, device="cpu"))
        return Run(encoder, corpus, **more)

    expected = make().train().embeddings()

    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "fine-tuning on 20 nodes" and done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(checkpoint=Checkpoint(tmp_path, "key"), progress=interrupt).train().embeddings()
    resumed = make(checkpoint=Checkpoint(tmp_path, "key"))
    np.testing.assert_array_equal(resumed.train().embeddings(), expected)
    assert [step.nodes for step in resumed.report] == [4, 20]  # the first resolution came from the checkpoint


@pytest.mark.parametrize(("held_out", "length_warmup"), [(0.0, 0.8), (0.25, 0.8), (0.25, 0.2)])
def test_a_resolution_goes_on_after_its_last_epoch(
    encoder_folder: Path, corpus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_out: float,
    length_warmup: float,
) -> None:  # fmt: skip
    monkeypatch.setattr("umpteen.neural.trainer._FEWEST_TO_SPLIT", 20)
    monkeypatch.setattr("umpteen.neural.loop._LOOK_EVERY", 1)
    config = fine_tuned(
        {
            **LEARNING, "training.epochs": (0.5, 3.0), "training.validation_fraction": held_out, "network.dropout": 0.2,
            "training.length_warmup": length_warmup, "training.warmup_length": 5,
        }
    )  # fmt: skip
    seen: list[int] = []

    def make(**more: Any) -> Run:
        encoder = Encoder.load(EncoderConfig(name=str(encoder_folder), max_length=16, device="cpu"))
        return Run(encoder, corpus, config, **more)

    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "fine-tuning on 20 nodes" and done > total // 2:
            raise KeyboardInterrupt

    def note(stage: str, done: int, total: int) -> None:
        if stage == "fine-tuning on 20 nodes":
            seen.append(done)

    whole = make()
    expected = whole.train().embeddings()
    with pytest.raises(KeyboardInterrupt):
        make(checkpoint=Checkpoint(tmp_path, "key"), progress=interrupt).train().embeddings()
    resumed = make(checkpoint=Checkpoint(tmp_path, "key"), progress=note)
    np.testing.assert_array_equal(resumed.train().embeddings(), expected)
    assert seen[0] == -(-len(resumed.trained_on) // 16)  # one epoch was done
    assert [step[:3] for step in resumed.report] == [step[:3] for step in whole.report]
    assert not list(tmp_path.glob("fine-tuning*"))


def test_small_pieces_give_the_same_gradient(encoder_folder: Path, corpus: Any) -> None:
    """A step cut into many pieces for a small GPU ends where the whole step ends."""

    def once(batch_tokens: int) -> np.ndarray:
        config = EncoderConfig(name=str(encoder_folder), max_length=16, device="cpu", batch_tokens=batch_tokens)
        plain = fine_tuned(
            {
                "training.epochs": (1.0, 1.0),
                "training.batch_size": 16,
                "training.learning_rate": 1e-4,
                "network.dropout": 0.0,
            }
        )
        return Run(Encoder.load(config), corpus, plain).train().embeddings()

    np.testing.assert_allclose(once(48), once(100_000), atol=2e-3)


def test_recomputed_activations_change_nothing(encoder_folder: Path, corpus: Any) -> None:
    def once(recompute: bool) -> np.ndarray:
        given = {"name": str(encoder_folder), "max_length": 16, "device": "cpu", "gradient_checkpointing": recompute}
        encoder = Encoder.load(EncoderConfig(**given))
        assert encoder.model.is_gradient_checkpointing == recompute
        config = {"training.epochs": 1.0, "training.batch_size": 16, "training.learning_rate": 1e-4}
        return Run(encoder, corpus, fine_tuned(config)).train().embeddings()

    np.testing.assert_allclose(once(True), once(False), atol=1e-4)


def test_early_stopping_ends_a_resolution_and_keeps_its_best_state(
    encoder: Encoder, corpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umpteen.neural.trainer._FEWEST_TO_SPLIT", 20)
    config = fine_tuned(
        {
            "training.epochs": (20.0,),
            "training.batch_size": 16,
            "training.learning_rate": 0.0,
            "training.head_learning_rate": 0.0,
            "training.validation_fraction": 0.25,
            "training.patience": 2,
        }
    )
    run = Run(encoder, corpus, config)
    run.train()
    per_epoch = -(-len(run.trained_on) // 16)
    assert len(run.held_out) == len(run.tokens) // 4
    assert not set(run.held_out) & set(run.trained_on)
    assert [step.steps for step in run.report] == [3 * per_epoch] * 2  # nothing is learned, so two epochs are waited


def test_most_steps_read_the_beginnings_of_texts(encoder: Encoder, corpus: Any) -> None:
    settings = {**LEARNING, "training.epochs": (0.0, 4.0), "training.validation_fraction": 0.0}
    warmup = {"training.length_warmup": 0.75, "training.warmup_length": 4}

    def lengths(more: dict[str, Any]) -> list[int]:
        run, seen = Run(encoder, corpus, fine_tuned({**settings, **more})), []
        read = encoder.model.forward
        encoder.model.forward = lambda input_ids, **rest: seen.append(input_ids.shape[1]) or read(input_ids, **rest)
        try:
            run.train()
        finally:
            encoder.model.forward = read
        assert run.report[-1].steps == len(seen) == 40
        return seen

    found = lengths(warmup)
    assert max(found[:30]) == min(found) == 8  # what four tokens are padded to
    assert max(found[30:]) == 16
    assert found[30:] == lengths({"training.length_warmup": 0.0})[30:]  # texts come in the same order
    longer = warmup | {"training.warmup_length": 64}  # than all texts
    assert lengths(longer) == lengths({"training.length_warmup": 0.0})


def test_training_does_not_stop_while_texts_are_truncated(
    encoder: Encoder, corpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umpteen.neural.trainer._FEWEST_TO_SPLIT", 20)
    still = {"training.learning_rate": 0.0, "training.head_learning_rate": 0.0, "training.batch_size": 16}
    config = fine_tuned(
        still | {
            "training.epochs": (0.0, 20.0), "training.validation_fraction": 0.25, "training.patience": 2,
            "training.length_warmup": 0.5, "training.warmup_length": 4,
        }
    )  # fmt: skip
    run = Run(encoder, corpus, config)
    run.train()
    per_epoch = -(-len(run.trained_on) // 16)
    assert run.report[-1].steps == 12 * per_epoch  # nothing is learned, so two epochs of whole texts are waited


@pytest.mark.parametrize(("epochs", "looks"), [(0.5, 1), (1.5, 2), (2.0, 2)])
def test_an_epoch_that_is_not_whole_is_looked_at(
    encoder: Encoder, corpus: Any, monkeypatch: pytest.MonkeyPatch, epochs: float, looks: int
) -> None:
    monkeypatch.setattr("umpteen.neural.trainer._FEWEST_TO_SPLIT", 20)
    looked: list[float] = []

    best = Finetuning.best_nodes

    def better_and_better(network: Finetuning, E: np.ndarray, level: int, k: int) -> np.ndarray:
        if len(E) == len(run.held_out):
            looked.append(float(network.module.head(level).weight.detach().sum()))
        return best(network, E, level, k)

    monkeypatch.setattr(Finetuning, "best_nodes", better_and_better)
    monkeypatch.setattr("umpteen.neural.resolutions.precisions", lambda *_: {"P@1": float(len(looked))})
    config = fine_tuned({**LEARNING, "training.epochs": (0.0, epochs), "training.validation_fraction": 0.25})
    run = Run(encoder, corpus, config)
    run.train()
    assert len(looked) == looks
    assert float(run.network.module.head(-1).weight.detach().sum()) == looked[-1]  # the last state was the best


def test_texts_that_are_held_out_do_not_decide_where_scorers_start(
    encoder: Encoder, corpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umpteen.neural.trainer._FEWEST_TO_SPLIT", 20)
    solved = newton.solve_level
    seen = []

    def watched(X: torch.Tensor, R: sp.csr_matrix, alive: Any, *rest: Any, **more: Any) -> torch.Tensor:
        seen.append((len(X), R.shape[0], None if alive is None else alive.shape[0]))
        return solved(X, R, alive, *rest, **more)

    monkeypatch.setattr(newton, "solve_level", watched)
    settings = {**PAPER, **LEARNING, "training.epochs": (0.0,), "training.validation_fraction": 0.25}
    run = Run(encoder, corpus, fine_tuned(settings))
    run.train()
    n = len(run.trained_on)
    assert n < len(run.tokens)
    assert seen == [(n, n, None), (n, n, n)]


def test_clusters_are_learned_although_they_became_a_few_more(encoder: Encoder, corpus: Any) -> None:
    run = Run(
        encoder,
        corpus,
        fine_tuned({"training.epochs": 0.0, "network.max_nodes": TREE.sizes[0] - 1, "network.head": "tree"}),
    )
    run.train()
    assert [step.nodes for step in run.report] == [TREE.sizes[0]]


def test_very_few_texts_are_not_held_out(encoder: Encoder, corpus: Any) -> None:
    run = Run(encoder, corpus, fine_tuned({"training.epochs": (0.0,), "training.validation_fraction": 0.25}))
    run.train()
    assert len(run.held_out) == 0
    assert len(run.trained_on) == len(run.tokens)


def test_with_clusters_the_labels_are_not_learned(encoder: Encoder, corpus: Any) -> None:
    run = Run(
        encoder,
        corpus,
        fine_tuned({"network.labels_per_cluster": PER_TOPIC, "training.epochs": (0.2,), "training.batch_size": 16}),
    )
    run.train()
    assert [step.nodes for step in run.report] == [TREE.sizes[0]]
    assert run.network.label_classifiers() is None


def test_where_levels_are_named_the_labels_follow_whatever_a_cluster_would_hold(encoder: Encoder, corpus: Any) -> None:
    named = fine_tuned(
        {
            "network.levels": TREE.sizes[0],
            "network.labels_per_cluster": PER_TOPIC,
            "training.epochs": 0.2,
            "training.batch_size": 16,
        }
    )
    run = Run(encoder, corpus, named)
    run.train()
    assert [step.nodes for step in run.report] == list(TREE.sizes)


# Labels beyond max_nodes


@pytest.mark.parametrize("init", ["auto", "prior", "lda", "newton"])
def test_many_labels_are_trained_in_blocks_after_their_clusters(encoder: Encoder, corpus: Any, init: str) -> None:
    config = fine_tuned(
        {"network.max_nodes": 10, "training.epochs": (1.0, 25.0), "training.init": init, **LEARNING}
        | {"training.validation_fraction": 0.0}
    )
    run = Run(encoder, corpus, config).train()
    assert [step.nodes for step in run.report] == list(TREE.sizes)
    head = run.network.module.head(-1)
    assert isinstance(head, FullHead)
    assert (head.whitening is not None) == (init == "lda")
    E = run.embeddings()
    found = DenseHead(*run.network.label_classifiers()[:2], "sigmoid", run.network.label_classifiers().projection)
    of_torch = head.all(torch.from_numpy(E)).numpy()[:, TREE.position]
    every = sp.csr_matrix(np.ones((len(E), N_LABELS), np.float32))
    of_numpy = found.score_labels(E, every).reshape(len(E), N_LABELS)
    np.testing.assert_allclose(of_numpy, 1 / (1 + np.exp(-of_torch)), atol=1e-4)
    best = np.argmax(of_numpy, axis=1)
    assert np.mean(np.asarray(run.Y[np.arange(len(E)), best]).ravel() > 0) > 0.6  # most of them by heart


def test_blocks_of_labels_go_on_after_an_interruption(encoder_folder: Path, corpus: Any, tmp_path: Path) -> None:
    config = fine_tuned({**LEARNING, "network.max_nodes": 10, "training.epochs": (0.5, 2.0)})

    def make(**more: Any) -> Run:
        encoder = Encoder.load(EncoderConfig(name=str(encoder_folder), max_length=16, device="cpu"))
        return Run(encoder, corpus, config, **more)

    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "fine-tuning on 20 nodes" and done == total:
            raise KeyboardInterrupt

    expected = make().train().network.label_classifiers()
    with pytest.raises(KeyboardInterrupt):
        make(checkpoint=Checkpoint(tmp_path, "key"), progress=interrupt).train()
    resumed = make(checkpoint=Checkpoint(tmp_path, "key")).train().network.label_classifiers()
    restored = make(checkpoint=Checkpoint(tmp_path, "key")).train().network.label_classifiers()
    for found in (resumed, restored):
        np.testing.assert_array_equal(found.weight, expected.weight)
        np.testing.assert_array_equal(found.bias, expected.bias)


def test_a_full_head_needs_the_logistic_loss() -> None:
    with pytest.raises(BadConfig, match=r"network\.head full needs training\.loss bce, but that is hinge"):
        fine_tuned({"network.head": "full", "training.loss": "hinge"})
