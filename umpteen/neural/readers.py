"""Readers turn a batch of texts into what the heads of each level read.

A new network is a reader in a file of its own, registered by name, and a preset that names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import torch
from torch.nn import functional as F

from umpteen.config import READERS, NeuralConfig, ReaderSpec
from umpteen.neural.encoder import Encoder
from umpteen.neural.heads import Head, make_head


class Reader(torch.nn.Module):
    """Base of readers.

    Parameters
    ----------
    encoder
        Tokenizes; a reader uses its layers, or its word embeddings alone.
    n_levels
        Levels of the label tree.
    config
        All settings of the recipe.
    """

    reads: ClassVar[str] = "words"  # of a text: layers of the encoder, its words, or features (see ``ReaderSpec``)
    reads_vectors: ClassVar[bool] = True  # whether a level reads one vector per text

    def __init__(self, encoder: Encoder, n_levels: int, config: NeuralConfig):
        super().__init__()
        self.model, self.n_levels, self.config = encoder.model, n_levels, config

    @property
    def widths(self) -> list[int]:
        """Length of the vectors that each level reads."""
        raise NotImplementedError

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None) -> Iterable[Any]:
        """Return what each level reads of token numbers (texts, length); ``mask`` is false where there is padding."""
        raise NotImplementedError

    def head(self, level: int, n_nodes: int) -> Head:
        """Return the head of a level."""
        return make_head(self.config, level, self.n_levels, self.widths[level], n_nodes)

    # Training

    def set_lr(self, factor: float) -> None:
        """Multiply the learning rate by a factor; for readers that update themselves."""

    def step(self) -> None:
        """Update the weights after the backward pass of a batch; for readers that update themselves."""

    # Levels that learn one after the other

    def of_level(self, level: int, ids: torch.Tensor, mask: torch.Tensor | None) -> Any:
        """Return what one level reads."""
        return list(self(ids, mask))[level]

    def learners(self, level: int) -> list[torch.nn.Module]:
        """Return what learns together with a level: everything with the first one."""
        return [] if level else [self]

    def begin_level(self, level: int) -> None:
        """Prepare for the training of a level."""


class PerLevel(torch.nn.Module):
    """A reader of its own for each level, which starts as a copy of the one above."""

    def __init__(self, readers: Sequence[Reader]):
        super().__init__()
        self.readers = torch.nn.ModuleList(readers)
        self.reads_vectors = readers[0].reads_vectors

    @property
    def widths(self) -> list[int]:
        """Length of what each level reads."""
        return [reader.widths[level] for level, reader in enumerate(self.readers)]

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None) -> Iterator[Any]:
        """Read for one level after the other, as they are asked for."""
        for level in range(len(self.readers)):
            yield self.of_level(level, ids, mask)

    def head(self, level: int, n_nodes: int) -> Head:
        """Return the head of a level."""
        return self.readers[level].head(level, n_nodes)

    def of_level(self, level: int, ids: torch.Tensor, mask: torch.Tensor | None) -> Any:
        """Return what one level reads."""
        return self.readers[level].of_level(level, ids, mask)

    def learners(self, level: int) -> list[torch.nn.Module]:
        """Return the reader of a level."""
        return [self.readers[level]]

    def set_lr(self, factor: float) -> None:
        """Multiply the learning rate by a factor."""
        for reader in self.readers:
            reader.set_lr(factor)

    def step(self) -> None:
        """Update readers that update themselves."""
        for reader in self.readers:
            reader.step()

    def begin_level(self, level: int) -> None:
        """Start the reader of a level as a copy of the one above."""
        if level:
            self.readers[level].load_state_dict(self.readers[level - 1].state_dict())


class WordReader(Reader):
    """Base of readers that use the word embeddings of an encoder and nothing else of it."""

    def __init__(self, encoder: Encoder, n_levels: int, config: NeuralConfig):
        super().__init__(encoder, n_levels, config)
        self.width = self.model.get_input_embeddings().weight.shape[1]

    def embed(self, ids: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the embeddings (texts, length, d), zero where there is padding, and the mask."""
        mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        x = self.model.get_input_embeddings()(ids)
        x = F.dropout(F.layer_norm(x, x.shape[-1:]), 0.2, self.training)
        return x * mask[:, :, None], mask


@dataclass(frozen=True)
class States:
    """A state per token (texts, length, d), and which tokens are no padding (texts, length)."""

    states: torch.Tensor
    mask: torch.Tensor

    @property
    def device(self) -> torch.device:
        """Where they lie."""
        return self.states.device

    def __len__(self) -> int:
        return len(self.states)

    def float(self) -> States:
        """Return them in float32."""
        return States(self.states.float(), self.mask)

    def pooled(self) -> torch.Tensor:
        """Return the mean over the tokens of each text (texts, d)."""
        weight = self.mask[:, :, None].to(self.states.dtype)
        return (self.states * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1.0)


def reader_class(name: str) -> type[Reader]:
    """Return the reader of this name."""
    place = READERS[name].place
    if isinstance(place, type):
        return place
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def register_reader(name: str, reader: type[Reader]) -> None:
    """Let ``network.reader`` name a reader of your own."""
    READERS[name] = ReaderSpec(reader, reader.reads)


def make_reader(encoder: Encoder, n_levels: int, config: NeuralConfig) -> Reader | PerLevel:
    """Return the reader that the settings name, or one for each level."""
    if config.is_recursive:
        from umpteen.neural.layers import Embeddings

        return Embeddings(encoder, n_levels, config)
    cls = reader_class(config.network.reader)
    if config.training.order != "own-reader":
        return cls(encoder, n_levels, config)
    return PerLevel([cls(encoder.twin() if level else encoder, n_levels, config) for level in range(n_levels)])
