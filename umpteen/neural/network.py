"""Make the network that settings describe, and use it: labels, scores, and vectors of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from umpteen.config import NeuralConfig
from umpteen.data.finite import is_finite
from umpteen.data.tokens import Tokens
from umpteen.engine import Callback, Progress, ignore, silent
from umpteen.errors import BadConfig, BadModelFile
from umpteen.neural import newton
from umpteen.neural.cascade import Cascade
from umpteen.neural.distributed import ranks
from umpteen.neural.encoder import Encoder, explained_memory
from umpteen.neural.lda_init import Covariance, discriminants
from umpteen.neural.readers import States, make_reader
from umpteen.neural.trainer import BEST, Metrics, Report, Trainer, hold_out, precisions
from umpteen.neural.truth import TruthTable
from umpteen.shortlist import TopK
from umpteen.store import Checkpoint
from umpteen.store.parts import blocks
from umpteen.store.tensors import Allocate, in_memory
from umpteen.tree import LabelTree

_SILENT = -1e4  # margin of a label that no text has; half precision holds it
_LARGEST = float(np.finfo(np.float16).max)  # weight that can be stored
_MEASURED = 20_000  # texts of which the covariance is measured
_SCALED_AT_ONCE = 65_536  # vectors
_READ_AT_ONCE = 4_096  # texts whose vectors are known that are scored at a time
_GATHERED_AT_ONCE = 65_536  # texts whose vectors all ranks have at a time, for first weights
_AT_ONCE = 100_000_000  # numbers that the gathered vectors of labels may be while predicting
_LOWEST_PRIORITY = 0.5  # of a node that was predicted, the best of them have 1

Texts = Tokens | list[np.ndarray]  # as they come, or as ``Network.read`` has read them
Batch = tuple[np.ndarray, Iterator[Any]]  # numbers of some texts, and what each level reads of them


class Network:
    """A network, the encoder it reads with, and the tree it scores.

    Parameters
    ----------
    encoder
        Tokenizes; its model is a part of the network.
    tree
        Levels and labels.
    config
        How the network is made.
    seed
        Of the first weights.
    divides
        Whether it is trained by all ranks, and a head that scores all labels is divided among them.
    """

    def __init__(
        self, encoder: Encoder, tree: LabelTree, config: NeuralConfig, *, seed: int = 0, divides: bool = False
    ):
        self.encoder, self.tree, self.config = encoder, tree, config
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            reader = make_reader(encoder, tree.n_levels, config)
            self.module = Cascade(reader, tree, config).eval()
        if divides:  # before anything takes memory of the device
            self.module.divide()
        self.module.to(encoder.device)
        self.module.place(encoder.device)

    @property
    def _levels(self) -> range:
        return range(self.tree.n_levels)

    @property
    def turns(self) -> Sequence[int | None]:
        """The levels that learn one after the other; a single None is all of them together."""
        return (None,) if self.config.training.order == "joint" else self._levels

    # Training

    def train(
        self, tokens: Tokens, targets: sp.csr_matrix, *, checkpoint: Checkpoint | None = None,
        progress: Progress = silent, record: Callback = ignore,
    ) -> list[Report]:  # fmt: skip
        """Train on texts and their labels (texts, labels); return what each training took, one or one per level."""
        config, truth = self.config.training, [self.tree.lift(targets, level) for level in self._levels]
        rows, held_out = self.split(len(tokens))
        quality = partial(self.quality, tokens.take(held_out), targets[held_out]) if len(held_out) else None
        reports = []
        for level in self.turns:
            if level is not None:
                self.module.learn_level(level)
            trainer = Trainer(
                self.module, self.encoder, tokens, truth, config, self.reader_parameters,
                epochs=config.epochs_at(level or 0, len(self.turns)),
                head_eps=self.module.head(0).adam_eps(config.batch_size), seed=self.config.seed,
                checkpoint=checkpoint, progress=progress, record=record, stage=self._stage(level), rows=rows,
                quality=quality if level in (None, self._levels[-1]) else None,  # labels are ranked by the last level
                predicted=self.choose(tokens, level, progress=progress) if level else None,
            )  # fmt: skip
            if not trainer.has_state:
                self.initialise(tokens, truth, level, progress=progress)
            reports.append(trainer.run())
        self.module.unite()
        self.silence(np.flatnonzero(targets.getnnz(axis=0) == 0))
        self.load(self.arrays())  # predict with the numbers that are saved
        return reports

    def split(self, n_texts: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the texts to train on, and of those held out."""
        return hold_out(n_texts, self.config.training.validation_fraction, self.config.seed)

    def _stage(self, level: int | None) -> str:
        return "training the network" if level is None else f"training level {level + 1} of {self.tree.n_levels}"

    # First weights

    def initialise(
        self, tokens: Tokens, truth: Sequence[sp.csr_matrix], level: int | None = None, *, progress: Progress = silent
    ) -> None:
        """Give the heads of a level, or of all, their first weights; ``truth`` has each level's nodes of every text."""
        levels, init = self._levels if level is None else [level], self.config.training.init
        if init == "random":
            return
        device = self.encoder.device
        counts = {one: torch.from_numpy(truth[one].getnnz(axis=0).astype(np.float32)).to(device) for one in levels}
        for one, count in counts.items():
            self.module.set_prior(one, count / max(len(tokens), 1))
        if not self.module.reader.reads_vectors:
            return
        if self.config.whitens:
            self._whiten(tokens, levels)
            self._start_at_means(tokens, truth, counts, progress)
        elif init == "newton":
            for one in levels:
                self._start_at_solution(tokens, truth, one, progress)

    def _whiten(self, tokens: Tokens, levels: Sequence[int]) -> None:
        """Measure the covariance of the vectors of some texts, which levels whiten them by."""
        some = np.unique(np.linspace(0, len(tokens) - 1, _MEASURED).astype(np.int64))
        covariances = {one: Covariance(self.module.reader.widths[one], self.encoder.device) for one in levels}
        for _, reads in self._read_by_all(tokens.take(some), levels):
            with self._predicting():
                for one, e in self._of_levels(reads, levels):
                    covariances[one].add(e)
        for one, covariance in covariances.items():
            self.module.head(one).whitening.fit(covariance)

    def _start_at_means(
        self, tokens: Tokens, truth: Sequence[sp.csr_matrix], counts: Mapping[int, torch.Tensor], progress: Progress
    ) -> None:
        """Start nodes at linear discriminants: the means of their texts' whitened vectors."""
        device = self.encoder.device
        sums = {one: self.module.head(one).sums() for one in counts}
        batches = self._read_by_all(tokens, list(counts))
        for rows, reads in _told(batches, "first weights", len(tokens), progress):
            with self._predicting():
                for one, e in self._of_levels(reads, list(counts)):
                    pairs = truth[one][rows].tocoo()
                    text, node = (torch.from_numpy(part.astype(np.int64)).to(device) for part in (pairs.row, pairs.col))
                    is_own, places = self.module.head(one).shard.places(node)
                    sums[one].index_add_(0, places, self.module.head(one).compared(e)[text[is_own]])
        for one, sum_of in sums.items():
            head = self.module.head(one)
            offset = discriminants(sum_of, head.shard.take(counts[one]))
            head.set_weights(sum_of, head.bias.detach() + offset)

    def _start_at_solution(
        self, tokens: Tokens, truth: Sequence[sp.csr_matrix], level: int, progress: Progress
    ) -> None:
        """Start the nodes of a level at the linear solution on its vectors, over the texts of their parents."""
        parts, order = [], []
        for rows, reads in _told(self._read_by_all(tokens, [level]), "first weights", len(tokens), progress):
            with self._predicting():
                ((_, e),) = self._of_levels(reads, [level])
                parts.append(self.module.head(level).compared(e).float())
            order.append(rows)
        some = np.concatenate(order)
        parents = truth[level - 1][some] if level else None
        W = newton.solve_level(
            torch.cat(parts).clone(), truth[level][some], parents, self.tree.starts[level],
            cost=self.config.training.init_cost, progress=progress,
        )  # fmt: skip
        head = self.module.head(level)
        head.set_weights(head.shard.take(W[:-1].T), head.shard.take(W[-1]))

    def _read_by_all(self, tokens: Tokens, levels: Sequence[int]) -> Iterator[Batch]:
        """Yield texts, and what some levels read of them; several ranks read some of the texts each, and have all."""
        if not ranks().are_many:
            yield from self._batches(tokens)
            return
        for first in range(0, len(tokens), _GATHERED_AT_ONCE):
            rows = np.arange(first, min(first + _GATHERED_AT_ONCE, len(tokens)))
            read = dict(zip(levels, self._read_in_shares(tokens.take(rows), levels), strict=True))
            for some in self._pieces(rows, sum(part.shape[1] for part in read.values())):
                at = some - first
                reads = (
                    read[level][at] if level in read else np.empty((len(at), 0)) for level in range(max(levels) + 1)
                )
                yield some, (torch.from_numpy(part).to(self.encoder.device) for part in reads)

    def _read_in_shares(
        self, tokens: Tokens, levels: Sequence[int], progress: Progress = silent, allocate: Allocate = in_memory
    ) -> list[np.ndarray]:
        """Return what some levels read of all texts; several ranks read some of the texts each, and have all."""
        if not ranks().are_many:
            return self._read(tokens, levels, progress, allocate)
        widths = [self.module.reader.widths[level] for level in levels]

        def read(own: np.ndarray) -> np.ndarray:
            return np.concatenate(self._read(tokens.take(own), levels, progress), axis=1)

        return np.split(ranks().in_shares(len(tokens), read), np.cumsum(widths)[:-1], axis=1)

    def _of_levels(self, reads: Iterable[Any], levels: Sequence[int]) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield what some levels read."""
        return ((one, e) for one, e in zip(range(max(levels) + 1), reads, strict=False) if one in levels)

    @property
    def reader_parameters(self) -> list[torch.nn.Parameter]:
        """The parameters that turn a text into what nodes are compared with: readers and bottlenecks."""
        of_heads = (parameter for head in self.module.heads for parameter in head.reading_parameters())
        return [*self.module.reader.parameters(), *of_heads]

    # Use

    def topk(self, texts: Texts, k: int, *, beam: int | None = None, wanted: np.ndarray | None = None) -> TopK:
        """Return the k best labels of each text, of those with these numbers if any are named.

        ``beam`` replaces that of the settings at every level; where it could not lead to k labels it is widened.
        """
        flags: list[torch.Tensor] = []
        if wanted is not None:
            ends = np.cumsum(self.tree.sizes)[:-1]
            every = np.split(self.tree.allowed_nodes(wanted).astype(bool), ends)
            flags = [torch.from_numpy(flag).to(self.encoder.device) for flag in every]
        n_texts = len(texts[0]) if isinstance(texts, list) else len(texts)
        labels, scores = np.full((n_texts, k), -1, np.int32), np.zeros((n_texts, k), np.float32)
        beams = [self._beam(level, k, beam) for level in range(self.tree.n_levels - 1)]
        for rows, reads in self._batches(texts, self._candidates(beams), searches=True):
            with self._predicting():
                found = self.module.topk(reads, k, beams, allowed=flags)
            places, best = (part.cpu().numpy() for part in found)
            labels[rows, : places.shape[1]] = np.where(places >= 0, self.tree.order[places], -1)
            scores[rows, : places.shape[1]] = best
        return TopK(labels, scores)

    def score_labels(self, texts: Texts, pairs: sp.csr_matrix) -> np.ndarray:
        """Score the stored entries of ``pairs``, in their order."""
        counts, out = np.diff(pairs.indptr), np.empty(pairs.nnz, np.float32)
        for rows, reads in self._batches(texts, int(counts.max(initial=1))):
            most = int(counts[rows].max(initial=0))
            if not most:
                continue
            is_there = np.arange(most) < counts[rows][:, None]  # (texts, most)
            places = np.where(is_there, pairs.indptr[rows][:, None] + np.arange(most), 0)
            labels = torch.from_numpy(pairs.indices[places].astype(np.int64))
            nodes = [of_level[labels].to(self.encoder.device) for of_level in self._ancestors]
            with self._predicting():
                found = self.module.score(reads, nodes)
            out[places[is_there]] = found.cpu().numpy()[is_there]
        return out

    def read(self, tokens: Tokens, *, progress: Progress = silent) -> list[np.ndarray]:
        """Return what each level reads of each text (texts, d), pooled where it reads every token."""
        return self._read(tokens, self._levels, progress)

    def _read(
        self, tokens: Tokens, levels: Sequence[int], progress: Progress, allocate: Allocate = in_memory
    ) -> list[np.ndarray]:
        """Return what some levels read."""
        widths = self.module.reader.widths
        arrays = allocate({f"level-{level}": (np.float32, (len(tokens), widths[level])) for level in levels})
        out = {level: arrays[f"level-{level}"] for level in levels}
        for rows, reads in _told(self._batches(tokens), "embeddings", len(tokens), progress):
            with self._predicting():
                for level, e in self._of_levels(reads, levels):
                    out[level][rows] = (e.pooled() if isinstance(e, States) else e).cpu().numpy()
        return list(out.values())

    def vectors(self, tokens: Tokens, *, progress: Progress = silent) -> np.ndarray:
        """Return what the last level reads of each text (texts, d), scaled to length one."""
        return self.scaled(self._read(tokens, self._levels[-1:], progress))

    def vectors_by_all(
        self, tokens: Tokens, *, progress: Progress = silent, allocate: Allocate = in_memory
    ) -> np.ndarray:
        """Return the same where all ranks ask: each reads some of the texts. ``allocate`` makes the array."""
        vectors = self._read_in_shares(tokens, self._levels[-1:], progress, allocate)[-1]
        for first, last in blocks(len(vectors), _SCALED_AT_ONCE):
            vectors[first:last] = self.scaled([vectors[first:last]])
        return vectors

    def scaled(self, read: list[np.ndarray]) -> np.ndarray:
        """Scale what the last level has read to length one."""
        return read[-1] / np.maximum(np.linalg.norm(read[-1], axis=1, keepdims=True), 1e-12)

    @property
    def reads_vectors(self) -> bool:
        """Whether what ``read`` returns is all that classifiers need."""
        return self.module.reader.reads_vectors

    def recall(
        self, tokens: Tokens, truth: sp.csr_matrix, *, beam: int | None = None, progress: Progress = silent
    ) -> list[float]:
        """Return for each level below the first the share of true nodes that are scored; none if nothing is true."""
        if self.tree.n_levels == 1 or not truth.nnz:
            return []
        beams = [self._beam(level, 1, beam) for level in range(self.tree.n_levels - 1)]
        right = [TruthTable(self.tree.lift(truth, level), self.encoder.device) for level in self._levels]
        found, batches = np.zeros(self.tree.n_levels), self._batches(tokens, self._candidates(beams), searches=True)
        for rows, reads in _told(batches, "shortlists", len(tokens), progress):
            with self._predicting():
                found += self.module.recalled(reads, beams, [level.of(rows) for level in right]).cpu().numpy()
        return [float(count / level.n_entries) for count, level in zip(found, right, strict=True)][1:]

    def quality(self, tokens: Tokens, truth: sp.csr_matrix) -> Metrics:
        """Return the precisions at 1, 3 and 5 on held-out texts, while the network is trained."""
        was_training = any(part.training for part in self.module.modules())  # perhaps one level of it alone
        self.module.eval()
        try:
            return precisions(self._best_labels(tokens, min(BEST, self.tree.n_labels)), truth)
        finally:
            self.module.train(was_training)

    def _best_labels(self, tokens: Tokens, k: int) -> np.ndarray:
        """Return the best labels of each text (texts, k); several ranks divide the texts, or the labels."""
        if not ranks().are_many:
            return self.topk(tokens, k).labels
        if self.module.is_divided:
            return self.topk(self._read_in_shares(tokens, self._levels), k).labels
        return ranks().in_shares(len(tokens), lambda own: self.topk(tokens.take(own), k).labels)

    def choose(self, tokens: Tokens, level: int, *, progress: Progress = silent) -> sp.csr_matrix:
        """Return the nodes (texts, nodes above) whose children a level will learn; values are their priority."""
        beams = [self._beam(above, 1, None) for above in range(level)]
        if ranks().are_many:
            chosen = ranks().in_shares(len(tokens), lambda own: self._chosen(tokens.take(own), level, beams, progress))
        else:
            chosen = self._chosen(tokens, level, beams, progress)
        is_node = chosen >= 0
        priority = np.broadcast_to(np.linspace(1.0, _LOWEST_PRIORITY, beams[-1], dtype=np.float32), chosen.shape)
        ptr = np.concatenate([[0], np.cumsum(is_node.sum(axis=1))])
        shape = (len(tokens), self.tree.sizes[level - 1])
        return sp.csr_matrix((priority[is_node], chosen[is_node], ptr), shape=shape)

    def _chosen(self, tokens: Tokens, level: int, beams: Sequence[int], progress: Progress) -> np.ndarray:
        """Return the nodes above a level (texts, beam) whose children it will learn, −1 for none."""
        chosen = np.full((len(tokens), beams[-1]), -1, np.int32)
        batches = self._batches(tokens, self._candidates(list(beams[:-1])), searches=True)
        for rows, reads in _told(batches, "shortlists", len(tokens), progress):
            with self._predicting():
                found = self.module.choose(reads, beams, level).cpu().numpy()
            chosen[rows, : found.shape[1]] = found
        return chosen

    def _batches(self, texts: Texts, candidates: int = 0, *, searches: bool = False) -> Iterator[Batch]:
        """Yield as many texts at a time as fit in memory, and what each level reads of them.

        ``candidates`` is how many nodes are scored for a text by themselves, and a search scores the first level, too.
        Nothing is read before it is asked for, so ask within ``_predicting``.
        """
        if isinstance(texts, list):
            for first in range(0, len(texts[0]), _READ_AT_ONCE):
                rows = np.arange(first, min(first + _READ_AT_ONCE, len(texts[0])))
                for some in self._pieces(rows, self.module.n_floats(candidates, 1, searches=searches)):
                    yield some, self._read_in_full(partial(self._vectors_at, texts, some))
            return
        flat = self.encoder.flat(texts)
        n_floats = self.module.n_floats(candidates, int(texts.lengths.max(initial=1)), searches=searches)
        for rows in flat.cut(np.arange(len(texts)), self.encoder.budget):
            for some in self._pieces(rows, n_floats):
                yield some, self._read_in_full(partial(self.module.reader, *flat.batch(some)))

    def _read_in_full(self, read: Callable[[], Iterable[Any]]) -> Iterator[Any]:
        """Read in the precision of the settings, but hand on in full: short floats would make scores equal."""
        with self.encoder.autocast():
            levels = iter(read())
        while True:
            with self.encoder.autocast():
                e = next(levels, None)
            if e is None:
                return
            yield e.float()

    def _vectors_at(self, read: list[np.ndarray], rows: np.ndarray) -> list[torch.Tensor]:
        return [torch.from_numpy(level[rows]).to(self.encoder.device) for level in read]

    @contextmanager
    def _predicting(self) -> Iterator[None]:
        """Learn nothing."""
        with torch.inference_mode(), explained_memory():
            yield

    def _pieces(self, rows: np.ndarray, n_floats: int) -> Iterator[np.ndarray]:
        """Cut texts so that so many numbers of each fit in memory."""
        most = max(1, _AT_ONCE // max(n_floats, 1))
        return (rows[first : first + most] for first in range(0, len(rows), most))

    def reach(self, beam: int | None = None) -> int:
        """Return how many labels lie under the nodes that a beam keeps, in any case."""
        n_labels = self.tree.n_labels
        for level in range(self.tree.n_levels - 1):
            kept = self._beam(level, 1, beam)
            if kept < self.tree.sizes[level]:
                n_labels = min(n_labels, kept * max(self._fewest_labels[level], 1))
        return n_labels

    def _beam(self, level: int, k: int, wanted: int | None) -> int:
        """Return how many nodes of a level are kept: as many as are asked for, but enough for k labels."""
        enough = -(-k // max(self._fewest_labels[level], 1))
        return min(max(wanted or self.config.network.beam_at(level), enough), self.tree.sizes[level])

    def _candidates(self, beams: list[int]) -> int:
        """Return the most nodes that are scored by gathering their vectors."""
        return max(
            (beam * children for beam, children in zip(beams, self.tree.most_children[1:], strict=False)), default=1
        )

    @cached_property
    def _ancestors(self) -> list[torch.Tensor]:
        """For each level, the node of every label there."""
        return [torch.from_numpy(self.tree.node_of(level).astype(np.int64)) for level in self._levels]

    @cached_property
    def _fewest_labels(self) -> list[int]:
        """For each level, the labels under the node that has fewest."""
        sizes = self.tree.sizes
        return [int(nodes.bincount(minlength=n).min()) for nodes, n in zip(self._ancestors, sizes, strict=True)]

    def silence(self, labels: np.ndarray) -> None:
        """Let labels that no text has rank last: nothing is known about them."""
        places = torch.from_numpy(self.tree.position[labels].astype(np.int64)).to(self.encoder.device)
        with torch.no_grad():
            self.module.silence(places, _SILENT)

    # What is kept of it

    def _own(self) -> dict[str, torch.Tensor]:
        """Return all weights but the encoder's; what only training needs is left out."""
        elsewhere = {id(tensor) for tensor in self.encoder.model.state_dict(keep_vars=True).values()}
        state = self.module.state_dict(keep_vars=True)
        return {
            name: tensor
            for name, tensor in state.items()
            if id(tensor) not in elsewhere and not name.endswith(".state")
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the weights that are kept, in half precision."""
        own = {name: tensor.detach() for name, tensor in self._own().items()}
        if not all(_can_be_kept(tensor) for tensor in own.values()):
            raise BadConfig(
                "the network's weights have grown beyond all bounds; lower training.learning_rate and "
                "training.head_learning_rate"
            )
        return {name: tensor.half().cpu().numpy() for name, tensor in own.items()}

    def load(self, arrays: Mapping[str, Any]) -> None:
        """Take weights as ``arrays`` gives them; a network that loads its own arrays is rounded as a saved one is."""
        own = self._own()
        if missing := set(own) - set(arrays):
            raise BadModelFile(f"the network of the model lacks {', '.join(sorted(missing)[:3])}; save it again")
        with torch.no_grad():
            for name, tensor in own.items():  # one after the other: they may be large
                array = np.array(arrays[name])
                if array.shape != tuple(tensor.shape):
                    raise BadModelFile(
                        f"'{name}' of the model's network has the shape {array.shape}, not {tuple(tensor.shape)}; "
                        "save the model again"
                    )
                if not is_finite(array):
                    raise BadModelFile(f"'{name}' of the model's network holds NaN or infinity; save the model again")
                tensor.copy_(torch.from_numpy(array))


def _told(batches: Iterable[Batch], stage: str, n_texts: int, progress: Progress) -> Iterator[Batch]:
    """Yield batches, and tell after each how far it is."""
    done = 0
    for rows, reads in batches:
        yield rows, reads
        done += len(rows)
        progress(stage, done, n_texts)


def _can_be_kept(tensor: torch.Tensor) -> bool:
    """Say whether half precision holds all numbers; none of them may be missing."""
    if not tensor.numel():
        return True
    low, high = (float(end) for end in torch.aminmax(tensor))  # a NaN is both
    return low >= -_LARGEST and high <= _LARGEST
