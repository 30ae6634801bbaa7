"""What models and ensembles have in common: predictions and figures by their ranking of labels, and storage."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from umpteen import store
from umpteen.calibration import Calibration, tune
from umpteen.config import UNCALIBRATED_THRESHOLD, EncoderConfig
from umpteen.data.columns import readable
from umpteen.data.labels import Labels
from umpteen.data.sparse import check_rows_match
from umpteen.engine.ranks import present
from umpteen.errors import BadInput, BadModelFile
from umpteen.metrics import ABOVE_THRESHOLD, depth, evaluate
from umpteen.models.decision import Decision
from umpteen.models.explanation import Explanation
from umpteen.models.hub import local_folder
from umpteen.models.pretrained import Pretrained
from umpteen.shortlist import TopK, check_k


class Predictor(Pretrained):
    """Base of all that rank labels by ``topk`` and can be saved."""

    recipe: ClassVar[str]
    targets_: Any  # how labels came, ``Targets``
    _checkpoint: store.Run | None = None  # the stages of the last ``fit``, until the model is saved

    @property
    def labels_(self) -> Labels:
        """The label vocabulary."""
        raise NotImplementedError

    calibration_: Calibration | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Copy and pickle the model without the stages of its training: they are those of the model that was fitted."""
        return self.__dict__ | {"_checkpoint": None}

    @property
    def _given_threshold(self) -> float | None:
        """The threshold of the settings, if they have one."""
        raise NotImplementedError

    @property
    def _threshold(self) -> float:
        """The score from which on a label is predicted."""
        return self.score_at(None)

    def score_at(self, threshold: float | None) -> float:
        """Return the score from which on labels reach a threshold, by default that of the model.

        A threshold is a probability if the model is calibrated, otherwise a score.
        """
        threshold = self._given_threshold if threshold is None else threshold
        if self.calibration_ is None:
            score = UNCALIBRATED_THRESHOLD if threshold is None else threshold
        else:
            score = self.calibration_.score_at(self.calibration_.threshold if threshold is None else threshold)
        return float(np.float32(score))  # the precision of scores

    def decision(self, k: int | None = None, threshold: float | None = None) -> Decision:
        """Return which labels ``predict`` returns for these arguments.

        Without a threshold, neither here nor in the settings, the thresholds of the calibration hold, those of single
        labels too; with ``k`` alone, so many labels are returned whatever their probability.
        """
        most = min(len(self.labels_), ABOVE_THRESHOLD)
        calibration = self._own_calibration()
        if k is None and threshold is None and self._given_threshold is None and calibration is not None:
            return Decision.stored(calibration, most)
        if calibration is not None and threshold is not None and not 0 <= threshold <= 1:
            raise BadInput(f"threshold must be a probability between 0 and 1, such as 0.5, but is {threshold}")
        limit = None if calibration is None else calibration.limit
        least = float("-inf") if k is not None and threshold is None else self.score_at(threshold)
        return Decision(k or limit or most, least)

    def _own_calibration(self) -> Calibration | None:
        """Return the calibration that decides."""
        return self.calibration_

    def _with_probabilities(self, top: TopK) -> TopK:
        """Add the probabilities of scores, if the model is calibrated."""
        if self.calibration_ is not None:
            top.probabilities = np.where(top.labels >= 0, self.calibration_(top.scores), np.float32(0))
        return top

    def _decision(self) -> dict[str, Any]:
        """Return which labels ``predict`` returns, in plain values."""
        calibration, given = self._own_calibration(), self._given_threshold
        if calibration is None:
            return {"calibrated": False, "threshold": UNCALIBRATED_THRESHOLD if given is None else given}
        own = 0 if given is not None or calibration.labels is None else len(calibration.labels.labels)
        threshold = calibration.threshold if given is None else given
        return {"calibrated": True, "threshold": threshold, "limit": calibration.limit, "label_thresholds": own}

    def calibrate(self, X: Any, Y: Any) -> Self:
        """Fit probabilities and the threshold of ``predict`` on texts that the model was not trained on.

        ``fit`` does this with a part of the training data that it holds out; call it to use other data.
        """
        top, targets = self._ranked_targets(X, Y)
        self.calibration_ = Calibration.fit(top, targets)
        return self

    def _calibrate_on(self, held_out: tuple[Any, Any] | None) -> None:
        """Calibrate on rows that ``fit`` has held out, if any of them has a label."""
        if held_out is not None and held_out[1].nnz and present().is_main:
            self.calibrate(*held_out)

    def tune(self, X: Any, Y: Any, goal: str = "f1") -> Self:
        """Choose the threshold of ``predict``, or the most labels per text, for a goal on labelled texts.

        Parameters
        ----------
        X, Y
            Texts that the model was not trained on, and their labels.
        goal
            ``f1`` (micro-F1), ``f1@K`` (the same with at most K labels per text), ``precision=0.9`` (the lowest
            threshold with this precision), ``recall=0.8`` (the highest threshold with this recall) or ``labels=5``
            (so many labels per text on average). With the first two, labels with enough examples in ``Y`` get
            thresholds of their own, if cross-validation shows that these help. A goal that no threshold reaches is
            refused, and the model stays as it was.
        """
        if self.calibration_ is None:
            raise BadInput("this model is not calibrated; call calibrate first (umpteen calibrate MODEL DATA)")
        top, targets = self._ranked_targets(X, Y)
        self.calibration_ = tune(self.calibration_, top, targets, goal)
        return self

    def _ranked_targets(self, X: Any, Y: Any) -> tuple[TopK, sp.csr_matrix]:
        """Return rankings deep enough for a threshold, and the labels as a matrix."""
        X, targets = readable(X), self.targets_.encode(Y)
        top = self.topk(X, min(len(self.labels_), ABOVE_THRESHOLD))
        check_rows_match(top.labels, targets)
        if not len(top) or not targets.nnz:
            raise BadInput("there is nothing to calibrate on: no text has a label; pass labelled texts")
        if not targets[:, : len(self.labels_)].nnz:
            raise BadInput(
                "no label of these texts is known to the model; check that labels are written as in training"
            )
        return top, targets

    @property
    def threshold_(self) -> float:
        """The score from which on ``predict`` returns a label."""
        return self._threshold

    def describe(self) -> dict[str, Any]:
        """Summarise the model in plain values."""
        raise NotImplementedError

    @property
    def takes_texts(self) -> bool:
        """Whether the model was trained on texts; otherwise it takes feature rows."""
        raise NotImplementedError

    def topk(self, X: Any, k: int = 10, *, beam: int | None = None) -> TopK:
        """Return the k best labels of each row."""
        raise NotImplementedError

    def explain(
        self, text: Any, label: Any = None, k: int = 5, *, max_words: int = 200, threads: int | None = None
    ) -> Explanation:
        """Say why a label has its score for a text, and why it is suggested or not.

        Parameters
        ----------
        text
            One text, or one feature row if the model was trained on such.
        label
            A label by name, key or column number; by default the best one. It need not be suggested.
        k
            How many labels count as suggested.
        max_words
            Maximum number of words that are left out one by one, if the model has an encoder or is a network: each
            takes as long as a prediction.
        threads
            Threads to use, instead of the model's.

        Examples
        --------
        >>> from umpteen import XRLinear
        >>> model = XRLinear().fit(["red apple", "green pear", "red cherry"], [["red"], ["green"], ["red"]])
        >>> explanation = model.explain("a red plum")
        >>> explanation.label, explanation.reason
        ('red', 'The label is suggested at place 1. It is predicted.')
        """
        raise NotImplementedError

    def predict(self, X: Any, k: int | None = None, threshold: float | None = None) -> Any:
        """Return the labels that reach the threshold, in the form Y had in ``fit``.

        A model fitted on one label per row predicts the best one.

        Parameters
        ----------
        X
            Texts or feature rows.
        k
            The most labels per row; with ``k`` alone, so many labels whatever their probability.
        threshold
            The lowest probability, or score if the model is not calibrated; by default that of the settings or of
            the calibration.
        """
        check_threshold(threshold)
        if k is not None:
            check_k(k)
        n_labels, decision = len(self.labels_), self.decision(k, threshold)  # raises NotFitted
        top = self.topk(X, 1 if self.targets_.kind == "single" else min(n_labels, decision.depth))
        return self.targets_.decode(top.labels, top.scores, decision.least(top.labels))

    def decision_function(self, X: Any) -> np.ndarray:
        """Return a dense array of scores as scikit-learn's tools want it: for few labels only.

        Scores are counted from the threshold, so what is positive is predicted. For one label per row
        the largest is predicted, and of two labels only the second one's lead is returned.
        """
        n_labels = len(self.labels_)
        scores = self.topk(X, n_labels, beam=n_labels).to_csr(n_labels).toarray()
        if self.targets_.kind != "single":
            return scores - np.asarray(self.decision().least(np.arange(n_labels)), np.float32)
        return scores[:, 1] - scores[:, 0] if n_labels == 2 else scores

    def score(self, X: Any, y: Any) -> float:
        """Return the share of rows whose best label is right (P@1 / 100; accuracy for one label per row)."""
        return self.evaluate(X, y, ks=(1,))["P@1"] / 100.0

    def evaluate(
        self, X: Any, Y: Any, ks: tuple[int, ...] = (1, 3, 5), *,
        inverse_propensity: np.ndarray | None = None, threshold: float | None = None,
    ) -> dict[str, float]:  # fmt: skip
        """Return P@k, nDCG@k and the other figures of ``umpteen.metrics`` as percentages.

        ``threshold`` adds F1 of the labels that reach it, among the best 100 of a row.
        """
        k = depth(ks, threshold, len(self.labels_))
        X, targets = readable(X), self.targets_.encode(Y)
        top = self.topk(X, k)
        check_rows_match(top.labels, targets)
        return evaluate(top, targets, ks=ks, inverse_propensity=inverse_propensity, threshold=threshold)

    # Storage

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a folder, atomically; an older model there is replaced.

        The stages of ``fit(checkpoint=…)`` are not needed after that and are removed.
        """
        self._write(path)
        if self._checkpoint is not None:
            self._checkpoint.clear()
            self._checkpoint = None

    def _write(self, path: str | os.PathLike[str]) -> None:
        """Write the folder."""
        raise NotImplementedError

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, mmap: bool = True, verify: str = "arrays", backend: str | None = None
    ) -> Self:
        """Open a saved model.

        Parameters
        ----------
        path
            The folder, or a repository on the Hugging Face hub: ``org/name`` or ``hf://org/name``.
        mmap
            Map the files into memory, so that processes share them, instead of reading them.
        verify
            ``"arrays"`` checks that the content of arrays can be worked with; ``"none"`` trusts it; ``"full"`` also
            reads every byte and compares it with the digest that was saved.
        backend
            What an encoder runs on, instead of ``encoder.backend``: ``torch``, ``onnx`` or ``onnx-int8``. Models
            without an encoder ignore it.
        """
        stored = store.read(local_folder(path), mmap=mmap)
        if stored.config["recipe"] != cls.recipe:
            raise BadModelFile(f"'{path}' holds a {stored.config['recipe']} model; open it with umpteen.load")
        return cls._from_stored(stored, verify)._on_backend(backend)

    def _on_backend(self, backend: str | None) -> Self:
        """Let encoders run on a backend, if one is named."""
        if backend is not None:
            EncoderConfig(backend=backend)  # a wrong name is refused, whatever the recipe
            self._run_on(backend)
        return self

    def _run_on(self, backend: str) -> None:
        """Let all encoders run on another backend."""
        raise NotImplementedError

    @classmethod
    def _from_stored(cls, stored: store.Stored, verify: str = "arrays") -> Self:
        """Open a folder of this recipe."""
        raise NotImplementedError


def check_threshold(threshold: float | None) -> None:
    """Refuse a threshold that is no number."""
    if threshold is not None and not (isinstance(threshold, (int, float, np.number)) and np.isfinite(threshold)):
        raise BadInput(f"threshold must be a number, but is {threshold!r:.80}; probabilities lie between 0 and 1")
