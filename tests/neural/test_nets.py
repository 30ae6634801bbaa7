"""Networks that score labels themselves, against plain references."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import umpteen
from umpteen.config import READERS, EncoderConfig, NeuralConfig, ReaderSpec
from umpteen.errors import BadConfig, BadModelFile
from umpteen.models import create
from umpteen.models.network import NetModel
from umpteen.neural import heads
from umpteen.neural.cascade import Cascade, child_table, loss_without_texts
from umpteen.neural.encoder import Encoder
from umpteen.neural.extremetext import FeatureBag, FeatureRows, WeightedFeatures
from umpteen.neural.heads import WeightedHead
from umpteen.neural.levels import Level
from umpteen.neural.loop import Group, optimise
from umpteen.neural.network import Network
from umpteen.neural.readers import Reader
from umpteen.neural.sharding import Shard
from umpteen.neural.stable_topk import stable_topk
from umpteen.neural.trainer import _Average
from umpteen.neural.truth import Truth, TruthTable
from umpteen.tree import LabelTree

from .conftest import KINDS, make_corpus, neural, tiny

N_TEXTS, WIDTH = 5, 6


class Given(Reader):
    """A reader of vectors that are known: token numbers say which."""

    def __init__(self, vectors: list[torch.Tensor], config: NeuralConfig):
        torch.nn.Module.__init__(self)
        self.vectors, self.n_levels, self.config = torch.nn.ParameterList(vectors), len(vectors), config

    @property
    def widths(self) -> list[int]:
        return [vector.shape[1] for vector in self.vectors]

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None) -> list[torch.Tensor]:
        return [vector[ids[:, 0]] for vector in self.vectors]


def tree_of(sizes: tuple[int, ...], n_labels: int, seed: int) -> LabelTree:
    """Hang labels and nodes under random parents, every parent with at least one child."""
    rng = np.random.default_rng(seed)
    chain = []
    for below, above in zip([n_labels, *sizes[::-1]], sizes[::-1], strict=False):
        chain.append(rng.permutation(np.concatenate([np.arange(above), rng.integers(0, above, below - above)])))
    return LabelTree.from_parents(*chain)


def cascade(tree: LabelTree, seed: int = 0, **more: Any) -> Cascade:
    torch.manual_seed(seed)
    vectors = [torch.randn(N_TEXTS, WIDTH) for _ in tree.sizes]
    settings = {"dropout": (0.0,), "beam": (2,)} | more
    config = neural({f"network.{name}": value for name, value in settings.items()})
    net = Cascade(Given(vectors, config), tree, config)
    for scorer in net.heads:
        torch.nn.init.normal_(scorer.weight)
        torch.nn.init.normal_(scorer.bias)
    return net.eval()


def sparse(flags: Any) -> Truth:
    """Return what is true (texts, nodes) as a batch of all texts."""
    return TruthTable(sp.csr_matrix(np.asarray(flags, np.float32)), torch.device("cpu")).of(np.arange(len(flags)))


def margins(net: Cascade) -> list[torch.Tensor]:
    """Score every node of every level."""
    return [scorer.all(e) for scorer, e in zip(net.heads, net.reader.vectors, strict=True)]


IDS = torch.arange(N_TEXTS)[:, None]
some_trees = st.tuples(st.integers(2, 4), st.integers(4, 9), st.integers(10, 30), st.integers(0, 10**6))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_the_table_of_children(counts: list[int]) -> None:
    starts = np.concatenate([[0], np.cumsum(counts)])
    table = child_table(starts)
    for row, first, last in zip(table, starts[:-1], starts[1:], strict=True):
        assert row[row >= 0].tolist() == list(range(first, last))


@settings(max_examples=30, deadline=None)
@given(some_trees, st.integers(1, 4))
def test_the_loss_is_that_of_the_children_of_the_best_and_of_the_true(shape: Any, beam: int) -> None:
    top, middle, n_labels, seed = shape
    tree = tree_of((top, middle), n_labels, seed)
    net = cascade(tree, seed % 1_000, beam=(beam,))
    Y = sp.csr_matrix(np.random.default_rng(seed).random((N_TEXTS, n_labels)) < 0.1, dtype=np.float32)
    truth = [tree.lift(Y, level).toarray() > 0 for level in range(3)]
    found = net.loss(IDS, None, [sparse(right) for right in truth])
    expected, alive = 0.0, [np.arange(top)] * N_TEXTS
    for level, scores in enumerate(margins(net)):
        losses = []
        for text in range(N_TEXTS):
            right = torch.from_numpy(truth[level][text][alive[text]]).float()
            mine = scores[text][torch.from_numpy(alive[text])]
            losses.append(F.binary_cross_entropy_with_logits(mine, right, reduction="none"))
            order = torch.argsort(-(mine.sigmoid() + right), stable=True)[:beam]
            chosen = alive[text][order.numpy()]
            if level < 2:
                starts = tree.starts[level + 1]
                alive[text] = np.concatenate([np.arange(starts[node], starts[node + 1]) for node in chosen])
        expected = expected + torch.cat(losses).sum() / N_TEXTS
    torch.testing.assert_close(found, expected)


@settings(max_examples=30, deadline=None)
@given(some_trees, st.integers(1, 4), st.integers(0, 2))
def test_a_level_learns_below_what_is_right_and_what_was_chosen_before(shape: Any, beam: int, level: int) -> None:
    top, middle, n_labels, seed = shape
    tree = tree_of((top, middle), n_labels, seed)
    net = cascade(tree, seed % 1_000, beam=(beam,))
    one = np.random.default_rng(seed).integers(0, n_labels, N_TEXTS)
    Y = sp.csr_matrix((np.ones(N_TEXTS, np.float32), (np.arange(N_TEXTS), one)), shape=(N_TEXTS, n_labels))
    truth = [torch.from_numpy(tree.lift(Y, lifted).toarray() > 0) for lifted in range(3)]
    chosen = net.choose(net.reader(IDS, None), [min(beam, top), min(beam, middle)], level) if level else None
    learning = Level(net, level, scores_all=False)
    found = learning.loss(
        IDS, None, [sparse(right) for right in truth[: level + 1]], predicted=predicted(chosen, tree, level)
    )
    expected = torch.zeros(())
    for text, scores in enumerate(margins(net)[level]):
        nodes = np.arange(top)
        if level:
            (right,) = np.flatnonzero(truth[level - 1][text])
            others = [node for node in chosen[text].tolist() if node not in (right, -1)]
            starts = tree.starts[level]
            above = [right, *others][: min(beam, tree.sizes[level - 1])]
            assume(len(above) == min(beam, tree.sizes[level - 1]))  # where fewer are found, any nodes fill the rest
            nodes = np.concatenate([np.arange(starts[node], starts[node + 1]) for node in above])
        right = truth[level][text][nodes].float()
        expected += F.binary_cross_entropy_with_logits(scores[nodes], right, reduction="sum") / N_TEXTS
    torch.testing.assert_close(found, expected)


def test_a_rank_without_texts_leaves_out_the_same_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its nodes are trained on the texts of the other ranks, below the parents that are selected for these."""
    torch.manual_seed(0)
    E, tree = torch.randn(2, 4), LabelTree.from_groups([[0, 1], [2, 3]])
    head = WeightedHead(4, 4, dropout=0.0, loss="bce", alpha=1.0)
    truth, selected = sparse([[1, 0, 0, 0], [0, 0, 0, 1]]), sparse([[1, 0], [0, 1]]).dense()
    learned = selected[:, torch.from_numpy(tree.parents[1].astype(np.int64))]
    expected = head.learn_all(E, truth, is_whole=True, learned=learned)[1]
    head.shard = Shard(4, 0, 4, is_cut=True)
    monkeypatch.setattr("umpteen.neural.heads.gather_learning", lambda e, shard: E * head.scale)
    found = loss_without_texts(head, 4, truth, is_whole=True, learned=learned)
    torch.testing.assert_close(found, expected)


