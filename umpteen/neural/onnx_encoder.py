"""Embed texts by an exported encoder: tokenizer and ONNX graph, without torch and transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from umpteen.config import GRAPHS, EncoderConfig
from umpteen.data.tokens import Tokens, by_budget, set_limit, tokenize
from umpteen.engine import Progress, silent
from umpteen.errors import BadModelFile, MissingExtra
from umpteen.neural.onnx_graph import OnnxGraph, check_layers
from umpteen.neural.pooling import DEFAULT_POOLING, Pooling
from umpteen.store.tensors import parse_json

FACTS, TOKENIZER = "config.json", "tokenizer.json"
_TOKENS_AT_ONCE = 1_024  # states of so many stay in the caches of a processor; larger batches were not faster
_MOST_FACTS = 1 << 16  # bytes; the file has a few lines
_MOST = {"n_layers": 999, "width": 1 << 20, "pad": 1 << 31, "cls": 1 << 31}


@dataclass(frozen=True)
class Facts:
    """What an exported encoder is: its layers, the length of a state, and the numbers of two special tokens."""

    n_layers: int
    width: int
    pad: int = 0
    cls: int | None = None

    @classmethod
    def parse(cls, content: bytes, where: str) -> Facts:
        """Read the file that an export writes; whatever is wrong with it is a BadModelFile."""
        if len(content) > _MOST_FACTS:
            raise BadModelFile(f"'{where}' may have {_MOST_FACTS:,} bytes at most; export the model again")
        found = parse_json(content, Path(where))
        for name, most in _MOST.items():
            value = found.get(name)
            if (value is None and name == "cls") or (type(value) is int and 0 <= value <= most):
                continue
            raise BadModelFile(f"'{where}' says that '{name}' is {str(value)[:40]!r}; export the model again")
        return cls(**{name: found.get(name) for name in _MOST})


class OnnxEncoder:
    """An exported encoder with its tokenizer.

    Parameters
    ----------
    files
        The files of the export by name.
    backend
        Which of its graphs: ``onnx`` or ``onnx-int8``.
    config
        How it is used.
    """

    def __init__(self, files: Mapping[str, np.ndarray], backend: str, config: EncoderConfig):
        if missing := {FACTS, TOKENIZER} - set(files):
            raise BadModelFile(f"the exported encoder lacks '{min(missing)}'; export the model again")
        self.config = config = config.with_length("cpu")
        self.facts = Facts.parse(files[FACTS].tobytes(), f"onnx/{FACTS}")
        pooling = DEFAULT_POOLING if config.pooling == "auto" else config.pooling
        self.pooling = Pooling.parse(pooling, self.facts.n_layers, self.facts.cls)
        self.graph = OnnxGraph(files[GRAPHS[backend]], f"onnx/{GRAPHS[backend]}", self.facts.width)
        self.tokenizer = _tokenizer(files[TOKENIZER].tobytes())
        set_limit(self.tokenizer, config.max_length)

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self.facts.width * self.pooling.width

    def tokenize(self, texts: Sequence[str], *, progress: Progress = silent) -> Tokens:
        """Cut texts into tokens, window after window."""
        config = self.config
        return tokenize(texts, self.tokenizer, config.max_length, windows=config.windows, progress=progress)

    def embed(self, tokens: Tokens, *, threads: int = 0, progress: Progress = silent) -> np.ndarray:
        """Return the embeddings (texts, dim), float32, each of length one."""
        check_layers(self.graph, [self.pooling])
        out, lengths, done = np.zeros((len(tokens), self.dim), np.float32), tokens.lengths, 0
        progress("embeddings", 0, len(tokens))
        widths = self._widths(lengths)
        for rows in by_budget(lengths, _TOKENS_AT_ONCE, widths):
            out[rows] = self._embedded(tokens, rows, int(widths[rows].max(initial=1)), threads)
            done += len(rows)
            progress("embeddings", done, len(tokens))
        return out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-12)

    def _widths(self, lengths: np.ndarray) -> np.ndarray:
        """Return what a batch is padded to by the length of its longest text: that, or a whole number of windows."""
        window = self.config.max_length
        wide = np.maximum(lengths, 1)
        return np.where(wide > window, -(-wide // window) * window, wide) if self.config.windows > 1 else wide

    def _embedded(self, tokens: Tokens, rows: np.ndarray, width: int, threads: int) -> np.ndarray:
        """Return the pooled states (texts, dim) of some texts, padded to one length."""
        at = tokens.ptr[rows, None] + np.arange(width)
        mask = at < tokens.ptr[rows + 1, None]
        ids = np.full(mask.shape, self.facts.pad, np.int64)
        ids[mask] = tokens.ids[at[mask]]
        n_windows = max(1, width // self.config.max_length) if self.config.windows > 1 else 1
        seen, visible = ids.reshape(len(rows) * n_windows, -1), mask.reshape(len(rows) * n_windows, -1).copy()
        visible[:, 0] = True  # a window of nothing but padding would have nothing to attend to
        states = self.graph.states(seen, visible, threads)
        chosen = [states[layer].reshape(len(rows), width, -1) for layer in self.pooling.layers]
        return np.concatenate([self._pooled(state, ids, mask, n_windows) for state in chosen], axis=1)

    def _pooled(self, state: np.ndarray, ids: np.ndarray, mask: np.ndarray, n_windows: int) -> np.ndarray:
        """Pool states (texts, length, d) as ``Pooling`` does with tensors."""
        if self.pooling.kind == "mean":
            return _mean(state, mask)
        n_texts, length = len(ids), ids.shape[1] // n_windows
        windows = ids.reshape(-1, length)
        at = np.zeros(len(windows), int) if self.pooling.cls is None else (windows == self.pooling.cls).argmax(axis=1)
        found = state.reshape(len(windows), length, -1)[np.arange(len(windows)), at]
        return _mean(found.reshape(n_texts, n_windows, -1), mask[:, ::length])


def _mean(states: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Average states (texts, length, d) over what is no padding."""
    weight = mask[:, :, None].astype(np.float32)
    return (states * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1.0)


def _tokenizer(content: bytes) -> Any:
    """Return the tokenizer; a file that is none is a BadModelFile."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtra("tokenizers", "onnx", "an exported encoder") from None
    try:
        return Tokenizer.from_buffer(content)
    except BaseException as error:  # tokenizers panic on some files, which is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        why = re.sub(r"\s+", " ", str(error))[:200]
        raise BadModelFile(f"'onnx/{TOKENIZER}' is no tokenizer ({why}); export the model again") from error
