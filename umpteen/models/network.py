"""Recipes whose network scores labels itself: LightXML, CascadeXML, and one classifier per label.

They differ in their presets. What is here is the order of the work; a ranker may follow, as in XR-Transformer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from umpteen.calibration import Calibration
from umpteen.config import NetworkConfig, NeuralConfig
from umpteen.data.rows import Rows
from umpteen.data.sparse import check_rows_match, normalize_rows
from umpteen.data.targets import is_texts
from umpteen.data.tokens import Tokens
from umpteen.engine import Callback, Progress, n_threads, silent
from umpteen.engine.ranks import present
from umpteen.errors import BadConfig
from umpteen.models import fusion
from umpteen.models.combined import CombinedModel, ReadTexts, fit_fusion
from umpteen.models.explain import explain_network, network_beam
from umpteen.models.explanation import Path
from umpteen.models.folder import Parts
from umpteen.models.lazy_neural import FeatureSource, Neural, SavedNet, compiled_ahead, encoder_module, load_encoder
from umpteen.models.ranker import (
    Training,
    clustered,
    kept_tree,
    label_vectors,
    uses_words,
    with_init,
)  # fmt: skip
from umpteen.models.runs import allocator, only_in_files
from umpteen.models.time_budget import with_time_budget
from umpteen.models.training_inputs import Inputs, as_sequence, check_names, check_trainable, fit_rows, name_vectors
from umpteen.models.tree_search import padded, ranker_scorer, reach_of_wanted, widened
from umpteen.shortlist import TopK
from umpteen.store import Checkpoint
from umpteen.store.tensors import Allocate, in_memory
from umpteen.tree import LabelTree, check_given, network_levels
from umpteen.tree.trace import Kept

_MOST_CANDIDATES = 250_000  # nodes of a given tree that a text may be compared with at a level


class NetModel(CombinedModel):
    """Base of these recipes.

    Parameters
    ----------
    encoder
        A name on the model hub, a folder, or ``"minilm"``; or settings such as ``{"name": …, "max_length": 256}``.
    network, training
        What reads a text, the levels and their classifiers, and how all of it is trained.
    ranker
        Whether a ranker is trained on tf-idf and the network's vectors after the network.

    ``tree`` and ``tfidf`` say how labels are clustered; the other parameters belong to the ranker. After ``fit``,
    ``training_`` says what training took, or that of each level where they are trained one after the other; it is not
    saved.
    """

    recipe = "net"
    preset: ClassVar[Mapping[str, Any]] = {}
    _n_proposed = 100

    # Training

    def _trained(self, data: Inputs, tree: LabelTree | None, progress: Progress, record: Callback) -> Parts | None:
        X, matrix, targets, checkpoint = data.X, data.Y, data.targets, data.run
        self._check_texts(X)
        check_trainable(X, matrix)
        config = with_time_budget(with_init(self.config, matrix), X, matrix)
        reads_features = config.network.reads == "features"
        has_words = config.ranker or reads_features or (tree is None and uses_words(config, matrix.shape[1]))
        self._check_tree(tree, matrix.shape[1], config)
        if has_words:
            check_names(targets, config, has_words=is_texts(X))
        with encoder_module().on_threads(config.threads):
            source = None if reads_features else load_encoder(config)  # first: a bad encoder is refused at once
            compiling = None if source is None else compiled_ahead(source.get())
            tfidf, features = None, sp.csr_matrix((matrix.shape[0], 0), dtype=np.float32)
            if has_words:
                tfidf, words = fit_rows(X, matrix, config, progress, checkpoint)
                features = words.sparse
            if source is None:
                source = FeatureSource(features.shape[1], config)
            else:
                config = replace(config, encoder=source.config)
            encoder = source.get()
            allocate = allocator(checkpoint)
            tokens = self._tokens(source, X, features, progress, allocate)
            if config.network.reads != "features":
                width = encoder.model.config.hidden_size
                config = config.with_schedule(tokens.lengths, len(tokens), width)
            by_name = None if tfidf is None else name_vectors(tfidf, targets, config)
            if compiling is not None:
                compiling.result()  # it draws random numbers, as a new network does
            watched = self._watched(source, data.held_out, tfidf, config)
            network = self._network(
                config, encoder, tokens, features, matrix, tree, by_name, progress, checkpoint, record, watched
            )
            E = network.vectors_by_all(tokens, progress=progress, allocate=allocate) if config.ranker else None
            if not present().is_main:
                return None
            neural = Neural(source, net=SavedNet(config, source, network.tree, network.arrays(), network))
            if E is None:
                return Parts(config, targets, tfidf if reads_features else None, source.n_inputs, [], neural)
            rows = Rows.mixed(features, E, config.embedding_weight, allocate)
            weights, calibration = config.fusion, None
            if config.fits_fusion(matrix.shape[1]):
                weights, calibration = self._fusion(network, tokens, rows, matrix, config, tree, by_name, checkpoint)
        heads, linear = Training(rows, matrix, config, tree, by_name, progress, checkpoint, record).heads()
        config = replace(config, linear=linear, fusion=weights)
        return Parts(config, targets, tfidf, rows.n_features, heads, neural, calibration)

    def _fusion(
        self, network: Any, tokens: Tokens, rows: Rows, matrix: sp.csr_matrix, config: NeuralConfig,
        tree: LabelTree | None, by_name: sp.csr_matrix | None, checkpoint: Any,
    ) -> tuple[fusion.Weights, Calibration | None]:  # fmt: skip
        """Train a ranker on what the network was trained on, and fit on the other texts how much the two count."""
        kept, held_out = network.split(len(tokens))
        if not len(held_out):
            return (), None
        some = rows.take(kept, allocator(checkpoint))
        heads, _ = Training(some, matrix[kept], config, tree, by_name, checkpoint=only_in_files(checkpoint)).heads()
        threads, unseen, texts = n_threads(config.threads), rows.take(held_out), tokens.take(held_out)
        ranker = ranker_scorer(heads, unseen, config, threads)
        net = fusion.Scorer(
            lambda k: network.topk(texts, k), lambda pairs: network.score_labels(texts, pairs), "sigmoid"
        )
        return fit_fusion(ranker, net, matrix, (kept, held_out), config, can_drop=False)

    def _tokens(
        self, source: Any, X: Any, features: sp.csr_matrix, progress: Progress = silent, allocate: Allocate = in_memory
    ) -> Any:
        """Return what the reader reads of texts: tokens, or features."""
        if isinstance(source, FeatureSource):
            return source.tokens(features)
        return source.get().tokenize(as_sequence(X), progress=progress, allocate=allocate)

    def _check_tree(self, given: LabelTree | None, n_labels: int, config: NeuralConfig) -> None:
        """Refuse a tree that the network has no use for, or could not learn with."""
        if given is not None and config.network.head == "full":
            raise BadConfig(f"{self.recipe} scores every label and has no use for a tree; leave it out")
        check_given(config.tree, given, n_labels)
        if given is not None:
            _check_groups(given, config.network)

    def _network(
        self, config: NeuralConfig, encoder: Any, tokens: Tokens, features: sp.csr_matrix, matrix: sp.csr_matrix,
        given: LabelTree | None, by_name: sp.csr_matrix | None, progress: Progress, checkpoint: Any, record: Callback,
        watched: tuple[Any, sp.csr_matrix] | None,
    ) -> Any:  # fmt: skip
        """Build and train the network."""
        from umpteen.neural.network import Network

        decisive = (features, matrix) if by_name is None else (features, matrix, by_name)
        stages = self._stages(checkpoint, encoder, tokens, *decisive, tree=given)
        tree = given if given is not None else self._tree(config, features, matrix, by_name, progress, stages)
        network = Network(encoder, tree, config, seed=config.seed, divides=True)
        self.training_ = network.train(
            tokens, matrix, watched=watched, checkpoint=stages, progress=progress, record=record,
            allocate=allocator(checkpoint),
        )  # fmt: skip
        return network

    def _watched(
        self, source: Any, held_out: tuple[Any, sp.csr_matrix] | None, tfidf: Any, config: NeuralConfig
    ) -> tuple[Any, sp.csr_matrix] | None:
        """Return the texts held out to calibrate the model: precision on them is reported after every epoch."""
        if held_out is None or config.training.validation_fraction > 0:
            return None
        X, Y = held_out
        features = None
        if isinstance(source, FeatureSource) and tfidf is not None:
            features = tfidf.transform(X, threads=config.threads)
        elif isinstance(source, FeatureSource):
            features = normalize_rows(X, n_threads(config.threads)) if config.normalize else X
        return self._tokens(source, X, features), Y

    def _tree(
        self, config: NeuralConfig, features: sp.csr_matrix, matrix: sp.csr_matrix, by_name: sp.csr_matrix | None,
        progress: Progress, stages: Checkpoint | None,
    ) -> LabelTree:  # fmt: skip
        sizes = network_levels(matrix.shape[1], config.network)
        if len(sizes) == 1:
            return LabelTree.flat(matrix.shape[1])

        def make() -> LabelTree:
            return clustered(label_vectors(Rows.of(features), matrix, config, by_name), sizes, config, progress)

        return kept_tree(stages, make)

    # Prediction

    @property
    def takes_texts(self) -> bool:
        """Whether the model takes texts; a network that reads feature rows may have been trained on such."""
        self._check_fitted()
        return self.tfidf_ is not None or not isinstance(self.neural_.encoder, FeatureSource)

    def _rows(self, X: Any, threads: int) -> ReadTexts:
        """Return tokens or features, and the rows of the ranker if there is one."""
        X = self._read(X)
        source, features = self.neural_.encoder, None
        if self.heads_ or isinstance(source, FeatureSource):
            features = self._features(X, threads)
        with encoder_module().on_threads(threads):
            tokens = self._tokens(source, X, features)
            if not self.heads_:
                return ReadTexts(None, tokens, tokens)
            network = self.neural_.net.get()
            read = network.read(tokens)
        rows = Rows.mixed(features, network.scaled(read), self.config_.embedding_weight)
        return ReadTexts(rows, read if network.reads_vectors else tokens, tokens)

    def _features(self, X: Any, threads: int) -> sp.csr_matrix:
        """Return tf-idf rows of texts, or the rows that were given to a network that reads such."""
        if isinstance(self.neural_.encoder, FeatureSource):
            return super()._rows(X, threads).sparse
        return self.tfidf_.transform(X, threads=threads)

    def _classifiers(
        self, rows: ReadTexts, beam: int | None, wanted: np.ndarray | None, threads: int
    ) -> fusion.Scorer:  # fmt: skip
        network, on_threads = self.neural_.net.get(), encoder_module().on_threads(threads)

        @on_threads
        def topk(k: int) -> TopK:
            return self._of_network(rows, k, beam, wanted)

        @on_threads
        def score(pairs: sp.csr_matrix) -> np.ndarray:
            return network.score_labels(rows.seen, pairs)

        return fusion.Scorer(topk, score, "sigmoid")

    def _of_network(self, rows: Any, k: int, beam: int | None, wanted: np.ndarray | None) -> TopK:
        """Return the best labels by the network alone."""
        network = self.neural_.net.get()

        kept = network.beams(1, beam)
        reach = network.reach(beam) if wanted is None else reach_of_wanted(wanted, kept, network.tree.sizes)

        def search(places: int) -> TopK:
            wide = beam if wanted is None or places <= reach else max(*kept, min(places, len(wanted)))
            return network.topk(rows.seen, min(places, len(self.labels_)), beam=wide, wanted=wanted)

        return padded(widened(search, min(k, len(self.labels_)), reach), k)

    def _path(self, rows: ReadTexts, label: int, depth: int, threads: int) -> Path:
        with encoder_module().on_threads(threads):
            return explain_network(self.neural_.net.get(), rows.seen, label, depth)

    def _label_trees(self) -> list[LabelTree]:
        return [*super()._label_trees(), self.neural_.net.tree]

    def _kept_nodes(self, rows: ReadTexts, k: int, threads: int) -> list[list[Kept]]:
        with encoder_module().on_threads(threads):
            of_network = network_beam(self.neural_.net.get(), rows.seen, self._searched_depth(k))
        return [*super()._kept_nodes(rows, k, threads), of_network]

    def embed(self, texts: Any, *, threads: int | None = None, progress: Progress = silent) -> np.ndarray:
        """Return what the network's last level reads of each text (texts, d), each of length one."""
        self._check_fitted()
        workers = self._workers(threads)
        read = self._rows(texts, workers)
        with encoder_module().on_threads(workers):
            return self.neural_.net.get().vectors(read.tokens, progress=progress)

    def _vectors(self, texts: list[str]) -> np.ndarray:
        return self.embed(texts)

    def _poolings(self) -> Sequence[Any]:
        return self.neural_.net.get().module.reader.poolings

    def shortlist_recall(
        self, X: Any, Y: Any, *, threads: int | None = None, progress: Progress = silent
    ) -> list[float]:
        """Return for each level below the first the share of true nodes that are scored, as percentages.

        What a level above has ruled out, no level below can find. A network with one level scores all labels and has
        no such shares, and neither have texts without labels that the model knows.
        """
        self._check_fitted()
        workers, targets = self._workers(threads), self.targets_.encode(Y)
        read = self._rows(X, workers)
        check_rows_match(read, targets)
        with encoder_module().on_threads(workers):
            network = self.neural_.net.get()
            shares = network.recall(read.tokens, targets[:, : len(self.labels_)], progress=progress)
        return [100.0 * share for share in shares]

    def describe(self) -> dict[str, Any]:
        """Summarise the model in plain values."""
        self._check_fitted()
        net = self.neural_.net
        facts = super().describe()
        if not self.heads_:
            del facts["trees"]  # those of a ranker
        if not isinstance(self.neural_.encoder, FeatureSource):
            facts |= {"encoder": self.config_.encoder.name, "backends": self.neural_.encoder.backends}
        return facts | {
            "levels": list(net.tree.sizes),
            "weights": facts["weights"] + sum(array.size for array in net.arrays.values()),
            "bytes": facts["bytes"] + sum(array.nbytes for array in net.arrays.values()),
        }


