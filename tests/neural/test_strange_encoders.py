"""Encoders of strangers: no code, no pickles, nothing from elsewhere, and a sentence for whatever is damaged."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

import umpteen
from umpteen.cli import app
from umpteen.config import EncoderConfig
from umpteen.errors import BadInput, BadModelFile, UmpteenError
from umpteen.models.lazy_neural import SavedEncoder
from umpteen.neural import encoder as room
from umpteen.neural.encoder import Encoder

from .conftest import make_corpus


@pytest.fixture
def folder(encoder_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny encoder to be damaged."""
    return Path(shutil.copytree(encoder_folder, tmp_path / "encoder"))


def load(folder: Path) -> Encoder:
    return Encoder.load(EncoderConfig(name=str(folder), max_length=16, device="cpu"))


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def plant(folder: Path, mark: Path) -> None:
    """Put code beside an encoder that leaves a mark where it runs."""
    code = f"open({str(mark)!r}, 'w').close()\nfrom transformers import BertConfig, BertModel\n"
    code += "class OwnConfig(BertConfig):\n    model_type = 'own'\nclass OwnModel(BertModel):\n    pass\n"
    (folder / "own.py").write_text(code)


@pytest.mark.parametrize("model_type", ["own", "bert"])
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_of_an_encoder_is_not_run_whatever_stdin_says(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model_type: str,
    file: str,
) -> None:  # fmt: skip
    plant(folder, tmp_path / "mark")
    edit(folder / "config.json", model_type=model_type)
    edit(folder / file, auto_map={"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"})
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 9))
    with pytest.raises(BadInput, match="names Python code of the encoder's own"):
        load(folder)
    assert not (tmp_path / "mark").exists()
    assert capsys.readouterr().out == ""


