"""Make the network that settings describe, and use it: labels, scores, and vectors of texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from umpteen.neural.cascade import Cascade
from umpteen.neural.distributed import ranks
from umpteen.neural.encoder import Encoder
from umpteen.neural.initialise import Initialiser, node_frequencies
from umpteen.neural.levels import Level
from umpteen.neural.passes import Batch, evaluating, of_levels, predicting, reported
from umpteen.neural.readers import States, make_reader
from umpteen.neural.trainer import BEST, Metrics, Report, Trainer, hold_out, precisions, state_name
from umpteen.neural.training_state import FinishedTraining
from umpteen.neural.truth import TruthTable
from umpteen.shortlist import TopK
from umpteen.store import Checkpoint
from umpteen.store.parts import blocks
from umpteen.store.tensors import Allocate, in_memory
from umpteen.tree import LabelTree

_UNKNOWN_MARGIN = -1e4  # margin of a label that no text has; half precision holds it
_LARGEST = float(np.finfo(np.float16).max)  # weight that can be stored
_SCALED_AT_ONCE = 65_536  # vectors
_READ_AT_ONCE = 4_096  # texts whose vectors are known that are scored at a time
_GATHERED_AT_ONCE = 65_536  # texts whose vectors all ranks have at a time, for first weights
_AT_ONCE = 100_000_000  # numbers that the gathered vectors of labels may be while predicting
_MOVED_AT_ONCE = 1 << 27  # numbers that are converted and moved between device and memory
_LOWEST_PRIORITY = 0.5  # of a node that was predicted, the best of them have 1

Texts = Tokens | list[np.ndarray]  # as they come, or as ``Network.read`` has read them


@dataclass(frozen=True)
class Job:
    """What a network is trained on, where its states are kept, and who is told."""

    tokens: Tokens
    targets: sp.csr_matrix  # (texts, labels)
    rows: np.ndarray  # numbers of the texts to train on
    held_out: np.ndarray  # numbers of the others
    checkpoint: Checkpoint | None = None
    progress: Progress = silent
    record: Callback = ignore
    allocate: Allocate = in_memory  # makes the arrays of vectors that are kept while a level is prepared
    watched: tuple[Any, sp.csr_matrix] | None = None  # other texts and their labels, to be measured on

    @property
    def unseen(self) -> tuple[Any, sp.csr_matrix] | None:
        """Texts that are not trained on, and their labels, if there are any."""
        if len(self.held_out):
            return self.tokens.take(self.held_out), self.targets[self.held_out]
        return self.watched


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
            self.module = Cascade(reader, tree, config, len(self._levels)).eval()
        if divides:  # before anything takes memory of the device
            self.module.divide()
        self.module.place(encoder.device)
        self.module.to(encoder.device)

    @property
    def _levels(self) -> range:
        """The levels that have a head."""
        return range(self.tree.n_levels)

    @property
    def turns(self) -> Sequence[int | None]:
        """The levels that learn one after the other; a single None is all of them together."""
        return (None,) if self.config.training.order == "joint" else self._levels

    # Training

    def train(
        self, tokens: Tokens, targets: sp.csr_matrix, *, watched: tuple[Any, sp.csr_matrix] | None = None,
        checkpoint: Checkpoint | None = None, progress: Progress = silent, record: Callback = ignore,
        allocate: Allocate = in_memory,
    ) -> list[Report]:  # fmt: skip
        """Train on texts and their labels (texts, labels); return what each turn took.

        ``watched`` are other texts and their labels: if no texts are held out for early stopping, precision on them is
        reported after every epoch.
        """
        job = Job(tokens, targets, *self.split(len(tokens)), checkpoint, progress, record, allocate, watched)
        reports = self._train_all(job)
        self.module.unite()
        self._finish(targets)
        return reports

    def _train_all(self, job: Job) -> list[Report]:
        """Train one turn after the other."""
        return [self._train(level, job) for level in self.turns]

    def _train(self, level: int | None, job: Job) -> Report:
        """Train one level, or all of them together."""
        module = self.module if level is None else Level(self.module, level, scores_all=self.config.is_recursive)
        finished = FinishedTraining(job.checkpoint, state_name(self._stage(level)), module)
        if finished.is_there:
            return Report.of(finished.load(job.record))
        trainer = self._trainer(level, module, job)
        self._prepare(trainer, level, job)
        report = trainer.run()
        finished.save(report, trainer.curve.records)
        return report

    def _trainer(self, level: int | None, module: torch.nn.Module, job: Job) -> Trainer:
        config = self.config.training
        is_measured = self._is_measured(level) and (len(job.held_out) or job.watched is not None)
        return Trainer(
            module, self.encoder, job.tokens, self.truth(level, job), config, self.reader_parameters,
            epochs=config.epochs_at(level or 0, len(self.turns)), seed=self._seed(level),
            head_eps=self.module.head(level or 0).adam_eps(config.batch_size), checkpoint=job.checkpoint,
            progress=job.progress, record=job.record, allocate=job.allocate, stage=self._stage(level), rows=job.rows,
            quality=partial(self.quality, level, job) if is_measured else None, stops_early=len(job.held_out) > 0,
        )  # fmt: skip

    def split(self, n_texts: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the texts to train on, and of those held out."""
        return hold_out(n_texts, self.config.training.validation_fraction, self.config.seed)

    def truth(self, level: int | None, job: Job) -> list[sp.csr_matrix]:
        """Return the true nodes of the texts, for each level that a turn needs."""
        return [self.tree.lift(job.targets, one) for one in self._needed(level)]

    def _needed(self, level: int | None) -> range:
        """Return the levels whose true nodes a turn needs: all of them, or a level and the one above."""
        return self._levels if level is None else range(max(level - 1, 0), level + 1)

    def _is_measured(self, level: int | None) -> bool:
        """Return whether a turn is measured on held-out texts: labels are ranked by the last level."""
        return level in (None, self._levels[-1])

    def _seed(self, level: int | None) -> int:
        return self.config.seed

    def _stage(self, level: int | None) -> str:
        return "training the network" if level is None else f"training level {level + 1} of {self.tree.n_levels}"

    def _prepare(self, trainer: Trainer, level: int | None, job: Job) -> None:
        """Predict the nodes above a level whose children it learns, and initialise its classifiers, or all of them."""
        if level and self.config.training.negatives != "tfn":
            trainer.predicted = self.choose(job.tokens, level, progress=job.progress)
        if not trainer.has_state:
            tokens, truth = job.tokens, dict(zip(self._needed(level), trainer.truth, strict=True))
            if len(job.held_out):  # they are unknown to the first weights, too
                tokens, truth = tokens.take(job.rows, job.allocate), {one: R[job.rows] for one, R in truth.items()}
            self.initialise(tokens, truth, level, progress=job.progress)

    def _finish(self, targets: sp.csr_matrix) -> None:
        """Prepare for prediction, with the numbers that are saved."""
        self.rank_last(np.flatnonzero(targets.getnnz(axis=0) == 0))
        for _, tensor in self._kept():
            for cut in _cuts(tensor.shape):
                tensor[cut] = tensor[cut].half()

    # First weights

    def initialise(
        self, tokens: Tokens, truth: Mapping[int, sp.csr_matrix], level: int | None = None, *,
        progress: Progress = silent,
    ) -> None:  # fmt: skip
        """Give the heads of a level, or of all, their first weights; ``truth`` has nodes of every text, by level."""
        levels, init = self._levels if level is None else [level], self.config.training.init
        if init == "random":
            return
        chosen = {one: truth[one] for one in levels}
        for one, R in chosen.items():
            self.module.set_prior(one, node_frequencies(R).to(self.encoder.device))
        initialiser = Initialiser(self, tokens, progress)
        if self.config.whitens:
            initialiser.set_discriminants(chosen)
        elif init == "newton" and self.reads_vectors:
            for one, R in chosen.items():
                cost = self.config.training.init_cost * self.module.head(one).scale ** 2  # for vectors of that length
                initialiser.solve(one, R, truth[one - 1] if one else None, cost)

    # Reading

    def read_by_all(self, texts: Texts, levels: Sequence[int]) -> Iterator[Batch]:
        """Yield texts, and what some levels read of them; several ranks read some of the texts each, and have all."""
        if isinstance(texts, list) or not ranks().are_many:
            yield from self.batches(texts)
            return
        for first in range(0, len(texts), _GATHERED_AT_ONCE):
            rows = np.arange(first, min(first + _GATHERED_AT_ONCE, len(texts)))
            read = dict(zip(levels, self._read_in_shares(texts.take(rows), levels), strict=True))
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
        beams = self.beams(k, beam)
        for rows, reads in self.batches(texts, self._candidates(beams), searches=True):
            with predicting():
                found = self.module.topk(reads, k, beams, allowed=flags)
            places, best = (part.cpu().numpy() for part in found)
            labels[rows, : places.shape[1]] = np.where(places >= 0, self.tree.order[places], -1)
            scores[rows, : places.shape[1]] = best
        return TopK(labels, scores)

    def score_labels(self, texts: Texts, pairs: sp.csr_matrix) -> np.ndarray:
        """Score the stored entries of ``pairs``, in their order."""
        counts, out = np.diff(pairs.indptr), np.empty(pairs.nnz, np.float32)
        for rows, reads in self.batches(texts, int(counts.max(initial=1))):
            most = int(counts[rows].max(initial=0))
            if not most:
                continue
            is_there = np.arange(most) < counts[rows][:, None]  # (texts, most)
            places = np.where(is_there, pairs.indptr[rows][:, None] + np.arange(most), 0)
            labels = torch.from_numpy(pairs.indices[places].astype(np.int64))
            nodes = [of_level[labels].to(self.encoder.device) for of_level in self._ancestors]
            with predicting():
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
        for rows, reads in reported(self.batches(tokens), "embeddings", len(tokens), progress):
            with predicting():
                for level, e in of_levels(reads, levels):
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
        beams = self.beams(1, beam)
        right = [TruthTable(self.tree.lift(truth, level), self.encoder.device) for level in self._levels]
        found, batches = np.zeros(self.tree.n_levels), self.batches(tokens, self._candidates(beams), searches=True)
        for rows, reads in reported(batches, "shortlists", len(tokens), progress):
            with predicting():
                found += self.module.recalled(reads, beams, [level.of(rows) for level in right]).cpu().numpy()
        return [float(count / level.n_entries) for count, level in zip(found, right, strict=True)][1:]

    def quality(self, level: int | None, job: Job) -> Metrics:
        """Return the precisions at 1, 3 and 5 on held-out texts, while the network is trained."""
        texts, truth = job.unseen
        with evaluating(self.module):
            found = self._best_labels(texts, min(BEST, self.tree.n_labels))
        return precisions(found, truth)

    def _best_labels(self, tokens: Tokens, k: int) -> np.ndarray:
        """Return the best labels of each text (texts, k); several ranks divide the texts, or the labels."""
        if not ranks().are_many:
            return self.topk(tokens, k).labels
        if self.module.is_divided:
            return self.topk(self._read_in_shares(tokens, self._levels), k).labels
        return ranks().in_shares(len(tokens), lambda own: self.topk(tokens.take(own), k).labels)

    def choose(self, tokens: Tokens, level: int, *, progress: Progress = silent) -> sp.csr_matrix:
        """Return the nodes (texts, nodes above) whose children a level will learn; values are their priority."""
        beams = self.beams(1)[:level]
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
        batches = self.batches(tokens, self._candidates(list(beams[:-1])), searches=True)
        for rows, reads in reported(batches, "shortlists", len(tokens), progress):
            with predicting():
                found = self.module.choose(reads, beams, level).cpu().numpy()
            chosen[rows, : found.shape[1]] = found
        return chosen

    def batches(self, texts: Texts, candidates: int = 0, *, searches: bool = False) -> Iterator[Batch]:
        """Yield as many texts at a time as fit in memory, and what each level reads of them.

        ``candidates`` is how many nodes are scored for a text by themselves, and a search scores the first level, too.
        Nothing is read before it is asked for, so ask within ``predicting``.
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

    def _vectors_at(self, read: list[np.ndarray], rows: np.ndarray) -> Iterator[torch.Tensor]:
        return (torch.from_numpy(level[rows]).to(self.encoder.device) for level in read)

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

    def beams(self, k: int, wanted: int | None = None) -> list[int]:
        """Return how many nodes of each level above the labels are kept."""
        return [self._beam(level, k, wanted) for level in range(self.tree.n_levels - 1)]

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

    def rank_last(self, labels: np.ndarray) -> None:
        """Let labels that no text has rank last: nothing is known about them."""
        places = torch.from_numpy(self.tree.position[labels].astype(np.int64)).to(self.encoder.device)
        with torch.no_grad():
            self.module.set_margin(places, _UNKNOWN_MARGIN)

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
        out = {}
        for name, tensor in self._kept():
            out[name] = np.empty(tensor.shape, np.float16)
            for cut in _cuts(tensor.shape):
                out[name][cut] = tensor[cut].half().cpu().numpy()
        return out

    def _kept(self) -> list[tuple[str, torch.Tensor]]:
        """Return the weights that are kept, by name, as they are on the device."""
        own = [(name, tensor.detach()) for name, tensor in self._own().items()]
        if not all(_can_be_kept(tensor) for _, tensor in own):
            raise BadConfig(
                "the network's weights have grown beyond all bounds; lower training.learning_rate and "
                "training.head_learning_rate"
            )
        return own

    def load(self, arrays: Mapping[str, Any]) -> None:
        """Take weights as ``arrays`` gives them."""
        own = self._own()
        if missing := set(own) - set(arrays):
            raise BadModelFile(f"the network of the model lacks {', '.join(sorted(missing)[:3])}; save it again")
        with torch.no_grad():
            for name, tensor in own.items():
                array = arrays[name]
                if array.shape != tuple(tensor.shape):
                    raise BadModelFile(
                        f"'{name}' of the model's network has the shape {array.shape}, not {tuple(tensor.shape)}; "
                        "save the model again"
                    )
                if not is_finite(array):
                    raise BadModelFile(f"'{name}' of the model's network holds NaN or infinity; save the model again")
                for cut in _cuts(tensor.shape):
                    tensor[cut] = torch.from_numpy(np.array(array[cut])).to(tensor.device)


def _cuts(shape: Sequence[int]) -> list[Any]:
    """Return indices that cut an array along its first axis: large ones are converted and moved in parts."""
    if not shape:
        return [...]
    return [slice(*ends) for ends in blocks(shape[0], max(1, _MOVED_AT_ONCE // max(math.prod(shape[1:]), 1)))]


def _can_be_kept(tensor: torch.Tensor) -> bool:
    """Say whether half precision holds all numbers; none of them may be missing."""
    if not tensor.numel():
        return True
    low, high = (float(end) for end in torch.aminmax(tensor))  # a NaN is both
    return low >= -_LARGEST and high <= _LARGEST