def test_a_rank_without_nodes_has_no_loss() -> None:
    scores = torch.zeros((2, 0), requires_grad=True)
    assert sparse([[1, 0], [0, 1]]).sum_of(scores, first=2).item() == 0.0


def test_a_level_learns_below_true_nodes_alone_if_none_were_predicted() -> None:
    tree = tree_of((3, 8), 25, seed=4)
    net, n = cascade(tree, beam=(4,)), N_TEXTS
    labels = np.random.default_rng(0).integers(0, 25, 2 * n)
    Y = sp.csr_matrix((np.ones(2 * n, np.float32), (np.repeat(np.arange(n), 2), labels)), shape=(n, 25))
    above, right = (tree.lift(Y, level).toarray() > 0 for level in (1, 2))
    found = Level(net, 2, scores_all=False).loss(IDS, None, [sparse(above), sparse(right)])
    scores, known = margins(net)[2], torch.from_numpy(above[:, tree.parents[2]])
    each = F.binary_cross_entropy_with_logits(scores, torch.from_numpy(right).float(), reduction="none")
    torch.testing.assert_close(found, each[known].sum() / n)


def predicted(chosen: torch.Tensor | None, tree: LabelTree, level: int) -> Truth | None:
    """Return the nodes that were chosen above a level with their priority, as ``Network.choose`` does."""
    if chosen is None:
        return None
    priority = np.zeros((len(chosen), tree.sizes[level - 1]), np.float32)
    for text, nodes in enumerate(chosen.tolist()):
        for place, node in enumerate(node for node in nodes if node >= 0):
            priority[text, node] = 1.0 - 0.01 * place
    return sparse(priority)


