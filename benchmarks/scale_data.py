"""Make feature rows with known structure for any number of labels, in little memory.

    python -m benchmarks.scale_data FOLDER --labels 100_000 --rows 200_000

How a row is made:

1. A topic is drawn from a Zipf distribution with exponent 0.8. There is a topic for every 25 labels. An exponent below
   one makes that with as many rows per label, a topic at the same relative rank has as many rows, whatever the number
   of labels.
2. Each label of the topic is drawn by itself with a probability that falls with its rank in the topic (Zipf); rows
   without a label are drawn again. A label belongs to two topics, so a topic has 25 labels of its own and 25 of others,
   which are half as probable. A row has about three labels.
3. Each of the ten features of the topic is present with probability 0.6. It shares four of them with the other topics
   of a larger subject, and every feature with some other topics.
4. Each of the five features of a drawn label is present with probability 0.4. They are shared with labels of other
   topics.
5. Features of labels of the topic are present by themselves (ten on average), as a text mentions things that it is not
   about. They make that no model can be perfect.
6. Noise: features of topics and labels that have nothing to do with the row (four on average), and features that tell
   nothing, a few of them very frequent (six on average).

Which features a topic or a label has follows from hashes of their numbers. So nothing is held in memory but a block of
rows, and the same seed gives the same rows. The numbers of topics and features grow in proportion to the number of
labels, so that a feature is shared by as many topics and labels. All else is the same, and so is, nearly, the precision
of a perfect model: ``benchmarks.scale_oracle`` computes it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

LABELS_PER_TOPIC = 25  # of its own; as many belong to it in the second place
TOPIC_FEATURES, SHARED_FEATURES = 10, 4  # of a topic, and those of them that the topics of one subject have in common
LABEL_FEATURES = 5
OF_TOPIC, OF_LABEL = 0.6, 0.4  # probability that a row has a feature of its topic, of one of its labels
FIRST, SECOND = 0.6, 0.3  # probability of the most frequent label of a topic: one of its own, one of others
MENTIONED = 10.0  # features of labels of the topic that a row has in any case
NOISE, COMMON = 4.0, 6.0  # features of a row that are there by chance, and that tell nothing
ZIPF, ZIPF_OFFSET = 0.8, 5.0  # exponent of the topics; offset of their rank, so that the first is not in most rows
TOPICS_PER_SUBJECT = 40
_BLOCK = 20_000  # rows made at a time
_COMMON_SHARE, _TOPIC_SHARE, _LABEL_SHARE = 0.01, 0.07, 0.12  # features of each range, as a share of the labels


@dataclass(frozen=True)
class Structure:
    """All that is known of the rows, from the number of labels and a seed.

    Features are numbered in three ranges: those that tell nothing, those of topics, those of labels. Each range of
    telling ones has a part for each feature of a topic, or each slot and feature of a label, so that no two labels of
    one topic have a feature in common.
    """

    n_labels: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_labels < 200 or self.n_labels % (2 * LABELS_PER_TOPIC):
            raise ValueError(f"the number of labels must be a multiple of 50 from 200 on, but is {self.n_labels}")

    @property
    def n_topics(self) -> int:
        """Number of topics, an even number."""
        return self.n_labels // LABELS_PER_TOPIC

    @property
    def n_common(self) -> int:
        """Features that tell nothing."""
        return round(_COMMON_SHARE * self.n_labels)

    @property
    def topic_part(self) -> int:
        """Features that a topic has each of its features from."""
        return round(_TOPIC_SHARE * self.n_labels / TOPIC_FEATURES)

    @property
    def label_part(self) -> int:
        """Features that a label has each of its features from."""
        return max(round(_LABEL_SHARE * self.n_labels / (2 * LABELS_PER_TOPIC * LABEL_FEATURES)), 2)

    @property
    def first_of_topics(self) -> int:
        """First feature of topics."""
        return self.n_common

    @property
    def first_of_labels(self) -> int:
        """First feature of labels."""
        return self.n_common + TOPIC_FEATURES * self.topic_part

    @property
    def n_features(self) -> int:
        """Number of all features."""
        return self.first_of_labels + 2 * LABELS_PER_TOPIC * LABEL_FEATURES * self.label_part

    @property
    def by_chance(self) -> float:
        """Probability that a feature of topics or labels is present by chance."""
        return 1 - math.exp(-NOISE / (self.n_features - self.n_common))

    @property
    def mentioned(self) -> float:
        """Probability that a feature of a label of the topic is present although the row does not have the label."""
        return 1 - math.exp(-MENTIONED / (2 * LABELS_PER_TOPIC * LABEL_FEATURES)) * (1 - self.by_chance)

    @cached_property
    def topic_probability(self) -> np.ndarray:
        """Probability of each topic."""
        weight = (np.arange(self.n_topics) + ZIPF_OFFSET) ** -ZIPF
        return weight / weight.sum()

    def label_probability(self, topics: np.ndarray) -> np.ndarray:
        """Return the probability of each of the labels of topics (topics, 50), in the order of ``labels_of``."""
        n = LABELS_PER_TOPIC
        turn = _hash(self.seed, 1, topics)[:, None] % n
        rank = (np.arange(n) + turn) % n + 1
        return np.concatenate([FIRST / rank, SECOND / rank], axis=1)

    def labels_of(self, topics: np.ndarray) -> np.ndarray:
        """Return the labels of topics (topics, 50): their own ones, then those that come in the second place.

        Topics of even and odd numbers have different slots, and a label of an even one comes second in an odd one.
        """
        n, half, slots = LABELS_PER_TOPIC, self.n_topics // 2, np.arange(LABELS_PER_TOPIC)
        own = topics[:, None] * n + slots
        shift = _hash(self.seed, 2, slots) % half
        second = (topics[:, None] // 2 + shift) % half * 2 + (1 - topics[:, None] % 2)
        return np.concatenate([own, second * n + slots], axis=1)

    def number_of(self, labels: np.ndarray) -> np.ndarray:
        """Return the columns of labels: neighbours in a topic are far apart, so that numbers tell nothing."""
        return labels * self._stride % self.n_labels

    @cached_property
    def _stride(self) -> int:
        stride = int(0.618 * self.n_labels) | 1
        while math.gcd(stride, self.n_labels) != 1:
            stride += 2
        return stride

    def features_of_topics(self, topics: np.ndarray) -> np.ndarray:
        """Return the features of topics (topics, 10)."""
        n_subjects = max(self.n_topics // TOPICS_PER_SUBJECT, 1)
        subject = _hash(self.seed, 3, topics) % n_subjects
        shared = _hash(self.seed, 4, subject[:, None], np.arange(SHARED_FEATURES))
        own = _hash(self.seed, 5, topics[:, None], np.arange(SHARED_FEATURES, TOPIC_FEATURES))
        part = np.arange(TOPIC_FEATURES) * self.topic_part
        return self.first_of_topics + part + np.concatenate([shared, own], axis=1) % self.topic_part

    def features_of_labels(self, labels: np.ndarray) -> np.ndarray:
        """Return the features of labels (labels, 5), by their numbers before ``number_of``."""
        slot = labels % LABELS_PER_TOPIC + LABELS_PER_TOPIC * (labels // LABELS_PER_TOPIC % 2)
        part = (slot[:, None] * LABEL_FEATURES + np.arange(LABEL_FEATURES)) * self.label_part
        return (
            self.first_of_labels
            + part
            + _hash(self.seed, 6, labels[:, None], np.arange(LABEL_FEATURES)) % (self.label_part)
        )

    @cached_property
    def _common_ends(self) -> np.ndarray:
        weight = 1.0 / (np.arange(self.n_common) + 2.0)
        return np.cumsum(weight / weight.sum())

    def rows(self, n_rows: int, rng: np.random.Generator) -> tuple[Block, Block]:
        """Make some rows: features and labels."""
        topics = rng.choice(self.n_topics, n_rows, p=self.topic_probability)
        row, place = np.nonzero(self._drawn(topics, rng))
        of_topics = self.labels_of(topics)
        labels = of_topics[row, place]
        pairs = [
            _present(np.arange(n_rows), self.features_of_topics(topics), OF_TOPIC, rng),
            _present(row, self.features_of_labels(labels), OF_LABEL, rng),
            self._mentioned(of_topics, rng),
            self._by_chance(n_rows, rng),
            self._common(n_rows, rng),
        ]
        at, features = (np.concatenate(part) for part in zip(*pairs, strict=True))
        return Block.of(at, features, n_rows, self.n_features), Block.of(
            row, self.number_of(labels), n_rows, self.n_labels
        )

    def _drawn(self, topics: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw labels of each topic, at least one (rows, 50)."""
        probability = self.label_probability(topics)
        drawn = rng.random(probability.shape) < probability
        while len(empty := np.flatnonzero(~drawn.any(axis=1))):
            drawn[empty] = rng.random((len(empty), drawn.shape[1])) < probability[empty]
        return drawn

    def _mentioned(self, labels: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return features of the labels (rows, 50) of topics, whether they are drawn or not."""
        row = np.repeat(np.arange(len(labels)), rng.poisson(MENTIONED, len(labels)))
        some = labels[row, rng.integers(0, labels.shape[1], len(row))]
        return row, self.features_of_labels(some)[np.arange(len(row)), rng.integers(0, LABEL_FEATURES, len(row))]

    def _by_chance(self, n_rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        row = np.repeat(np.arange(n_rows), rng.poisson(NOISE, n_rows))
        return row, rng.integers(self.first_of_topics, self.n_features, len(row))

    def _common(self, n_rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        row = np.repeat(np.arange(n_rows), rng.poisson(COMMON, n_rows))
        drawn = np.searchsorted(self._common_ends, rng.random(len(row)))
        return row, np.minimum(drawn, self.n_common - 1)


def _present(
    row: np.ndarray, features: np.ndarray, probability: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Keep each feature with a probability; return the rows and features of those that are kept."""
    which, place = np.nonzero(rng.random(features.shape) < probability)
    return row[which], features[which, place]


def _hash(*parts: int | np.ndarray) -> np.ndarray:
    """Return 62-bit hashes of whole numbers, arrays of which are combined by broadcasting (splitmix64)."""
    state = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            state = state + np.asarray(part).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return (state >> np.uint64(2)).astype(np.int64)


class Block(NamedTuple):
    """Rows of ones: how many each row has, and their columns, ascending."""

    lengths: np.ndarray
    columns: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray, columns: np.ndarray, n_rows: int, n_columns: int) -> Block:
        """Sort pairs of rows and columns; equal ones become one."""
        keys = np.unique(rows.astype(np.int64) * n_columns + columns)
        return cls(np.bincount(keys // n_columns, minlength=n_rows), (keys % n_columns).astype(np.int32))


class ArrayFile:
    """A one-dimensional .npy file that is written piece by piece."""

    _HEADER = 128  # bytes; the length of the array is written there last

    def __init__(self, path: Path, dtype: type):
        self.dtype, self.size = np.dtype(dtype), 0
        self.file = path.open("wb")
        self.file.write(b"\0" * self._HEADER)

    def append(self, values: np.ndarray) -> None:
        """Write more values."""
        self.file.write(np.ascontiguousarray(values, self.dtype).data)
        self.size += len(values)

    def close(self) -> None:
        """Write the header."""
        fields = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.size,)}
        text = f"{fields!r}".ljust(self._HEADER - 11) + "\n"
        self.file.seek(0)
        self.file.write(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode())
        self.file.close()


