"""Recipes whose network scores labels itself: LightXML, CascadeXML, and one scorer per label.

They differ in their presets. What is here is the order of the work; a ranker may follow, as in XR-Transformer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from umpteen.config import (
    EncoderConfig,
    LinearConfig,
    NetConfig,
    NetModelConfig,
    SearchConfig,
    StoreConfig,
    TfidfConfig,
    TreeConfig,
)  # fmt: skip
from umpteen.data.rows import Rows
from umpteen.data.sparse import check_rows_match
from umpteen.data.targets import Targets
from umpteen.data.tokens import Tokens
from umpteen.engine import Progress, silent
from umpteen.errors import BadConfig
from umpteen.models.base import (
    beam_for_wanted,
    check_names,
    check_trainable,
    fit_words,
    name_vectors,
    padded,
    reach_of_wanted,
    widened,
)
from umpteen.models.encoder_model import EncodedModel
from umpteen.models.ensemble_rules import merge_by_tiers, tiers
from umpteen.models.folder import Neural, Parts, SavedEncoder, SavedNet, encoders
from umpteen.models.fusion import USUAL
from umpteen.models.ranker import (
    Training,
    clustered,
    kept_tree,
    label_vectors,
    settled_net,
    uses_words,
)  # fmt: skip
from umpteen.shortlist import TopK
from umpteen.store import Checkpoint
from umpteen.tree import LabelTree, check_given, network_levels

_PROPOSED = 100  # labels that network and ranker propose at least

_MOST_CANDIDATES = 250_000  # nodes of a given tree that a text may be compared with at a level


class NetModel(EncodedModel):
    """Base of these recipes.

    Parameters
    ----------
    encoder
        A name on the model hub, a folder, or ``"minilm"``; or settings such as ``{"name": …, "tokens": 256}``.
    net
        The network: its levels, and how it learns.
    ranker
        Whether a ranker is trained on tf-idf and the network's vectors after the network.

    ``tree`` and ``tfidf`` say how labels are clustered; the other parameters belong to the ranker. After ``fit``,
    ``course_`` says what training took, or each level where they learn in turn; it is not saved.
    """

    recipe = "net"
    preset: ClassVar[Mapping[str, Any]] = {}
    config_class = NetModelConfig

    def __init__(
        self,
        *,
        encoder: str | EncoderConfig | Mapping[str, Any] | None = None,
        net: NetConfig | Mapping[str, Any] | None = None,
        ranker: bool | None = None,
        embedding_weight: float | None = None,
        head_weight: float | None = None,
        tree: TreeConfig | Mapping[str, Any] | None = None,
        linear: LinearConfig | Mapping[str, Any] | None = None,
        search: SearchConfig | Mapping[str, Any] | None = None,
        tfidf: TfidfConfig | Mapping[str, Any] | None = None,
        store: StoreConfig | Mapping[str, Any] | None = None,
        seed: int = 0,
        threads: int = 0,
    ):
        super().__init__(tree=tree, linear=linear, search=search, tfidf=tfidf, store=store, seed=seed, threads=threads)
        self.encoder, self.net, self.ranker = encoder, net, ranker
        self.embedding_weight, self.head_weight = embedding_weight, head_weight

    @property
    def config(self) -> NetModelConfig:
        """The settings that ``fit`` would use."""
        return super().config  # type: ignore[return-value]

    # Training

    def _trained(
        self, X: Any, matrix: sp.csr_matrix, targets: Targets, tree: LabelTree | None, progress: Progress,
        checkpoint: Any,
    ) -> Parts:  # fmt: skip
        self._check_texts(X)
        check_trainable(X, matrix)
        config = settled_net(self.config, matrix)
        has_words = config.ranker or (tree is None and uses_words(config, matrix.shape[1]))
        self._check_tree(tree, matrix.shape[1], config)
        if has_words:
            check_names(targets, config, has_words=True)
        room = encoders()
        with room.on_threads(config.threads):
            encoder = room.Encoder.load(config.encoder)  # before the rest, for what is wrong with it is told then
            if config.net.reader == "layers":
                for spec in config.net.poolings:
                    room.Pooling.parse(spec, encoder.n_layers, setting="net.pooling")
            else:
                encoder = encoder.shallow()
                config = replace(config, encoder=encoder.config)
            tfidf, features = None, sp.csr_matrix((matrix.shape[0], 0), dtype=np.float32)
            if has_words:
                tfidf, features = fit_words(X, config, progress)
            tokens = encoder.tokenize(list(X), progress=progress)
            by_name = None if tfidf is None else name_vectors(tfidf, targets, config)
            network = self._network(config, encoder, tokens, features, matrix, tree, by_name, progress, checkpoint)
            saved = SavedEncoder(config.encoder, encoder=encoder)
            neural = Neural(saved, net=SavedNet(config, saved, network.tree, network.arrays(), network))
            if not config.ranker:
                return Parts(config, targets, None, encoder.dim, [], neural)
            E = network.vectors(tokens, progress=progress)
        weight, share = (usual if own is None else own for usual, own in zip(
            USUAL, (config.embedding_weight, config.head_weight), strict=True
        ))  # fmt: skip
        config = replace(config, embedding_weight=weight, head_weight=share)
        rows = Rows.mixed(features, E, weight)
        heads, linear = Training(rows, matrix, config, tree, by_name, progress, checkpoint).heads()
        return Parts(replace(config, linear=linear), targets, tfidf, rows.n_features, heads, neural)

    def _check_tree(self, given: LabelTree | None, n_labels: int, config: NetModelConfig) -> None:
        """Refuse a tree that the network has no use for, or could not learn with."""
        if given is not None and config.net.kind == "full":
            raise BadConfig(f"{self.recipe} scores every label and has no use for a tree; leave it out")
        check_given(config.tree, given, n_labels)
        if given is not None:
            _check_groups(given, config.net)

    def _network(
        self, config: NetModelConfig, encoder: Any, tokens: Tokens, features: sp.csr_matrix, matrix: sp.csr_matrix,
        given: LabelTree | None, by_name: sp.csr_matrix | None, progress: Progress, checkpoint: Any,
    ) -> Any:  # fmt: skip
        """Build and train the network."""
        from umpteen.neural.network import Network
        from umpteen.neural.trainer import Trainer

        decisive = (features, matrix) if by_name is None else (features, matrix, by_name)
        stages = self._stages(checkpoint, ("net",), encoder, tokens, *decisive, tree=given)
        tree = given if given is not None else self._tree(config, features, matrix, by_name, progress, stages)
        network = Network(encoder, tree, config.net, seed=config.seed)
        truth = [tree.lift(matrix, level) for level in range(tree.n_levels)]
        reports = []
        for level in network.turns:
            stage = "training the network" if level is None else f"training level {level + 1} of {tree.n_levels}"
            if level is not None:
                network.module.learn(level)
            trainer = Trainer(
                network.module, encoder, tokens, truth, config.net, network.reader_parameters, seed=config.seed,
                checkpoint=stages, progress=progress, stage=stage,
                chosen=network.choose(tokens, level, progress=progress) if level else None,
            )  # fmt: skip
            if not trainer.has_state:
                network.begin(tokens, truth, level, progress=progress)
            trainer.run()
            reports.append(trainer.report)
        network.silence(np.flatnonzero(matrix.getnnz(axis=0) == 0))
        network.load(network.arrays())  # predict with the numbers that are saved
        self.course_ = reports
        return network

    def _tree(
        self, config: NetModelConfig, features: sp.csr_matrix, matrix: sp.csr_matrix, by_name: sp.csr_matrix | None,
        progress: Progress, stages: Checkpoint | None,
    ) -> LabelTree:  # fmt: skip
        sizes = network_levels(matrix.shape[1], config.net)
        if len(sizes) == 1:
            return LabelTree.flat(matrix.shape[1])

        def make() -> LabelTree:
            return clustered(label_vectors(Rows.of(features), matrix, config, by_name), sizes, config, progress)

        return kept_tree(stages, make)

    # Prediction

    @property
    def _usual_beam(self) -> int:
        return max(self.config_.net.beam)

    def _rows(self, X: Any, threads: int) -> Any:
        """Return tokens, and the rows of the ranker if there is one."""
        X = self._read(X)
        with encoders().on_threads(threads):
            tokens = self.neural_.encoder.get().tokenize(list(X))
            if not self.heads_:
                return _Read(tokens)
            network = self.neural_.net.get()
            read = network.read(tokens)
        E = network.scaled(read)
        rows = Rows.mixed(self.tfidf_.transform(X, threads=threads), E, self.config_.embedding_weight)
        return _Read(tokens, rows, read if network.reads_vectors else None)

    def _ranked(self, rows: Any, k: int, beam: int | None, wanted: np.ndarray | None, threads: int) -> TopK:
        """Let the network answer, or the ranker and the network, and weigh what they say."""
        share, n_trees = self.config_.head_weight, len(self.heads_)
        if n_trees and not share:
            return super()._ranked(rows.ranked, k, beam, wanted, threads)
        wanted_tiers = tiers(k, len(self.labels_), first=_PROPOSED)
        depth = wanted_tiers[-1].depth if n_trees else k
        with encoders().on_threads(threads):
            own = self._of_network(rows, depth, beam, wanted)
        if not n_trees:
            return own
        tops = [*self._proposals(rows.ranked, depth, beam, wanted, threads), own]
        return merge_by_tiers(tops, "average", wanted_tiers, [(1.0 - share) / n_trees] * n_trees + [share])

    def _of_network(self, rows: Any, k: int, beam: int | None, wanted: np.ndarray | None) -> TopK:
        """Return the best labels by the network alone."""
        network = self.neural_.net.get()

        def search(places: int) -> TopK:
            wide = beam if wanted is None else beam_for_wanted(wanted, beam, places)
            return network.topk(rows.seen, min(places, len(self.labels_)), beam=wide, wanted=wanted)

        reach = network.reach(beam) if wanted is None else reach_of_wanted(wanted, beam)
        return padded(widened(search, min(k, len(self.labels_)), reach), k)

    def _scored(self, rows: Any, wanted: sp.csr_matrix, threads: int) -> sp.csr_matrix:
        share = np.float32(self.config_.head_weight or 0.0)
        if rows.ranked is not None and not share:
            return super()._scored(rows.ranked, wanted, threads)
        with encoders().on_threads(threads):
            own = self.neural_.net.get().score_labels(rows.seen, wanted)
        if rows.ranked is None:
            return sp.csr_matrix((own, wanted.indices, wanted.indptr), shape=wanted.shape)
        scores = super()._scored(rows.ranked, wanted, threads)
        scores.data = (1 - share) * scores.data + share * own
        return scores

    def embed(self, texts: Any, *, threads: int | None = None, progress: Progress = silent) -> np.ndarray:
        """Return what the network's last level reads of each text (texts, d), each of length one."""
        self._check_fitted()
        with encoders().on_threads(self._workers(threads)):
            network = self.neural_.net.get()
            return network.vectors(network.encoder.tokenize(list(self._read(texts))), progress=progress)

    def shortlist_recall(
        self, X: Any, Y: Any, *, threads: int | None = None, progress: Progress = silent
    ) -> list[float]:
        """Return for each level below the first the share of true nodes that are scored, as percentages.

        What a level above has ruled out, no level below can find. A network with one level scores all labels and has
        no such shares, and neither have texts without labels that the model knows.
        """
        self._check_fitted()
        texts, targets = self._read(X), self.targets_.encode(Y)
        check_rows_match(texts, targets)
        with encoders().on_threads(self._workers(threads)):
            network = self.neural_.net.get()
            tokens = network.encoder.tokenize(list(texts))
            shares = network.recall(tokens, targets[:, : len(self.labels_)], progress=progress)
        return [100.0 * share for share in shares]

    def describe(self) -> dict[str, Any]:
        """Summarise the model in plain values."""
        self._check_fitted()
        net = self.neural_.net
        facts = super().describe()
        if not self.heads_:
            del facts["trees"]  # those of a ranker
        return facts | {
            "encoder": self.config_.encoder.name,
            "input": "texts",
            "levels": list(net.tree.sizes),
            "weights": facts["weights"] + sum(array.size for array in net.arrays.values()),
            "bytes": facts["bytes"] + sum(array.nbytes for array in net.arrays.values()),
        }


