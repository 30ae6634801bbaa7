"""AttentionXML: an LSTM in both directions, and heads whose nodes each attend to its states in a way of their own."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from umpteen.config import NeuralConfig
from umpteen.neural.encoder import Encoder
from umpteen.neural.heads import Head
from umpteen.neural.readers import States, WordReader


class BiLSTM(WordReader):
    """An LSTM in both directions over the words of a text."""

    reads_vectors = False

    def __init__(self, encoder: Encoder, n_levels: int, config: NeuralConfig):
        super().__init__(encoder, n_levels, config)
        self.hidden = config.network.hidden
        self.forward_lstm = torch.nn.LSTM(self.width, self.hidden, batch_first=True)
        self.backward_lstm = torch.nn.LSTM(self.width, self.hidden, batch_first=True)

    @property
    def widths(self) -> list[int]:
        """Length of the states that each level reads."""
        return [2 * self.hidden] * self.n_levels

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None) -> list[States]:
        """Return the states of all tokens, the same for each level."""
        x, mask = self.embed(ids, mask)
        reverse = _reversed(mask)[:, :, None]  # so that padding comes last in both directions and is never read
        behind = self.backward_lstm(x.gather(1, reverse.expand_as(x)))[0]
        states = torch.cat([self.forward_lstm(x)[0], behind.gather(1, reverse.expand_as(behind))], dim=2)
        states = F.dropout(states, 0.5, self.training) * mask[:, :, None]  # zero for a text without tokens
        return [States(states, mask)] * self.n_levels

    def head(self, level: int, n_nodes: int) -> Head:
        """Return the head of a level."""
        return AttentionHead(2 * self.hidden, n_nodes, hidden=self.hidden)


def _reversed(mask: torch.Tensor) -> torch.Tensor:
    """Return for each place of a text (texts, length) its place when the text is read from its end.

    Examples
    --------
    >>> _reversed(torch.tensor([[True, True, True, False]])).tolist()
    [[2, 1, 0, 3]]
    """
    at = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - at, at)


class AttentionHead(Head):
    """Nodes that each attend to the tokens of a text in a way of their own, and share the layers that follow.

    Parameters
    ----------
    width
        Length of a token's state.
    n_nodes
        Nodes of the level.
    hidden
        Width of the layer that all nodes share.
    """

    def __init__(self, width: int, n_nodes: int, *, hidden: int):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(n_nodes, width))
        self.bias = torch.nn.Parameter(torch.zeros(n_nodes))
        self.shared = torch.nn.Sequential(
            torch.nn.Linear(width, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1, bias=False)
        )
        torch.nn.init.xavier_uniform_(self.weight)

    def all(self, e: States) -> torch.Tensor:
        """Score every node (texts, nodes)."""
        return self._scores(e, self.weight.expand(len(e.states), -1, -1)) + self.bias

    def some(self, e: States, nodes: torch.Tensor) -> torch.Tensor:
        """Score some nodes of each text: ``nodes`` and the result are (texts, candidates)."""
        return self._scores(e, F.embedding(nodes, self.weight)) + self.bias[nodes]

    def _scores(self, e: States, queries: torch.Tensor) -> torch.Tensor:
        """Turn the vectors of nodes (texts, candidates, d) into scores."""
        logits = torch.bmm(queries.to(e.states.dtype), e.states.transpose(1, 2))  # (texts, candidates, length)
        weights = logits.masked_fill(~e.mask[:, None, :], -1e4).softmax(dim=2).to(e.states.dtype)
        return self.shared(torch.bmm(weights, e.states))[:, :, 0]

    def n_floats(self, candidates: int, length: int) -> int:
        """Return how many numbers are held: every node attends to every token."""
        return candidates * (2 * self.weight.shape[1] + length)

    def n_floats_of_all(self, length: int) -> int:
        """Return how many numbers are held to score all nodes."""
        return self.n_floats(len(self.bias), length)

    def adam_eps(self, batch_size: int) -> float:
        """Return eps of Adam: its default, for gradients pass through layers here."""
        return 1e-8

    def set_prior(self, frequency: torch.Tensor) -> None:
        """Start at zero: the layers that nodes share would learn slowly from biases that are right already."""
