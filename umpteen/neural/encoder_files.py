"""Look at the files of an encoder before ``transformers`` does: they may come from a stranger.

``transformers`` can be told by a file to run Python code that lies beside it, to fetch compiled code or weights from
the hub, or to unpickle weights. An encoder that asks for any of it is refused, whether or not it could do without.
Knows nothing about torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from umpteen.data.locate import POOLING_FILE
from umpteen.errors import BadInput, BadModelFile
from umpteen.neural.pooling import DEFAULT_POOLING
from umpteen.store.tensors import parse_document, parse_json

WEIGHTS = "model.safetensors"
_MOST_POOLING_BYTES = 1 << 16  # the file is a dozen lines long
_MODE = "pooling_mode_"  # of the keys that are true for the poolings in use
_SAME_DIRECTION = {"mean_sqrt_len": "mean"}  # the sum over the root of the number of tokens: longer than the mean
_INDEX = f"{WEIGHTS}.index.json"
_CONFIG = "config.json"
_WORDS = ("tokenizer.json", "vocab.json", "added_tokens.json", _INDEX)  # their keys are words or arrays, not settings
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_TOKENIZER_PICKLES = (".pkl", ".pickle")  # some old tokenizers read them

_CODE = ("auto_map", "custom_pipelines", "custom_generate")  # name Python files
_ELSEWHERE = (  # name or need what is not in the folder
    "base_model_name_or_path", "backbone", "use_pretrained_backbone", "use_timm_backbone", "kernel_config",
    "use_kernels", "quantization_config", "compression_config",
)  # fmt: skip
_ATTENTION = (None, "eager", "sdpa")  # what torch has itself; any other may be fetched from the hub
_LAYERS = re.compile(r"(num|n|encoder|decoder)_(\w+_)?layers?|depth")
_MOST_LAYERS = 256  # although there are fewer arrays: some encoders use one layer many times
_LARGEST = 2**24  # whole number in config.json: vocabularies and positions are below


def check_files(folder: Path) -> None:
    """Raise BadInput unless the folder holds an encoder that is data alone: JSON, words and safetensors."""
    try:
        names = sorted(path.name for path in folder.iterdir())
        n_arrays = _check_weights(folder, names)
        for name in names:
            if name.endswith(".json") and name not in _WORDS:
                _check_settings(folder / name, n_arrays)
    except BadModelFile as error:
        raise BadInput(str(error)) from error
    except (OSError, SafetensorError) as error:
        raise BadInput(f"the encoder '{folder}' cannot be loaded: {error}; copy or save it again") from error


def saved_pooling(folder: Path) -> str:
    """Return the pooling that sentence-transformers has saved with an encoder: ``cls``, else ``mean``.

    Other poolings that it knows, such as max, are not available here: see ``unavailable_pooling``.
    """
    modes = _saved_modes(folder)
    return "cls" if "cls" in modes and "mean" not in modes else DEFAULT_POOLING


def unavailable_pooling(folder: Path) -> str:
    """Return the name of the saved pooling if it is not the one that ``saved_pooling`` returns, else an empty text."""
    modes = _saved_modes(folder)
    return "" if modes in ([], [saved_pooling(folder)]) else "+".join(modes)[:80]


def _saved_modes(folder: Path) -> list[str]:
    """Return the poolings whose vectors sentence-transformers puts side by side for this encoder."""
    facts = _pooling_facts(folder)
    named = facts.get("pooling_mode")
    if not named:
        named = [key.removeprefix(_MODE) for key, value in facts.items() if key.startswith(_MODE) and value is True]
    modes = [mode.removesuffix("_tokens").removesuffix("_token") for mode in _texts(named)]
    return sorted({_SAME_DIRECTION.get(mode, mode) for mode in modes})


def _pooling_facts(folder: Path) -> dict[str, Any]:
    """Return the content of the file in which sentence-transformers saves the pooling; nothing if there is none."""
    path = folder.joinpath(*POOLING_FILE)
    try:
        with path.open("rb") as file:
            return parse_json(file.read(_MOST_POOLING_BYTES), path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from error
    except BadModelFile as error:
        raise BadInput(str(error)) from error


def _check_weights(folder: Path, names: list[str]) -> int:
    """Check that weights are safetensors files with valid headers; return how many arrays there are."""
    if _CONFIG not in names:
        raise BadInput(f"the encoder folder '{folder}' has no config.json; save the model with save_pretrained first")
    if "adapter_config.json" in names:
        raise BadInput(f"the encoder '{folder}' is an adapter of another model; merge and save them as one first")
    if pickled := [name for name in names if name.endswith(_TOKENIZER_PICKLES)]:
        raise BadInput(f"the encoder '{folder}' has the pickled file '{pickled[0]}', which could run code; remove it")
    parts = [WEIGHTS] if WEIGHTS in names else _parts(folder, names)
    n_arrays = 0
    for part in parts:
        with safe_open(folder / part, framework="np") as arrays:
            n_arrays += len(arrays.keys())
    return n_arrays


def _parts(folder: Path, names: list[str]) -> list[str]:
    """Return the files of weights that are cut into several."""
    if _INDEX not in names:
        pickled = [name for name in names if name.endswith(_PICKLES)]
        why = f" but the pickled '{pickled[0]}', which could run code" if pickled else ""
        raise BadInput(
            f"the encoder '{folder}' has no {WEIGHTS}{why}; save it with save_pretrained(safe_serialization=True)"
        )
    table = parse_json((folder / _INDEX).read_bytes(), folder / _INDEX).get("weight_map")
    parts = sorted({str(part) for part in table.values()}) if isinstance(table, dict) else []
    if not parts or not all(_is_plain(part) and part.endswith(".safetensors") for part in parts):
        raise BadInput(f"'{folder / _INDEX}' must name safetensors files beside it; save the encoder again")
    return parts


def _check_settings(path: Path, n_arrays: int) -> None:
    """Check that settings name no code, nothing elsewhere, and no size that no array has.

    Those that sentence-transformers writes beside an encoder may be lists.
    """
    parse = parse_json if path.name == _CONFIG else parse_document
    for key, value in _pairs(parse(path.read_bytes(), path)):
        if key in _CODE and value:
            raise BadInput(
                f"'{path}' names Python code of the encoder's own ('{key}'), which is never run; choose an encoder "
                f"that transformers has itself, or remove '{key}' if it has"
            )
        if "attn_implementation" in key and not _is_builtin(value):
            raise BadInput(f"'{path}' asks for the attention {str(value)[:80]!r}, not eager or sdpa; remove '{key}'")
        if key in _ELSEWHERE and value:
            raise BadInput(f"'{path}' needs what is not in its folder ('{key}'); choose a plain encoder")
        if key.endswith(("_file", "_files")) and not all(_is_plain(name) for name in _texts(value)):
            raise BadInput(f"'{path}' names a file outside its folder ('{key}'); remove it")
        if path.name == _CONFIG and type(value) is int:
            most = max(n_arrays, _MOST_LAYERS) if _LAYERS.fullmatch(key) else _LARGEST
            if abs(value) > most and "theta" not in key:
                raise BadInput(f"'{path}' says that '{key}' is {str(value)[:40]}, but at most {most} is possible")


def _pairs(document: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key and value of a document, at any depth."""
    waiting = [document]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield from part.items()
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


def _is_builtin(value: Any) -> bool:
    """Say whether this is attention of torch's own, for all or for each part of an encoder."""
    values = value.values() if isinstance(value, dict) else [value]
    return all(any(one is known or one == known for known in _ATTENTION) for one in values)


def _texts(value: Any) -> list[str]:
    """Return the texts in a value that may be one or a list of them."""
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)]


def _is_plain(name: str) -> bool:
    """Say whether a name is that of a file in the same folder."""
    return re.fullmatch(r"\w[\w.-]*", name) is not None