class _Read:
    """Texts as the network reads them, as the ranker does, and what the network's levels have read already."""

    def __init__(self, tokens: Tokens, ranked: Rows | None = None, read: list[np.ndarray] | None = None):
        self.tokens, self.ranked = tokens, ranked
        self.seen = tokens if read is None else read

    def __len__(self) -> int:
        return len(self.tokens)


def _check_groups(tree: LabelTree, config: NetConfig) -> None:
    """Refuse a tree with groups so large that a step would not fit in memory: all children of a group are scored."""
    for level in range(1, tree.n_levels):
        most = tree.most_children[level]
        beam = min(int(config.at(config.beam, level - 1)), tree.sizes[level - 1])
        if beam * most > _MOST_CANDIDATES:
            raise BadConfig(
                f"the tree has a group of {most:,}, so that with net.beam {beam} a text may be compared with "
                f"{beam * most:,} nodes, more than {_MOST_CANDIDATES:,}; cut the group, or lower net.beam"
            )


class LightXML(NetModel):
    """Clusters and labels scored from the last five layers at once; negatives are the labels of likely clusters."""

    recipe = "lightxml"
    paper = "Jiang, Wang, Sun, Yang, Zhao, Zhuang: LightXML (AAAI 2021)"
    preset: ClassVar[Mapping[str, Any]] = {
        "net.depth": 2,
        "net.branching": 64,
        "net.few_labels": 30_000,
        "net.pooling": "last5",
        "net.dropout": (0.5,),
        "net.bottleneck": 400,
        "net.beam": (75,),
        "net.batch_size": 16,
        "net.head_rate": 5e-3,
        "net.schedule": "constant",
        "net.head_decay": 0.01,
        "net.average_from": 0.5,
        "net.epochs": 15.0,
    }


