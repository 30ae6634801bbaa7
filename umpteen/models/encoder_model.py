"""What recipes with an encoder share: they read texts, and keep the stages of its training."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import scipy.sparse as sp

from umpteen import __version__
from umpteen.config import to_dict, update
from umpteen.data.columns import readable
from umpteen.data.targets import is_texts, read_targets
from umpteen.data.tokens import Tokens
from umpteen.engine import Callback, Progress, silent
from umpteen.engine.ranks import present
from umpteen.errors import BadConfig, BadInput
from umpteen.models.base import Model
from umpteen.models.estimate import Estimate
from umpteen.models.lazy_neural import SavedEncoder
from umpteen.models.runs import FINETUNING
from umpteen.models.time_budget import with_time_budget
from umpteen.models.training_inputs import Inputs
from umpteen.store import Checkpoint, Run, fingerprint
from umpteen.tree import LabelTree

_BY_MACHINE = {  # settings that say how the work is done here, not what comes out
    "encoder": ("backend", "device", "batch_tokens", "compile", "gradient_checkpointing"),
    "training": ("cuda_graphs",),
}


class EncodedModel(Model):
    """Base of the recipes with an encoder."""

    @classmethod
    def from_config(cls, config: Any) -> Self:
        """Make an untrained model from whole settings."""
        cls._check_order(config)
        return super().from_config(config)

    @classmethod
    def _check_order(cls, config: Any) -> None:
        """Refuse to fine-tune for a ranker where a network is trained, and the other way round."""
        usual = cls.defaults()
        if config.is_recursive != usual.is_recursive:  # type: ignore[attr-defined]
            raise BadConfig(
                f"{cls.recipe} cannot be trained with training.order {config.training.order}; coarse-to-fine is for "
                "xr-transformer and x-transformer, the others are for networks"
            )

    def estimate(self, X: Any, Y: Any) -> Estimate:
        """Say what training would take: memory and time, before it starts."""
        X, (matrix, *_) = readable(X), read_targets(Y)
        self._check_texts(X)
        return Estimate.of(X, matrix, with_time_budget(self.config, X, matrix))  # type: ignore[arg-type]

    def _learn(self, data: Inputs, tree: LabelTree | None, progress: Progress, callbacks: Sequence[Callback]) -> None:
        """Train; of several processes, rank 0 becomes the trained model, and the others wait for it."""
        if not present().is_main:
            progress, callbacks = silent, ()
        super()._learn(data, tree, progress, callbacks)
        if present().size > 1:
            from umpteen.neural.distributed import ranks

            ranks().meet()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = tags.input_tags.sparse = False
        return tags

    # The backend of the encoder

    def export(self, path: str | os.PathLike[str], *, to: str = "onnx", int8: bool = False) -> None:
        """Export the encoder for faster prediction on a CPU, and save the model with it.

        The classifiers stay as they are. ``umpteen.load`` runs the exported encoder by default
        (``encoder.backend``); torch is not needed for that by ``xr-transformer`` and ``x-transformer``.

        Parameters
        ----------
        path
            The folder of the model with its exported encoder; it may be the one that the model was loaded from.
        to
            ``onnx``, for ONNX Runtime.
        int8
            Weights of 8 bits instead of 32: smaller and faster, and less accurate. Both kinds can be exported, one
            after the other.
        """
        super().export(path, to=to, int8=int8)

    def _export_encoder(self, *, int8: bool) -> None:
        """Export the encoder, and run on what was exported if the settings want it."""
        self._check_fitted()
        if not isinstance(getattr(self.neural_, "encoder", None), SavedEncoder) or not self._reads_layers:
            raise BadInput(f"this {self.recipe} has no encoder whose layers it reads, so there is nothing to export")
        self.neural_.encoder.export(self._poolings(), int8=int8)

    @property
    def _reads_layers(self) -> bool:
        config = self.config_
        return config.network.reads == "layers" and config.training.order != "own-reader"  # type: ignore[attr-defined]

    def _poolings(self) -> Sequence[Any] | None:
        """Return what is read of the encoder; None is its own pooling."""
        return None

    def _run_on(self, backend: str) -> None:
        """Let the encoder run on another backend."""
        if isinstance(getattr(self.neural_, "encoder", None), SavedEncoder):
            self.neural_.encoder.run_on(backend)
        self.encoder = self._nested("encoder", "backend", backend)
        self.config_ = update(self.config_, {"encoder.backend": backend})

    def _take_up(self, changed: Mapping[str, Any]) -> None:
        super()._take_up(changed)
        others = changed.keys() - {"encoder.backend"}
        if self.neural_ is not None and any(key.startswith(("encoder.", "network.")) for key in others):
            self.neural_ = self.neural_.with_settings(self.config_)
        if "encoder.backend" in changed:
            self._run_on(changed["encoder.backend"])

    def _check_texts(self, X: Any) -> None:
        """Refuse feature rows in training."""
        if not is_texts(X):
            raise BadInput(f"{self.recipe} reads texts; pass a list of str, or use xr-linear for feature rows")

    def _read(self, X: Any) -> Any:
        """Return texts to predict for."""
        X = readable(X)
        if not is_texts(X):
            raise BadInput("this model reads texts; pass a list of str")
        return X

    def _stages(
        self, checkpoint: Run | None, encoder: Any, tokens: Tokens, *matrices: sp.csr_matrix,
        tree: LabelTree | None = None,
    ) -> Checkpoint | None:  # fmt: skip
        """Return where the stages of the encoder lie, under a key of all that decides them."""
        if checkpoint is None:
            return None
        given_settings = to_dict(self.config)
        settings = {name: given_settings[name] for name in ("encoder", "network", "training", "tree", "seed")}
        for noun, names in _BY_MACHINE.items():
            if noun in settings:
                settings[noun] = {name: value for name, value in settings[noun].items() if name not in names}
        settings["encoder"]["pooling"] = encoder.config.pooling  # that of the files, if it is auto
        parts = (part for matrix in matrices for part in (matrix.indptr, matrix.indices, matrix.data))
        given = () if tree is None else tree.arrays().values()
        # The weights, not the encoder's name: other files may have the same name later.
        weights = (tensor.cpu().numpy() for tensor in encoder.model.state_dict().values())
        key = fingerprint(__version__, settings, tokens.ptr, tokens.ids, *parts, *given, *weights)
        from umpteen.neural.rank_checkpoint import for_all_ranks

        return for_all_ranks(checkpoint.part(FINETUNING, key))