@pytest.mark.parametrize("rule", ["product", "weighted", "level"])
def test_a_wide_beam_finds_the_best_of_all_labels(rule: str) -> None:
    tree = tree_of((3, 8), 25, seed=4)
    net = cascade(tree, score=rule)
    scores = [scored.sigmoid() for scored in margins(net)]
    nodes = [torch.from_numpy(tree.node_of(level).astype(np.int64)) for level in range(3)]
    by_label = scores[2][:, nodes[2]]
    for level in {"product": (0, 1), "weighted": (1,), "level": ()}[rule]:
        by_label = by_label * scores[level][:, nodes[level]]
    places, found = net.topk(net.reader(IDS, None), 7, [3, 8])
    best = by_label.topk(7, dim=1)
    torch.testing.assert_close(found, best.values)
    np.testing.assert_array_equal(tree.order[places.numpy()], best.indices.numpy())
    every = [of_level.expand(N_TEXTS, -1) for of_level in nodes]
    torch.testing.assert_close(net.score(net.reader(IDS, None), every), by_label)


def test_only_allowed_labels_are_found() -> None:
    tree = tree_of((3, 8), 25, seed=4)
    net = cascade(tree)
    flags = np.split(tree.allowed_nodes(np.array([4, 20])).astype(bool), np.cumsum(tree.sizes)[:-1])
    places, scores = net.topk(net.reader(IDS, None), 3, [3, 8], allowed=[torch.from_numpy(flag) for flag in flags])
    assert set(tree.order[places[:, :2].numpy()].ravel()) == {4, 20}
    assert (places[:, 2] == -1).all()
    assert (scores[:, 2] == 0).all()


# One scorer for every label


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 90), st.integers(1, 4), st.integers(1, 60), st.integers(0, 10**6))
def test_the_first_of_those_that_tie_are_the_best(n: int, n_values: int, k: int, seed: int) -> None:
    scores = np.random.default_rng(seed).integers(0, n_values, (3, n)).astype(np.float32)
    found, columns = stable_topk(torch.from_numpy(scores), k)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(columns.numpy(), expected)
    np.testing.assert_array_equal(found.numpy(), np.take_along_axis(scores, expected, axis=1))


def test_large_margins_keep_their_order_and_labels_with_a_fixed_margin_come_last() -> None:
    tree = LabelTree.from_parents([0, 0, 1, 1])
    net = cascade(tree)
    for scorer, bias in zip(net.heads, ([5.0, -12.0], [30.0, 25.0, -2.0, -10.0]), strict=True):
        torch.nn.init.zeros_(scorer.weight)
        scorer.bias.data = torch.tensor(bias)
    vectors = list(net.reader.vectors)
    assert net.topk(vectors, 4, [2])[0][0].tolist() == [0, 1, 2, 3]
    with torch.no_grad():
        net.set_margin(torch.tensor([0]), -1e4)
    labels, scores = net.topk(vectors, 4, [2])
    assert labels[0].tolist() == [1, 2, 3, 0]
    assert scores[0, -1] == 0.0


def full_net(n_labels: int, rate: float, *, seed: int = 0) -> Cascade:
    torch.manual_seed(seed)
    config = neural({"network.head": "full", "training.full_head_learning_rate": rate, "network.dropout": (0.0,)})
    net = Cascade(Given([torch.randn(N_TEXTS, WIDTH)], config), LabelTree.flat(n_labels), config)
    net.place(torch.device("cpu"))
    net.head(0).weight.normal_()
    net.head(0).bias.normal_()
    return net.train()


@pytest.mark.parametrize("at_once", [3, 100])
def test_a_step_is_that_of_the_logistic_loss(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "LABELS_STEPPED_AT_ONCE", at_once)
    net, truth = full_net(11, rate=0.7), torch.rand(N_TEXTS, 11) < 0.3
    head = net.head(0)
    weight, bias = (part.clone().requires_grad_() for part in (head.weight, head.bias))
    e = (F.normalize(net.reader.vectors[0].detach(), dim=1) * WIDTH**0.5).requires_grad_()
    plain = F.binary_cross_entropy_with_logits(F.linear(e, weight, bias), truth.float(), reduction="sum")
    plain.backward()
    vectors = net.reader.vectors[0].detach().clone().requires_grad_()
    by_hand = F.normalize(vectors, dim=1) * WIDTH**0.5
    by_hand.backward(e.grad / N_TEXTS)
    loss = net.loss(IDS, None, [sparse(truth)])
    loss.backward()
    torch.testing.assert_close(loss.detach(), plain.detach() / N_TEXTS)
    torch.testing.assert_close(net.reader.vectors[0].grad, vectors.grad)
    torch.testing.assert_close(head.weight, weight.detach() - 0.7 / WIDTH * weight.grad)
    torch.testing.assert_close(head.bias, bias.detach() - 0.7 / WIDTH * bias.grad)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_is_cut_to_fit_memory_ends_where_the_whole_one_does(kind: str, encoder_folder: Path) -> None:
    texts, lists, _ = make_corpus(60)
    usual = tiny(encoder_folder) | {
        "training.epochs": 2.0, "training.batch_size": 30, "network.dropout": 0.0, "network.pooling": "mean",
        "training.learning_rate": 1e-4,
    }  # fmt: skip

    def scores(batch_tokens: int) -> np.ndarray:
        config = usual | KINDS[kind] | {"encoder.batch_tokens": batch_tokens}
        model = create("cascadexml", config).fit(texts, lists)
        assert not any(part.grad is not None for part in model.neural_.net.get().module.parameters())
        return model.decision_function(texts)

    whole = scores(100_000)
    np.testing.assert_allclose(scores(64), whole, atol=5e-3)
    assert np.ptp(whole) > 0.05  # it has learned something to compare


