"""What the kernel for gathered candidates saves: Triton against torch, and against a table with an optimiser.

    python -m benchmarks.sparse_table

scores the candidates of a batch, takes their gradients and steps the rows they touch, in three ways, on one GPU, and
prints how long a step takes and how much memory it needs beside the table. The Triton way is held against the torch
way first: both must say the same.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from umpteen.neural import sparse_table

Data = dict[str, torch.Tensor]

SHAPES = {  # texts, candidates, width, nodes
    "CascadeXML, 217,680 labels": (256, 512, 384, 217_680),
    "LightXML, 217,680 labels": (256, 4800, 400, 217_680),
    "LightXML, 3,000,000 labels": (256, 4800, 400, 3_000_000),
}
RATE, DECAY = 1e-3, 0.01
CLOSE = 1e-4


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every shape, print the table and write it down."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    from umpteen.neural import sparse_table_triton

    ways = {
        "Triton": Rows(sparse_table_triton.score, sparse_table_triton.step),
        "torch": Rows(sparse_table.score, sparse_table.step),
        "torch, an optimiser for the table": Whole(),
    }
    result = []
    print("| | way | ms a step | beside the table, MB | apart from torch |\n|---|---|---|---|---|")
    for name, shape in SHAPES.items():
        apart = difference(made(*shape, options.device), ways["Triton"], ways["torch"])
        if apart > CLOSE:
            raise SystemExit(f"{name}: Triton and torch are {apart:.2g} apart, which is more than rounding")
        for way, work in ways.items():
            ms, mb = measured(work, made(*shape, options.device), options.steps)
            row = {"shape": name, "way": way, "ms": ms, "mb": mb}
            result.append(row | ({"apart": apart} if way == "Triton" else {}))
            print(f"| {name} | {way} | {ms:.2f} | {mb:.0f} | {f'{apart:.1e}' if way == 'Triton' else ''} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def made(n_texts: int, n_candidates: int, width: int, n_nodes: int, device: str) -> Data:
    """Draw texts, a table, and candidates in runs of 64 as the children of clusters are."""
    generator = torch.Generator(device).manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    runs, n_clusters = -(-n_candidates // 64), n_nodes // 64
    clusters = draw(n_texts, min(n_clusters, 4 * runs)).argsort(dim=1)[:, :runs] * (
        n_clusters // min(n_clusters, 4 * runs)
    )
    nodes = (clusters[:, :, None] * 64 + torch.arange(64, device=device)).flatten(1)[:, :n_candidates]
    return {
        "e": draw(n_texts, width),
        "weight": 0.02 * draw(n_nodes, width),
        "bias": torch.full((n_nodes,), -5.0, device=device),
        "state": torch.zeros(n_nodes, device=device),
        "nodes": nodes.contiguous(),
        "right": draw(n_texts, n_candidates) > 2.5,
        "exists": draw(n_texts, n_candidates) > -2.0,
    }


class Rows:
    """Score, and step the rows that were touched."""

    def __init__(self, score: Callable[..., Any], step: Callable[..., None]):
        self.score, self.step = score, step

    def __call__(self, data: Data) -> Callable[[], torch.Tensor]:
        """Return what takes a step and returns the texts' gradient."""
        rate = torch.tensor(RATE, device=data["e"].device)

        def work() -> torch.Tensor:
            found = self.score(*(data[name] for name in ("e", "weight", "bias", "nodes", "right", "exists")))
            self.step(
                data["weight"], data["bias"], data["state"], data["nodes"], found.residual, data["exists"], data["e"],
                rate, DECAY,
            )  # fmt: skip
            return found.grad_e

        return work


class Whole:
    """Gather the rows under autograd, and let an optimiser step the whole table."""

    def __call__(self, data: Data) -> Callable[[], torch.Tensor]:
        """Return what takes a step and returns the texts' gradient."""
        e = data["e"].clone().requires_grad_()
        weight, bias = (torch.nn.Parameter(data[name]) for name in ("weight", "bias"))
        optimiser = torch.optim.AdamW([weight, bias], lr=RATE, weight_decay=DECAY, fused=e.is_cuda)
        nodes, exists, y = data["nodes"], data["exists"], data["right"].float()

        def work() -> torch.Tensor:
            scores = torch.bmm(F.embedding(nodes, weight), e[:, :, None])[:, :, 0] + bias[nodes]
            (F.binary_cross_entropy_with_logits(scores, y, reduction="none") * exists).sum().backward()
            optimiser.step()
            optimiser.zero_grad()
            found, e.grad = e.grad, None
            return found  # type: ignore[return-value]

        return work


def difference(data: Data, one: Rows, other: Rows) -> float:
    """Return how far apart two ways are after two steps: texts' gradients and rows, by the largest number there is."""
    worst = 0.0
    copies = [{name: tensor.clone() for name, tensor in data.items()} for _ in range(2)]
    works = [way(copy) for way, copy in zip((one, other), copies, strict=True)]
    for _ in range(2):
        gradients = [work() for work in works]
        for a, b in (gradients, *([copy[name] for copy in copies] for name in ("weight", "bias", "state"))):
            worst = max(worst, float((a - b).abs().max() / b.abs().max()))
    return worst


def measured(way: Callable[[Data], Callable[[], torch.Tensor]], data: Data, n_steps: int) -> tuple[float, float]:
    """Return milliseconds a step, and the most memory beside the data in MB."""
    table = torch.cuda.memory_allocated()
    work = way(data)
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    begun = time.perf_counter()
    for _ in range(n_steps):
        work()
    torch.cuda.synchronize()
    ms = 1e3 * (time.perf_counter() - begun) / n_steps
    return ms, (torch.cuda.max_memory_allocated() - table) / 1e6


if __name__ == "__main__":
    main()