class MatrixFiles:
    """A matrix of ones in CSR form as three .npy files that are written block by block."""

    PARTS = (("indptr", np.int64), ("indices", np.int32), ("data", np.float32))

    def __init__(self, folder: Path, name: str):
        self.indptr, self.indices, self.data = (
            ArrayFile(folder / f"{name}.{part}.npy", dtype) for part, dtype in self.PARTS
        )
        self.indptr.append(np.zeros(1))

    def append(self, block: Block) -> None:
        """Write more rows."""
        self.indptr.append(self.indices.size + np.cumsum(block.lengths))
        self.indices.append(block.columns)
        self.data.append(np.ones(len(block.columns)))

    def close(self) -> None:
        """Finish the files."""
        for part, _ in self.PARTS:
            getattr(self, part).close()


def write(structure: Structure, n_rows: int, folder: Path, name: str, stream: int) -> None:
    """Write ``X.<name>`` and ``Y.<name>``; ``stream`` keeps the random numbers of files of one seed apart."""
    rng = np.random.default_rng((structure.seed, stream))
    files = [MatrixFiles(folder, f"{kind}.{name}") for kind in "XY"]
    for first in range(0, n_rows, _BLOCK):
        for file, block in zip(files, structure.rows(min(_BLOCK, n_rows - first), rng), strict=True):
            file.append(block)
    for file in files:
        file.close()