@pytest.mark.parametrize("kind", ["full", "tree"])
def test_scores_are_not_rounded_to_what_the_encoder_computes_in(kind: str, encoder_folder: Path) -> None:
    """Short floats have eight bits: of many labels, several would share a score."""
    n_labels, rng = 400, np.random.default_rng(0)
    encoder = Encoder.load(EncoderConfig(name=str(encoder_folder), max_length=16, device="cpu", precision="bfloat16"))
    network = Network(encoder, LabelTree.flat(n_labels), neural({"network.head": kind, "network.pooling": "mean"}))
    weight = network.module.head(0).weight
    with torch.no_grad():
        weight.copy_(torch.from_numpy(rng.normal(size=tuple(weight.shape)).astype(np.float32)))
    found = network.topk(encoder.tokenize(make_corpus(5)[0]), n_labels)
    assert all(len(np.unique(row)) > 0.95 * n_labels for row in found.scores)


def test_texts_are_predicted_a_few_at_a_time_where_labels_are_many(encoder: Encoder) -> None:
    for kind in ("full", "tree"):
        network = Network(encoder, LabelTree.flat(50_000), neural({"network.head": kind, "network.pooling": "mean"}))
        pieces = list(network._pieces(np.arange(40_000), network.module.n_floats(1, 16, searches=True)))
        assert max(len(rows) for rows in pieces) * 50_000 * 3 <= 100_000_000
        np.testing.assert_array_equal(np.concatenate(pieces), np.arange(40_000))


def test_every_label_is_compared_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    net = full_net(23, rate=0.0).eval()
    expected = net.topk(net.reader(IDS, None), 4, [])
    monkeypatch.setattr(heads, "LABELS_STEPPED_AT_ONCE", 5)
    for one, two in zip(net.topk(net.reader(IDS, None), 4, []), expected, strict=True):
        torch.testing.assert_close(one, two)
    some = torch.tensor([[3, 22]] * N_TEXTS)
    by_name = dict(zip(expected[0][0].tolist(), expected[1][0].tolist(), strict=True))
    scored = dict(zip(some[0].tolist(), net.score(net.reader(IDS, None), [some])[0].tolist(), strict=True))
    assert all(by_name[label] == pytest.approx(scored[label]) for label in set(by_name) & set(scored))


def test_short_floats_are_right_on_average() -> None:
    torch.manual_seed(0)
    weight = torch.full((4_000, 8), 1.0, dtype=torch.bfloat16)
    gradient = torch.full((4_000, 8), 1.0)
    found = heads.stepped(weight, gradient, torch.tensor(1e-3))  # a quarter of the way to the next short float
    assert found.dtype == torch.bfloat16
    assert set(found.unique().tolist()) == {1.0, 1.0 - 2**-8}
    assert found.float().mean().item() == pytest.approx(1.0 - 1e-3, abs=1e-4)