class CascadeXML(NetModel):
    """Three or four resolutions scored at once, each from a deeper layer of the same pass."""

    recipe = "cascadexml"
    paper = "Kharbanda, Banerjee, Schultheis, Babbar: CascadeXML (NeurIPS 2022)"
    preset: ClassVar[Mapping[str, Any]] = {
        "net.depth": 3,
        "net.dropout": (0.2, 0.3, 0.4, 0.5),
        "net.score": "weighted",
        "net.head_rate": 1e-2,
        "net.schedule": "plateau",
        "net.warmup": 0.1,
        "net.weight_decay": 0.05,
        "net.head_decay": 0.005,
        "net.epochs": 15.0,
    }


class CascadeDiSMEC(CascadeXML):
    """CascadeXML, then one linear scorer per label on tf-idf and its vectors."""

    recipe = "cascadexml-dismec"
    preset: ClassVar[Mapping[str, Any]] = {
        **CascadeXML.preset,
        "ranker": True,
        "tree.kind": "none",
        "linear.eps": 0.03,
        "linear.max_iter": 40,
        "linear.threshold": 0.05,
    }


class FullHead(NetModel):
    """One scorer for every label on the encoder, trained in pieces: no clusters, little memory, made for a GPU."""

    recipe = "full"
    paper = "Jain, Prakash and others: Renée (MLSys 2023); Zhang and others: ELMO (ICML 2025)"
    preset: ClassVar[Mapping[str, Any]] = {
        "net.kind": "full",
        "net.pooling": "mean",
        "net.dropout": (0.3,),
        "net.head_rate": 3.0,
        "net.epochs": 10.0,
    }