def make(folder: Path, n_labels: int, n_rows: int, n_test: int = 20_000, seed: int = 0) -> dict[str, int]:
    """Make a folder of rows to train and to test on, unless it is there; return what was asked for."""
    structure = Structure(n_labels, seed)
    about = {**asdict(structure), "n_rows": n_rows, "n_test": n_test, "n_features": structure.n_features}
    facts = folder / "about.json"
    if facts.exists() and json.loads(facts.read_text()) == about:
        return about
    folder.mkdir(parents=True, exist_ok=True)
    facts.unlink(missing_ok=True)
    write(structure, n_rows, folder, "trn", 0)
    write(structure, n_test, folder, "tst", 1)
    unfinished = facts.with_suffix(".tmp")
    unfinished.write_text(json.dumps(about, indent=1))
    os.replace(unfinished, facts)  # last: a folder without it is made again
    return about


def load(folder: Path, name: str) -> sp.csr_matrix:
    """Open a matrix such as ``X.trn``; its columns and values are memory-mapped."""
    about = json.loads((folder / "about.json").read_text())
    parts = (folder / f"{name}.{part}.npy" for part in ("data", "indices", "indptr"))
    data, indices, indptr = (np.load(part, mmap_mode="r") for part in parts)
    n_columns = about["n_features" if name.startswith("X") else "n_labels"]
    matrix = sp.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, n_columns), copy=False)
    matrix.has_canonical_format = True  # as ``Block`` makes it; scipy would read all of it
    return matrix


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_data", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--labels", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--test", type=int, default=20_000, help="rows to test on")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(json.dumps(make(options.folder, options.labels, options.rows, options.test, options.seed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
