"""Compilation of the layers of an encoder, perhaps while the CPU still reads the texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import umpteen.engine.openmp  # noqa: F401  before torch

# isort: split
import torch

if TYPE_CHECKING:
    from umpteen.neural.encoder import Encoder

# Texts and tokens of the batch that layers are compiled with. Kernels are laid out for about this size and then serve
# all sizes. Two equal sizes, or one of a multiple of 16, would be taken for a rule.
_SHAPE = {"cuda": (62, 136), "cpu": (6, 24), "mps": (62, 136)}


def compile_layers(model: Any) -> None:
    """Compile one layer, which serves all: they run the same code on other weights.

    Where nothing can be compiled (no C compiler, an odd layer) it runs as it is. ``transformers`` hooks every module
    whose output it can record, once any is asked for. A hook inside a layer would divide it into several graphs, so
    these are removed: states between layers are recorded by the hooks of the layers, and nothing else is read.
    """
    torch._dynamo.config.suppress_errors = True
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    for layer in max(lists, key=len, default=()):
        for inner in layer.modules():
            if inner is not layer:
                inner._forward_hooks.clear()
        layer.compile(dynamic=True)


def compile_ahead(encoder: Encoder) -> None:
    """Compile what training will run, with and without gradients and padding; nothing if layers are not compiled.

    Made for a thread of its own, while texts are tokenised. Weights, gradients and random numbers stay as they were.
    """
    if not encoder.is_compiled:
        return
    n_texts, length = _SHAPE[encoder.device.type]
    length = min(length, encoder.config.max_length)
    ids = torch.full((n_texts, length), encoder.pad, device=encoder.device)
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[0, 1:] = False
    with torch.random.fork_rng([encoder.device] if encoder.device.type == "cuda" else []), encoder.autocast():
        encoder.model.train()
        try:
            for some in (mask, None):
                _last_state(encoder, ids, some).float().mean().backward()
        finally:
            encoder.model.eval()
            encoder.model.zero_grad(set_to_none=True)
        with torch.inference_mode():
            for some in (mask, None):
                _last_state(encoder, ids, some)
    if encoder.device.type == "cuda":
        torch.cuda.synchronize(encoder.device)


def _last_state(encoder: Encoder, ids: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    return encoder.states(ids, mask, every=False)[-1]