def _check_groups(tree: LabelTree, config: NetworkConfig) -> None:
    """Refuse a tree with groups so large that a step would not fit in memory: all children of a group are scored."""
    for level in range(1, tree.n_levels):
        most = tree.most_children[level]
        beam = min(config.beam_at(level - 1), tree.sizes[level - 1])
        if beam * most > _MOST_CANDIDATES:
            raise BadConfig(
                f"the tree has a group of {most:,}, so that with network.beam {beam} a text may be compared with "
                f"{beam * most:,} nodes, more than {_MOST_CANDIDATES:,}; cut the group, or lower network.beam"
            )


class LightXML(NetModel):
    """Clusters and labels scored from the last five layers at once; negatives are the labels of likely clusters."""

    recipe = "lightxml"
    paper = "Jiang, Wang, Sun, Yang, Zhao, Zhuang: LightXML (AAAI 2021)"
    preset: ClassVar[Mapping[str, Any]] = {
        "network.depth": 2,
        "network.branching": 64,
        "network.few_labels": 30_000,
        "network.pooling": "last5",
        "network.dropout": (0.5,),
        "network.bottleneck": 400,
        "network.beam": (75,),
        "training.batch_size": 16,
        "training.head_learning_rate": 5e-3,
        "training.lr_schedule": "constant",
        "training.head_weight_decay": 0.01,
        "training.swa_start": 0.5,
        "training.epochs": (15.0,),
    }


