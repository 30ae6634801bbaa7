"""The levels that an encoder is fine-tuned on: the encoder, and classifiers of all nodes of one level."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from torch.nn.utils import skip_init

from umpteen.config import NeuralConfig
from umpteen.linear.dense import Projection
from umpteen.neural.distributed import ranks
from umpteen.neural.encoder import Encoder
from umpteen.neural.heads import FullHead
from umpteen.neural.lda_init import Covariance, discriminants
from umpteen.neural.losses import weighted
from umpteen.neural.sharding import WHOLE, Shard, gather_learning, made_whole
from umpteen.neural.truth import Truth

_SCORES_AT_ONCE = 100_000_000  # scores of texts for nodes that are in memory at a time
_TEXTS_AT_ONCE = 8_192


class Level(torch.nn.Module):
    """An encoder and the classifiers of one level; classifiers see embeddings of length one, times ``scale``.

    Parameters
    ----------
    encoder
        Is trained with the classifiers.
    n_nodes
        Number of classifiers, which are divided among ranks if there are several.
    """

    head: Any

    def __init__(self, encoder: Encoder, n_nodes: int):
        super().__init__()
        self.embedder, self.encoder, self.n_nodes = encoder, encoder.model, n_nodes
        self.scale = math.sqrt(encoder.dim)

    def loss(
        self, ids: torch.Tensor, mask: torch.Tensor | None, truth: Sequence[Truth], *, is_whole: bool = True,
        predicted: Truth | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Return the mean loss of a text."""
        raise NotImplementedError

    def set_lr(self, factor: float) -> None:
        """Set the learning rate of what the optimiser does not train."""

    def step(self) -> None:
        """Update what the optimiser does not train, after the backward pass of a batch."""

    def score_all(self, E: torch.Tensor) -> torch.Tensor:
        """Return the scores of all nodes (texts, nodes) for embeddings of length one."""
        raise NotImplementedError

    def set_weights(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """Set the classifiers (nodes, d) for embeddings of length one, and their biases (nodes,)."""
        raise NotImplementedError

    def unite(self) -> None:
        """Bring the classifiers of all ranks to rank 0."""
        raise NotImplementedError

    @property
    def is_divided(self) -> bool:
        """Whether this rank has some of the classifiers only."""
        return self.head.shard.is_cut

    def _vectors(self, ids: torch.Tensor, mask: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
        """Return the embeddings (texts, d), each of length one; there may be no texts."""
        if not len(ids):
            return torch.zeros((0, self.embedder.dim), device=like.device, requires_grad=True)
        return F.normalize(self.embedder(ids, mask), dim=1)

    def classifiers(self) -> tuple[np.ndarray, np.ndarray, Projection | None]:
        """Return weights (nodes, d) and biases for embeddings of length one, and the projection before them, if any."""
        raise NotImplementedError

    def best(self, E: np.ndarray, k: int) -> np.ndarray:
        """Return the k best nodes of each text (texts, k)."""
        k = min(k, self.n_nodes)
        return np.concatenate([self._best(scores, k).cpu().numpy() for scores in self._scores(E)])

    def _best(self, scores: torch.Tensor, k: int) -> torch.Tensor:
        found, nodes = scores.topk(min(k, scores.shape[1]), dim=1)
        return self.head.shard.best(found, nodes, k)[1]

    def _scores(self, E: np.ndarray) -> Iterator[torch.Tensor]:
        at_once = max(1, min(_TEXTS_AT_ONCE, _SCORES_AT_ONCE // self.n_nodes))
        with torch.inference_mode():
            for first in range(0, len(E), at_once):
                yield self.score_all(torch.from_numpy(E[first : first + at_once]).to(self.embedder.device))


class DenseLevel(Level):
    """Classifiers that the optimiser trains, with the weighted loss of eq. 9.

    ``parents`` is the parent of each node; ``number`` is that of the level.
    """

    def __init__(self, encoder: Encoder, parents: np.ndarray, config: NeuralConfig, number: int):
        super().__init__(encoder, len(parents))
        self.config, self.dropout = config.training, config.network.dropout_at(number)
        shard = Shard.own(len(parents))
        self._set_head(shard)
        of_nodes = shard.take(torch.from_numpy(parents.astype(np.int64)))
        self.register_buffer("parents", of_nodes.to(encoder.device), persistent=False)

    def _set_head(self, shard: Shard) -> None:
        n_own = shard.last - shard.first if shard.is_cut else self.n_nodes
        self.head = skip_init(torch.nn.Linear, self.embedder.dim, n_own, device=self.embedder.device)
        self.head.shard = shard

    def loss(
        self, ids: torch.Tensor, mask: torch.Tensor | None, truth: Sequence[Truth], *, is_whole: bool = True,
        predicted: Truth | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Return the mean loss of a text over the children of its ``predicted`` parents, all nodes without."""
        shard, config = self.head.shard, self.config
        e = self._vectors(ids, mask, self.parents) * self.scale  # (texts, d)
        scores = self.head(gather_learning(F.dropout(e, self.dropout, self.training), shard))  # (texts, nodes)
        selected = None if predicted is None else predicted.dense()[:, self.parents]
        right = shard.truth(truth[0])
        return weighted(config.loss, scores.float(), right, selected, config.alpha).sum() / max(len(ids), 1)

    def score_all(self, E: torch.Tensor) -> torch.Tensor:
        """Return the scores of all nodes (texts, nodes) for embeddings of length one."""
        return self.head(E * self.scale)

    @torch.no_grad()
    def set_weights(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """Set the classifiers (nodes, d) for embeddings of length one, and their biases (nodes,)."""
        self.head.weight.copy_(self.head.shard.take(weight) / self.scale)
        self.head.bias.copy_(self.head.shard.take(bias))

    @torch.no_grad()
    def unite(self) -> None:
        """Bring the classifiers of all ranks to rank 0."""
        shard = self.head.shard
        whole = [made_whole(tensor.detach(), shard) for tensor in (self.head.weight, self.head.bias)]
        if shard.is_cut and ranks().is_main:
            self._set_head(WHOLE)
            self.head.weight.copy_(whole[0])
            self.head.bias.copy_(whole[1])

    def classifiers(self) -> tuple[np.ndarray, np.ndarray, None]:
        """Return weights (nodes, d) and biases for embeddings of length one."""
        weight = self.head.weight.detach().cpu().numpy() * np.float32(self.scale)
        return weight, self.head.bias.detach().cpu().numpy(), None


class FullLevel(Level):
    """A classifier for every label, updated in blocks without optimiser state (logistic loss).

    With ``whitens``, embeddings are whitened and scaled to length one again before they are compared with labels.
    """

    def __init__(self, encoder: Encoder, n_nodes: int, config: NeuralConfig, number: int, *, whitens: bool):
        super().__init__(encoder, n_nodes)
        self.head = FullHead(
            encoder.dim, n_nodes, dropout=config.network.dropout_at(number), whitens=whitens,
            learning_rate=config.training.full_head_learning_rate,
        )  # fmt: skip
        self.head.divide()
        self.head.to(encoder.device)
        self.head.place(encoder.device)

    def loss(
        self, ids: torch.Tensor, mask: torch.Tensor | None, truth: Sequence[Truth], *, is_whole: bool = True,
        predicted: Truth | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Return the mean loss of a text over all labels; a whole batch updates the labels, too."""
        e = self._vectors(ids, mask, self.head.bias)
        return self.head.learn_all(e, truth[0], is_whole=is_whole)[2] / max(len(ids), 1)

    def set_lr(self, factor: float) -> None:
        """Set the learning rate of the labels to a fraction of ``full_head_learning_rate``."""
        self.head.set_lr(factor)

    def step(self) -> None:
        """Update the labels by the micro-batches of a batch."""
        self.head.step()

    def score_all(self, E: torch.Tensor) -> torch.Tensor:
        """Return the scores of all labels (texts, labels) for embeddings of length one."""
        return self.head.all(E)

    @torch.no_grad()
    def set_weights(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """Set the classifiers (labels, d) for embeddings of length one, and their biases (labels,)."""
        self.head.set_weights(self.head.shard.take(weight) / self.scale, self.head.shard.take(bias))

    def unite(self) -> None:
        """Bring the classifiers of all ranks to rank 0."""
        self.head.unite()

    @torch.no_grad()
    def start_at_discriminants(self, vectors: torch.Tensor, text: torch.Tensor, node: torch.Tensor) -> None:
        """Whiten by these embeddings (texts, d) and set each label to the discriminant of its texts.

        ``text`` and ``node`` are the pairs of texts and their labels.
        """
        covariance = Covariance(vectors.shape[1], vectors.device)
        covariance.add(vectors)
        self.head.whitening.fit(covariance)
        counts, sums = torch.bincount(node, minlength=self.n_nodes).float(), self.head.sums()
        is_own, places = self.head.shard.places(node)
        text = text[is_own]
        for some in torch.split(torch.arange(len(text), device=text.device), _TEXTS_AT_ONCE):
            sums.index_add_(0, places[some], self.head.compared(vectors[text[some]]))
        self.head.set_prior(counts / max(len(vectors), 1))
        offset = discriminants(sums, self.head.shard.take(counts))
        self.head.set_weights(sums, self.head.bias + offset)

    def classifiers(self) -> tuple[np.ndarray, np.ndarray, Projection | None]:
        """Return weights (labels, d) and biases for embeddings of length one, and the projection before, if any."""
        weight = self.head.weight.float().cpu().numpy() * np.float32(self.scale)
        whitening = self.head.whitening
        projection = None
        if whitening is not None:
            projection = Projection(whitening.mean.cpu().numpy(), whitening.matrix.cpu().numpy())
        return weight, self.head.bias.cpu().numpy(), projection