def test_transformers_is_never_asked_to_trust(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the first look at the files finds nothing."""
    plant(folder, tmp_path / "mark")
    edit(folder / "config.json", model_type="own", auto_map={"AutoConfig": "own.OwnConfig"})
    monkeypatch.setattr(room, "check_files", lambda folder: None)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 9))
    with pytest.raises(BadInput, match="cannot be loaded"):
        load(folder)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"_attn_implementation": "stranger/kernel"},
        {"attn_implementation": "stranger/kernel@main:forward"},
        {"text_config": {"_attn_implementation": "stranger/kernel"}},
        {"_attn_implementation": {"text_config": "stranger/kernel"}},
        {"_attn_implementation": "flash_attention_2"},
        {"_attn_implementation": ["sdpa"]},
        {"quantization_config": {"quant_method": "stranger"}},
        {"base_model_name_or_path": "stranger/model"},
        {"vocab_file": "/etc/passwd"},
        {"num_hidden_layers": 10**9},
        {"max_position_embeddings": 10**12},
    ],
)
def test_settings_that_need_something_else_are_refused(
    folder: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(folder / "config.json", **changes)
    monkeypatch.setattr(room, "_without_pooler", lambda *_: pytest.fail("transformers has seen it"))
    with pytest.raises(BadInput, match=r"config\.json'"):
        load(folder)


def test_lists_that_sentence_transformers_writes_are_read_through(folder: Path) -> None:
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "data_config.json").write_text(json.dumps([{"name": "pairs.jsonl.gz", "lines": 10009, "weight": 1}]))
    load(folder)
    (folder / "modules.json").write_text(json.dumps([*modules, {"auto_map": {"AutoModel": "own.Model"}}]))
    with pytest.raises(BadInput, match=r"modules.json' names Python code"):
        load(folder)
    (folder / "config.json").write_text(f"[{(folder / 'config.json').read_text()}]")
    with pytest.raises(BadInput, match=r"config.json' is truncated or damaged: its JSON is no table"):
        load(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt"])
def test_pickled_weights_are_refused(folder: Path, tmp_path: Path, name: str) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (open, (str(tmp_path / "mark"), "w"))

    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Evil()))
    with pytest.raises(BadInput, match=f"'{name}', which could run code"):
        load(folder)
    assert not (tmp_path / "mark").exists()


def test_an_index_names_files_beside_it(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    index = folder / "model.safetensors.index.json"
    names = load_file(folder / "model-1.safetensors")
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, "../model-1.safetensors")}))
    with pytest.raises(BadInput, match="must name safetensors files beside it"):
        load(folder)
    index.write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, "model-1.safetensors")}))
    assert load(folder).dim == 32


def test_an_adapter_is_refused(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "stranger/model"}')
    with pytest.raises(BadInput, match="adapter of another model"):
        load(folder)


def change_weights(folder: Path, change: Callable[[dict[str, np.ndarray]], Any]) -> None:
    arrays = load_file(folder / "model.safetensors")
    change(arrays)
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})


EMBEDDINGS = "embeddings.word_embeddings.weight"
DAMAGE: dict[str, Callable[[Path], Any]] = {
    "cut": lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-100]),
    "empty": lambda f: (f / "model.safetensors").write_bytes(b""),
    "garbage": lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 5000),
    "foreign": lambda f: save_file({"w": np.ones(3)}, f / "model.safetensors", metadata={"format": "pt"}),
    "missing": lambda f: change_weights(f, lambda arrays: arrays.pop(EMBEDDINGS)),
    "shape": lambda f: change_weights(f, lambda arrays: arrays.update({EMBEDDINGS: arrays[EMBEDDINGS][:, :7].copy()})),
    "nan": lambda f: change_weights(f, lambda arrays: arrays[EMBEDDINGS].__setitem__((3, 3), np.nan)),
    "fewer words": lambda f: (
        change_weights(f, lambda arrays: arrays.update({EMBEDDINGS: arrays[EMBEDDINGS][:50].copy()})),
        edit(f / "config.json", vocab_size=50),
    ),
    "heads": lambda f: edit(f / "config.json", num_attention_heads=7),
    "activation": lambda f: edit(f / "config.json", hidden_act="os.system"),
    "layers": lambda f: edit(f / "config.json", num_hidden_layers="two"),
    "kind": lambda f: edit(f / "config.json", model_type="unheard-of"),
    "tokenizer": lambda f: (f / "tokenizer.json").write_text('{"version": "1.0", "model": {}}'),
    "json": lambda f: (f / "config.json").write_text("[" * 100_000),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_encoder_gets_a_sentence_that_names_it(folder: Path, damage: str) -> None:
    DAMAGE[damage](folder)
    with pytest.raises(BadInput) as caught:
        load(folder)
    assert str(folder) in str(caught.value)
    assert "online" not in str(caught.value)
    assert "\n" not in str(caught.value)


# Within a model


@pytest.fixture(scope="module")
def saved(encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with an encoder."""
    path = tmp_path_factory.mktemp("saved") / "model"
    texts, lists, _ = make_corpus(48)
    encoder = {"name": str(encoder_folder), "max_length": 16, "device": "cpu"}
    training = {"epochs": 1.0, "batch_size": 16}
    umpteen.FullHead(encoder=encoder, training=training, threads=1).fit(texts, lists).save(path)
    return path


@pytest.fixture
def model(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


@pytest.mark.parametrize("damage", ["foreign", "nan"])
def test_a_model_with_a_damaged_encoder_ends_the_command_with_a_sentence(model: Path, damage: str) -> None:
    (inside,) = model.glob("encoder-*")
    DAMAGE[damage](inside)
    document = json.loads((model / "config.json").read_text())
    document["files"]["encoder/model.safetensors"]["bytes"] = (inside / "model.safetensors").stat().st_size
    (model / "config.json").write_text(json.dumps(document))
    with pytest.raises(BadModelFile, match="encoder-"):
        umpteen.load(model).topk(["word1"], 1)
    done = CliRunner().invoke(app, ["predict", str(model), "-"], input="word1\n")
    assert done.exit_code == 1
    assert "Traceback" not in done.output


def test_a_file_of_an_encoder_cannot_be_written_elsewhere(tmp_path: Path) -> None:
    content = {"../mark": np.zeros(1, np.uint8), str(tmp_path / "mark"): np.zeros(1, np.uint8)}
    for name, raw in content.items():
        with pytest.raises(BadModelFile, match="a file's name has letters"):
            SavedEncoder(EncoderConfig(), content={name: raw}).get()
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("value", [np.nan, "shape", "type"])
def test_a_network_with_damaged_weights_is_refused(model: Path, value: Any) -> None:
    from umpteen.store.tensors import encode, load_tensors

    document = json.loads((model / "config.json").read_text())
    entry = document["files"]["net.safetensors"]
    arrays = {name: array.copy() for name, array in load_tensors(model / entry["file"], mmap=False).items()}
    name = next(name for name in arrays if name.endswith("weight"))
    if value == "shape":
        arrays[name] = arrays[name][:, :1]
    elif value == "type":
        arrays[name] = arrays[name].astype(np.int32)
    else:
        arrays[name][0, 0] = value
    raw = b"".join(bytes(part) for part in encode(arrays))
    (model / entry["file"]).write_bytes(raw)
    entry["bytes"] = len(raw)
    (model / "config.json").write_text(json.dumps(document))
    with pytest.raises(UmpteenError, match="network"):
        umpteen.load(model).topk(["word1"], 1)


def test_only_plain_files_are_fetched_from_the_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **more: asked.append(more) or str(folder))
    encoder = Encoder.load(EncoderConfig(name="some/encoder", max_length=16, device="cpu"))
    assert isinstance(encoder.model, torch.nn.Module)
    plain, pooling = asked
    assert set(plain["allow_patterns"]) == {"*.json", "*.safetensors", "*.txt", "*.model"}
    assert plain["ignore_patterns"] == ["*/*"]
    assert pooling == {"allow_patterns": ["1_Pooling/config.json"]}
