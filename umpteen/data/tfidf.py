"""tf-idf over n-grams of words or characters.

Terms are counted as 64-bit keys in compiled code (:mod:`umpteen.kernels.text`); the strings of the kept terms are found
in a second pass. The probability that any two of ``n`` terms have the same key and are counted as one is about
``n² / 2⁶⁵`` (one in 15 000 for fifty million terms).
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from umpteen.config import TfidfConfig, from_dict, to_dict
from umpteen.data.columns import is_stream, readable
from umpteen.data.finite import is_finite
from umpteen.data.sparse import pointers
from umpteen.data.vocabulary import Block, Splitter, Texts, as_bytes, count_terms, learned_arrays, name_terms
from umpteen.engine import Progress, n_threads, silent
from umpteen.errors import BadConfig, BadInput, BadModelFile, NotFitted
from umpteen.kernels.vocabulary import weigh_texts
from umpteen.store.tensors import load_with_metadata, parse_json, save_tensors

Row = tuple[NDArray[np.int32], NDArray[np.float32]]
Rows = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]

# Fitted arrays and their types. Column i: key, idf, term_bytes[term_offsets[i]:term_offsets[i + 1]].
_ARRAYS = {"keys": "u8", "slots": "i4", "idf": "f4", "term_bytes": "u1", "term_offsets": "i8"}
_SETTINGS = "umpteen.tfidf"  # name of the settings in the metadata of a file


class Tfidf:
    """Convert texts to rows of tf-idf weights.

    A word is a run of two or more letters, digits or underscores. The weight of a term in a text is its count
    (``1 + ln(count)`` if ``sublinear``) times ``ln((1 + n) / (1 + df)) + 1``, where ``df`` of the ``n``
    training texts contain it; rows are scaled to unit length. Columns are ordered by term.

    Parameters
    ----------
    config
        Settings.
    threads
        Number of threads; 0 means all cores. The result does not depend on it.

    Examples
    --------
    >>> from umpteen.data.tfidf import Tfidf
    >>> tfidf = Tfidf()
    >>> rows = tfidf.fit_transform(["the cat sat", "the dog"])
    >>> tfidf.terms
    ['cat', 'cat sat', 'dog', 'sat', 'the', 'the cat', 'the dog']
    >>> rows.shape
    (2, 7)
    """

    def __init__(self, config: TfidfConfig | None = None, *, threads: int = 0):
        self.config = config or TfidfConfig()
        self.threads = threads
        self._splitter = Splitter.of(self.config)
        self._learned: dict[str, np.ndarray] = {}

    def fit(self, texts: Iterable[str], progress: Progress = silent) -> Tfidf:
        """Learn the terms and their weights.

        ``texts`` is read twice; an iterator is held in memory as UTF-8.
        """
        self._fit(Texts(_column(texts), self.config.lowercase), progress)
        return self

    def fit_transform(self, texts: Iterable[str], progress: Progress = silent) -> csr_matrix:
        """Learn the terms and return the rows of the same texts."""
        blocks = Texts(_column(texts), self.config.lowercase)
        self._fit(blocks, progress)
        return self._transform(blocks, self.threads, progress)

    def transform(self, texts: Iterable[str], threads: int | None = None, progress: Progress = silent) -> csr_matrix:
        """Return one row per text, float32 with sorted indices; the row of a text without known terms is empty."""
        self._fitted()
        blocks = Texts(_column(texts), self.config.lowercase, once=True)
        return self._transform(blocks, self.threads if threads is None else threads, progress)

    def transform_one(self, text: str) -> Row:
        """Return the columns and weights of one text, the same as a row of :meth:`transform`."""
        self._fitted()
        if not isinstance(text, str):
            raise BadInput(f"the text is {type(text).__name__}; pass a str, use '' for an empty text")
        data = as_bytes(text, self.config.lowercase)
        _, *row = self._weigh(Block(np.frombuffer(data, np.uint8), np.array((0, len(data)))))
        return row[0], row[1]

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self._fitted()["keys"].size

    @functools.cached_property
    def terms(self) -> list[str]:
        """The term of every column."""
        return [self.term(column) for column in range(self.n_features)]

    def term(self, column: int) -> str:
        """Return the term of one column."""
        learned = self._fitted()
        begin, end = learned["term_offsets"][column], learned["term_offsets"][column + 1]
        return learned["term_bytes"][begin:end].tobytes().decode("utf-8", "surrogatepass")

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the terms, as vectorisers of scikit-learn do."""
        return np.array(self.terms, dtype=object)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the fitted arrays, from which :meth:`from_arrays` restores the instance."""
        return dict(self._fitted())

    @classmethod
    def from_arrays(cls, config: TfidfConfig, arrays: Mapping[str, np.ndarray], *, threads: int = 0) -> Tfidf:
        """Return a fitted instance; the arrays are not copied and may be memory-mapped."""
        for name, kind in _ARRAYS.items():
            if name not in arrays:
                raise BadModelFile(f"the tf-idf part has no array '{name}'; save the model again")
            if arrays[name].dtype != np.dtype(kind) or arrays[name].ndim != 1:
                raise BadModelFile(f"tf-idf's '{name}' is not 1-d {np.dtype(kind)}; save the model again")
        self = cls(config, threads=threads)
        self._learn({name: arrays[name] for name in _ARRAYS})
        self._check_learned()
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write settings and fitted arrays to a safetensors file, atomically.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     Tfidf().fit(["the cat sat", "the dog"]).save(f"{folder}/tfidf.safetensors")
        ...     Tfidf.load(f"{folder}/tfidf.safetensors").transform(["a cat"]).shape
        (1, 7)
        """
        save_tensors(path, self._fitted(), {_SETTINGS: json.dumps(to_dict(self.config))})

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, threads: int = 0) -> Tfidf:
        """Read what :meth:`save` has written, by memory mapping; a damaged file raises ``BadModelFile``."""
        try:
            arrays, metadata = load_with_metadata(path)
        except OSError as error:
            raise BadModelFile(f"{path} cannot be read: {error.strerror or error}") from error
        if _SETTINGS not in metadata:
            raise BadModelFile(f"{path} was not written by Tfidf.save; a model folder is opened by umpteen.load")
        try:
            config = from_dict(TfidfConfig, parse_json(metadata[_SETTINGS].encode(), path))
        except BadConfig as error:
            raise BadModelFile(f"{path} has settings that this version does not have: {error}") from error
        return cls.from_arrays(config, arrays, threads=threads)

    def _fitted(self) -> dict[str, np.ndarray]:
        if not self._learned:
            raise NotFitted("this Tfidf has not seen texts yet; call fit or fit_transform first")
        return self._learned

    def _learn(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Set the fitted arrays, all read-only: otherwise kernels would be compiled for both kinds."""
        self.__dict__.pop("terms", None)
        for name, array in arrays.items():
            view = np.asarray(array)[:]
            view.setflags(write=False)
            self._learned[name] = view
        self._vocabulary = tuple(self._learned[name] for name in ("keys", "slots", "idf"))

    def _check_learned(self) -> None:
        """Refuse arrays that kernels would read out of bounds, or that no fit could have produced."""
        learned = self._learned
        n, slots, offsets = learned["keys"].size, learned["slots"], learned["term_offsets"]
        if slots.size <= n or slots.size & (slots.size - 1) or slots.min() != -1 or slots.max() >= n:
            raise BadModelFile(f"tf-idf arrays do not fit {n} terms; save the model again")
        used = slots[slots >= 0]
        if used.size != n or np.bincount(used, minlength=n).max(initial=1) != 1:
            raise BadModelFile(f"tf-idf's 'slots' do not hold each of {n} terms once; save the model again")
        if learned["idf"].size != n or not is_finite(learned["idf"]) or learned["idf"].min(initial=1.0) <= 0.0:
            raise BadModelFile(f"tf-idf's 'idf' is not a positive number for each of {n} terms; save the model again")
        if offsets.size != n + 1 or offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any():
            raise BadModelFile(f"tf-idf strings do not fit {n} terms; save the model again")
        if offsets[-1] != learned["term_bytes"].size or not _are_terms(learned["term_bytes"], offsets):
            raise BadModelFile(f"tf-idf strings are not those of {n} terms; save the model again")

    def _fit(self, texts: Texts, progress: Progress) -> None:
        threads = n_threads(self.threads)
        counted, n_texts = count_terms(texts, self._splitter, self.config, threads, progress)
        names = name_terms(texts, self._splitter, counted.keys, threads, progress)
        self._learn(learned_arrays(counted.keys, counted.n_texts, names, n_texts))

    def _transform(self, texts: Texts, threads: int, progress: Progress) -> csr_matrix:
        indptr, indices, data = stack(self.transform_blocks(texts, threads, progress))
        matrix = csr_matrix((data, indices, indptr), shape=(indptr.size - 1, self.n_features))
        matrix.has_sorted_indices = True
        return matrix

    def transform_blocks(self, texts: Texts, threads: int, progress: Progress = silent) -> list[Rows]:
        """Return the rows of texts block by block, each as the three arrays of a CSR matrix."""
        return list(chain.from_iterable(texts.map(self._weigh, "weigh terms", n_threads(threads), progress)))

    def _weigh(self, block: Block) -> Rows:
        """Return the rows of a block as the three arrays of a CSR matrix."""
        most = int(self._splitter.most_terms(np.diff(block.offsets)).sum())
        indptr = np.empty(block.offsets.size, np.int64)
        indices, data = np.empty(most, np.int32), np.empty(most, np.float32)
        weigh_texts(*block, *self._splitter, *self._vocabulary, self.config.sublinear, indptr, indices, data)
        n = indptr[-1]
        return indptr, indices[:n].copy(), data[:n].copy()


def _column(texts: Any) -> Any:
    """Return a column of a table as a list; iterators and streams are left to ``Texts``, which holds less of them."""
    return texts if isinstance(texts, Iterator) or is_stream(texts) else readable(texts)


def _are_terms(text: NDArray[np.uint8], offsets: NDArray[np.int64]) -> bool:
    """Return whether the bytes are UTF-8 and no term begins within a character."""
    try:
        text.tobytes().decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    begins = offsets[offsets < text.size]
    return not (text[begins] & 0xC0 == 0x80).any()


def stack(parts: list[Rows]) -> Rows:
    """Concatenate blocks of rows, and free each as soon as it is copied."""
    indptr = pointers(np.concatenate([np.empty(0, np.int64), *(np.diff(part[0]) for part in parts)]))
    indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    end = indptr[-1]
    while parts:
        _, its_indices, its_data = parts.pop()
        begin = end - its_data.size
        indices[begin:end], data[begin:end] = its_indices, its_data
        end = begin
    return indptr, indices, data
