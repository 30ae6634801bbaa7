"""First weights of heads: linear discriminants, or the solution of the linear problem, on the vectors of texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch

from umpteen.engine import Progress, silent
from umpteen.neural import newton
from umpteen.neural.lda_init import Covariance, discriminants
from umpteen.neural.passes import of_levels, predicting, reported

if TYPE_CHECKING:
    from umpteen.neural.network import Network, Texts

_MEASURED = 20_000  # texts of which the covariance is measured
_PAIRS_AT_ONCE = 8_192  # of a text and its node


class Initialiser:
    """Sets the first weights of the heads of a network.

    Parameters
    ----------
    network
        Reads the texts, and has the heads. Several ranks read some of the texts each.
    texts
        The texts, or what each level has read of them.
    """

    def __init__(self, network: Network, texts: Texts, progress: Progress = silent):
        self.network, self.texts, self.progress = network, texts, progress
        self.device = network.encoder.device

    @property
    def n_texts(self) -> int:
        """The number of texts."""
        return len(self.texts[0]) if isinstance(self.texts, list) else len(self.texts)

    def set_discriminants(self, truth: Mapping[int, sp.csr_matrix]) -> None:
        """Whiten the vectors of some levels, and set their nodes to linear discriminants.

        These are the means of the whitened vectors of a node's texts. ``truth`` has the nodes of all texts, by level.
        The biases must be the log-odds of the nodes already.
        """
        self._whiten(list(truth))
        counts = {level: R.getnnz(axis=0).astype(np.float32) for level, R in truth.items()}
        parts = {level: self.network.module.head(level).parts for level in truth}
        for turn in range(max(len(ends) for ends in parts.values())):
            ends = {level: some[turn] for level, some in parts.items() if turn < len(some)}
            self._discriminate(truth, counts, ends)

    def _discriminate(
        self, truth: Mapping[int, sp.csr_matrix], counts: Mapping[int, np.ndarray], ends: Mapping[int, tuple[int, int]]
    ) -> None:
        """Set the nodes first..last of this rank to linear discriminants, for some levels; all ranks read the texts."""
        heads = {level: self.network.module.head(level) for level in ends}
        sums = {level: head.sums(*ends[level]) for level, head in heads.items()}
        for level, rows, e in self._read(list(ends)):
            first, last = ends[level]
            text, node = pairs(truth[level][rows], self.device)
            is_own, places = heads[level].shard.places(node)
            is_summed = (places >= first) & (places < last)
            with predicting():
                vectors, text, places = heads[level].compared(e), text[is_own][is_summed], places[is_summed] - first
                for some in torch.split(torch.arange(len(text), device=self.device), _PAIRS_AT_ONCE):
                    sums[level].index_add_(0, places[some], vectors[text[some]])
        for level, head in heads.items():
            first, last = ends[level]
            own = head.shard.take(torch.from_numpy(counts[level]))[first:last].to(self.device)
            offset = discriminants(sums[level], own)
            head.set_weights(sums[level], head.bias.detach()[first:last] + offset, first)

    def _whiten(self, levels: list[int]) -> None:
        """Measure the covariance of the vectors of some texts, by which levels whiten them."""
        some = np.unique(np.linspace(0, self.n_texts - 1, _MEASURED).astype(np.int64))
        texts = [read[some] for read in self.texts] if isinstance(self.texts, list) else self.texts.take(some)
        widths = self.network.module.reader.widths
        covariances = {level: Covariance(widths[level], self.device) for level in levels}
        for level, _, e in Initialiser(self.network, texts)._read(levels):
            with predicting():
                covariances[level].add(e)
        for level, covariance in covariances.items():
            self.network.module.head(level).whitening.fit(covariance)

    def solve(self, level: int, R: sp.csr_matrix, selected: sp.csr_matrix | None, cost: float) -> None:
        """Set the nodes of a level to the linear solution on vectors of length one, or as the reader returns them.

        ``R`` are the weights of positive nodes (texts, nodes), ``selected`` the parents (texts, nodes above) whose
        children a text is trained on; None is all. ``cost`` is the weight of the loss.
        """
        head, training, parts, order = self.network.module.head(level), self.network.config.training, [], []
        for _, rows, e in self._read([level]):
            with predicting():
                parts.append(head.compared(e).float() / head.scale)
            order.append(rows)
        some, vectors = np.concatenate(order), torch.cat(parts).clone()
        parts.clear()
        W = newton.solve_level(
            vectors, R[some], None if selected is None else selected[some], self.network.tree.starts[level],
            cost=cost, alpha=training.alpha, progress=self.progress,
        )  # fmt: skip
        head.set_weights(head.shard.take(W[:-1].T) / head.scale, head.shard.take(W[-1]))

    def _read(self, levels: list[int]) -> Iterator[tuple[int, np.ndarray, Any]]:
        """Yield levels, the numbers of some texts, and what the level reads of them."""
        batches = self.network.read_by_all(self.texts, levels)
        for rows, reads in reported(batches, "first weights", self.n_texts, self.progress):
            with predicting():
                of_batch = list(of_levels(reads, levels))
            for level, e in of_batch:
                yield level, rows, e


def node_frequencies(R: sp.csr_matrix) -> torch.Tensor:
    """Return the fraction of the texts that have each node."""
    return torch.from_numpy(R.getnnz(axis=0).astype(np.float32)) / max(R.shape[0], 1)


def pairs(R: sp.csr_matrix, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the texts and the nodes of all stored entries."""
    found = R.tocoo()
    text, node = (torch.from_numpy(part.astype(np.int64)).to(device) for part in (found.row, found.col))
    return text, node
