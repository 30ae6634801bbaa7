"""Export an encoder as an ONNX graph, in float32 or with weights of 8 bits."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import umpteen.engine.openmp  # noqa: F401  before torch

# isort: split
import numpy as np
import torch

from umpteen.config import GRAPHS
from umpteen.errors import BadInput, MissingExtra
from umpteen.neural.encoder import Encoder
from umpteen.neural.onnx_encoder import FACTS, TOKENIZER, Facts
from umpteen.neural.onnx_graph import IDS, MASK, OnnxGraph
from umpteen.neural.pooling import Pooling

_OPSET = 17  # the first one with an operator for the normalisation of layers
_FARTHEST = 1e-3  # of a state of the graph from that of torch; rounding gives about 1e-6


class _States(torch.nn.Module):
    """An encoder that returns the states of some layers alone."""

    def __init__(self, model: Any, layers: Sequence[int], *, every: bool):
        super().__init__()
        self.model, self.layers, self.every = model, layers, every

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = self.model(input_ids=ids, attention_mask=mask, output_hidden_states=self.every)
        return tuple(out.hidden_states[layer] for layer in self.layers) if self.every else (out.last_hidden_state,)


def export(encoder: Encoder, poolings: Sequence[Pooling], *, int8: bool = False) -> dict[str, bytes]:
    """Return the files of an exported encoder: the graph, the tokenizer, and the facts about both.

    Parameters
    ----------
    encoder
        The encoder.
    poolings
        What is read of it, which decides the layers whose states the graph returns.
    int8
        Store weights as 8-bit integers, with a scale for each column, and multiply in integers.
    """
    layers = sorted({layer for pooling in poolings for layer in pooling.layers})
    every = not all(pooling.is_last_only for pooling in poolings)
    device, model = encoder.device, encoder.model
    was_training = model.training
    try:
        states = _States(model.to("cpu"), layers, every=every).eval()  # as a whole: tracing restores the mode
        content = _traced(states, layers)
        _check_same(states, content, model.config.hidden_size)
    finally:
        model.to(device).train(was_training)
    backend = "onnx-int8" if int8 else "onnx"
    facts = Facts(encoder.n_layers, model.config.hidden_size, encoder.pad, encoder.tokenizer.cls_token_id)
    return {
        GRAPHS[backend]: _quantised(content) if int8 else content,
        TOKENIZER: encoder.tokenizer.backend_tokenizer.to_str().encode(),
        FACTS: (json.dumps(asdict(facts), indent=2) + "\n").encode(),
    }


def _traced(states: _States, layers: Sequence[int]) -> bytes:
    """Trace the encoder; texts and tokens may be any number of each."""
    names = [f"layer_{layer}" for layer in layers]
    axes = {name: {0: "texts", 1: "length"} for name in (IDS, MASK, *names)}
    file = BytesIO()
    try:
        with torch.no_grad(), _silent():
            torch.onnx.export(
                states, _example(2, 7), file, dynamo=False, input_names=[IDS, MASK], output_names=names,  # type: ignore[arg-type]
                opset_version=_OPSET, dynamic_axes=axes,
            )  # fmt: skip
    except ImportError as error:
        raise MissingExtra("onnx", "onnx", "an export") from error
    except (RuntimeError, ValueError, TypeError) as error:
        why = " ".join(str(error).split())[:200]
        raise BadInput(f"the encoder cannot be exported: {why}; serve it with torch") from error
    return file.getvalue()


def _check_same(states: _States, content: bytes, width: int) -> None:
    """Refuse a graph that differs from the encoder: some encoders look at shapes in a way that cannot be traced."""
    graph = OnnxGraph(np.frombuffer(content, np.uint8), "the new graph", width)
    for n_texts, length in ((1, 4), (3, 11)):
        ids, mask = _example(n_texts, length)
        with torch.inference_mode():
            wanted = states(ids, mask)
        found = graph.states(ids.numpy(), mask.numpy().astype(bool))
        for one, other in zip(wanted, found.values(), strict=True):
            if np.abs(one.numpy() - other)[mask.numpy() > 0].max() > _FARTHEST:
                raise BadInput("the encoder cannot be exported: its graph differs from it; serve it with torch")


def _example(n_texts: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token numbers and a mask; of several texts the last one is shorter."""
    ids = torch.arange(n_texts * length).reshape(n_texts, length) % 5
    mask = torch.ones_like(ids)
    if n_texts > 1:
        mask[-1, length // 2 :] = 0
    return ids, mask


def _quantised(content: bytes) -> bytes:
    """Return the graph with weights of 8 bits. Activations get a scale when it runs, so no data is needed."""
    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError as error:
        raise MissingExtra("onnxruntime", "onnx", "an export to int8") from error
    with TemporaryDirectory() as folder, _silent():
        before, after = Path(folder, "before.onnx"), Path(folder, "after.onnx")
        before.write_bytes(content)
        quantize_dynamic(before, after, per_channel=True, weight_type=QuantType.QInt8)
        return after.read_bytes()


@contextmanager
def _silent() -> Iterator[None]:
    """Leave out what torch and onnxruntime say about tracing and about steps that are not needed here."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
