"""A transformer that turns texts into vectors: any model of ``transformers``, by name, folder or alias.

Loads, tokenizes, pools and embeds; how it is trained is not known here.
"""

from __future__ import annotations

import copy
import logging
import tempfile
import threading
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import umpteen.engine.openmp  # noqa: F401  before torch

# isort: split
import numpy as np
import torch
from torch.nn import functional as F

from umpteen.config import FEWER_IN_TRAINING, TOKENS_AT_ONCE, EncoderConfig
from umpteen.data.locate import download, locate
from umpteen.data.tokens import Tokens, by_budget, set_limit, tokenize
from umpteen.engine import Progress, silent
from umpteen.errors import BadConfig, BadInput, MissingExtra, OutOfMemory, UmpteenError
from umpteen.neural.attention import use_given_masks
from umpteen.neural.compilation import compile_layers
from umpteen.neural.distributed import own_gpu
from umpteen.neural.encoder_files import check_files, saved_pooling, unavailable_pooling
from umpteen.neural.onnx_graph import OnnxGraph, check_layers
from umpteen.neural.pooling import DEFAULT_POOLING, Pooling
from umpteen.neural.windows import join_windows, split_windows
from umpteen.store.mapped import is_mapped
from umpteen.store.tensors import Allocate, in_memory

# Whatever is loaded runs no code of its own and comes from its folder alone.
_PLAIN: Mapping[str, Any] = {"trust_remote_code": False, "local_files_only": True}
_TOKENS_ON_DEVICE = 250_000_000  # 1 GB; more of them stay in the memory of the CPU, and batches are sent to the device
_MULTIPLE = 8  # padded lengths are multiples of this, which matrix units like


