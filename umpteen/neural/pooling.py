"""How the states of many tokens become one vector: ``mean``, ``cls``, ``last5``, ``cls@8``, ``mean@4+8``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from umpteen.errors import BadConfig

if TYPE_CHECKING:
    import torch


DEFAULT_POOLING = "mean"


@dataclass(frozen=True)
class Pooling:
    """A parsed pooling: how, and at which layers (0 is the embedding layer); several are put side by side."""

    kind: str
    layers: tuple[int, ...]
    is_last_only: bool
    cls: int | None = None  # number of the token that stands for the text; the first one if there is none

    @classmethod
    def parse(cls, spec: str, n_layers: int, cls_token: int | None = None, setting: str = "encoder.pooling") -> Pooling:
        """Read a specification, whose form the settings have checked, for an encoder with so many layers.

        Examples
        --------
        >>> Pooling.parse("last5", 12).layers
        (8, 9, 10, 11, 12)
        >>> Pooling.parse("mean@4+8", 12).layers
        (4, 8)
        """
        if spec == "last5":
            return cls("cls", tuple(range(max(0, n_layers - 4), n_layers + 1)), False, cls_token)
        kind, _, named = spec.partition("@")
        if not named:
            return cls(kind, (n_layers,), True, cls_token)
        layers = tuple(int(layer) for layer in named.split("+"))
        if max(layers) > n_layers:
            raise BadConfig(f"{setting} names layer {max(layers)}, but the encoder has {n_layers} layers")
        return cls(kind, layers, layers == (n_layers,), cls_token)

    @property
    def width(self) -> int:
        """How many states are put side by side."""
        return len(self.layers)

    def __call__(
        self, states: tuple[torch.Tensor, ...], ids: torch.Tensor, mask: torch.Tensor | None, n_windows: int = 1
    ) -> torch.Tensor:
        """Pool states (texts, length, d) of all layers, or of the last only, into (texts, d · width).

        Texts may consist of ``n_windows`` windows of equal length. Each has a token that stands for it, and their
        states are averaged.
        """
        import torch

        chosen = [states[-1]] if self.is_last_only else [states[layer] for layer in self.layers]
        if self.kind == "mean":
            parts = _means(chosen, mask)
        else:
            parts = self._cls_states(chosen, ids) if n_windows == 1 else self._cls_means(chosen, ids, mask, n_windows)
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _cls_states(self, states: list[torch.Tensor], ids: torch.Tensor) -> list[torch.Tensor]:
        """Return the states (texts, d) of the token that stands for a text."""
        import torch

        row = torch.arange(len(ids), device=ids.device)
        at = torch.zeros_like(row) if self.cls is None else (ids == self.cls).int().argmax(dim=1)
        return [state[row, at] for state in states]

    def _cls_means(
        self, states: list[torch.Tensor], ids: torch.Tensor, mask: torch.Tensor | None, n_windows: int
    ) -> list[torch.Tensor]:
        """Average the states of these tokens over the windows of each text that are not all padding."""
        n_texts, length = len(ids), ids.shape[1] // n_windows
        windows = [state.reshape(n_texts * n_windows, length, state.shape[2]) for state in states]
        found = self._cls_states(windows, ids.reshape(n_texts * n_windows, length))
        by_text = [vectors.reshape(n_texts, n_windows, vectors.shape[1]) for vectors in found]
        return _means(by_text, None if mask is None else mask[:, ::length])


def _means(states: list[torch.Tensor], mask: torch.Tensor | None) -> list[torch.Tensor]:
    """Average states (texts, length, d) over the tokens of each text that are no padding."""
    if mask is None:
        return [state.mean(dim=1) for state in states]
    weight = mask[..., None].to(states[0].dtype)  # (texts, length, 1)
    total = weight.sum(dim=1).clamp(min=1.0)
    return [(state * weight).sum(dim=1) / total for state in states]


def deeper_and_deeper(n_layers: int, n_levels: int, kind: str = "cls") -> list[str]:
    """Return what each level reads: deeper and deeper layers, two of them for the coarsest of several levels.

    ``kind`` is how tokens become one vector. An encoder that was trained to be pooled by the mean has nothing to say
    in its first token, and the other way round.

    Examples
    --------
    >>> deeper_and_deeper(12, 4)
    ['cls@5+6', 'cls@8', 'cls@10', 'cls@12']
    >>> deeper_and_deeper(12, 3, "mean")
    ['mean@7+8', 'mean@10', 'mean@12']
    >>> deeper_and_deeper(6, 2)
    ['cls@4+5', 'cls@6']
    >>> deeper_and_deeper(2, 3)
    ['cls@1', 'cls@1', 'cls@2']
    """
    step = max(1, round(n_layers / 6))
    layers = [max(1, n_layers - step * (n_levels - 1 - level)) for level in range(n_levels)]
    specs = [f"{kind}@{layer}" for layer in layers]
    if n_levels > 1 and layers[0] > 1:
        specs[0] = f"{kind}@{layers[0] - 1}+{layers[0]}"
    return specs