class AttentionXML(NetModel):
    """An LSTM whose states each node attends to in a way of its own; levels learn one after the other."""

    recipe = "attentionxml"
    paper = "You, Zhang, Wang, Dai, Mamitsuka, Zhu: AttentionXML (NeurIPS 2019)"
    preset: ClassVar[Mapping[str, Any]] = {
        "net.reader": "lstm",
        "net.order": "own-reader",
        "net.depth": 2,
        "net.branching": 8,
        "net.few_labels": 15_000,
        "net.beam": (64,),
        "net.batch_size": 40,
        "net.rate": 1e-3,
        "net.head_rate": 5e-3,
        "net.schedule": "constant",
        "net.weight_decay": 0.0,
        "net.clip": 5.0,
        "net.average_from": 0.3,
        "net.record": False,
        "net.epochs": 15.0,
    }


class XMLCNN(NetModel):
    """Filters over neighbouring words, a narrow layer, and one scorer per label."""

    recipe = "xml-cnn"
    paper = "Liu, Chang, Wu, Yang: Deep learning for extreme multi-label text classification (SIGIR 2017)"
    preset: ClassVar[Mapping[str, Any]] = {
        "net.reader": "cnn",
        "net.bottleneck": 512,
        "net.dropout": (0.5,),
        "net.rate": 1e-3,
        "net.head_rate": 1e-2,
        "net.weight_decay": 0.0,
        "net.epochs": 20.0,
    }