class Encoder:
    """A pretrained encoder with its tokenizer on a device.

    Parameters
    ----------
    model
        A ``transformers`` model.
    tokenizer
        Its fast tokenizer.
    config
        How it is used.
    """

    def __init__(self, model: Any, tokenizer: Any, config: EncoderConfig):
        if config.pooling == "auto":
            config = replace(config, pooling=DEFAULT_POOLING)
        self.device = pick_device(config.device)
        self.model = model.to(self.device).eval()
        self.longest = self._longest()
        config = config.with_length(self.device.type, self.longest)
        self.config, self.tokenizer = config, tokenizer
        set_limit(tokenizer.backend_tokenizer, config.max_length)
        self.pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        self.graph: OnnxGraph | None = None  # computes the states in place of the model, once all is trained
        use_given_masks(self.model)
        self.pooling = Pooling.parse(config.pooling, self.n_layers, tokenizer.cls_token_id)
        self._check_length()
        if config.gradient_checkpointing:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if self.is_compiled:
            compile_layers(self.model)

    @classmethod
    def load(cls, config: EncoderConfig, *, is_pooled: bool = True) -> Encoder:
        """Load a pretrained encoder by the name in its settings.

        ``is_pooled`` says that its token states are pooled as ``encoder.pooling`` says. If they cannot be pooled as
        they were when the encoder was trained, and no other pooling was chosen, there is a warning.
        """
        source = locate(config.name)
        folder = source if isinstance(source, Path) else _downloaded(source)
        encoder = cls.from_folder(folder, config)
        if is_pooled and config.pooling == "auto" and (mode := unavailable_pooling(folder)):
            warnings.warn(
                f"the encoder '{config.name}' was trained with the pooling {mode!r}, which is not available, and is "
                f"used with '{encoder.config.pooling}'; choose encoder.pooling: mean, cls or last5",
                stacklevel=2,
            )
        return encoder

    @classmethod
    def from_folder(cls, folder: str | Path, config: EncoderConfig) -> Encoder:
        """Load from a folder in Hugging Face layout, which may come from a stranger: no code in it is run."""
        transformers = _transformers()
        check_files(Path(folder))
        with _explained(folder):
            model, report = transformers.AutoModel.from_pretrained(
                folder, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **_PLAIN,
                **_without_pooler(transformers, folder),
            )  # fmt: skip
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **_PLAIN)
            if not getattr(tokenizer, "is_fast", False):
                raise BadInput(
                    f"the encoder '{config.name}' has no fast tokenizer (tokenizer.json), which is needed; "
                    "convert it, or choose another encoder"
                )
            _check_loaded(model.eval(), tokenizer, report["missing_keys"])
        if config.pooling == "auto":
            config = replace(config, pooling=saved_pooling(Path(folder)))
        return cls(model, tokenizer, config)

    def twin(self) -> Encoder:
        """Return a copy that learns on its own."""
        return Encoder(copy.deepcopy(self.model), self.tokenizer, self.config)

    def shallow(self) -> Encoder:
        """Return the tokenizer and the vectors of words without the layers above them."""
        words = self.model.get_input_embeddings().weight.detach()
        facts = _transformers().BertConfig(
            vocab_size=words.shape[0], hidden_size=words.shape[1], num_hidden_layers=0, num_attention_heads=1,
            intermediate_size=1, max_position_embeddings=self.config.max_length, pad_token_id=self.pad,
        )  # fmt: skip
        with torch.random.fork_rng([]):  # first weights are drawn, for nothing
            model = _transformers().BertModel(facts, add_pooling_layer=False)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()  # what is never used is the same in every model
            model.get_input_embeddings().weight.copy_(words)
        plain = replace(self.config, pooling="mean", gradient_checkpointing=False)  # there are no layers
        return Encoder(model, self.tokenizer, plain)

    @property
    def n_layers(self) -> int:
        """Layers above the embeddings."""
        return self.model.config.num_hidden_layers

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self.model.config.hidden_size * self.pooling.width

    def flat(self, tokens: Tokens) -> FlatTokens:
        """Return tokens on the device of the encoder, padded to no more than it can read."""
        window = self.config.max_length if self.config.windows > 1 else None
        return FlatTokens(tokens, self.device, self.pad, self.longest, window)

    def n_windows(self, ids: torch.Tensor) -> int:
        """Return how many windows padded token numbers (texts, length) consist of."""
        return max(1, ids.shape[1] // self.config.max_length) if self.config.windows > 1 else 1

    def tokenize(self, texts: Sequence[str], *, progress: Progress = silent, allocate: Allocate = in_memory) -> Tokens:
        """Cut texts into tokens, window after window; ``allocate`` makes the arrays."""
        config, backend = self.config, self.tokenizer.backend_tokenizer
        return tokenize(texts, backend, config.max_length, windows=config.windows, progress=progress, allocate=allocate)

    @property
    def is_compiled(self) -> bool:
        """Whether layers are compiled."""
        return self.config.compile == "on" or (self.config.compile == "auto" and self.device.type == "cuda")

    def autocast(self) -> AbstractContextManager[Any]:
        """Compute in the precision of the settings."""
        wanted = self.config.precision
        if wanted == "bfloat16" or (wanted == "auto" and self.device.type == "cuda"):
            # weights are cast anew each time: a cast that was remembered would be missing from a recorded step
            return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)
        return nullcontext()

    def __call__(self, ids: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Embed padded token numbers (texts, length); ``mask`` says which are no padding, None that all are."""
        self.check_exported([self.pooling])
        states = self.states(ids, mask, every=not self.pooling.is_last_only)
        return self.pooling(states, ids, mask, self.n_windows(ids))

    def states(self, ids: torch.Tensor, mask: torch.Tensor | None, *, every: bool = True) -> tuple[torch.Tensor, ...]:
        """Return the states (texts, length, d) of every layer, the embedding layer first, or of the last alone."""
        n_windows = self.n_windows(ids)
        ids, mask = split_windows(ids, mask, n_windows)
        if self.graph is not None:
            return tuple(join_windows(state, n_windows) for state in self._graph_states(ids, mask))
        given = None if mask is None else mask.long()
        out = self.model(input_ids=ids, attention_mask=given, output_hidden_states=every)
        states = out.hidden_states if every else (out.last_hidden_state,)
        return tuple(join_windows(state, n_windows) for state in states)

    def check_exported(self, poolings: Iterable[Pooling]) -> None:
        """Refuse a graph that lacks a layer which is going to be read."""
        if self.graph is not None:
            check_layers(self.graph, poolings)

    def _graph_states(self, ids: torch.Tensor, mask: torch.Tensor | None) -> list[torch.Tensor]:
        """Return the states by layer as the graph computes them; empty where nobody reads a layer."""
        given = None if mask is None else mask.cpu().numpy()
        found = self.graph.states(ids.cpu().numpy(), given, torch.get_num_threads())  # type: ignore[union-attr]
        states = [ids.new_zeros((*ids.shape, 0), dtype=torch.float32)] * (self.n_layers + 1)
        for layer, state in found.items():
            states[layer] = torch.from_numpy(state).to(ids.device)
        return states

    def embed(
        self, tokens: Tokens, *, progress: Progress = silent, stage: str = "embeddings", allocate: Allocate = in_memory
    ) -> np.ndarray:
        """Return the embeddings (texts, dim), float32, each of length one, in an array that ``allocate`` makes."""
        flat = self.flat(tokens)
        out = allocate({"embeddings": (np.float32, (len(tokens), self.dim))})["embeddings"]
        budget, done = self.budget, 0
        progress(stage, 0, len(tokens))
        with self._predicting(), torch.inference_mode(), self.autocast(), explained_memory():
            for batch in flat.cut(np.arange(len(tokens)), budget):
                out[batch] = F.normalize(self(*flat.batch(batch)).float(), dim=1).cpu().numpy()
                done += len(batch)
                progress(stage, done, len(tokens))
        return out

    @contextmanager
    def _predicting(self) -> Iterator[None]:
        """Leave dropout out. A model that is not in training stays as it is: a switch walks through all its parts."""
        if not self.model.training:
            yield
            return
        self.model.eval()
        try:
            yield
        finally:
            self.model.train()

    @property
    def training_budget(self) -> int:
        """How many tokens a forward and backward pass takes at a time."""
        return self.config.batch_tokens or self.budget // FEWER_IN_TRAINING

    def files(self) -> dict[str, bytes]:
        """Return the encoder as files in Hugging Face layout, for the store."""
        with tempfile.TemporaryDirectory() as folder:
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
            found = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir()) if path.is_file()}
        return found

    @property
    def budget(self) -> int:
        """How many tokens are read at a time where nothing is learned."""
        return FEWER_IN_TRAINING * self.config.batch_tokens or TOKENS_AT_ONCE[self.device.type]

    def _check_length(self) -> None:
        wanted, name, longest = self.config.max_length, self.config.name, self.longest
        if longest is not None and wanted > longest:
            raise BadConfig(f"encoder.max_length is {wanted}, but '{name}' reads at most {longest} tokens")

    def _longest(self) -> int | None:
        """Return how many tokens the encoder can read; None if it knows no limit."""
        limit = getattr(self.model.config, "max_position_embeddings", None)
        if limit is None or limit <= 0:
            return None
        places = (module for name, module in self.model.named_modules() if name.endswith("position_embeddings"))
        pads = [place.padding_idx for place in places if getattr(place, "padding_idx", None) is not None]
        return limit - (pads[0] + 1 if pads else 0)  # some models count places from one behind that of padding


class Batch(NamedTuple):
    """Token numbers (texts, length), and which of them are no padding.

    A mask that hides nothing only keeps attention from its fastest kernel, so a batch without padding has none.
    """

    ids: torch.Tensor
    mask: torch.Tensor | None


class FlatTokens:
    """Tokens on a device, from which batches are cut there; very many, or those in files, are cut on the CPU.

    ``longest`` is what a text may be padded to. ``window`` is the length of a window where texts have several: a text
    of one window is padded to no more than that, and a longer one to a whole number of windows.
    """

    def __init__(
        self, tokens: Tokens, device: torch.device, pad: int, longest: int | None = None, window: int | None = None
    ):
        is_sent = len(tokens.ids) <= _TOKENS_ON_DEVICE and not is_mapped(tokens.ids)
        self.place = device if is_sent else torch.device("cpu")
        self.ptr, self.ids = (_shared(part).to(self.place) for part in (tokens.ptr, tokens.ids))
        self.lengths, self.pad, self.device = tokens.lengths, pad, device
        self.longest, self.window = longest if window is None else window, window

    def cut(self, rows: np.ndarray, budget: int) -> Iterator[np.ndarray]:
        """Yield some texts from short to long, in batches that padded hold at most ``budget`` tokens."""
        lengths = self.lengths[rows]
        return (rows[some] for some in by_budget(lengths, budget, self._widths[lengths]))

    @cached_property
    def _widths(self) -> np.ndarray:
        """What a batch is padded to, by the length of its longest text, for all lengths that there are."""
        found = np.unique(self.lengths)
        widths = np.zeros(int(found.max(initial=0)) + 1, np.int64)
        widths[found] = [self._width(int(length)) for length in found]
        return widths

    def _width(self, length: int) -> int:
        if self.window is not None and length > self.window:
            return -(-length // self.window) * self.window
        width = padded(max(length, 1), is_recorded=self.device.type == "cuda")
        return width if self.longest is None else max(length, min(width, self.longest))

    def batch(self, rows: np.ndarray) -> Batch:
        """Return the tokens of some texts, padded to one length."""
        width = int(self._widths[self.lengths[rows].max(initial=0)])
        chosen = torch.from_numpy(rows).to(self.place)
        first, last = self.ptr[chosen, None], self.ptr[chosen + 1, None]
        at = first + torch.arange(width, device=self.place)  # (rows, width)
        mask = at < last
        ids = self.ids[at.clamp(max=max(len(self.ids) - 1, 0))] if len(self.ids) else torch.zeros_like(at)
        is_full = bool((self.lengths[rows] == width).all())
        ids = torch.where(mask, ids, self.pad).to(self.device).long()
        return Batch(ids, None if is_full else mask.to(self.device))


def _shared(array: np.ndarray) -> torch.Tensor:
    """Return an array as a tensor, which copies only what nobody may write to."""
    return torch.from_numpy(array if array.flags.writeable else np.array(array))


def padded(length: int, *, is_recorded: bool) -> int:
    """Round a length up to a multiple of 8, and by up to an eighth if steps of one length are recorded.

    Examples
    --------
    >>> [padded(length, is_recorded=False) for length in (5, 60, 70, 300)]
    [8, 64, 72, 304]
    >>> [padded(length, is_recorded=True) for length in (5, 60, 70, 300)]
    [8, 64, 80, 320]
    """
    step = max(_MULTIPLE, 1 << max(0, (length - 1).bit_length() - 3)) if is_recorded else _MULTIPLE
    return -(-length // step) * step


def pick_device(wanted: str) -> torch.device:
    """Return the device that the settings name; ``auto`` takes a GPU if there is one, and each rank its own."""
    has = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if (gpu := own_gpu(wanted)) is not None:
        return gpu
    if wanted == "auto":
        return torch.device(next(name for name in ("cuda", "mps", "cpu") if has[name]))
    kind, _, number = wanted.partition(":")
    if not has[kind] or (number and int(number) >= torch.cuda.device_count()):
        raise BadConfig(f"encoder.device is {wanted}, but torch finds no such device here; use auto or cpu")
    device = torch.device(wanted)
    if number:
        torch.cuda.set_device(device)  # Triton's kernels run on the current device, wherever their arrays are
    return device


def fastest_precision() -> str:
    """Return the precision in which this machine's processor multiplies fastest."""
    able = getattr(torch.cpu, "get_capabilities", dict)()  # an older torch does not say
    return "bfloat16" if able.get("avx512_bf16") or able.get("amx_bf16") else "float32"


@contextmanager
def on_threads(wanted: int) -> Iterator[None]:
    """Let torch use so many threads of the CPU; 0 leaves it to torch.

    Several threads of a program may be inside at once; what holds outside is what held before the first of them.
    """
    usual = _OUTSIDE.enter()
    torch.set_num_threads(wanted or usual)
    try:
        yield
    finally:
        torch.set_num_threads(usual)
        _OUTSIDE.leave()


class _Outside:
    """How many threads torch has when nobody is inside ``on_threads``."""

    def __init__(self) -> None:
        self.lock, self.n_inside, self.threads = threading.Lock(), 0, 0

    def enter(self) -> int:
        with self.lock:
            self.threads = self.threads if self.n_inside else torch.get_num_threads()
            self.n_inside += 1
            return self.threads

    def leave(self) -> None:
        with self.lock:
            self.n_inside -= 1


_OUTSIDE = _Outside()


@contextmanager
def explained_memory() -> Iterator[None]:
    """Turn a GPU that is full into a sentence that names the setting to lower."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(
            "the GPU is out of memory; lower encoder.batch_tokens, encoder.max_length or encoder.windows, or set "
            "encoder.gradient_checkpointing. Finished stages are kept if a checkpoint folder was given"
        ) from error


@contextmanager
def _explained(folder: str | Path) -> Iterator[None]:
    """Turn whatever the files of a stranger lead to into a sentence that names their folder."""
    try:
        yield
    except UmpteenError:
        raise
    except BaseException as error:
        # tokenizers panic on some files, which is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise BadInput(
            f"the encoder '{folder}' cannot be loaded: {_in_one_line(error)}; its files are damaged or do not fit "
            "each other, so copy or save it again"
        ) from error


def _downloaded(name: str) -> Path:
    """Return the folder of an encoder of the hub."""
    _transformers()  # which shows no progress of downloads
    try:
        return download(name)
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(
            f"the encoder '{name}' cannot be loaded: {_in_one_line(error)} "
            "Pass a folder, or be online once so that the model is downloaded (an interrupted download is resumed)"
        ) from error


def _in_one_line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:300]


def _check_loaded(model: Any, tokenizer: Any, missing: Collection[str]) -> None:
    """Raise BadInput unless all weights were there and are finite, and the encoder reads what the tokenizer writes."""
    if lacking := sorted(name for name in missing if "pooler" not in name):
        raise BadInput(f"the encoder '{model.name_or_path}' lacks the weights {', '.join(lacking[:3])}; save it again")
    for name, weight in model.named_parameters():
        if weight.numel() and not all(end.isfinite() for end in torch.aminmax(weight.detach())):
            raise BadInput(f"the weights '{name}' of the encoder '{model.name_or_path}' hold NaN or infinity")
    n_words = model.get_input_embeddings().weight.shape[0]
    largest = max([*tokenizer.get_vocab().values(), tokenizer.pad_token_id or 0])
    if largest >= n_words:
        raise BadInput(
            f"the tokenizer of the encoder '{model.name_or_path}' writes token {largest}, but the encoder knows "
            f"{n_words} only; save both from one model"
        )
    with torch.inference_mode():  # settings that do not fit the weights are told now, not in the midst of texts
        states = model(input_ids=torch.zeros((1, 2), dtype=torch.long), output_hidden_states=True).hidden_states
    width, n_layers = model.config.hidden_size, model.config.num_hidden_layers
    if len(states) != n_layers + 1 or any(state.shape[2] != width for state in states):
        raise BadInput(f"the encoder '{model.name_or_path}' is not made of {n_layers} layers of {width} numbers each")


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise MissingExtra("transformers", "transformers", "an encoder") from None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # what it tries again, and how often
    return transformers


def _without_pooler(transformers: Any, folder: str | Path) -> dict[str, Any]:
    """Leave out a pooling layer that is never used: some checkpoints have none, and its random one would be saved."""
    kind = transformers.AutoConfig.from_pretrained(folder, **_PLAIN).model_type
    return {"add_pooling_layer": False} if kind in ("bert", "roberta", "xlm-roberta", "camembert", "electra") else {}
