"""XR-Transformer: an encoder fine-tuned from a coarse view of the labels to a fine one, then a linear ranker.

The ranker is XR-Linear on tf-idf rows with the embedding beside them (eq. 10). What is here is the order of the work
(Algorithm 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp

from umpteen.config import NeuralConfig
from umpteen.data.rows import Rows
from umpteen.data.tfidf import Tfidf
from umpteen.data.tokens import Tokens
from umpteen.engine import Progress, n_threads, silent
from umpteen.errors import BadInput
from umpteen.linear import DenseHead
from umpteen.models.base import check_trainable, fit_words
from umpteen.models.encoder_model import EncodedModel
from umpteen.models.ensemble_rules import merge_by_tiers, tiers
from umpteen.models.folder import Neural, SavedEncoder, encoders, head_post
from umpteen.models.fusion import USUAL, choose
from umpteen.models.ranker import clustered, kept_tree, with_init
from umpteen.shortlist import TopK
from umpteen.store import Checkpoint
from umpteen.tree import LabelTree, pifa, resolutions

if TYPE_CHECKING:
    from umpteen.neural.resolutions import Finetuning


class XRTransformer(EncodedModel):
    """A transformer fine-tuned level by level, then XR-Linear on tf-idf and its embeddings.

    Parameters
    ----------
    encoder
        A name on the model hub, a folder, or ``"minilm"``; or settings such as ``{"name": …, "max_length": 256}``.
    network, training
        The levels that the encoder is fine-tuned on, and how it is trained.
    features
        What the ranker sees: ``"both"``, ``"encoder"`` or ``"tfidf"``.

    The other parameters are XR-Linear's and belong to the ranker. After ``fit``, ``finetuning_`` says what each
    resolution took; it is not saved.
    """

    recipe = "xr-transformer"
    paper = "Zhang, Chang, Yu, Dhillon: XR-Transformer (NeurIPS 2021)"
    preset: ClassVar[Mapping[str, Any]] = {
        "tree.kind": "auto",
        "linear.eps": 0.03,
        "linear.max_iter": 40,
        "linear.threshold": 0.02,
        "network.depth": 0,
        "network.branching": 64,
        "network.beam": (20,),
        "training.order": "coarse-to-fine",
        "training.epochs": (1.0, 4.0),
        "training.head_learning_rate": 2e-3,
        "training.loss": "squared-hinge",
        "training.relevance": "induce",
        "training.validation_fraction": 0.05,
    }
    config_class = NeuralConfig

    @property
    def config(self) -> NeuralConfig:
        """The settings that ``fit`` would use."""
        config = super().config
        self._check_order(config)
        return config  # type: ignore[return-value]

    # Training

    def _fit_rows(
        self, X: Any, matrix: sp.csr_matrix, config: Any, progress: Progress, checkpoint: Any
    ) -> tuple[Rows, Tfidf | None, Neural | None, NeuralConfig]:
        self._check_texts(X)
        if config.features == "tfidf":
            return super()._fit_rows(X, matrix, config, progress, checkpoint)
        check_trainable(X, matrix)
        config, room = with_init(config, matrix), encoders()
        with room.on_threads(config.threads):
            encoder = room.Encoder.load(config.encoder)  # first: an encoder that cannot be loaded is refused at once
            tfidf, features = fit_words(X, config, progress)
            tokens = encoder.tokenize(list(X), progress=progress)
            stages = self._stages(checkpoint, encoder, tokens, features, matrix)
            run = _finetuning(encoder, tokens, features, matrix, config, progress, stages)
            E, classifiers = run.embeddings(), run.label_classifiers()
        self.finetuning_ = run.report
        head = None if classifiers is None else DenseHead.rounded(*classifiers, head_post(config))
        if config.features == "encoder":
            weight, share = 1.0, USUAL[1] if config.head_weight is None else config.head_weight
        else:
            weight, share = choose(features, E, matrix, head, run.held_out, config, progress)
        if not weight:  # what the encoder adds does not help
            return Rows.of(features), tfidf, None, replace(config, features="tfidf")
        config = replace(config, embedding_weight=weight, head_weight=share)
        neural = Neural(SavedEncoder(config.encoder, encoder=encoder), head if share else None)
        if config.features == "encoder":
            return Rows.of(sp.csr_matrix(E)), None, neural, config
        return Rows.mixed(features, E, weight), tfidf, neural, config

    def _has_words(self, X: Any) -> bool:
        return self.config.features != "encoder"

    # Prediction

    def _rows(self, X: Any, threads: int) -> Rows:
        X = self._read(X)
        if self.neural_ is None:
            return super()._rows(X, threads)
        E = self.embed(X, threads=threads)
        if self.tfidf_ is None:
            return Rows.of(sp.csr_matrix(E))
        return Rows.mixed(self.tfidf_.transform(X, threads=threads), E, self.config_.embedding_weight)

    def _ranked(self, rows: Rows, k: int, beam: int | None, wanted: np.ndarray | None, threads: int) -> TopK:
        """Let the ranker and the encoder's own classifiers propose labels, and average their scores."""
        if self.neural_ is None or self.neural_.head is None:
            return super()._ranked(rows, k, beam, wanted, threads)
        share, n_trees = self.config_.head_weight, len(self.heads_)
        wanted_tiers = tiers(k, len(self.labels_))
        depth = wanted_tiers[-1].depth
        tops = self._proposals(rows, depth, beam, wanted, threads)
        tops.append(self.neural_.head.topk(self._embeddings(rows), depth, wanted))
        rule = self.config_.ensemble if n_trees > 1 else "average"
        weights = None if rule == "round-robin" else [(1.0 - share) / n_trees] * n_trees + [share]
        return merge_by_tiers(tops, rule, wanted_tiers, weights)

    def _scored(self, rows: Rows, wanted: sp.csr_matrix, threads: int) -> sp.csr_matrix:
        scores = super()._scored(rows, wanted, threads)
        if self.neural_ is not None and self.neural_.head is not None:
            share = np.float32(self.config_.head_weight)
            own = self.neural_.head.score_labels(self._embeddings(rows), scores)
            scores.data = (1 - share) * scores.data + share * own
        return scores

    def _embeddings(self, rows: Rows) -> np.ndarray:
        """Return the embeddings that the rows were made of."""
        if rows.n_dense:
            return rows.dense / np.float32(min(self.config_.embedding_weight, 1.0))
        return rows.sparse.toarray()

    def embed(self, texts: Any, *, threads: int | None = None, progress: Progress = silent) -> np.ndarray:
        """Return the fine-tuned embeddings (texts, d), each of length one."""
        self._check_fitted()
        if self.neural_ is None:
            raise BadInput("this model was trained on tf-idf alone and has no encoder")
        with encoders().on_threads(self._workers(threads)):
            encoder = self.neural_.encoder.get()
            return encoder.embed(encoder.tokenize(list(self._read(texts))), progress=progress)

    def describe(self) -> dict[str, Any]:
        """Summarise the model in plain values."""
        facts = super().describe() | {"input": "texts"}
        if self.neural_ is not None:
            n_terms = 0 if self.tfidf_ is None else self.tfidf_.n_features
            facts |= {"encoder": self.config_.encoder.name, "embedding": self.n_features_in_ - n_terms}
        return facts