class CascadeXML(NetModel):
    """Three or four resolutions scored at once, each from a deeper layer of the same pass."""

    recipe = "cascadexml"
    paper = "Kharbanda, Banerjee, Schultheis, Babbar: CascadeXML (NeurIPS 2022)"
    preset: ClassVar[Mapping[str, Any]] = {
        "network.depth": 3,
        "network.dropout": (0.2, 0.3, 0.4, 0.5),
        "network.score": "weighted",
        "training.head_learning_rate": 1e-2,
        "training.lr_schedule": "plateau",
        "training.warmup": 0.1,
        "training.weight_decay": 0.05,
        "training.head_weight_decay": 0.005,
        "training.epochs": (15.0,),
    }


class CascadeDiSMEC(CascadeXML):
    """CascadeXML, then one linear classifier per label on tf-idf and its vectors."""

    recipe = "cascadexml-dismec"
    preset: ClassVar[Mapping[str, Any]] = {
        **CascadeXML.preset,
        "ranker": True,
        "head_weight": 0.2,
        "tree.kind": "none",
        "linear.eps": 0.03,
        "linear.max_iter": 40,
        "linear.threshold": 0.05,
    }


class FullHead(NetModel):
    """One classifier for every label on the encoder, trained in pieces: no clusters, little memory, made for a GPU."""

    recipe = "full"
    paper = "Jain, Prakash and others: Renée (MLSys 2023); Zhang and others: ELMO (ICML 2025)"
    preset: ClassVar[Mapping[str, Any]] = {
        "network.head": "full",
        "network.pooling": "mean",
        "network.dropout": (0.3,),
        "training.epochs": (10.0,),
    }


