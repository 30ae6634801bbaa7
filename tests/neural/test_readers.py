"""Readers of words, scorers that attend to them, and levels that learn in turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import umpteen
from umpteen.config import NetConfig
from umpteen.neural.encoder import Encoder
from umpteen.neural.network import Network
from umpteen.neural.readers import Convolved, Recurrent, States
from umpteen.neural.scorers import Attention, Scorer
from umpteen.tree import LabelTree

from .conftest import make_corpus

LENGTHS = (5, 3, 7)


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Texts of several lengths, padded further than they need."""
    mask = torch.arange(9) < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(5, 20, (3, 9), generator=torch.Generator().manual_seed(0))
    return torch.where(mask, ids, 0), mask


@pytest.fixture
def words(encoder: Encoder) -> Encoder:
    return encoder.shallow()


def test_words_keep_their_vectors_and_nothing_else(encoder: Encoder, words: Encoder) -> None:
    one, other = (model.get_input_embeddings().weight for model in (encoder.model, words.model))
    torch.testing.assert_close(one, other)
    assert words.model.config.num_hidden_layers == 0
    assert encoder.shallow().files() == words.files()  # the same bytes, whatever is drawn at random


def test_both_directions_are_those_of_packed_sequences(words: Encoder, batch: Any) -> None:
    ids, mask = batch
    reader = Recurrent(words, 1, hidden=4).eval()
    packed = torch.nn.LSTM(reader.width, 4, batch_first=True, bidirectional=True)
    forward = reader.onward.state_dict()
    backward = {f"{name}_reverse": tensor for name, tensor in reader.back.state_dict().items()}
    packed.load_state_dict(forward | backward)
    x, _ = reader.look_up(ids, mask)
    sequence = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    expected = torch.nn.utils.rnn.pad_packed_sequence(packed(sequence)[0], batch_first=True, total_length=9)[0]
    found = reader(ids, mask)[0]
    for text, length in enumerate(LENGTHS):
        torch.testing.assert_close(found.states[text, :length], expected[text, :length])


def test_filters_see_a_text_as_if_it_were_alone(words: Encoder, batch: Any) -> None:
    ids, mask = batch
    reader = Convolved(words, 1, hidden=3, bottleneck=6).eval()
    together = reader(ids, mask)[0]
    for text, length in enumerate(LENGTHS):
        alone = reader(ids[text : text + 1, :length], None)[0]
        torch.testing.assert_close(together[text : text + 1], alone)


def test_many_wrong_labels_do_not_make_texts_alike(words: Encoder) -> None:
    torch.manual_seed(0)
    reader, scorer = Convolved(words, 1, hidden=32, bottleneck=64), Scorer(64, 5_000)
    torch.nn.init.constant_(scorer.bias, -8.5)  # how often a label is right
    ids = torch.randint(5, 20, (32, 12))
    truth = torch.nn.functional.one_hot(torch.arange(32), 5_000).float()
    groups = [{"params": reader.parameters(), "lr": 1e-3}, {"params": scorer.parameters(), "lr": 1e-2, "eps": 3e-3}]
    steps = torch.optim.Adam(groups)
    for _ in range(60):
        steps.zero_grad()
        scores = scorer.all(reader(ids, None)[0])
        loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, truth, reduction="sum") / 32
        loss.backward()
        steps.step()
    e = reader.eval()(ids, None)[0]
    assert e.std(dim=0).norm() > 0.75 * e.norm(dim=1).mean()


