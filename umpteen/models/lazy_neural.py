"""Encoders and networks of a model, loaded when they are first used, so that a model opens without torch."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple

import numpy as np

from umpteen import store
from umpteen.config import GRAPHS, EncoderConfig, NeuralConfig
from umpteen.engine import Progress, silent
from umpteen.errors import BadConfig, BadInput, BadModelFile, MissingExtra
from umpteen.linear import DenseHead
from umpteen.models.background import Background
from umpteen.tree import LabelTree

_LOADING = threading.RLock()  # of encoders and networks: one thread loads, the others wait


class Neural(NamedTuple):
    """What learns with torch: an encoder, and its own classifiers of the labels if it has any, or a whole network."""

    encoder: SavedEncoder | FeatureSource
    head: DenseHead | None = None
    net: SavedNet | None = None

    def with_settings(self, config: NeuralConfig) -> Neural:
        """Return the same with settings that need no training; it is loaded anew when it is used next."""
        encoder = self.encoder.with_settings(config)
        net = None if self.net is None else SavedNet(config, encoder, self.net.tree, self.net.arrays)
        return self._replace(encoder=encoder, net=net)


class SavedEncoder:
    """An encoder that is loaded when it is first used, so that a model opens without torch.

    Parameters
    ----------
    encoder
        One that is in memory.
    content
        Or its files in Hugging Face layout, by name.
    folder
        Where these files lie, if they do.
    exported
        The files of an export of it, by name.
    """

    def __init__(
        self,
        config: EncoderConfig,
        *,
        encoder: Any = None,
        content: Mapping[str, np.ndarray] | None = None,
        folder: Path | None = None,
        exported: Mapping[str, np.ndarray] | None = None,
    ):
        self.config, self.content, self.folder, self._encoder = config, content, folder, encoder
        self.exported, self._onnx = dict(exported or {}), None

    def get(self) -> Any:
        """Return the encoder; if it runs on an exported graph, it holds that."""
        if self._encoder is None:
            with _LOADING:  # several threads may ask for it at once
                if self._encoder is None:
                    encoder = self._load()
                    encoder.graph = None if self.backend == "torch" else self._exported_encoder().graph
                    self._encoder = encoder
        return self._encoder

    def embed(self, texts: Sequence[str], *, threads: int, progress: Progress = silent) -> np.ndarray:
        """Return the embeddings (texts, d) of texts, each of length one; torch is loaded only if it is needed."""
        if self.backend != "torch":
            exported = self._exported_encoder()
            return exported.embed(exported.tokenize(texts), threads=threads, progress=progress)
        with encoder_module().on_threads(threads):
            encoder = self.get()
            return encoder.embed(encoder.tokenize(texts), progress=progress)

    @property
    def backends(self) -> list[str]:
        """What the encoder can run on."""
        return ["torch", *(backend for backend, file in GRAPHS.items() if file in self.exported)]

    @property
    def backend(self) -> str:
        """What the encoder runs on."""
        wanted = self.config.backend
        if wanted == "torch" or not self.exported:  # settings of a training may name what is exported after it
            return "torch"
        if wanted == "auto":
            is_usable = self.config.device in ("auto", "cpu") and importlib.util.find_spec("onnxruntime") is not None
            return self.backends[-1] if is_usable else "torch"
        self._check_exported(wanted)
        return wanted

    def _check_exported(self, backend: str) -> None:
        if backend not in ("auto", *self.backends):
            flag = " --int8" if backend == "onnx-int8" else ""
            raise BadConfig(
                f"encoder.backend is {backend}, but the model has {', '.join(self.backends)} only; run "
                f"umpteen export MODEL --to onnx{flag} first"
            )

    def run_on(self, backend: str) -> None:
        """Run on another backend from now on; one that is missing is refused, and nothing is changed."""
        self._check_exported(backend)
        before, self.config = self.config, replace(self.config, backend=backend)
        try:
            graph = None if self.backend == "torch" else self._exported_encoder().graph
        except BaseException:
            self.config = before
            raise
        if self._encoder is not None:
            self._encoder.graph = graph

    def export(self, poolings: Sequence[Any] | None = None, *, int8: bool = False) -> None:
        """Export the encoder for ONNX Runtime, beside what was exported before."""
        encoder = self.get()
        from umpteen.neural.onnx_export import export

        files = export(encoder, poolings or [encoder.pooling], int8=int8)
        self.exported |= {name: np.frombuffer(content, np.uint8) for name, content in files.items()}
        self._onnx = None
        self.run_on(self.config.backend if self.config.backend in ("auto", *self.backends) else "auto")

    def _exported_encoder(self) -> Any:
        """Return the exported encoder of the backend."""
        backend = self.backend
        with _LOADING:
            if self._onnx is None or self._onnx[0] != backend:
                from umpteen.neural.onnx_encoder import OnnxEncoder

                self._onnx = backend, OnnxEncoder(self.exported, backend, self.config)
            return self._onnx[1]

    def files(self) -> dict[str, bytes]:
        """Return its files, those it came from if there are any."""
        if self.content is None:
            return self._encoder.files()
        return {name: raw.tobytes() for name, raw in self.content.items()}

    def with_settings(self, config: NeuralConfig) -> SavedEncoder:
        """Return the same encoder with other settings."""
        if config.encoder == self.config:
            return self
        return SavedEncoder(config.encoder, content=self._content(), folder=self.folder, exported=self.exported)

    def _content(self) -> dict[str, np.ndarray]:
        return {name: np.frombuffer(raw, np.uint8) for name, raw in self.files().items()}

    def __getstate__(self) -> dict[str, Any]:
        """Copy and pickle the files: a module on a GPU could not be opened on a machine without."""
        exported = {name: np.array(raw) for name, raw in self.exported.items()}
        state = {"config": self.config, "content": self._content(), "folder": None, "exported": exported}
        return state | {"_encoder": None, "_onnx": None}

    def _load(self) -> Any:
        module = encoder_module()
        try:
            if self.folder is not None and self.folder.is_dir():
                return module.Encoder.from_folder(self.folder, self.config)
            with TemporaryDirectory() as folder:  # another model was saved in its place, or it was moved
                for name, content in self.files().items():
                    path = Path(folder, store.check_name(name))
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
                return module.Encoder.from_folder(folder, self.config)
        except BadInput as error:
            raise BadModelFile(str(error)) from error

    @property
    def n_inputs(self) -> int:
        """Length of what the encoder makes of a text."""
        return self.get().dim


class FeatureSource:
    """What reads feature rows for a network without an encoder: nothing of it is saved."""

    def __init__(self, n_inputs: int, config: NeuralConfig):
        self.n_inputs, self.config, self._settings = n_inputs, config.encoder, config

    def get(self) -> Any:
        """Return the source of feature rows."""
        from umpteen.neural.extremetext import FeatureRows

        return FeatureRows(self.n_inputs, self._settings)

    def with_settings(self, config: NeuralConfig) -> FeatureSource:
        """Return the same source with other settings."""
        return FeatureSource(self.n_inputs, config)

    def tokens(self, rows: Any) -> Any:
        """Return sparse rows in the form in which the network reads them."""
        from umpteen.neural.extremetext import WeightedFeatures

        return WeightedFeatures.of_rows(rows)

    exported: ClassVar[Mapping[str, np.ndarray]] = {}

    def files(self) -> dict[str, bytes]:
        """Return nothing."""
        return {}


def load_encoder(config: NeuralConfig) -> SavedEncoder:
    """Load the encoder that the settings name, without its layers if the reader has no use for them."""
    module = encoder_module()
    is_pooled = config.network.reads == "layers" and not config.network.poolings
    encoder = module.Encoder.load(config.encoder, is_pooled=is_pooled)
    for spec in config.network.poolings:
        module.Pooling.parse(spec, encoder.n_layers, setting="network.pooling")
    encoder = encoder if config.network.reads == "layers" else encoder.shallow()
    return SavedEncoder(encoder.config, encoder=encoder)


def compiled_ahead(encoder: Any) -> Background:
    """Begin to compile the layers of an encoder that is going to be trained."""
    from umpteen.neural.compilation import compile_ahead  # torch is loaded by then

    return Background(lambda: compile_ahead(encoder))


class SavedNet:
    """A network that is built when it is first used.

    Parameters
    ----------
    encoder
        What it reads with.
    tree
        What it scores.
    arrays
        Its weights, the encoder's apart.
    network
        One that is in memory.
    """

    def __init__(
        self, config: NeuralConfig, encoder: SavedEncoder | FeatureSource, tree: LabelTree,
        arrays: Mapping[str, np.ndarray], network: Any = None,
    ):  # fmt: skip
        self.config, self.encoder, self.tree, self.arrays, self._network = config, encoder, tree, arrays, network

    def get(self) -> Any:
        """Return the network."""
        if self._network is None:
            with _LOADING:
                self._network = self._load() if self._network is None else self._network
        return self._network

    def _load(self) -> Any:
        encoder = self.encoder.get()
        from umpteen.neural.network import Network

        network = Network(encoder, self.tree, self.config)
        network.load(self.arrays)
        return network

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_network": None}


def encoder_module() -> Any:
    """Return the module of encoders, which imports torch; say which extra is missing if it cannot be imported."""
    try:
        import umpteen.neural.encoder
    except ImportError:
        raise MissingExtra("torch", "transformers", "an encoder") from None
    return umpteen.neural.encoder
