"""Readers of words, heads that attend to them, and levels that learn in turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import umpteen
from umpteen.models import create
from umpteen.neural.attentionxml import AttentionHead, BiLSTM
from umpteen.neural.encoder import Encoder
from umpteen.neural.heads import LinearHead
from umpteen.neural.levels import Level
from umpteen.neural.network import Network
from umpteen.neural.readers import States
from umpteen.neural.truth import TruthTable
from umpteen.neural.xmlcnn import TextCNN
from umpteen.tree import LabelTree

from .conftest import make_corpus, neural, tiny

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
    reader = BiLSTM(words, 1, neural({"network.hidden": 4})).eval()
    packed = torch.nn.LSTM(reader.width, 4, batch_first=True, bidirectional=True)
    forward = reader.forward_lstm.state_dict()
    backward = {f"{name}_reverse": tensor for name, tensor in reader.backward_lstm.state_dict().items()}
    packed.load_state_dict(forward | backward)
    x, _ = reader.embed(ids, mask)
    sequence = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    expected = torch.nn.utils.rnn.pad_packed_sequence(packed(sequence)[0], batch_first=True, total_length=9)[0]
    found = reader(ids, mask)[0]
    for text, length in enumerate(LENGTHS):
        torch.testing.assert_close(found.states[text, :length], expected[text, :length])


def test_filters_see_a_text_as_if_it_were_alone(words: Encoder, batch: Any) -> None:
    ids, mask = batch
    reader = TextCNN(words, 1, neural({"network.hidden": 3, "network.bottleneck": 6})).eval()
    together = reader(ids, mask)[0]
    for text, length in enumerate(LENGTHS):
        alone = reader(ids[text : text + 1, :length], None)[0]
        torch.testing.assert_close(together[text : text + 1], alone)


def test_many_wrong_labels_do_not_make_texts_alike(words: Encoder) -> None:
    torch.manual_seed(0)
    config = neural({"network.hidden": 32, "network.bottleneck": 64})
    reader, head = TextCNN(words, 1, config), LinearHead(64, 5_000)
    torch.nn.init.constant_(head.bias, -8.5)  # how often a label is right
    ids = torch.randint(5, 20, (32, 12))
    truth = torch.nn.functional.one_hot(torch.arange(32), 5_000).float()
    groups = [{"params": reader.parameters(), "lr": 1e-3}, {"params": head.parameters(), "lr": 1e-2, "eps": 3e-3}]
    steps = torch.optim.Adam(groups)
    for _ in range(60):
        steps.zero_grad()
        scores = head.all(reader(ids, None)[0])
        loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, truth, reduction="sum") / 32
        loss.backward()
        steps.step()
    e = reader.eval()(ids, None)[0]
    assert e.std(dim=0).norm() > 0.75 * e.norm(dim=1).mean()


def test_the_largest_answers_of_each_part(words: Encoder) -> None:
    reader = TextCNN(words, 1, neural({"network.hidden": 3, "network.bottleneck": 6}))
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
    head = AttentionHead(4, 6, hidden=5)
    torch.nn.init.normal_(head.bias)
    seen = States(torch.randn(2, 7, 4), torch.arange(7) < torch.tensor([[7], [4]]))
    every = head.all(seen)
    for text in range(2):
        states = seen.states[text][seen.mask[text]]
        for node in range(6):
            shares = (states @ head.weight[node]).softmax(dim=0)
            expected = head.shared(shares @ states)[0] + head.bias[node]
            torch.testing.assert_close(every[text, node], expected)
    nodes = torch.tensor([[5, 0], [2, 2]])
    torch.testing.assert_close(head.some(seen, nodes), every.gather(1, nodes))


# Levels that learn in turn


def test_a_text_without_tokens_has_the_same_scores_in_any_batch(words: Encoder) -> None:
    torch.manual_seed(0)
    reader, nodes = BiLSTM(words, 1, neural({"network.hidden": 4})).eval(), AttentionHead(8, 5, hidden=3)
    scores = []
    for length in (3, 9):
        mask = torch.zeros(1, length, dtype=torch.bool)
        (seen,) = reader(torch.zeros(1, length, dtype=torch.long), mask)
        scores.append(nodes.all(seen))
    torch.testing.assert_close(*scores)


@pytest.mark.parametrize("order", ["shared-reader", "own-reader"])
def test_a_level_that_learns_leaves_the_others_alone(encoder: Encoder, batch: Any, order: str) -> None:
    tree = LabelTree.from_groups([[0, 1], [2, 3], [4, 5]])
    settings = {"training.order": order, "network.dropout": 0.3, "network.pooling": "mean", "network.beam": 1}
    network = Network(encoder, tree, neural(settings))
    net, rng = network.module, np.random.default_rng(0)
    truth = [_truth(rng.random((3, n)) < 0.5) for n in tree.sizes]
    for level in range(2):
        learning = Level(net, level, scores_all=False).train()
        before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        optimiser = torch.optim.SGD(learning.parameters(), lr=0.1)
        predicted = _truth(np.eye(3)) if level else None
        for _ in range(3):
            learning.loss(*batch, truth[: level + 1], predicted=predicted).backward()
            optimiser.step()
        changed = {name for name, tensor in net.state_dict().items() if not torch.equal(tensor, before[name])}
        parts = {".".join(name.split(".")[: 3 if name.startswith("reader.readers") else 2]) for name in changed}
        own = {"shared-reader": [{"reader.model"}, set()], "own-reader": [{"reader.readers.0"}, {"reader.readers.1"}]}
        assert parts == {f"heads.{level}"} | own[order][level]
        assert net.heads[level].training
        assert not net.heads[1 - level].training
        learning.eval()
    assert not any(module.training for module in net.modules())


def test_a_reader_begins_as_the_one_above_ended(encoder: Encoder) -> None:
    tree = LabelTree.from_groups([[0, 1], [2, 3]])
    settings = {"network.reader": "lstm", "training.order": "own-reader", "network.hidden": 3}
    net = Network(encoder.shallow(), tree, neural(settings)).module
    Level(net, 0, scores_all=False)
    torch.nn.init.normal_(net.reader.readers[0].forward_lstm.weight_hh_l0)
    torch.nn.init.normal_(net.heads[0].shared[0].weight)
    Level(net, 1, scores_all=False)
    above, below = (reader.forward_lstm.weight_hh_l0 for reader in net.reader.readers)
    torch.testing.assert_close(below, above)
    torch.testing.assert_close(net.heads[1].shared[0].weight, net.heads[0].shared[0].weight)


@pytest.mark.parametrize("order", ["shared-reader", "own-reader"])
def test_static_negatives_survive_the_disk(encoder_folder: Path, tmp_path: Path, order: str) -> None:
    texts, lists, _ = make_corpus(64)
    net = {
        "training.order": order, "network.levels": 4, "training.epochs": 1.0, "training.batch_size": 16,
        "network.few_labels": 0, "network.dropout": 0.1,
    }  # fmt: skip
    model = create(umpteen.LightXML.recipe, tiny(encoder_folder) | net)
    model.fit(texts, lists).save(tmp_path / "model")
    opened = umpteen.load(tmp_path / "model")
    one, other = model.topk(texts, 5), opened.topk(texts, 5)
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-6)
    assert [report.steps for report in model.training_] == [4, 4]


# What shortlists hold


def test_shortlist_recall_is_the_share_of_true_nodes_below_the_beam(encoder_folder: Path) -> None:
    texts, lists, _ = make_corpus(64)
    encoder = tiny(encoder_folder)
    net = {
        "network.levels": 6, "network.beam": 2, "training.epochs": 2.0, "training.batch_size": 16,
        "network.few_labels": 0,
    }  # fmt: skip
    model = create(umpteen.LightXML.recipe, encoder | net).fit(texts, lists)
    network = model.neural_.net.get()
    Y = model.targets_.encode(lists)
    found = 0
    for row, text in enumerate(texts):
        tokens = network.encoder.tokenize([text])
        scores = network.module.heads[0].all(network.module.reader(*_batch(network, tokens))[0])
        kept = scores[0].topk(2).indices.tolist()
        parents = network.tree.node_of(0)
        found += sum(parents[label] in kept for label in Y[row].indices)
    seen: list[tuple[int, int]] = []
    recall = model.shortlist_recall(texts, lists, progress=lambda stage, done, total: seen.append((done, total)))
    assert seen[-1] == (len(texts), len(texts))
    assert recall == [pytest.approx(100.0 * found / Y.nnz)]
    assert model.shortlist_recall(texts[:2], [[], []]) == []
    without = {"network.few_labels": 1_000, "network.levels": ()}
    flat = create(umpteen.LightXML.recipe, encoder | net | without).fit(texts, lists)
    assert flat.shortlist_recall(texts, lists) == []
    full = create(umpteen.FullHead.recipe, encoder | {"training.epochs": (0.0,)}).fit(texts, lists)
    assert full.shortlist_recall(texts, lists) == []


def _batch(network: Network, tokens: Any) -> Any:
    from umpteen.neural.encoder import FlatTokens

    return FlatTokens(tokens, network.encoder.device, network.encoder.pad).batch(np.array([0]))


def _truth(flags: np.ndarray) -> Any:
    return TruthTable(sp.csr_matrix(flags.astype(np.float32)), torch.device("cpu")).of(np.arange(len(flags)))