def test_the_largest_answers_of_each_part(words: Encoder) -> None:
    reader = Convolved(words, 1, hidden=3, bottleneck=6)
    mask = torch.arange(20) < torch.tensor([[20], [3]])
    answers = torch.randn(2, 3, 20)
    found = reader._largest(answers, reader._part(mask)).numpy()
    for text, length in enumerate((20, 3)):
        for part in range(reader.PARTS):
            at = [place for place in range(length) if place * reader.PARTS // length == part]
            expected = answers[text][:, at].amax(dim=1).clamp(min=0.0).numpy() if at else np.zeros(3)
            np.testing.assert_allclose(found[text, :, part], expected, rtol=1e-6)


def test_attention_is_that_of_each_node_by_itself() -> None:
    torch.manual_seed(1)
    scorer = Attention(4, 6, hidden=5)
    torch.nn.init.normal_(scorer.bias)
    seen = States(torch.randn(2, 7, 4), torch.arange(7) < torch.tensor([[7], [4]]))
    every = scorer.all(seen)
    for text in range(2):
        states = seen.states[text][seen.mask[text]]
        for node in range(6):
            shares = (states @ scorer.weight[node]).softmax(dim=0)
            expected = scorer.shared(shares @ states)[0] + scorer.bias[node]
            torch.testing.assert_close(every[text, node], expected)
    nodes = torch.tensor([[5, 0], [2, 2]])
    torch.testing.assert_close(scorer.some(seen, nodes), every.gather(1, nodes))


# Levels that learn in turn


def test_a_text_without_tokens_has_the_same_scores_in_any_batch(words: Encoder) -> None:
    torch.manual_seed(0)
    reader, nodes = Recurrent(words, 1, 4).eval(), Attention(8, 5, hidden=3)
    scores = []
    for length in (3, 9):
        mask = torch.zeros(1, length, dtype=torch.bool)
        (seen,) = reader(torch.zeros(1, length, dtype=torch.long), mask)
        scores.append(nodes.all(seen))
    torch.testing.assert_close(*scores)


@pytest.mark.parametrize("order", ["one-reader", "own-reader"])
def test_a_level_that_learns_leaves_the_others_alone(encoder: Encoder, batch: Any, order: str) -> None:
    tree = LabelTree.from_groups([[0, 1], [2, 3], [4, 5]])
    net = Network(encoder, tree, NetConfig(order=order, dropout=(0.3,), pooling="mean", beam=(1,))).module
    truth = [torch.rand(3, 3) < 0.5, torch.rand(3, 6) < 0.5]
    for level in range(2):
        net.learn(level)
        net.train()
        before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        optimiser = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
        chosen = net.choose(net.reader(*batch), [1], level) if level else None
        for _ in range(3):
            net.loss(*batch, truth, chosen=chosen).backward()
            optimiser.step()
        changed = {name for name, tensor in net.state_dict().items() if not torch.equal(tensor, before[name])}
        parts = {".".join(name.split(".")[: 3 if name.startswith("reader.readers") else 2]) for name in changed}
        own = {"one-reader": [{"reader.model"}, set()], "own-reader": [{"reader.readers.0"}, {"reader.readers.1"}]}
        assert parts == {f"scorers.{level}"} | own[order][level]
        assert net.scorers[1 - level].training == (net.scorers[level].training is False)
    net.eval()
    assert not any(module.training for module in net.modules())


def test_a_reader_begins_as_the_one_above_ended(encoder: Encoder) -> None:
    tree = LabelTree.from_groups([[0, 1], [2, 3]])
    net = Network(encoder.shallow(), tree, NetConfig(reader="lstm", order="own-reader", hidden=3)).module
    net.learn(0)
    torch.nn.init.normal_(net.reader.readers[0].onward.weight_hh_l0)
    torch.nn.init.normal_(net.scorers[0].shared[0].weight)
    net.learn(1)
    torch.testing.assert_close(net.reader.readers[1].onward.weight_hh_l0, net.reader.readers[0].onward.weight_hh_l0)
    torch.testing.assert_close(net.scorers[1].shared[0].weight, net.scorers[0].shared[0].weight)


@pytest.mark.parametrize("order", ["one-reader", "own-reader"])
def test_static_negatives_survive_the_disk(encoder_folder: Path, tmp_path: Path, order: str) -> None:
    texts, lists, _ = make_corpus(64)
    net = {"order": order, "levels": (4,), "epochs": 1.0, "batch_size": 16, "few_labels": 0, "dropout": (0.1,)}
    model = umpteen.LightXML(encoder={"name": str(encoder_folder), "tokens": 16, "device": "cpu"}, net=net, threads=1)
    model.fit(texts, lists).save(tmp_path / "model")
    opened = umpteen.load(tmp_path / "model")
    one, other = model.topk(texts, 5), opened.topk(texts, 5)
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-6)
    assert [report.steps for report in model.course_] == [4, 4]


# What shortlists hold


def test_shortlist_recall_is_the_share_of_true_nodes_below_the_beam(encoder_folder: Path) -> None:
    texts, lists, _ = make_corpus(64)
    encoder = {"name": str(encoder_folder), "tokens": 16, "device": "cpu"}
    net = {"levels": (6,), "beam": (2,), "epochs": 2.0, "batch_size": 16, "few_labels": 0}
    model = umpteen.LightXML(encoder=encoder, net=net, threads=1).fit(texts, lists)
    network = model.neural_.net.get()
    Y = model.targets_.encode(lists)
    found = 0
    for row, text in enumerate(texts):
        tokens = network.encoder.tokenize([text])
        scores = network.module.scorers[0].all(network.module.reader(*_batch(network, tokens))[0])
        kept = scores[0].topk(2).indices.tolist()
        parents = network.tree.node_of(0)
        found += sum(parents[label] in kept for label in Y[row].indices)
    seen: list[tuple[int, int]] = []
    recall = model.shortlist_recall(texts, lists, progress=lambda stage, done, total: seen.append((done, total)))
    assert seen[-1] == (len(texts), len(texts))
    assert recall == [pytest.approx(100.0 * found / Y.nnz)]
    assert model.shortlist_recall(texts[:2], [[], []]) == []
    flat = umpteen.LightXML(encoder=encoder, net=net | {"few_labels": 1_000, "levels": ()}, threads=1).fit(texts, lists)
    assert flat.shortlist_recall(texts, lists) == []
    full = umpteen.FullHead(encoder=encoder, net={"epochs": 0.0}, threads=1).fit(texts, lists)
    assert full.shortlist_recall(texts, lists) == []


def _batch(network: Network, tokens: Any) -> Any:
    from umpteen.neural.encoder import FlatTokens

    return FlatTokens(tokens, network.encoder.device, network.encoder.pad).batch(np.array([0]))
