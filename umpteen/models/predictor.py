"""What models and ensembles have in common: predictions and figures by their ranking of labels, and storage."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Self

import numpy as np

from umpteen import store
from umpteen.data.labels import Labels
from umpteen.data.sparse import check_rows_match
from umpteen.data.targets import readable
from umpteen.errors import BadModelFile
from umpteen.metrics import ABOVE_THRESHOLD, depth, evaluate
from umpteen.models.explanation import Explanation
from umpteen.shortlist import TopK


class Predictor:
    """Base of all that rank labels by ``topk`` and can be saved."""

    recipe: ClassVar[str]
    targets_: Any  # how labels came, ``Targets``
    _checkpoint: store.Run | None = None  # the stages of the last ``fit``, until the model is saved

    @property
    def labels_(self) -> Labels:
        """The label vocabulary."""
        raise NotImplementedError

    @property
    def _threshold(self) -> float:
        """The score from which on a label is predicted."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """Summarise the model in plain values."""
        raise NotImplementedError

    @property
    def takes_texts(self) -> bool:
        """Whether the model was trained on texts; otherwise it takes feature rows."""
        return self.describe()["input"] == "texts"

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
        ('red', 'The label is suggested at place 1.')
        """
        raise NotImplementedError

    def predict(self, X: Any) -> Any:
        """Return the labels whose score reaches ``search.threshold``, in the form Y had in ``fit``.

        A model fitted on one label per row predicts the best one.
        """
        n_labels = len(self.labels_)
        k = 1 if self.targets_.kind == "single" else min(n_labels, ABOVE_THRESHOLD)
        top = self.topk(X, k)
        return self.targets_.decode(top.labels, top.scores, self._threshold)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return a dense array of scores as scikit-learn's tools want it: for few labels only.

        Scores are counted from ``search.threshold``, so what is positive is predicted. For one label per row
        the largest is predicted, and of two labels only the second one's lead is returned.
        """
        n_labels = len(self.labels_)
        scores = self.topk(X, n_labels, beam=n_labels).to_csr(n_labels).toarray()
        if self.targets_.kind != "single":
            return scores - np.float32(self._threshold)
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
    def load(cls, path: str | os.PathLike[str], *, mmap: bool = True, verify: str = "arrays") -> Self:
        """Open a saved model.

        Parameters
        ----------
        path
            The folder.
        mmap
            Map the files into memory, so that processes share them, instead of reading them.
        verify
            ``"arrays"`` checks that the content of arrays can be worked with; ``"none"`` trusts it; ``"full"`` also
            reads every byte and compares it with the digest that was saved.
        """
        stored = store.read(path, mmap=mmap)
        if stored.config["recipe"] != cls.recipe:
            raise BadModelFile(f"'{path}' holds a {stored.config['recipe']} model; open it with umpteen.load")
        return cls._from_stored(stored, verify)

    @classmethod
    def _from_stored(cls, stored: store.Stored, verify: str = "arrays") -> Self:
        """Open a folder of this recipe."""
        raise NotImplementedError
