"""XR-Transformer: an encoder fine-tuned from coarse clusters of labels to the labels, and a linear ranker.

By default, the ranker is XR-Linear on tf-idf, and a logistic model combines it with the classifiers that were trained
with the encoder. In the paper, the ranker sees the embedding beside tf-idf (eq. 10): ``features="both"``. What is here
is the order of the work (Algorithm 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from umpteen.calibration import Calibration
from umpteen.config import LinearConfig, NeuralConfig
from umpteen.data.rows import Rows, take_rows
from umpteen.data.targets import Targets
from umpteen.data.tokens import Tokens
from umpteen.engine import Callback, History, Progress, Record, ignore, n_threads, silent
from umpteen.engine.ranks import present
from umpteen.errors import BadInput, BadModelFile
from umpteen.linear import DenseHead, LinearTree
from umpteen.models import fusion
from umpteen.models.background import Background, one_at_a_time
from umpteen.models.combined import CombinedModel, ReadTexts, fit_fusion
from umpteen.models.explain import explain_head
from umpteen.models.explanation import Path
from umpteen.models.folder import Parts, head_post
from umpteen.models.lazy_neural import Neural, SavedEncoder, compiled_ahead, encoder_module
from umpteen.models.ranker import Training, clustered, kept_tree, with_init
from umpteen.models.runs import allocator, only_in_files
from umpteen.models.time_budget import with_time_budget
from umpteen.models.training_inputs import Inputs, as_sequence, check_names, check_trainable, fit_words, name_vectors
from umpteen.models.tree_search import ranker_scorer
from umpteen.store import Checkpoint, Run
from umpteen.store.tensors import Allocate, in_memory
from umpteen.tree import LabelTree, check_given, pifa, resolutions

if TYPE_CHECKING:
    from umpteen.neural.resolutions import Finetuning


_SPARED = 4  # one of so many threads is left to the encoder while the ranker is trained in the background


class XRTransformer(CombinedModel):
    """A transformer fine-tuned level by level, combined with XR-Linear.

    Parameters
    ----------
    encoder
        A name on the model hub, a folder, or ``"minilm"``; or settings such as ``{"name": …, "max_length": 256}``.
    network, training
        The levels that the encoder is fine-tuned on, and how it is trained.
    features
        What the ranker sees: ``"tfidf"``, ``"encoder"`` or ``"both"``.
    fusion
        The logistic model that combines ranker and classifiers; fitted on held-out texts by default.

    The other parameters are XR-Linear's and belong to the ranker. After ``fit``, ``training_`` says what each
    resolution took; it is not saved.
    """

    recipe = "xr-transformer"
    paper = "Zhang, Chang, Yu, Dhillon: XR-Transformer (NeurIPS 2021)"
    preset: ClassVar[Mapping[str, Any]] = {
        "tree.kind": "auto",
        "linear.cost": 0.0,
        "linear.max_iter": 40,
        "linear.threshold": 0.02,
        "linear.negatives": "auto",
        "linear.negatives_beam": 0,
        "encoder.max_length": 0,
        "network.depth": 0,
        "network.branching": 64,
        "network.beam": (20,),
        "network.head": "auto",
        "training.order": "coarse-to-fine",
        "training.epochs": (),
        "training.batch_size": 0,
        "training.learning_rate": None,
        "training.head_learning_rate": 2e-3,
        "training.length_warmup": 0.8,
        "training.negatives": "all",
        "training.relevance": "induce",
        "training.validation_fraction": 0.05,
    }

    # Training

    def _trained(self, data: Inputs, tree: LabelTree | None, progress: Progress, record: Callback) -> Parts | None:
        X, matrix, targets, checkpoint = data.X, data.Y, data.targets, data.run
        config = self._checked(X, matrix, targets, tree)
        module, progress = encoder_module(), one_at_a_time(progress)
        with module.on_threads(config.threads):
            encoder = module.Encoder.load(config.encoder)  # first: an encoder that cannot be loaded is refused at once
            compiling = compiled_ahead(encoder)
            # with the pooling and the length that were chosen
            config = replace(config, encoder=encoder.config).with_features(matrix.shape[1])
            reading = Background(lambda: _read_words(X, matrix, targets, config, tree, progress, checkpoint))
            is_free = _has_own_processor(encoder) and checkpoint is None and present().is_main
            in_background = Background(lambda: reading.result()[1].begin()) if is_free else None
            tokens = encoder.tokenize(as_sequence(X), progress=progress, allocate=allocator(checkpoint))
            tfidf, ranking = reading.result()
            config = config.with_schedule(tokens.lengths, len(tokens), encoder.model.config.hidden_size)
            features = ranking.words.sparse
            stages = self._stages(checkpoint, encoder, tokens, features, matrix)
            compiling.result()  # it draws random numbers, as a new network does
            network = _network(encoder, features, matrix, config, progress, stages)
            self.training_ = network.train(
                tokens, matrix, checkpoint=stages, progress=progress, record=record, allocate=ranking.allocate
            )
            E = None if config.features == "tfidf" else network.embeddings(tokens, progress, ranking.allocate)
            if not present().is_main:
                return None
            found = ranking.finish(network, tokens, in_background, E, progress, checkpoint, record)
        training = replace(config.training, epochs=network.epochs)
        config = replace(config, linear=found.linear, fusion=found.fusion or (), training=training)
        is_read = config.features != "tfidf" or (found.head is not None and found.fusion is not None)
        neural = Neural(SavedEncoder(config.encoder, encoder=encoder), found.head) if is_read else None
        words = tfidf if config.features != "encoder" else None
        return Parts(config, targets, words, found.heads[0].n_features, found.heads, neural, found.calibration)

    def _checked(self, X: Any, matrix: sp.csr_matrix, targets: Targets, tree: LabelTree | None) -> NeuralConfig:
        """Return the settings; refuse what could not be trained on before time is spent."""
        config = self.config
        self._check_texts(X)
        check_given(config.tree, tree, matrix.shape[1])
        check_names(targets, config, has_words=config.features != "encoder")
        check_trainable(X, matrix)
        return with_init(with_time_budget(config, X, matrix), matrix)

    # Prediction

    @property
    def takes_texts(self) -> bool:
        """Whether the model takes texts: it does."""
        self._check_fitted()
        return True

    def _rows(self, X: Any, threads: int) -> ReadTexts:
        X = self._read(X)
        E = None if self.neural_ is None else self.embed(X, threads=threads)
        words = None if self.tfidf_ is None else Rows.of(self.tfidf_.transform(X, threads=threads))
        return ReadTexts(_ranker_rows(words, E, self.config_), E)

    @property
    def _has_classifiers(self) -> bool:
        return self.neural_ is not None and self.neural_.head is not None

    def _classifiers(
        self, rows: ReadTexts, beam: int | None, wanted: np.ndarray | None, threads: int
    ) -> fusion.Scorer:  # fmt: skip
        return _head_scorer(self.neural_.head, rows.seen, wanted)

    def _path(self, rows: ReadTexts, label: int, depth: int, threads: int) -> Path:
        return explain_head(self.neural_.head, rows.seen, label, depth)

    def embed(self, texts: Any, *, threads: int | None = None, progress: Progress = silent) -> np.ndarray:
        """Return the fine-tuned embeddings (texts, d), each of length one."""
        self._check_fitted()
        if self.neural_ is None:
            raise BadInput("this model was trained on tf-idf alone and has no encoder")
        E = self.neural_.encoder.embed(list(self._read(texts)), threads=self._workers(threads), progress=progress)
        head = self.neural_.head
        if head is not None and head.weight.shape[1] != E.shape[1]:
            raise BadModelFile(
                f"the classifiers expect embeddings of {head.weight.shape[1]} numbers, but the encoder returns "
                f"{E.shape[1]}; save the model again"
            )
        return E

    def _vectors(self, texts: list[str]) -> Any:
        return super()._vectors(texts) if self.neural_ is None else self.embed(texts)

    def describe(self) -> dict[str, Any]:
        """Summarise the model in plain values."""
        facts = super().describe()
        if self.neural_ is None:
            return facts
        n_terms = 0 if self.tfidf_ is None else self.tfidf_.n_features
        width = self.n_features_in_ - n_terms or self.neural_.head.weight.shape[1]
        return facts | {
            "encoder": self.config_.encoder.name, "embedding": width, "backends": self.neural_.encoder.backends,
        }  # fmt: skip


class XTransformer(XRTransformer):
    """An encoder fine-tuned once, on clusters of labels, then XR-Linear on tf-idf and its embeddings."""

    recipe = "x-transformer"
    paper = "Chang, Yu, Zhong, Yang, Dhillon: X-Transformer (KDD 2020)"
    preset: ClassVar[Mapping[str, Any]] = {
        **XRTransformer.preset,
        "linear.cost": 1.0,
        "linear.eps": 0.03,
        "linear.negatives": "tfn+man",
        "linear.negatives_beam": 5,
        "search.upper_beam": 1.0,
        "encoder.max_length": 128,
        "network.head": "tree",
        "network.labels_per_cluster": 64,
        "network.branching": 32_768,
        "training.loss": "squared-hinge",
        "training.relevance": "none",
        "training.init": "random",
        "training.length_warmup": 0.0,
        "training.epochs": (5.0,),
        "training.batch_size": 64,
        "training.learning_rate": 1e-4,
        "training.validation_fraction": 0.0,
    }


class _Found(NamedTuple):
    """What training a ranker beside an encoder leads to; ``fusion`` is None if the ranker is better alone."""

    heads: list[LinearTree]
    linear: LinearConfig
    head: DenseHead | None
    fusion: fusion.Weights | None
    calibration: Calibration | None


class _Begun(NamedTuple):
    """What was trained beside an encoder: a ranker that scores held-out texts, that of all texts, and its records."""

    ranker: fusion.Scorer | None = None
    whole: tuple[list[LinearTree], LinearConfig] | None = None
    history: Iterable[Record] = ()


@dataclass(frozen=True)
class _Ranking:
    """The ranker, and how it is combined with the classifiers of a fine-tuned encoder."""

    words: Rows
    Y: sp.csr_matrix
    config: NeuralConfig
    tree: LabelTree | None
    by_name: sp.csr_matrix | None
    run: Run | None

    @cached_property
    def allocate(self) -> Allocate:
        """What makes large arrays."""
        return allocator(self.run)

    @property
    def fits_fusion(self) -> bool:
        """Whether there is something to combine, and something to choose on."""
        return self.config.fits_fusion(self.Y.shape[1]) and len(self.held_out) > 0

    @property
    def held_out(self) -> np.ndarray:
        """The numbers of the texts that are held out from the encoder."""
        return self.split[1]

    @cached_property
    def split(self) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the texts that the encoder is trained on, and of those held out from it."""
        from umpteen.neural.trainer import hold_out  # torch is loaded by then

        return hold_out(self.Y.shape[0], self.config.training.validation_fraction, self.config.seed)

    def begin(self) -> _Begun:
        """Train what needs no encoder while another processor fine-tunes it."""
        if self.config.features != "tfidf":
            return _Begun()
        history = History()  # callbacks are called by the thread that called ``fit``, in ``finish``
        threads = n_threads(self.config.threads)
        some = replace(self, config=replace(self.config, threads=max(1, threads - threads // _SPARED)))
        ranker = some._of_held_out(None) if some.fits_fusion else None
        return _Begun(ranker, some._fit(None, record=history), history.records)

    def finish(
        self, network: Finetuning, tokens: Tokens, begun: Background | None, E: np.ndarray | None,
        progress: Progress, checkpoint: Any, record: Callback,
    ) -> _Found:  # fmt: skip
        """Return the ranker and the classifiers, and how they are combined; ``E`` are embeddings that it sees."""
        ranker, whole, history = _Begun() if begun is None else begun.result()
        classifiers, config, weights = network.label_classifiers(), self.config, self.config.fusion
        head = None
        if classifiers is not None and config.head_weight != 0:
            weight, bias, projection = classifiers
            head = DenseHead.rounded(weight, bias, head_post(config), projection)
        calibration = None
        if self.fits_fusion:
            of_texts = network.encoder.embed(tokens.take(self.held_out)) if E is None else E[self.held_out]
            weights, calibration = fit_fusion(
                ranker or self._of_held_out(E), _head_scorer(head, of_texts, None), self.Y,
                self.split, config, can_drop=config.features == "tfidf",
            )  # fmt: skip
        heads, linear = whole or self._fit(E, progress=progress, checkpoint=checkpoint, record=record)
        for one in history:
            record(one)
        return _Found(heads, linear, head, weights, calibration)

    def _of_held_out(self, E: np.ndarray | None) -> fusion.Scorer:
        """Return a ranker that is trained on the texts that the encoder is trained on, as a scorer of the others."""
        heads, _ = self._fit(E, self.split[0], checkpoint=only_in_files(self.run))
        rows = self._rows(E, self.held_out)
        ranker = ranker_scorer(heads, rows, self.config, n_threads(self.config.threads))
        ranker = replace(ranker, topk=cache(ranker.topk))
        fusion.propose([ranker], self.Y.shape[1])  # at once, so that kernels are compiled in the background
        return ranker

    def _fit(
        self, E: np.ndarray | None, some: np.ndarray | None = None, progress: Progress = silent,
        checkpoint: Any = None, record: Callback = ignore,
    ) -> tuple[list[LinearTree], LinearConfig]:  # fmt: skip
        rows, Y = self._rows(E, some), self.Y if some is None else self.Y[some]
        return Training(rows, Y, self.config, self.tree, self.by_name, progress, checkpoint, record).heads()

    def _rows(self, E: np.ndarray | None, some: np.ndarray | None) -> Rows:
        words, allocate = self.words, self.allocate
        if some is not None:
            words, E = words.take(some, allocate), None if E is None else take_rows(E, some, allocate)
        return _ranker_rows(words, E, self.config, allocate)


def _read_words(
    X: Any, matrix: sp.csr_matrix, targets: Targets, config: NeuralConfig, tree: LabelTree | None, progress: Progress,
    checkpoint: Any,
) -> tuple[Any, _Ranking]:  # fmt: skip
    """Return tf-idf and the ranker that is going to be trained on it."""
    tfidf, words = fit_words(X, config, progress, checkpoint)
    by_name = name_vectors(tfidf, targets, config)
    return tfidf, _Ranking(words, matrix, config, tree, by_name, checkpoint)


def _has_own_processor(encoder: Any) -> bool:
    """Return whether the encoder leaves the CPU free for other work."""
    return encoder.device.type != "cpu"


def _ranker_rows(
    words: Rows | None, E: np.ndarray | None, config: NeuralConfig, allocate: Allocate = in_memory
) -> Rows:
    """Return what the ranker sees of texts."""
    if config.features == "encoder":
        return Rows.of(sp.csr_matrix((len(E), 0), dtype=np.float32), E)
    if config.features == "tfidf":
        return words
    return Rows.mixed(words.sparse, E, config.embedding_weight, allocate)


def _head_scorer(head: DenseHead, E: np.ndarray, wanted: np.ndarray | None) -> fusion.Scorer:
    return fusion.Scorer(lambda k: head.topk(E, k, wanted), lambda pairs: head.score_labels(E, pairs), head.post)


def _network(
    encoder: Any, features: sp.csr_matrix, matrix: sp.csr_matrix, config: NeuralConfig, progress: Progress,
    stages: Checkpoint | None,
) -> Finetuning:  # fmt: skip
    """Lay out the fine-tuning of an encoder, with its tree."""
    from umpteen.neural.resolutions import Finetuning

    tree = kept_tree(stages, lambda: preliminary_tree(features, matrix, config, progress))
    return Finetuning(encoder, tree, config)


def preliminary_tree(
    features: sp.csr_matrix, matrix: sp.csr_matrix, config: NeuralConfig, progress: Progress = silent
) -> LabelTree:
    """Cluster the labels by their tf-idf rows: the levels are the resolutions of fine-tuning."""
    vectors = pifa(features, matrix, keep=config.tree.max_features, threads=n_threads(config.threads))
    return clustered(vectors, resolutions(matrix.shape[1], config.network), config, progress)
