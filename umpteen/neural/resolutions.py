"""Recursive fine-tuning: one encoder, from a coarse view of the labels to a fine one (Algorithms 1 and 2).

Each resolution is a level of the preliminary tree. Its scorers start at the linear solution on the embeddings of the
resolution before (eq. 11), and encoder and scorers then learn together (eq. 9) on the nodes that the level above
lets through (eqs. 7 and 8).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn import functional as F
from torch.nn.utils import skip_init

from umpteen.config import FinetuneConfig
from umpteen.data.tokens import Tokens, endless_batches
from umpteen.engine import Progress, silent
from umpteen.neural import newton
from umpteen.neural.cuda_graphs import Inputs
from umpteen.neural.device_rows import DeviceRows
from umpteen.neural.encoder import Encoder
from umpteen.neural.loop import Group, optimise, rate_at
from umpteen.neural.losses import weighted
from umpteen.neural.micro_batches import MicroBatches, learning
from umpteen.neural.trainer import Report
from umpteen.neural.training_state import State, TrainingState, under
from umpteen.store import Checkpoint
from umpteen.tree import LabelTree, relevance

_AT_A_TIME = 8_192  # texts scored at a time
_FEWEST_HELD = 200  # texts that are kept from training; with fewer, none are
_DEPTHS = (1, 3, 5)  # places that early stopping looks at


class Resolution(NamedTuple):
    """What happened at one resolution, for a table."""

    nodes: int
    steps: int
    tokens: int
    bootstrap_s: float
    train_s: float
    embed_s: float

    @classmethod
    def of(cls, numbers: np.ndarray) -> Resolution:
        """Undo what made numbers of one."""
        return cls(*(int(count) for count in numbers[:3]), *(float(seconds) for seconds in numbers[3:]))


@dataclass
class Finetuning:
    """One fine-tuning run; ``embeddings`` is the result, and the encoder is changed in place.

    ``tree`` is the preliminary tree: its levels are the resolutions, and the last one's targets are learned only if
    it has few enough nodes.
    """

    encoder: Encoder
    tokens: Tokens
    Y: sp.csr_matrix
    tree: LabelTree
    config: FinetuneConfig
    seed: int = 0
    checkpoint: Checkpoint | None = None
    progress: Progress = silent
    report: list[Resolution] = field(default_factory=list)
    head: torch.nn.Linear | None = None

    def __post_init__(self) -> None:
        self.kept, self.held = _hold_out(len(self.tokens), self.config.held_out, self.seed)

    def embeddings(self) -> np.ndarray:
        """Fine-tune through all resolutions and embed the texts at the end."""
        self.flat = self.encoder.flat(self.tokens)
        E, head = None, None
        levels = self._levels()
        finished = [level for level in levels if self._has(_finished(level))]
        for level in finished:
            self.report.append(Resolution.of(self.checkpoint.load(_finished(level))["report"]))
        if finished:  # the last of them says it all
            E, head = self._restore(self.checkpoint.load(_finished(finished[-1]), mmap=False), finished[-1])
        for level in levels:
            if level > max(finished, default=-1):
                E, head = self._resolution(level, E, head)
        self.head = head
        return self.encoder.embed(self.tokens, progress=self.progress) if E is None else E

    def label_scorers(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the weights (labels, d) and biases of the last resolution by label, if that one was the labels.

        They are for embeddings of length one.
        """
        if self.head is None or len(self.head.bias) != self.tree.n_labels:
            return None
        position = self.tree.position
        weight = self.head.weight.detach().cpu().numpy()[position] * np.float32(math.sqrt(self.encoder.dim))
        return weight, self.head.bias.detach().cpu().numpy()[position]

    def _levels(self) -> list[int]:
        """Return the levels to learn: all of clusters, and the labels if they are few enough and were asked for."""
        only_clusters = self.config.cluster > 1 and not self.config.levels
        with_labels = not only_clusters and self.tree.n_labels <= self.config.max_nodes
        return list(range(self.tree.n_levels - (not with_labels)))

    def _has(self, stage: str) -> bool:
        return self.checkpoint is not None and self.checkpoint.has(stage)

    def _head(self, level: int) -> torch.nn.Linear:
        """Return scorers of a level without numbers yet."""
        return skip_init(torch.nn.Linear, self.encoder.dim, self.tree.sizes[level], device=self.encoder.device)

    def _with_encoder(self, head: torch.nn.Linear) -> torch.nn.ModuleDict:
        """Return all that learns as one module, whose state is kept."""
        return torch.nn.ModuleDict({"encoder": self.encoder.model, "head": head})

    def _resolution(
        self, level: int, E: np.ndarray | None, above: torch.nn.Linear | None
    ) -> tuple[np.ndarray, torch.nn.Linear]:
        """Learn one level; return the embeddings after it and its scorers."""
        head, is_underway = self._head(level), self._has(_underway(level))
        if E is None and not is_underway:
            E = self.encoder.embed(self.tokens, progress=self.progress)
        begun = time.perf_counter()
        R = self._relevance(level)
        alive = self._alive(level, E, above)
        if not is_underway:
            self._start(head, level, E, R, alive)
        bootstrap_s = time.perf_counter() - begun
        report = self._learn(head, level, R, alive)
        learned = time.perf_counter()
        if E is None or report.steps:
            E = self.encoder.embed(self.tokens, progress=self.progress)
        embed_s = time.perf_counter() - learned
        done = Resolution(len(head.bias), report.steps, report.tokens, bootstrap_s, report.seconds, embed_s)
        self.report.append(done)
        if self.checkpoint is not None:
            self.checkpoint.save(_finished(level), self._arrays(head, E, done))
            self.checkpoint.drop(_underway(level))
        return E, head

    # What is learned, on which nodes

    def _relevance(self, level: int) -> sp.csr_matrix:
        if self.config.relevance == "none":
            return self.tree.lift(self.Y, level)
        return relevance(self.tree, self.Y, level, normalize=self.config.relevance == "induce-l1")

    def _alive(self, level: int, E: np.ndarray, above: torch.nn.Linear | None) -> sp.csr_matrix | None:
        """Return the parents (texts, nodes above) whose children a text is trained on; None is all (eqs. 7, 8)."""
        if level == 0 or self.config.negatives == "all":
            return None
        true = self.tree.lift(self.Y, level - 1)
        if self.config.negatives == "tfn" or above is None:
            return true
        k = min(self.config.negatives_beam, self.tree.sizes[level - 1])
        found = np.concatenate([s.topk(k, dim=1).indices.cpu().numpy() for s in _scores(E, above)])
        ptr = np.arange(0, found.size + 1, k)
        predicted = sp.csr_matrix((np.ones(found.size, np.float32), found.ravel(), ptr), shape=true.shape)
        either = (true + predicted).tocsr()
        either.data[:] = 1.0
        return either

    # Where the scorers start

    def _start(
        self, head: torch.nn.Linear, level: int, E: np.ndarray, R: sp.csr_matrix, alive: sp.csr_matrix | None
    ) -> None:
        """Set the scorers to the linear solution on the current embeddings (eq. 11), or to small random ones."""
        if not self.config.bootstrap:
            generator = torch.Generator().manual_seed(self.seed + level)
            with torch.no_grad():
                head.weight.copy_(torch.randn(head.weight.shape, generator=generator) / self.encoder.dim)
                head.bias.fill_(-1.0)
            return
        if len(self.held):  # those shall tell later how good it is
            E, R, alive = E[self.kept], R[self.kept], None if alive is None else alive[self.kept]
        W = newton.solve_level(
            torch.from_numpy(E).to(self.encoder.device), R, alive, self.tree.starts[level],
            cost=self.config.bootstrap_cost, alpha=self.config.alpha, progress=self.progress,
        )  # fmt: skip
        with torch.no_grad():
            head.weight.copy_(W[:-1].T / math.sqrt(self.encoder.dim))
            head.bias.copy_(W[-1])

    # How they learn

    def _learn(self, head: torch.nn.Linear, level: int, R: sp.csr_matrix, alive: sp.csr_matrix | None) -> Report:
        """Train encoder and scorers together."""
        config, encoder, device = self.config, self.encoder, self.encoder.device
        targets = DeviceRows(R, device)
        alive_rows = None if alive is None else DeviceRows(alive, device)
        parents = torch.from_numpy(self.tree.parents[level].astype(np.int64)).to(device)
        scale = math.sqrt(encoder.dim)

        def work(
            ids: torch.Tensor, mask: torch.Tensor | None, R: torch.Tensor, parents_alive: Any, n: Any
        ) -> torch.Tensor:
            """Add the gradients of some texts; all arguments are tensors of fixed shapes."""
            with encoder.autocast():
                e = F.normalize(encoder(ids, mask), dim=1) * scale  # (texts, d)
                scores = head(F.dropout(e, config.dropout))  # (texts, nodes)
            let_through = None if parents_alive is None else parents_alive[:, parents]
            loss = weighted(config.loss, scores.float(), R, let_through, config.alpha).sum() / n
            loss.backward()
            return loss.detach()

        def inputs(some: np.ndarray, rows: np.ndarray) -> Inputs:
            parents_alive = None if alive_rows is None else alive_rows.dense(some)
            return targets.dense(some), parents_alive, torch.tensor(float(len(rows)), device=device)

        per_epoch = math.ceil(len(self.kept) / config.batch_size)
        n_steps = math.ceil(self._epochs(level) * per_epoch)
        if n_steps == 0:
            return Report(0, 0, 0.0)
        if config.recompute:
            encoder.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        watch = _EarlyStop(self, head, R, per_epoch, n_steps) if len(self.held) else None
        groups = [
            Group(list(encoder.model.parameters()), config.rate, config.weight_decay, config.clip),
            Group(list(head.parameters()), config.head_rate),
        ]
        backward = MicroBatches(encoder, self.flat, work, inputs, record=config.record)
        kept = TrainingState(
            self.checkpoint, _underway(level), self._with_encoder(head),
            {"pieces": backward} | ({} if watch is None else {"watch": watch}),
            per_epoch=per_epoch, n_steps=n_steps, device=device,
        )  # fmt: skip
        with learning(encoder.model, device, self.seed + level):
            done = optimise(
                groups, self._batches(level), backward, n_steps=n_steps,
                rate=lambda step: rate_at(step, n_steps, "linear", config.warmup),
                stage=f"fine-tuning on {len(head.bias):,} nodes", progress=self.progress, after=watch, saved=kept,
            )  # fmt: skip
        if watch is not None:
            watch.restore()
        return Report(done, backward.n_tokens, kept.seconds)

    def _epochs(self, level: int) -> float:
        return self.config.epochs_at(level, len(self._levels()))

    def _batches(self, level: int) -> Iterator[np.ndarray]:
        lengths = self.tokens.lengths[self.kept]
        for batch in endless_batches(lengths, self.config.batch_size, self.seed, level):
            yield self.kept[batch]

    # What a finished resolution leaves

    def _arrays(self, head: torch.nn.Linear, E: np.ndarray, done: Resolution) -> dict[str, np.ndarray]:
        weights = {name: tensor.cpu().numpy() for name, tensor in self._with_encoder(head).state_dict().items()}
        return weights | {"embeddings": E, "report": np.array(done, np.float64)}

    def _restore(self, arrays: dict[str, np.ndarray], level: int) -> tuple[np.ndarray, torch.nn.Linear]:
        head, others = self._head(level), ("embeddings", "report")
        weights = {name: torch.from_numpy(array.copy()) for name, array in arrays.items() if name not in others}
        self._with_encoder(head).load_state_dict(weights)
        return arrays["embeddings"].copy(), head