# Training


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 14), st.floats(0.0, 1.0), st.integers(0, 10**6))
def test_truth_is_the_same_sparse_and_dense(n_texts: int, n_nodes: int, density: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    Y = np.where(rng.random((n_texts, n_nodes)) < density, rng.uniform(0.5, 2.0, (n_texts, n_nodes)), 0.0)
    matrix = sp.csr_matrix(Y.astype(np.float32))
    rows = rng.integers(0, n_texts, 5)
    truth = TruthTable(matrix, torch.device("cpu")).of(rows)
    np.testing.assert_array_equal(truth.dense().numpy(), matrix[rows].toarray())
    first, last = sorted(rng.integers(0, n_nodes + 1, 2))
    np.testing.assert_array_equal(truth.dense(first, last).numpy(), matrix[rows].toarray()[:, first:last])
    candidates = rng.integers(0, n_nodes, (5, 7))
    expected = np.take_along_axis(matrix[rows].toarray() > 0, candidates, axis=1)
    np.testing.assert_array_equal(truth.contains(torch.from_numpy(candidates)).numpy(), expected)


def test_truth_takes_memory_for_the_labels_that_texts_have() -> None:
    n_texts, n_labels = 1_024, 3_000_000
    labels = np.arange(2 * n_texts) * 1_000
    Y = sp.csr_matrix((np.ones(len(labels), np.float32), labels, np.arange(0, len(labels) + 1, 2)), (n_texts, n_labels))
    truth = TruthTable(Y, torch.device("cpu")).of(np.arange(n_texts))
    assert truth.nodes.shape == truth.values.shape == (n_texts, 2)
    assert truth.contains(torch.tensor([[0, 1_000, 1_001]] * n_texts)).sum().item() == 2


def test_the_average_is_that_of_the_last_steps() -> None:
    net = torch.nn.Linear(1, 1, bias=False)
    average = _Average(net, first=20)
    for step in range(1, 51):
        net.weight.data.fill_(float(step))
        average(step)
    average.apply()
    assert net.weight.item() == pytest.approx(np.mean([30, 40, 50]))


def test_every_step_on_a_cpu_is_reported() -> None:
    """They may be slow, and the remaining time follows from them."""
    weight, seen = torch.nn.Parameter(torch.ones(2)), []

    def backward(batch: int) -> torch.Tensor:
        loss = weight.square().sum()
        loss.backward()
        return loss.detach()

    optimise(
        [Group([weight], 0.1)], range(3), backward, n_steps=3, lr=lambda step: 1.0, stage="training",
        progress=lambda *progress: seen.append(progress),
    )  # fmt: skip
    assert seen == [("training", done, 3) for done in range(4)]


@pytest.mark.parametrize("recipe", [umpteen.LightXML, umpteen.CascadeXML, umpteen.FullHead, umpteen.XMLCNN])
def test_an_interrupted_training_goes_on_as_if_nothing_had_happened(
    recipe: Any, encoder_folder: Path, tmp_path: Path
) -> None:
    texts, lists, _ = make_corpus(64)
    net = {
        "network.levels": 4, "training.epochs": 3.0, "training.batch_size": 16, "training.swa_start": 0.5,
        "network.dropout": 0.3,
    }  # fmt: skip
    encoder = tiny(encoder_folder)
    model = create(recipe.recipe, encoder | net)
    random = torch.get_rng_state()
    expected = model.fit(texts, lists).topk(texts, 5)
    assert torch.equal(torch.get_rng_state(), random)  # what others draw does not depend on it
    seen = 0

    def stop(stage: str, done: int, total: int) -> None:
        nonlocal seen
        seen += stage == "training the network"
        if stage == "training the network" and done > 8:
            raise KeyboardInterrupt

    def count(stage: str, done: int, total: int) -> None:
        first.append(done) if stage == "training the network" else None

    first: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        create(recipe.recipe, encoder | net).fit(texts, lists, checkpoint=tmp_path, progress=stop)
    found = create(recipe.recipe, encoder | net).fit(texts, lists, checkpoint=tmp_path, progress=count)
    assert first[0] == 8  # two of the three epochs were kept
    assert [report[:2] for report in found.training_] == [report[:2] for report in model.training_]
    top = found.topk(texts, 5)
    np.testing.assert_array_equal(top.labels, expected.labels)
    np.testing.assert_array_equal(top.scores, expected.scores)


def test_poolings_must_fit_the_levels(encoder: Encoder) -> None:
    with pytest.raises(BadConfig, match="names 3 poolings, but the network has 1 levels"):
        Network(encoder, LabelTree.flat(5), neural({"network.pooling": "cls@1,cls@2,mean"}))


def test_scorers_start_at_how_often_their_nodes_are_right() -> None:
    tree = tree_of((4,), 20, seed=3)
    net = cascade(tree, beam=(2,))
    Y = sp.csr_matrix(np.random.default_rng(0).random((200, 20)) < 0.1, dtype=np.float32)
    truth = [tree.lift(Y, level) for level in range(2)]
    for level, matrix in enumerate(truth):
        net.set_prior(level, torch.from_numpy(matrix.getnnz(axis=0).astype(np.float32) / 200))
    shares = [
        np.minimum(matrix.getnnz(axis=0) / 200 / asked, 0.5) for matrix, asked in zip(truth, (1, 0.5), strict=True)
    ]
    for scorer, share in zip(net.heads, shares, strict=True):
        np.testing.assert_allclose(scorer.bias.sigmoid().detach().numpy(), share, rtol=1e-4)


def test_a_text_is_read_once_for_network_and_ranker(encoder_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, lists, _ = make_corpus(64)
    net = {"network.levels": (4,), "training.epochs": (1.0,), "training.batch_size": 16, "network.pooling": "mean"}
    encoder = tiny(encoder_folder)
    model = create(umpteen.CascadeDiSMEC.recipe, encoder | net).fit(texts, lists)
    network = model.neural_.net.get()
    tokens = network.encoder.tokenize(texts)
    read = network.read(tokens)
    one, other = network.topk(tokens, 5), network.topk(read, 5)
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-5)
    passes = []
    forward = network.module.reader.forward
    monkeypatch.setattr(
        network.module.reader, "forward", lambda *batch: passes.append(len(batch[0])) or forward(*batch)
    )
    model.topk(texts, 5)
    assert sum(passes) == len(texts)


@pytest.mark.parametrize("recipe", [umpteen.CascadeXML, umpteen.FullHead])
def test_weights_that_cannot_be_kept_are_told(recipe: Any, encoder_folder: Path) -> None:
    texts, lists, _ = make_corpus(40)
    encoder = tiny(encoder_folder)
    settings = {"training.epochs": 2.0, "training.batch_size": 8}
    settings |= {f"training.{name}": 1e6 for name in ("head_learning_rate", "full_head_learning_rate")}
    model = create(recipe.recipe, encoder | settings)
    with pytest.raises(BadConfig, match=r"lower training\.learning_rate"):
        model.fit(texts, lists)
    assert not hasattr(model, "training_")


def test_a_network_without_all_its_weights_is_refused(encoder: Encoder) -> None:
    network = Network(encoder, LabelTree.flat(5), neural({"network.pooling": "mean"}))
    arrays = network.arrays()
    del arrays["heads.0.bias"]
    with pytest.raises(BadModelFile, match=r"lacks heads\.0\.bias; save it again"):
        network.load(arrays)


@pytest.mark.parametrize("levels", [(4, 4), (4, 2), (4, 7)])
def test_levels_must_at_least_double(levels: tuple[int, ...]) -> None:
    with pytest.raises(BadConfig, match="each to at least twice the one above"):
        neural({"network.levels": levels})


OTHER_VALUES = {
    "training.head_learning_rate": 0.5,
    "trees": 2, "ensemble": "rank-average", "linear": {"cost": 5.0}, "embedding_weight": 3.0, "features": "encoder",
    "fusion": (1.0, 2.0, 3.0), "training.full_head_learning_rate": 9.0,
    "head_weight": 0.5, "normalize": False, "search.beam": 1, "search.upper_beam": 3.0, "search.beams": (1,),
    "search.post": "identity", "search.leaf_post": "identity",
    "tfidf": {"ngram_max": 3}, "tree": {"kind": "kmeans"}, "tree.branching": 2,
    "tree.leaf_size": 3, "tree.depth": 2, "network.levels": (2,), "network.depth": 2, "network.branching": 2,
    "network.few_labels": 2, "network.labels_per_cluster": 3, "network.max_nodes": 3, "network.bottleneck": 3,
    "network.sparse_update_from": 1, "network.beam": (1,), "network.score": "level", "network.pooling": "cls",
    "network.hidden": 7, "network.dropout": (0.3,), "training.head_weight_decay": 0.5, "training.loss": "hinge",
    "training.negatives": "tfn", "training.relevance": "induce", "training.alpha": 0.5, "training.init": "lda",
    "training.init_cost": 9.0, "training.patience": 7, "training.time_budget": 1.0,
    "training.length_warmup": 0.5, "training.warmup_length": 5,
    "encoder.pooling": "mean@1", "encoder.compile": "off",
    "encoder.backend": "onnx", "encoder.gradient_checkpointing": True, "encoder.name": "nowhere",
    "encoder.max_length": 4,
    "encoder.windows": 2, "encoder.precision": "bfloat16", "encoder.batch_tokens": 5,
}  # fmt: skip


@pytest.mark.parametrize("recipe", ["full", "xml-cnn", "attentionxml", "extremetext"])
def test_settings_without_effect_change_nothing(recipe: str, encoder_folder: Path) -> None:
    texts, lists, _ = make_corpus(40)
    usual = tiny(encoder_folder) | {"training.epochs": 1.0, "training.batch_size": 16}
    plain = create(recipe, usual)
    expected = plain.fit(texts, lists).topk(texts, 3)
    unused = plain.config.unused
    assert unused
    found = create(recipe, usual | {key: OTHER_VALUES[key] for key in unused}).fit(texts, lists).topk(texts, 3)
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_a_ranker_uses_what_belongs_to_it() -> None:
    ranked, plain = set(create("cascadexml-dismec").config.unused), set(create("cascadexml").config.unused)
    assert plain - ranked == {
        "trees", "ensemble", "normalize", "linear", "embedding_weight", "head_weight", "tree.branching",
        "tree.leaf_size", "tree.depth", "search.beam", "search.upper_beam", "search.beams", "search.post",
        "search.leaf_post",
    }  # fmt: skip
    assert not ranked - plain


# What one recipe can do, another can borrow


@pytest.mark.parametrize("recipe", ["lightxml", "full", "xml-cnn", "attentionxml"])
def test_networks_stop_early(recipe: str, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umpteen.neural.trainer._FEWEST_TO_SPLIT", 10)
    texts, lists, _ = make_corpus(80)
    frozen = {"training.learning_rate": 0.0, "training.head_learning_rate": 0.0, "training.swa_start": 1.0}
    frozen |= {"training.full_head_learning_rate": 0.0}
    settings = {"training.epochs": 9.0, "training.batch_size": 16, "network.levels": (), "network.hidden": 4}
    settings |= {"training.validation_fraction": 0.25, "training.patience": 2, "training.init": "prior"}
    model = create(recipe, tiny(encoder_folder) | frozen | settings).fit(texts, lists)
    assert [report.steps for report in model.training_] == [3 * 4]  # the first epoch, and two that did not gain


@pytest.mark.parametrize("recipe", ["lightxml", "cascadexml"])
def test_networks_start_at_the_linear_solution(recipe: str, encoder_folder: Path) -> None:
    texts, lists, _ = make_corpus(300)
    found = {}
    for init in ("newton", "random"):
        settings = {"training.epochs": 0.0, "network.pooling": "mean", "network.levels": 4, "network.few_labels": 0}
        model = create(recipe, tiny(encoder_folder) | settings | {"network.bottleneck": 0, "training.init": init})
        found[init] = model.fit(texts[:240], lists[:240]).evaluate(texts[240:], lists[240:])["P@1"]
    assert found["newton"] > max(40.0, 2 * found["random"])


@pytest.mark.parametrize("order", ["joint", "own-reader"])
def test_texts_that_are_held_out_have_no_say_in_first_weights(
    order: str, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umpteen.neural.trainer._FEWEST_TO_SPLIT", 20)
    seen, initialise = [], Network.initialise

    def watched(network: Network, tokens: Any, truth: Any, *rest: Any, **more: Any) -> None:
        seen.append({len(tokens), *(R.shape[0] for R in truth.values())})
        initialise(network, tokens, truth, *rest, **more)

    monkeypatch.setattr(Network, "initialise", watched)
    texts, lists, _ = make_corpus(100)
    settings = {"training.order": order, "training.epochs": 0.0, "network.levels": 4, "training.init": "lda"}
    settings |= {"training.validation_fraction": 0.2, "network.pooling": "mean"}
    create("cascadexml", tiny(encoder_folder) | settings | {"calibration.rows": 0}).fit(texts, lists)
    assert seen == [{80}] * (1 if order == "joint" else 2)


class FirstToken(Reader):
    """A toy network: the embedding of the first word, and nothing else."""

    @property
    def widths(self) -> list[int]:
        return [self.model.get_input_embeddings().weight.shape[1]] * self.n_levels

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None) -> list[torch.Tensor]:
        return [self.model.get_input_embeddings()(ids[:, 1])] * self.n_levels


class Toy(NetModel):
    """A recipe is a class and a preset."""

    recipe = "toy"
    preset = {"network.reader": "first-token", "training.epochs": 20.0, "training.learning_rate": 1e-2}  # noqa: RUF012


def test_a_new_network_is_one_class_and_one_preset(encoder_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(READERS, "first-token", ReaderSpec(FirstToken, "words"))
    texts = [f"word{number % 20} noise{number}" for number in range(100)]
    lists = [[f"label {number % 20}"] for number in range(100)]
    encoder = {"name": str(encoder_folder), "max_length": 8, "device": "cpu"}
    model = Toy(encoder=encoder, training={"head_learning_rate": 1e-1, "batch_size": 20}, threads=1).fit(texts, lists)
    assert model.evaluate(texts, lists)["P@1"] == 100.0
    with pytest.raises(BadConfig, match=r"network\.reader must be one of .*first-token"):
        create("lightxml", {"network.reader": "second-token"})


# extremeText


def test_features_are_summed_with_their_weights() -> None:
    rng = np.random.default_rng(0)
    X = sp.random(9, 12, 0.4, format="csr", random_state=0, dtype=np.float32)
    config = neural({"network.reader": "bag", "network.hidden": 5})
    source = FeatureRows(12, config)
    reader = FeatureBag(source, 2, config).eval()
    rows = rng.permutation(9)[:4]
    batch = source.flat(WeightedFeatures.of_rows(X)).batch(rows)
    for e in reader(*batch):
        np.testing.assert_allclose(e.numpy(), X[rows].toarray() @ reader.weight.numpy(), rtol=1e-5, atol=1e-6)
    some = WeightedFeatures.of_rows(X).take(rows)
    np.testing.assert_array_equal(
        sp.csr_matrix((some.values, some.ids, some.ptr), (4, 12)).toarray(), X[rows].toarray()
    )


def test_a_step_moves_the_embeddings_of_the_features_that_were_read() -> None:
    X = sp.csr_matrix(np.array([[1.0, 0.5, 0, 0], [0, 0.5, 0, 0]], np.float32))
    config = neural({"network.reader": "bag", "network.hidden": 3, "training.learning_rate": 0.1})
    source = FeatureRows(4, config)
    reader = FeatureBag(source, 1, config).train()
    before = reader.weight.clone()
    (e,) = reader(*source.flat(WeightedFeatures.of_rows(X)).batch(np.arange(2)))
    e.sum().backward()  # the gradient by every vector is one
    reader.step()
    moved = before - reader.weight
    assert (moved[:2] > 0).all()
    assert not moved[2:].any()
    assert not reader.waiting


def test_a_step_is_the_same_however_its_texts_are_divided() -> None:
    X = sp.random(8, 6, 0.6, format="csr", random_state=0, dtype=np.float32)
    config = neural({"network.reader": "bag", "network.hidden": 3, "training.learning_rate": 0.1})
    source = FeatureRows(6, config)
    reader = FeatureBag(source, 1, config).train()
    other = copy.deepcopy(reader)
    flat, goals = source.flat(WeightedFeatures.of_rows(X)), torch.randn(8, 3)
    for learner, size in ((reader, 8), (other, 3)):
        for rows in np.split(np.arange(8), range(size, 8, size)):
            (e,) = learner(*flat.batch(rows))
            (e * goals[rows]).sum().backward()
        learner.step()
    torch.testing.assert_close(reader.weight, other.weight)


def test_only_true_paths_are_trained_on() -> None:
    tree = LabelTree.from_groups([[0, 1], [2, 3], [4, 5]])
    config = neural({"network.dropout": 0.0, "network.beam": 3, "training.negatives": "tfn"})
    net = Cascade(Given([torch.randn(N_TEXTS, WIDTH) for _ in tree.sizes], config), tree, config).eval()
    Y = sp.csr_matrix(np.eye(6, dtype=np.float32)[[0, 3, 3, 5, 1]])
    truth = [sparse(tree.lift(Y, level).toarray()) for level in range(2)]
    scores = margins(net)
    expected = F.binary_cross_entropy_with_logits(scores[0], truth[0].dense(), reduction="sum")
    for text, label in enumerate([0, 3, 3, 5, 1]):
        siblings = [label // 2 * 2, label // 2 * 2 + 1]
        right = torch.tensor([float(node == label) for node in siblings])
        expected = expected + F.binary_cross_entropy_with_logits(scores[1][text, siblings], right, reduction="sum")
    torch.testing.assert_close(net.loss(IDS, None, truth), expected / N_TEXTS)


@pytest.mark.parametrize("as_texts", [True, False])
def test_embeddings_of_features_survive_the_disk(tmp_path: Path, as_texts: bool) -> None:
    texts, _, Y = make_corpus(80)
    X = texts if as_texts else umpteen.Tfidf().fit_transform(texts)
    model = umpteen.ExtremeText(network={"hidden": 8}, training={"epochs": 2.0}, threads=1).fit(X, Y)
    model.save(tmp_path / "model")
    opened = umpteen.load(tmp_path / "model", verify="full")
    np.testing.assert_array_equal(opened.topk(X, 5).scores, model.topk(X, 5).scores)
    assert opened.describe()["input"] == ("texts" if as_texts else "feature rows")
    assert "encoder" not in opened.describe()
    assert model.embed(X).shape == (80, 8)
    changed = json.loads((tmp_path / "model" / "config.json").read_text())
    changed["meta"]["n_features"] = 2**30
    (tmp_path / "model" / "config.json").write_text(json.dumps(changed))
    with pytest.raises(BadModelFile, match=r"embeddings are not those of|terms where"):
        umpteen.load(tmp_path / "model")


@pytest.mark.parametrize(("recipe", "order"), [("lightxml", "coarse-to-fine"), ("xr-transformer", "joint")])
def test_an_order_that_a_recipe_does_not_have_is_refused(recipe: str, order: str) -> None:
    settings = {"order": order, "negatives": "tfn+man"}
    with pytest.raises(BadConfig, match=f"{recipe} cannot be trained with training.order {order}"):
        create(recipe, {"training": settings})
    with pytest.raises(BadConfig, match="cannot be trained with"):
        type(create(recipe))(training=settings).fit(["a"], [["b"]])


def test_a_level_still_drops_out_after_held_out_texts_are_measured(
    encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts of a level that is trained alone are in training mode while the network as a whole is not."""
    monkeypatch.setattr("umpteen.neural.trainer._FEWEST_TO_SPLIT", 20)
    modes, loss = [], Level.loss

    def noted(self: Level, *texts: Any, **truth: Any) -> torch.Tensor:
        modes.append(all(part.training for part in self.modules()))
        return loss(self, *texts, **truth)

    monkeypatch.setattr(Level, "loss", noted)
    texts, lists, _ = make_corpus(120)
    learn = {"training.epochs": 2.0, "training.batch_size": 16, "training.validation_fraction": 0.2}
    create("attentionxml", tiny(encoder_folder) | learn | {"network.levels": (4,), "network.hidden": 8}).fit(
        texts, lists
    )
    assert len(modes) == 2 * 2 * 6  # levels, epochs, steps
    assert all(modes)