class AttentionXML(NetModel):
    """An LSTM whose states each node attends to in a way of its own; levels learn one after the other."""

    recipe = "attentionxml"
    paper = "You, Zhang, Wang, Dai, Mamitsuka, Zhu: AttentionXML (NeurIPS 2019)"
    preset: ClassVar[Mapping[str, Any]] = {
        "network.reader": "lstm",
        "training.order": "own-reader",
        "network.depth": 2,
        "network.branching": 8,
        "network.few_labels": 15_000,
        "network.beam": (64,),
        "training.batch_size": 40,
        "training.learning_rate": 1e-3,
        "training.head_learning_rate": 5e-3,
        "training.lr_schedule": "constant",
        "training.weight_decay": 0.0,
        "training.max_grad_norm": 5.0,
        "training.swa_start": 0.3,
        "training.cuda_graphs": False,
        "training.epochs": (15.0,),
    }


class XMLCNN(NetModel):
    """Filters over neighbouring words, a narrow layer, and one classifier per label."""

    recipe = "xml-cnn"
    paper = "Liu, Chang, Wu, Yang: Deep learning for extreme multi-label text classification (SIGIR 2017)"
    preset: ClassVar[Mapping[str, Any]] = {
        "network.reader": "cnn",
        "network.bottleneck": 512,
        "network.dropout": (0.5,),
        "training.learning_rate": 1e-3,
        "training.head_learning_rate": 1e-2,
        "training.weight_decay": 0.0,
        "training.epochs": (20.0,),
    }


class ExtremeText(NetModel):
    """Embeddings of words and n-grams, summed, and a probabilistic label tree: no encoder, made for a CPU."""

    recipe = "extremetext"
    paper = "Wydmuch, Jasinska, Kuznetsov, Busa-Fekete, Dembczyński: extremeText (NeurIPS 2018)"
    preset: ClassVar[Mapping[str, Any]] = {
        "network.reader": "bag",
        "network.hidden": 100,
        "network.depth": 0,
        "network.branching": 16,
        "network.dropout": (0.0,),
        "network.beam": (20,),
        "network.sparse_update_from": 1,
        "training.epochs": (10.0,),
        "training.batch_size": 64,
        "training.learning_rate": 0.05,
        "training.head_learning_rate": 0.05,
        "training.weight_decay": 0.0,
        "training.negatives": "tfn",
        "training.init": "random",
        "training.cuda_graphs": False,
    }

    def _check_texts(self, X: Any) -> None:
        """Take texts and feature rows alike."""

    def _read(self, X: Any) -> Any:
        return X  # ``_features`` checks it