class XTransformer(XRTransformer):
    """An encoder fine-tuned once, on clusters of labels, then XR-Linear on tf-idf and its embeddings."""

    recipe = "x-transformer"
    paper = "Chang, Yu, Zhong, Yang, Dhillon: X-Transformer (KDD 2020)"
    preset: ClassVar[Mapping[str, Any]] = {
        **XRTransformer.preset,
        "network.labels_per_cluster": 64,
        "network.branching": 32_768,
        "training.relevance": "none",
        "training.init": "random",
        "training.epochs": (5.0,),
    }


def _finetuning(
    encoder: Any, tokens: Tokens, features: sp.csr_matrix, matrix: sp.csr_matrix, config: NeuralConfig,
    progress: Progress, stages: Checkpoint | None,
) -> Finetuning:  # fmt: skip
    """Lay out the fine-tuning of an encoder, with its tree and its checkpoint."""
    from umpteen.neural.resolutions import Finetuning

    tree = kept_tree(stages, lambda: preliminary_tree(features, matrix, config, progress))
    return Finetuning(encoder, tokens, matrix, tree, config, stages, progress)


def preliminary_tree(
    features: sp.csr_matrix, matrix: sp.csr_matrix, config: NeuralConfig, progress: Progress = silent
) -> LabelTree:
    """Cluster the labels by their tf-idf rows: the levels are the resolutions of fine-tuning."""
    vectors = pifa(features, matrix, keep=config.tree.max_features, threads=n_threads(config.threads))
    return clustered(vectors, resolutions(matrix.shape[1], config.network), config, progress)
