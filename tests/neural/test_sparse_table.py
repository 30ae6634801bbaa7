"""Candidates that are scored, and rows that are stepped, against plain references."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import umpteen
from umpteen.models import create
from umpteen.neural import sparse_table
from umpteen.neural.heads import LinearHead, SparseHead

from .conftest import make_corpus, tiny

shapes = st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(1, 6), st.integers(9, 15), st.integers(0, 10**6))


def made(n_texts: int, n_candidates: int, width: int, n_nodes: int, seed: int) -> dict[str, torch.Tensor]:
    """Draw texts, a table and candidates, none of them twice for a text."""
    generator = torch.Generator().manual_seed(seed)
    rand = torch.rand(3, n_texts, n_nodes, generator=generator)[:, :, :n_candidates]
    order = torch.stack([torch.randperm(n_nodes, generator=generator)[:n_candidates] for _ in range(n_texts)])
    return {
        "e": torch.randn(n_texts, width, generator=generator),
        "weight": torch.randn(n_nodes, width, generator=generator),
        "bias": torch.randn(n_nodes, generator=generator),
        "nodes": order,
        "right": rand[1] < 0.3,
        "exists": rand[2] < 0.8,
    }


@settings(max_examples=60, deadline=None)
@given(shapes)
def test_scores_and_gradients_are_those_of_the_logistic_loss(shape: Any) -> None:
    data = made(*shape)
    e = data["e"].clone().requires_grad_()
    dense = e @ data["weight"].T + data["bias"]
    scores = dense.gather(1, data["nodes"])
    scores.retain_grad()
    each = F.binary_cross_entropy_with_logits(scores, data["right"].float(), reduction="none") * data["exists"]
    each.sum().backward()
    found = sparse_table.score(**data)
    torch.testing.assert_close(found.scores, scores.detach())
    torch.testing.assert_close(found.loss, each.detach().sum(dim=1))
    torch.testing.assert_close(found.residual, scores.grad)
    torch.testing.assert_close(found.grad_e, e.grad)


@settings(max_examples=60, deadline=None)
@given(shapes)
def test_a_step_goes_along_the_gradient_of_each_row(shape: Any) -> None:
    data = made(*shape)
    weight, bias = data["weight"].clone().requires_grad_(), data["bias"].clone().requires_grad_()
    scores = (data["e"] @ weight.T + bias).gather(1, data["nodes"])
    each = F.binary_cross_entropy_with_logits(scores, data["right"].float(), reduction="none") * data["exists"]
    each.sum().backward()
    state = torch.rand(len(bias)).round()  # half of the rows were touched before
    found = [data["weight"].clone(), data["bias"].clone(), state.clone()]
    residual = sparse_table.score(**data).residual
    sparse_table.step(*found, data["nodes"], residual, data["exists"], data["e"], torch.tensor(0.1), 0.5)
    touched = set(data["nodes"][data["exists"]].tolist())
    for node in range(len(bias)):
        square = weight.grad[node].square().mean()
        if node not in touched:
            expected = data["weight"][node], data["bias"][node], state[node]
        else:
            after = max(0.98 * state[node], square)
            length = 0.1 / max(after, data["e"].square().mean()).sqrt()
            row = data["weight"][node] * (1 - 0.1 * 0.5) - length * weight.grad[node]
            expected = row, data["bias"][node] - length * bias.grad[node], after
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one[node], other.detach(), rtol=1e-4, atol=1e-4)


def test_a_table_scores_as_its_twin_with_an_optimiser_does() -> None:
    torch.manual_seed(0)
    table = SparseHead(4, 9, dropout=0.0, bottleneck=3, learning_rate=0.1, weight_decay=0.0)
    twin = LinearHead(4, 9, bottleneck=3)
    twin.load_state_dict({name: tensor for name, tensor in table.state_dict().items() if name != "state"})
    e, nodes = torch.randn(2, 4, requires_grad=True), torch.tensor([[0, 3, 8], [3, 4, 5]])
    right, exists = torch.tensor([[1, 0, 0], [0, 1, 0]]) > 0, torch.ones(2, 3, dtype=torch.bool)
    expected = twin.some(e, nodes)
    F.binary_cross_entropy_with_logits(expected, right.float(), reduction="sum").backward()
    wanted, e.grad = (e.grad.clone(), twin.bottleneck.weight.grad.clone()), None
    scores, loss = table.learn(e, nodes, right, exists, is_whole=True)
    (2.0 * loss).backward()
    torch.testing.assert_close(scores, expected.detach())
    torch.testing.assert_close(e.grad, 2.0 * wanted[0])
    torch.testing.assert_close(table.bottleneck.weight.grad, 2.0 * wanted[1])
    assert (table.state > 0).nonzero().flatten().tolist() == [0, 3, 4, 5, 8]
    assert not list(table.parameters(recurse=False))


@pytest.mark.parametrize("recipe", [umpteen.LightXML, umpteen.CascadeXML])
def test_networks_learn_and_go_on_with_rows_that_step_themselves(
    recipe: Any, encoder_folder: Path, tmp_path: Path
) -> None:
    texts, lists, _ = make_corpus(200)
    net = {
        "network.levels": 4, "training.epochs": 8.0, "training.batch_size": 16, "network.sparse_update_from": 10,
        "network.dropout": 0.1, "network.pooling": "mean", "training.learning_rate": 3e-3,
        "training.head_learning_rate": 3e-2, "network.few_labels": 0, "training.swa_start": 0.8,
    }  # fmt: skip
    encoder = tiny(encoder_folder)
    whole = create(recipe.recipe, encoder | net).fit(texts, lists)
    assert isinstance(whole.neural_.net.get().module.heads[-1], SparseHead)
    assert whole.evaluate(texts, lists)["P@1"] > 80

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "training the network" and done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create(recipe.recipe, encoder | net).fit(texts, lists, checkpoint=tmp_path, progress=stop)
    again = create(recipe.recipe, encoder | net).fit(texts, lists, checkpoint=tmp_path)
    np.testing.assert_array_equal(whole.topk(texts, 5).scores, again.topk(texts, 5).scores)
    assert "heads.1.state" not in whole.neural_.net.arrays


CHECK = """
import torch
from tests.neural.test_sparse_table import made
from umpteen.neural import sparse_table, sparse_table_triton
device = "cuda" if torch.cuda.is_available() else "cpu"
for seed, shape in enumerate([(1, 1, 1, 9), (3, 7, 5, 11), (4, 130, 33, 500)]):
    data = {name: tensor.to(device) for name, tensor in made(*shape, seed).items()}
    state = torch.rand(shape[3], device=device).round()
    found = []
    for room in (sparse_table, sparse_table_triton):
        scored = room.score(**data)
        table = [data["weight"].clone(), data["bias"].clone(), state.clone()]
        rate = torch.tensor(0.1, device=device)
        room.step(*table, data["nodes"], scored.residual, data["exists"], data["e"], rate, 0.5)
        found.append([scored.scores[data["exists"]], scored.residual, scored.grad_e, scored.loss, *table])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
print("the same")
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_triton_does_the_same() -> None:
    environment = os.environ | ({} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"})
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", CHECK], env=environment | {"PYTHONPATH": root}, capture_output=True, text=True, cwd=root
    )
    assert done.stdout.strip() == "the same", done.stderr
