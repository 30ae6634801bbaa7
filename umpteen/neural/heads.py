"""Heads: the classifiers of the nodes of one level, a vector and a bias for each node.

A head of a new kind implements ``Head``; a reader says which head scores what it reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch.nn import functional as F

from umpteen.config import LABELS_STEPPED_AT_ONCE, NUMBERS_SUMMED_AT_ONCE, NeuralConfig
from umpteen.neural.distributed import ranks
from umpteen.neural.lda_init import Whitening
from umpteen.neural.losses import weighted
from umpteen.neural.sharding import WHOLE, Shard, gather_learning, made_whole
from umpteen.neural.sparse_table import fastest, with_gradient
from umpteen.neural.stable_topk import stable_topk
from umpteen.neural.truth import Truth

_LEAST_FREQUENCY = 1e-6  # of a node among the texts
_ADAM_EPS = 0.1  # as a fraction of the gradient of one text that is completely wrong
_COPIES = 4  # of the scores of all nodes: margins, probabilities, those of the path, whether there is a node


class Head(torch.nn.Module):
    """Base of heads: what trainer, search and store need of the classifiers of one level.

    ``weight`` (nodes, d) and ``bias`` (nodes,) are parameters, or buffers where a head updates them itself. While a
    head is divided among ranks, they are those of the nodes of ``shard``.
    """

    weight: torch.Tensor
    bias: torch.Tensor
    scale: float = 1.0  # length to which vectors of length one are brought before they are compared with nodes
    can_divide: ClassVar[bool] = False  # whether ranks may have some of the nodes each
    leaves_out: ClassVar[bool] = False  # whether nodes can be left out of the loss of a text

    def __init__(self) -> None:
        super().__init__()
        self.whitening: Whitening | None = None  # of the vectors of texts, before all else
        self.shard: Shard = WHOLE

    # Nodes that are divided among ranks

    @property
    def n_nodes(self) -> int:
        """Nodes of the level, on all ranks."""
        return self.shard.n_nodes if self.shard.is_cut else len(self.bias)

    @torch.no_grad()
    def divide(self) -> None:
        """Keep the nodes of this rank only, if the head can be divided."""
        if self.can_divide and ranks().are_many:
            self.shard = Shard.own(len(self.bias))
            self._replace(self.shard.take(self.weight).clone(), self.shard.take(self.bias).clone())

    @torch.no_grad()
    def unite(self) -> None:
        """Bring all nodes to rank 0; the others keep theirs."""
        whole = [made_whole(tensor.detach(), self.shard).to(tensor.device) for tensor in (self.weight, self.bias)]
        if self.shard.is_cut and ranks().is_main:
            self.shard = WHOLE
            self._replace(*whole)

    def _replace(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        for name, tensor in (("weight", weight), ("bias", bias)):
            before = getattr(self, name)
            is_parameter = isinstance(before, torch.nn.Parameter)
            setattr(self, name, torch.nn.Parameter(tensor, before.requires_grad) if is_parameter else tensor)

    # Scores

    def all(self, e: Any) -> torch.Tensor:
        """Score every node (texts, nodes)."""
        raise NotImplementedError

    def some(self, e: Any, nodes: torch.Tensor) -> torch.Tensor:
        """Score some nodes of each text: ``nodes`` and the result are (texts, candidates)."""
        raise NotImplementedError

    def best(self, e: Any, k: int, allowed: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the k best nodes of all (texts, k) and the logarithms of their scores, −∞ where there is none."""
        scores = F.logsigmoid(self.all(e).float())
        scores, nodes = stable_topk(scores if allowed is None else torch.where(allowed, scores, -torch.inf), k)
        scores, nodes = self.shard.best(scores, nodes, k)
        return nodes, scores

    def n_floats(self, candidates: int, length: int) -> int:
        """Return how many numbers are held to score so many nodes of a text of so many tokens."""
        return candidates * self.weight.shape[1]

    def n_floats_of_all(self, length: int) -> int:
        """Return how many numbers are held to score all nodes of a text."""
        return _COPIES * self.n_nodes

    # Training

    def learn_all(
        self, e: Any, truth: Truth, *, is_whole: bool, learned: torch.Tensor | None = None
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Return the scores of all nodes (None if nobody may ask), and the summed loss.

        ``learned`` (texts, nodes) says which nodes a text is trained on, if the head can leave nodes out.
        """
        scores = self.all(e).float()
        return scores, F.softplus(scores).sum() - truth.sum_of(scores)

    def learn(
        self, e: Any, nodes: torch.Tensor, right: torch.Tensor, exists: torch.Tensor, *, is_whole: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scores of some nodes of each text, and the loss summed over those that exist.

        ``is_whole`` says that these are all texts of an optimiser step. A head that updates itself does so then; after
        the last part of a batch, ``step`` is called instead.
        """
        scores = self.some(e, nodes).float()
        each = F.binary_cross_entropy_with_logits(scores, right.float(), reduction="none")
        return scores, (each * exists).sum()

    def adam_eps(self, batch_size: int) -> float:
        """Return eps of Adam: gradients much smaller than that of one wrong text move the weights little."""
        return _ADAM_EPS / batch_size

    def set_lr(self, factor: float) -> None:
        """Multiply the learning rate by a factor; for heads that update themselves."""

    def step(self) -> None:
        """Update the weights by the parts of a batch that were scored; for heads that update themselves."""

    def reading_parameters(self) -> Iterable[torch.nn.Parameter]:
        """Return the parameters that belong to what reads a text rather than to nodes."""
        return ()

    # First and fixed weights

    def place(self, device: torch.device) -> None:
        """Make large weights on the device where they are going to be used, in the precision for it."""

    @torch.no_grad()
    def set_prior(self, frequency: torch.Tensor) -> None:
        """Start every node at the log-odds of how often it is right (nodes,)."""
        self.bias.copy_(log_odds(self.shard.take(frequency)))

    def compared(self, e: torch.Tensor) -> torch.Tensor:
        """Return the vectors (texts, d) that nodes are compared with."""
        return e

    @property
    def parts(self) -> list[tuple[int, int]]:
        """Ends of the nodes of this rank whose first weights are summed at a time; every rank has as many parts."""
        return [(0, len(self.bias))]

    def sums(self, first: int, last: int) -> torch.Tensor:
        """Return zeros (last − first, d), float32, in which first weights of nodes of this rank may be summed."""
        return self.weight.detach()[first:last].zero_()

    @torch.no_grad()
    def set_weights(self, weight: torch.Tensor, bias: torch.Tensor, first: int = 0) -> None:
        """Take first weights (nodes, d) and biases (nodes,) of the nodes of this rank from ``first`` on."""
        last = first + len(bias)
        self.weight[first:last] = weight
        self.bias[first:last] = bias

    @torch.no_grad()
    def set_margin(self, nodes: torch.Tensor, margin: float) -> None:
        """Give nodes the same margin for all texts."""
        _, places = self.shard.places(nodes)
        self.weight[places] = 0.0
        self.bias[places] = margin


def make_head(config: NeuralConfig, level: int, n_levels: int, width: int, n_nodes: int) -> Head:
    """Return the head that the settings name for a level whose reader returns vectors of this width."""
    network, training = config.network, config.training
    if network.head == "full":
        return FullHead(
            width, n_nodes, dropout=network.dropout_at(level), whitens=config.whitens,
            learning_rate=training.full_head_learning_rate,
        )  # fmt: skip
    parts: dict[str, Any] = {
        "dropout": network.dropout_at(level),
        "bottleneck": network.bottleneck_at(level, n_levels),
        "whitens": config.whitens,
    }
    if config.updates_rows(level, n_nodes):
        rate, decay = training.head_learning_rate, training.head_weight_decay
        return SparseHead(width, n_nodes, learning_rate=rate, weight_decay=decay, **parts)
    return LinearHead(width, n_nodes, **parts)


class LinearHead(Head):
    """Classifiers that an optimiser trains.

    Parameters
    ----------
    width
        Length of a text's vector.
    n_nodes
        Nodes of the level.
    dropout
        Dropout of a text's vector.
    bottleneck
        Width of a linear layer before the classifiers; 0 is none.
    whitens
        Whether texts' vectors are whitened first.
    """

    can_divide = True

    def __init__(self, width: int, n_nodes: int, *, dropout: float = 0.0, bottleneck: int = 0, whitens: bool = False):
        super().__init__()
        self.dropout = dropout
        self.whitening = Whitening(width) if whitens else None
        self.bottleneck = torch.nn.Linear(width, bottleneck) if bottleneck else None
        if self.whitening is not None and self.bottleneck is not None:  # the directions of the largest variance
            torch.nn.init.eye_(self.bottleneck.weight)
            torch.nn.init.zeros_(self.bottleneck.bias)
        self.weight = torch.nn.Parameter(torch.empty(n_nodes, bottleneck or width))
        self.bias = torch.nn.Parameter(torch.zeros(n_nodes))
        torch.nn.init.xavier_uniform_(self.weight)

    def compared(self, e: torch.Tensor) -> torch.Tensor:
        """Return the vectors (texts, d) that nodes are compared with."""
        e = e if self.whitening is None else self.whitening(e)
        e = F.dropout(e, self.dropout, self.training)
        return e if self.bottleneck is None else self.bottleneck(e)

    def all(self, e: torch.Tensor) -> torch.Tensor:
        """Score every node (texts, nodes)."""
        return F.linear(self.compared(e), self.weight, self.bias)

    def learn_all(
        self, e: torch.Tensor, truth: Truth, *, is_whole: bool, learned: torch.Tensor | None = None
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Return scores and loss; if the head is divided, the loss of its nodes over the texts of all ranks.

        Then the truth is that of the texts of all ranks.
        """
        if not self.shard.is_cut:
            return super().learn_all(e, truth, is_whole=is_whole)
        every = gather_learning(self.compared(e), self.shard)
        scores = F.linear(every, self.weight, self.bias).float()
        return None, F.softplus(scores).sum() - truth.sum_of(scores, self.shard.first)

    def some(self, e: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
        """Score some nodes of each text: ``nodes`` and the result are (texts, candidates)."""
        e = self.compared(e)
        weight = F.embedding(nodes, self.weight)  # (texts, candidates, d)
        return torch.bmm(weight.to(e.dtype), e[:, :, None])[:, :, 0] + self.bias[nodes]

    def reading_parameters(self) -> Iterable[torch.nn.Parameter]:
        """Return the parameters of the bottleneck."""
        return () if self.bottleneck is None else self.bottleneck.parameters()


class WeightedHead(LinearHead):
    """Classifiers of all nodes of a level, for vectors of length one, trained with a weight per text and node (eq. 9).

    Vectors are scaled, so that the rates of the optimiser do not depend on their width. ``loss`` and ``alpha`` are the
    settings of these names, the other parameters those of ``LinearHead``.
    """

    leaves_out = True

    def __init__(self, width: int, n_nodes: int, *, dropout: float, loss: str, alpha: float):
        super().__init__(width, n_nodes, dropout=dropout)
        self.loss, self.alpha, self.scale = loss, alpha, math.sqrt(width)

    def compared(self, e: torch.Tensor) -> torch.Tensor:
        """Return the vectors (texts, d) that nodes are compared with."""
        return super().compared(e * self.scale)

    def learn_all(
        self, e: torch.Tensor, truth: Truth, *, is_whole: bool, learned: torch.Tensor | None = None
    ) -> tuple[None, torch.Tensor]:
        """Return the summed loss of the nodes of this rank; the values of the truth are weights of positive nodes."""
        scores = F.linear(gather_learning(self.compared(e), self.shard), self.weight, self.bias)
        return None, weighted(self.loss, scores.float(), self.shard.truth(truth), learned, self.alpha).sum()

    def adam_eps(self, batch_size: int) -> float:
        """Return eps of Adam: its default, for the loss of a text is a sum over all nodes."""
        return 1e-8


class SparseHead(LinearHead):
    """Classifiers of which a step updates only the rows that a batch touches, with one number of state for each.

    No gradient and no optimiser state as large as the table exists. The learning rate and weight decay are what an
    optimiser would be told, the other parameters those of ``LinearHead``.
    """

    can_divide = False

    def __init__(self, width: int, n_nodes: int, *, learning_rate: float, weight_decay: float, **more: Any):
        super().__init__(width, n_nodes, **more)
        for name in ("weight", "bias"):
            tensor = getattr(self, name).detach()
            delattr(self, name)
            self.register_buffer(name, tensor)
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.register_buffer("state", torch.zeros(n_nodes))
        self.register_buffer("rate", torch.tensor(learning_rate), persistent=False)
        self.waiting: list[tuple[torch.Tensor, ...]] = []  # what the next step updates

    def set_lr(self, factor: float) -> None:
        """Multiply the learning rate by a factor."""
        self.rate.fill_(factor * self.learning_rate)

    def learn(
        self, e: torch.Tensor, nodes: torch.Tensor, right: torch.Tensor, exists: torch.Tensor, *, is_whole: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scores of some nodes, and the summed loss, which carries the gradient of ``e``."""
        e = self.compared(e).float()
        score, _ = fastest(e.device)
        with torch.no_grad(), torch.autocast(e.device.type, enabled=False):
            found = score(e, self.weight, self.bias, nodes, right, exists)
            self.waiting.append((nodes, found.residual, exists, e.detach()))
            if is_whole and not ranks().are_many:  # the others have to be waited for after the backward pass
                self.step()
        return found.scores, with_gradient(e, found.loss.sum(), found.grad_e)

    @torch.no_grad()
    def step(self) -> None:
        """Update the nodes that texts were compared with since the last step, those of all ranks alike."""
        if not self.waiting and not ranks().are_many:
            return
        nodes, residual, exists, e = gathered(self.waiting, self._nothing())
        self.waiting.clear()
        _, update = fastest(e.device)
        update(self.weight, self.bias, self.state, nodes, residual, exists, e, self.rate, self.weight_decay)

    def _nothing(self) -> tuple[torch.Tensor, ...]:
        """Return what a rank without texts has to update by."""
        none = torch.zeros((0, 1), device=self.weight.device)
        return none.long(), none, none.bool(), none.new_zeros((0, self.weight.shape[1]))


class FullHead(Head):
    """A classifier for every label, trained a block of labels at a time, without optimiser state.

    The gradient of the logistic loss by a score is σ(score) − y. So the scores of a block of labels are turned into
    gradients in place, the texts' share of them is summed up, the labels' weights are updated at once, and the next
    block follows: memory holds the weights and the scores of one block (Renée, MLSys 2023; ELMO, ICML 2025). On a GPU
    the weights are bfloat16.

    At learning rate 1 a step closes the residual of a label for a text as far as the gradient goes: rates do not depend
    on the width of the encoder. The other parameters are those of ``LinearHead``.
    """

    can_divide = True

    def __init__(
        self, width: int, n_nodes: int, *, dropout: float = 0.0, whitens: bool = False, learning_rate: float = 1.0
    ):
        super().__init__()
        self.dropout, self.learning_rate, self.width = dropout, learning_rate, width
        self.scale = math.sqrt(width)
        self.whitening = Whitening(width) if whitens else None
        self.register_buffer("weight", torch.zeros(n_nodes, width, device="meta"))  # until ``place`` makes them
        self.register_buffer("bias", torch.full((n_nodes,), -math.log(max(n_nodes, 2))))
        self.register_buffer("rate", torch.tensor(learning_rate), persistent=False)
        self.waiting: list[tuple[torch.Tensor, Truth]] = []  # vectors and truth of texts that the next step updates by

    def place(self, device: torch.device) -> None:
        """Make the weights, in bfloat16 on a GPU; steps are rounded at random, so nothing is lost on average."""
        precision = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.weight = torch.zeros(self.weight.shape, dtype=precision, device=device)

    def compared(self, e: torch.Tensor) -> torch.Tensor:
        """Return whitened vectors, all of one length."""
        e = e if self.whitening is None else self.whitening(e)
        return F.normalize(e.float(), dim=1) * self.scale

    @property
    def parts(self) -> list[tuple[int, int]]:
        """Ends of the labels whose first weights are summed at a time: sums need more memory than weights."""
        n, size = len(self.bias), max(NUMBERS_SUMMED_AT_ONCE // self.width, 1)
        largest = math.ceil(self.n_nodes / ranks().size) if self.shard.is_cut else n  # of the shards of all ranks
        return [(min(first, n), min(first + size, n)) for first in range(0, max(largest, 1), size)]

    def sums(self, first: int, last: int) -> torch.Tensor:
        """Return zeros (last − first, d), float32."""
        return torch.zeros(last - first, self.width, device=self.weight.device)

    def set_lr(self, factor: float) -> None:
        """Multiply the learning rate by a factor."""
        self.rate.fill_(factor * self.learning_rate)

    def learn_all(
        self, e: torch.Tensor, truth: Truth, *, is_whole: bool, learned: torch.Tensor | None = None
    ) -> tuple[None, torch.Tensor]:
        """Return the summed loss, whose gradient is that of the texts; a whole batch updates the labels, too.

        Of a head that is divided, the loss is that of its labels over the texts of all ranks, whose truth is given.
        """
        e = F.dropout(self.compared(e), self.dropout, self.training)
        every = ranks().gather_batch(e.detach()) if self.shard.is_cut else e
        loss, gradient = self._learned(every, truth, updates=is_whole)
        if not is_whole:
            self.waiting.append((every.detach(), truth))
        return None, with_gradient(e, loss, ranks().scatter_batch(gradient) if self.shard.is_cut else gradient)

    @torch.no_grad()
    def step(self) -> None:
        """Update the labels by all parts of a batch: they are scored once more, for nothing was kept of them."""
        if not self.waiting:
            return
        vectors, truths = zip(*self.waiting, strict=True)
        self.waiting.clear()
        e = torch.cat(vectors).to(self.weight.dtype)
        truth = Truth(*(torch.cat(parts) for parts in list(zip(*truths, strict=True))[:2]), truths[0].n_nodes)
        for first, last in self._blocks():
            self._update(first, last, _residual(self._scores(e, first, last), self._right(truth, first, last)), e)

    @torch.no_grad()
    def _learned(self, e: torch.Tensor, truth: Truth, *, updates: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the summed loss and the texts' gradient (texts, d); update the labels, if asked to."""
        grad_e, loss, short = torch.zeros_like(e), torch.zeros((), device=e.device), e.to(self.weight.dtype)
        with torch.autocast(e.device.type, enabled=False):
            for first, last in self._blocks():
                scores, right = self._scores(short, first, last), self._right(truth, first, last)  # (texts, labels)
                loss -= F.logsigmoid(-scores).sum() + (scores * right).sum()
                residual = _residual(scores, right).to(short.dtype)
                grad_e += (residual @ self.weight[first:last]).to(grad_e.dtype)
                if updates:
                    self._update(first, last, residual, short)
        return loss, grad_e

    def _update(self, first: int, last: int, residual: torch.Tensor, e: torch.Tensor) -> None:
        rate = self.rate / self.width
        self.weight[first:last] = stepped(self.weight[first:last], residual.to(e.dtype).T @ e, rate)
        self.bias[first:last] -= rate * residual.float().sum(dim=0)

    @torch.no_grad()
    def best(self, e: torch.Tensor, k: int, allowed: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the k best labels, found block by block."""
        e, parts = self.compared(e), []
        for first, last in self._blocks():
            scores = self._scores(e, first, last)
            if allowed is not None:
                scores = torch.where(allowed[first:last], scores, -torch.inf)
            values, at = stable_topk(scores, k)
            parts.append((values, first + at))
        values, labels = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
        values, at = stable_topk(values, k)
        values, labels = self.shard.best(values, labels.gather(1, at), k)
        return labels, F.logsigmoid(values)

    def all(self, e: torch.Tensor) -> torch.Tensor:
        """Score every label (texts, labels)."""
        return self._scores(self.compared(e), 0, len(self.bias))

    def some(self, e: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
        """Score some labels (texts, labels) of each text."""
        weight = F.embedding(nodes, self.weight).float()
        return torch.bmm(weight, self.compared(e)[:, :, None])[:, :, 0] + self.bias[nodes]

    def n_floats_of_all(self, length: int) -> int:
        """Return the numbers of one block of labels."""
        return _COPIES * min(self.n_nodes, LABELS_STEPPED_AT_ONCE)

    def _scores(self, e: torch.Tensor, first: int, last: int) -> torch.Tensor:
        """Score a block of labels in float32, multiplied in the precision of ``e``."""
        return F.linear(e, self.weight[first:last].to(e.dtype)).float() + self.bias[first:last]

    def _right(self, truth: Truth, first: int, last: int) -> torch.Tensor:
        """Return the values of a block of labels (texts, labels), which has these places among those of this rank."""
        return truth.dense(self.shard.first + first, self.shard.first + last)

    def _blocks(self) -> list[tuple[int, int]]:
        n, size = len(self.bias), LABELS_STEPPED_AT_ONCE
        return [(first, min(first + size, n)) for first in range(0, n, size)] or [(0, 0)]


def gathered(waiting: Sequence[tuple[torch.Tensor, ...]], nothing: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Put together what waits for a step, column by column, on all ranks; a rank may have nothing."""
    columns = list(zip(*(waiting or [nothing]), strict=True))
    own = [parts[0] if len(parts) == 1 else torch.cat(parts) for parts in columns]
    return [torch.cat(ranks().gather(part)) for part in own] if ranks().are_many else own


def _residual(scores: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Turn scores into the gradient of the logistic loss by them, in place."""
    return scores.sigmoid_().sub_(right)


def stepped(weight: torch.Tensor, gradient: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
    """Return ``weight − rate · gradient`` in the precision of ``weight``; bfloat16 is rounded up or down at random.

    Rounded to the nearest, a step smaller than half the distance to the next number would be lost every time.
    """
    exact = weight.float() - rate * gradient.float()
    if weight.dtype != torch.bfloat16:
        return exact
    bits = exact.view(torch.int32) + torch.randint_like(exact, 0, 1 << 16, dtype=torch.int32)
    return (bits & -(1 << 16)).view(torch.float32).to(torch.bfloat16)


def log_odds(p: torch.Tensor) -> torch.Tensor:
    """Return the margins at which a logistic classifier predicts these probabilities."""
    p = p.clamp(_LEAST_FREQUENCY, 1.0 - _LEAST_FREQUENCY)
    return p.log() - (1.0 - p).log()


def inherit(head: torch.nn.Module, above: torch.nn.Module) -> None:
    """Let a level start with what it shares with the one above: all but what belongs to a node."""
    own = {"weight", "bias"}
    shared = {name: tensor for name, tensor in above.state_dict().items() if name not in own}
    fitting = {name: tensor for name, tensor in head.state_dict().items() if name not in own}
    if {name: tensor.shape for name, tensor in shared.items()} == {name: t.shape for name, t in fitting.items()}:
        head.load_state_dict(shared, strict=False)
