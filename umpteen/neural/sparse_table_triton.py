"""``sparse_table`` for NVIDIA GPUs: each gathered row is read once for scores, loss and the texts' gradient.

A step sorts the candidates by node; the first place of each run of equal nodes adds up the run and steps the row, so
no two programs write to one row and sums have a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]

from umpteen.neural.sparse_table import MEMORY, TINY, Scored, unit

_CANDIDATES = 16  # rows in a tile
_SPLITS = 8  # programs that share the candidates of a text


@triton.jit
def _score_kernel(
    e, weight, bias, nodes, right, exists, scores, residual, grad_e, loss, n_candidates, d, per_split,
    CANDIDATES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    text, split = tl.program_id(0), tl.program_id(1)
    column = tl.arange(0, WIDTH)
    inside = column < d
    x = tl.load(e + text * d + column, mask=inside, other=0.0)
    total, lost = tl.zeros([WIDTH], tl.float32), tl.zeros([CANDIDATES], tl.float32)
    last = tl.minimum((split + 1) * per_split, n_candidates)
    for first in range(split * per_split, last, CANDIDATES):
        place = first + tl.arange(0, CANDIDATES)
        at = text * n_candidates + place
        there = (place < last) & (tl.load(exists + at, mask=place < last, other=0) != 0)
        node = tl.load(nodes + at, mask=there, other=0)
        y = tl.load(right + at, mask=there, other=0).to(tl.float32)
        row = tl.load(weight + node[:, None] * d + column[None, :], mask=there[:, None] & inside[None, :], other=0.0)
        s = tl.sum(row * x[None, :], axis=1) + tl.load(bias + node, mask=there, other=0.0)
        g = tl.where(there, tl.sigmoid(s) - y, 0.0)
        softplus = tl.maximum(s, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(s)))
        lost += tl.where(there, softplus - y * s, 0.0)
        total += tl.sum(g[:, None] * row, axis=0)
        tl.store(scores + at, s, mask=place < last)
        tl.store(residual + at, g, mask=place < last)
    part = split * tl.num_programs(0) + text
    tl.store(grad_e + part * d + column, total, mask=inside)
    tl.store(loss + part, tl.sum(lost, axis=0))


@triton.jit
def _step_kernel(
    weight, bias, state, keys, order, residual, e, rate, eps, n_pairs, n_candidates, n_nodes, d, decay, memory, tiny,
    WIDTH: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0)
    node = tl.load(keys + first)
    before = tl.load(keys + first - 1, mask=first > 0, other=-1)
    if (node != before) & (node < n_nodes):
        column = tl.arange(0, WIDTH)
        inside = column < d
        gradient, of_bias = tl.zeros([WIDTH], tl.float32), 0.0
        at, current = first, node
        while current == node:
            pair = tl.load(order + at)
            g = tl.load(residual + pair)
            gradient += g * tl.load(e + (pair // n_candidates) * d + column, mask=inside, other=0.0)
            of_bias += g
            at += 1
            current = tl.load(keys + at, mask=at < n_pairs, other=-1)
        square = tl.sum(gradient * gradient, axis=0) / d
        longest = tl.maximum(memory * tl.load(state + node), square)
        tl.store(state + node, longest)
        lr = tl.load(rate)
        length = lr / tl.sqrt(tl.maximum(longest, tl.load(eps)) + tiny)
        row = tl.load(weight + node * d + column, mask=inside, other=0.0)
        tl.store(weight + node * d + column, row * (1.0 - lr * decay) - length * gradient, mask=inside)
        tl.store(bias + node, tl.load(bias + node) - length * of_bias)


def score(
    e: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, nodes: torch.Tensor, right: torch.Tensor,
    exists: torch.Tensor,
) -> Scored:  # fmt: skip
    """Do what ``sparse_table.score`` does."""
    (n_texts, n_candidates), d = nodes.shape, e.shape[1]
    per_split = triton.cdiv(triton.cdiv(n_candidates, _SPLITS), _CANDIDATES) * _CANDIDATES
    scores, residual = (e.new_empty(n_texts, n_candidates) for _ in range(2))
    grad_e, loss = e.new_empty(_SPLITS, n_texts, d), e.new_empty(_SPLITS, n_texts)
    inputs = (e, weight, bias, nodes, right, exists)
    launch: Any = _score_kernel[n_texts, _SPLITS]
    launch(
        *(tensor.contiguous() for tensor in inputs), scores, residual, grad_e, loss, n_candidates, d, per_split,
        CANDIDATES=_CANDIDATES, WIDTH=triton.next_power_of_2(d),
    )  # fmt: skip
    return Scored(scores, residual, grad_e.sum(dim=0), loss.sum(dim=0))


def step(
    weight: torch.Tensor, bias: torch.Tensor, state: torch.Tensor, nodes: torch.Tensor, residual: torch.Tensor,
    exists: torch.Tensor, e: torch.Tensor, rate: torch.Tensor, decay: float,
) -> None:  # fmt: skip
    """Do what ``sparse_table.step`` does."""
    keys, order = torch.where(exists, nodes, len(weight)).flatten().sort(stable=True)
    sizes: Any = (len(keys), nodes.shape[1], len(weight), e.shape[1])
    launch: Any = _step_kernel[len(keys),]
    launch(
        weight, bias, state, keys, order, residual.contiguous(), e.contiguous(), rate, unit(e), *sizes, decay, MEMORY,
        TINY, WIDTH=triton.next_power_of_2(e.shape[1]),
    )  # fmt: skip