class _EarlyStop:
    """Look at texts kept from training after every epoch; keep the best state and end when it stops getting better.

    A last epoch that is not whole is looked at, too.
    """

    def __init__(self, run: Finetuning, head: torch.nn.Linear, R: sp.csr_matrix, per_epoch: int, n_steps: int):
        self.run, self.head, self.per_epoch, self.n_steps = run, head, per_epoch, n_steps
        self.truth = R[run.held]
        self.tokens = run.tokens.take(run.held)
        self.best, self.waited = -1.0, 0
        self.both, self.best_state = run._with_encoder(head), State()

    def __call__(self, step: int) -> bool:
        if step % self.per_epoch and step != self.n_steps:
            return False
        quality = self._quality()
        if quality > self.best:
            self.best, self.waited = quality, 0
            self.best_state = {name: tensor.clone() for name, tensor in self.both.state_dict().items()}
            return False
        self.waited += 1
        return self.waited >= self.run.config.patience

    def _quality(self) -> float:
        """Return the mean precision at 1, 3 and 5."""
        E = self.run.encoder.embed(self.tokens)
        k = min(max(_DEPTHS), self.truth.shape[1])
        top = np.concatenate([s.topk(k, dim=1).indices.cpu().numpy() for s in _scores(E, self.head)])
        rows = np.repeat(np.arange(len(top)), k)
        hits = np.asarray(self.truth[rows, top.ravel()] > 0).reshape(top.shape)
        return float(np.mean([hits[:, :depth].mean() for depth in _DEPTHS]))

    def state(self) -> State:
        """Return the best state so far, how good it is, and how long it has been the best."""
        counts = {"best": torch.tensor(self.best, dtype=torch.float64), "waited": torch.tensor(self.waited)}
        return counts | {f"best.{name}": tensor for name, tensor in self.best_state.items()}

    def take_up(self, state: State) -> None:
        """Go on from there."""
        self.best, self.waited = float(state["best"]), int(state["waited"])
        self.best_state = under(state, "best.")

    def restore(self) -> None:
        """Go back to the best state."""
        if self.best_state:
            self.both.load_state_dict(self.best_state)


def _scores(E: np.ndarray, head: torch.nn.Linear) -> Iterator[torch.Tensor]:
    """Score all nodes for embeddings of length one, some texts at a time."""
    with torch.inference_mode():
        for first in range(0, len(E), _AT_A_TIME):
            block = torch.from_numpy(E[first : first + _AT_A_TIME]).to(head.weight.device)
            yield head(block * math.sqrt(head.in_features))


def _finished(level: int) -> str:
    """Return the stage of a resolution that is done."""
    return f"resolution-{level}"


def _underway(level: int) -> str:
    """Return the stage of one whose epochs are not all done."""
    return f"resolution-{level}-underway"


def _hold_out(n: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split the texts into those to learn from and those to watch; very few to watch would tell nothing."""
    n_held = int(share * n) if int(share * n) >= _FEWEST_HELD else 0
    held = np.sort(np.random.default_rng(seed).permutation(n)[:n_held])
    return np.setdiff1d(np.arange(n), held), held
