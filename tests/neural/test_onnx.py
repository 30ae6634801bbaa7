"""Encoders exported as ONNX graphs: the same predictions, their files, backends, and graphs of strangers."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import umpteen
from umpteen.errors import BadConfig, BadInput, BadModelFile, MissingExtra
from umpteen.models import Ensemble

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

from umpteen.neural.onnx_graph import OnnxGraph, check_graph  # noqa: E402

ROOT = Path(__file__).parents[2]
TEXTS = [f"topic{i % 6} key{i % 6}x{i % 3} word{i % 20} noise{i}" for i in range(60)]
LABELS = [[f"label {i % 6}"] for i in range(60)]
LONG = [*TEXTS[:3], "a", "", " ".join(TEXTS[:8])]


def fitted(cls, folder, **settings):
    training = {"epochs": (1.0,), "batch_size": 16} | settings.pop("training", {})
    encoder = {"name": str(folder), "max_length": 16, "device": "cpu"} | settings.pop("encoder", {})
    return cls(encoder=encoder, training=training, threads=1, **settings).fit(TEXTS, LABELS)


@pytest.fixture(scope="module")
def model(encoder_folder):
    return fitted(umpteen.XRTransformer, encoder_folder, features="both", head_weight=0.5)


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    """A saved model with a graph in float32 and one in int8."""
    folder = tmp_path_factory.mktemp("exported") / "model"
    model.save(folder)
    copy = umpteen.load(folder)
    copy.export(folder, int8=True)
    copy.export(folder)
    return folder


def test_all_backends_embed_alike(model, exported):
    wanted = model.embed(LONG)
    assert umpteen.load(exported).describe()["backends"] == ["torch", "onnx", "onnx-int8"]
    for backend, nearest in {"torch": 0.999999, "onnx": 0.999999, "onnx-int8": 0.95}.items():
        found = umpteen.load(exported, backend=backend).embed(LONG)
        assert found.dtype == np.float32
        assert (found * wanted).sum(axis=1).min() > nearest, backend


def test_an_exported_model_predicts_the_same(model, exported):
    wanted = model.topk(LONG, 5)
    found = umpteen.load(exported, backend="onnx").topk(LONG, 5)
    assert (found.labels == wanted.labels).all()
    np.testing.assert_allclose(found.scores, wanted.scores, atol=1e-5)


def test_a_text_does_not_depend_on_its_neighbours(exported):
    model = umpteen.load(exported, backend="onnx")
    together = model.embed(LONG)
    alone = np.concatenate([model.embed([text]) for text in LONG])
    np.testing.assert_allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last5", "mean@1", "cls@1+2"])
@pytest.mark.parametrize("windows", [1, 3])
def test_poolings_and_windows(encoder_folder, tmp_path, pooling, windows):
    encoder = {"pooling": pooling, "windows": windows, "max_length": 8}
    model = fitted(umpteen.XRTransformer, encoder_folder, encoder=encoder, features="both", head_weight=0.5)
    wanted = model.embed(LONG)
    model.export(tmp_path / "m")
    found = umpteen.load(tmp_path / "m", backend="onnx").embed(LONG)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("name", ["LightXML", "CascadeXML", "FullHead", "XTransformer"])
def test_networks_that_read_layers(encoder_folder, tmp_path, name):
    model = fitted(getattr(umpteen, name), encoder_folder)
    wanted = model.topk(LONG, 3)
    model.save(tmp_path / "m")
    umpteen.load(tmp_path / "m").export(tmp_path / "m")
    opened = umpteen.load(tmp_path / "m", backend="onnx")
    found = opened.topk(LONG, 3)
    assert (found.labels == wanted.labels).all()
    np.testing.assert_allclose(found.scores, wanted.scores, atol=1e-4)
    if name != "XTransformer":
        graph = opened.neural_.encoder.get().graph
        calls = []
        graph._run, run = lambda *given: calls.append(1) or run(*given), graph._run
        opened.topk(LONG, 1)
        assert calls  # the graph is what read the texts


@pytest.mark.parametrize("name", ["XMLCNN", "ExtremeText", "XRLinear", "Ensemble"])
def test_nothing_to_export(encoder_folder, tmp_path, name):
    if name == "XRLinear":
        model = umpteen.XRLinear(threads=1).fit(TEXTS, LABELS)
    elif name == "Ensemble":
        model = Ensemble([umpteen.XRLinear(threads=1).fit(TEXTS, LABELS)])
    else:
        model = fitted(getattr(umpteen, name), encoder_folder)
    with pytest.raises(BadInput, match="nothing to export"):
        model.export(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_formats(model, tmp_path):
    with pytest.raises(BadInput, match="exported to onnx, but not to 'openvino'"):
        model.export(tmp_path / "m", to="openvino")


def test_dropout_is_not_exported(model, tmp_path):
    model.save(tmp_path / "m")
    opened = umpteen.load(tmp_path / "m")
    module = opened.neural_.encoder.get().model
    for part in module.modules():
        if hasattr(part, "p"):
            part.p = 0.5
    opened.export(tmp_path / "m")
    assert not module.training
    np.testing.assert_allclose(umpteen.load(tmp_path / "m", backend="onnx").embed(LONG), model.embed(LONG), atol=1e-5)


def test_an_ensemble_exports_its_encoders(model, tmp_path):
    linear = umpteen.XRLinear(threads=1).fit(TEXTS, LABELS)
    ensemble = Ensemble([linear, model])
    ensemble.save(tmp_path / "m")
    wanted = ensemble.topk(LONG, 3)
    umpteen.load(tmp_path / "m").export(tmp_path / "m")
    opened = umpteen.load(tmp_path / "m", backend="onnx")
    assert opened.models_[1].neural_.encoder.backend == "onnx"
    np.testing.assert_allclose(opened.topk(LONG, 3).scores, wanted.scores, atol=1e-5)


# Backends


def test_the_backend_can_be_changed_after_training(exported):
    model = umpteen.load(exported)
    assert model.neural_.encoder.backend == "onnx-int8"  # what was exported
    wanted = model.set_params(encoder__backend="torch").embed(LONG)
    assert model.neural_.encoder.backend == "torch"
    model.set_params(encoder__backend="onnx")
    np.testing.assert_allclose(model.embed(LONG), wanted, atol=1e-5)
    model.set_params(search__beam=3)
    assert model.neural_.encoder.backend == "onnx"


def test_the_backend_is_not_saved(exported, tmp_path):
    model = umpteen.load(exported, backend="torch")
    model.save(tmp_path / "m")
    assert umpteen.load(tmp_path / "m").config_.encoder.backend == "auto"


def test_a_backend_that_was_not_exported_is_refused(model, tmp_path):
    model.save(tmp_path / "m")
    for backend in ("onnx", "onnx-int8"):
        with pytest.raises(BadConfig, match="umpteen export MODEL --to onnx"):
            umpteen.load(tmp_path / "m", backend=backend)
    with pytest.raises(BadConfig, match="backend"):
        umpteen.load(tmp_path / "m", backend="tensorrt")
    opened = umpteen.load(tmp_path / "m")
    with pytest.raises(BadConfig, match="umpteen export"):
        opened.set_params(encoder__backend="onnx")
    assert opened.config_.encoder.backend == "auto"
    assert opened.neural_.encoder.backend == "torch"


def test_a_training_may_name_a_backend_that_is_exported_after_it(encoder_folder, tmp_path):
    encoder = {"backend": "onnx"}
    model = fitted(umpteen.XRTransformer, encoder_folder, encoder=encoder, features="both", head_weight=0.5)
    wanted = model.set_params(search__beam=5).embed(LONG)
    assert model.neural_.encoder.backend == "torch"
    np.testing.assert_array_equal(copy.deepcopy(model).embed(LONG), wanted)
    model.export(tmp_path / "m", int8=True)
    model.export(tmp_path / "m")
    np.testing.assert_allclose(umpteen.load(tmp_path / "m", backend="onnx").embed(LONG), wanted, atol=1e-5)


def test_on_a_gpu_auto_is_torch(exported):
    model = umpteen.load(exported)
    model.neural_.encoder.config = replace(model.neural_.encoder.config, device="cuda")
    assert model.neural_.encoder.backend == "torch"


def test_without_the_runtime(exported, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else find(name))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    model = umpteen.load(exported)
    assert model.neural_.encoder.backend == "torch"
    with pytest.raises(MissingExtra, match=r"umpteen\[onnx\]"):
        umpteen.load(exported, backend="onnx").embed(TEXTS[:1])


def test_copies_keep_what_was_exported(exported):
    model = umpteen.load(exported, backend="onnx")
    twin = copy.deepcopy(model)
    np.testing.assert_allclose(twin.embed(LONG), model.embed(LONG), atol=1e-6)


def test_torch_is_not_loaded(exported):
    code = f"""
import sys
sys.modules.update(dict.fromkeys(["torch", "transformers", "safetensors"]))  # importing one is an ImportError
import umpteen
print(umpteen.load({str(exported)!r}).topk(["topic1 key1x1"], 3).names)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "label" in done.stdout


def test_threads(exported):
    model = umpteen.load(exported, backend="onnx")
    one, two = model.topk(LONG, 3, threads=1), model.topk(LONG, 3, threads=2)
    np.testing.assert_allclose(one.scores, two.scores, atol=1e-5)


def test_the_command(exported, model, tmp_path):
    model.save(tmp_path / "m")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:3]) + "\n")

    def run(*args, code=0):
        command = [sys.executable, "-m", "umpteen", *args]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stderr
        return done.stdout

    before = run("predict", "m", "texts.txt", "-k", "1", "-q")
    assert "umpteen" not in run("export", "m", "--to", "onnx", "-o", "exported", "-q")
    assert run("predict", "exported", "texts.txt", "-k", "1", "-q", "--backend", "onnx") == before
    run("predict", "m", "texts.txt", "--backend", "onnx", code=2)
    run("export", "m", "--to", "tflite", code=2)
    assert "onnx" in run("info", "exported")


# Graphs of strangers


def graph_of(folder: Path) -> Path:
    (found,) = folder.glob("onnx-*/model.onnx")
    return found


def changed(folder: Path, change):
    """Return the bytes of a graph after a change."""
    graph = onnx.load(graph_of(folder))
    change(graph)
    return graph.SerializeToString()


def add_node(name, domain="", **attributes):
    def change(graph):
        graph.graph.node.append(onnx.helper.make_node(name, ["input_ids"], ["unused"], domain=domain, **attributes))

    return change


def external(graph):
    tensor = graph.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../../../etc/passwd"


def external_constant(graph):
    node = next(node for node in graph.graph.node if node.op_type == "Constant")
    tensor = node.attribute[0].t
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "weights.bin"


def loop(graph):
    body = onnx.helper.make_graph([], "body", [], [])
    graph.graph.node.append(onnx.helper.make_node("Loop", ["", ""], ["unused"], body=body))


def hidden_graph(graph):
    body = onnx.helper.make_graph([], "body", [], [])
    graph.graph.node[0].attribute.append(onnx.helper.make_attribute("body", body))


def function(graph):
    made = onnx.helper.make_function("other", "f", ["a"], ["b"], [], [onnx.helper.make_opsetid("", 17)])
    graph.functions.append(made)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (external, "another file"),
        (external_constant, "another file"),
        (loop, "operator ':Loop'"),
        (hidden_graph, "a graph inside"),
        (function, "functions"),
        (add_node("Evil", "com.evil"), "operator 'com.evil:Evil'"),
        (add_node("RandomUniformLike"), "operator ':RandomUniformLike'"),
        (lambda graph: graph.opset_import.append(onnx.helper.make_opsetid("com.evil", 1)), "another library"),
        (lambda graph: graph.graph.input.pop(), "does not take"),
        (lambda graph: graph.graph.output.pop(), "states of layers"),
        (lambda graph: setattr(graph.graph.output[0], "name", "other"), "states of layers"),
    ],
)
def test_graphs_that_are_more_than_arithmetic_are_refused(exported, change, match):
    with pytest.raises(BadModelFile, match=match):
        check_graph(changed(exported, change), "model.onnx")


@pytest.mark.parametrize("content", [b"", b"not protobuf", b"\x00" * 100])
def test_what_is_no_graph_is_refused(content):
    with pytest.raises(BadModelFile):
        check_graph(content, "model.onnx")


def test_a_graph_that_wants_too_much_memory_is_refused(exported):
    def bomb(graph):
        shape = onnx.numpy_helper.from_array(np.array([1 << 20, 1 << 20], np.int64), "huge")
        graph.graph.initializer.append(shape)
        first = onnx.helper.make_node("ConstantOfShape", ["huge"], ["ones"])
        axes = onnx.numpy_helper.from_array(np.array([0, 1], np.int64), "axes")
        graph.graph.initializer.append(axes)
        second = onnx.helper.make_node("ReduceSum", ["ones", "axes"], ["total"], keepdims=0)
        third = onnx.helper.make_node("Add", [graph.graph.output[0].name, "total"], ["layer_9"])
        graph.graph.node.extend([first, second, third])
        graph.graph.output[0].name = "layer_9"

    content = changed(exported, bomb)
    graph = OnnxGraph(np.frombuffer(content, np.uint8), "model.onnx", 32)
    with pytest.raises((BadModelFile, MemoryError), match=r"model\.onnx"):
        graph.states(np.zeros((1, 2), np.int64), None)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("config.json", b"[]", "config.json"),
        ("config.json", b'{"n_layers": -1, "width": 32, "pad": 0}', "n_layers"),
        ("config.json", b'{"n_layers": 2, "width": 1e99, "pad": 0}', "width"),
        ("config.json", b'{"n_layers": 2, "width": 64, "pad": 0, "cls": 2}', "64 finite numbers"),
        ("config.json", b'{"n_layers": 7, "width": 32, "pad": 0, "cls": 2}', "lacks layer 7"),
        ("config.json", b'{"n_layers": 2, "width": 32, "pad": 99999999, "cls": 2}', "cannot be used"),
        ("tokenizer.json", b"{}", "no tokenizer"),
        ("model.onnx", b"junk", "no ONNX file|does not take"),
    ],
)
def test_files_of_a_stranger(exported, tmp_path, name, content, match):
    """Whatever an export holds, a model is refused by a BadModelFile when its encoder is used."""
    folder = tmp_path / "m"
    shutil.copytree(exported, folder)
    (path,) = folder.glob(f"onnx-*/{name}")
    path.write_bytes(content)
    config = json.loads((folder / "config.json").read_text())
    config["files"][f"onnx/{name}"]["bytes"] = len(content)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadModelFile, match=match):
        umpteen.load(folder, backend="onnx").embed(LONG)
    with pytest.raises(BadModelFile, match="has changed"):
        umpteen.load(folder, verify="full")


def test_a_length_that_settings_leave_open_is_usual(exported, tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(exported, folder)
    config = json.loads((folder / "config.json").read_text())
    config["settings"]["encoder"] |= {"max_length": 0, "windows": 2}
    (folder / "config.json").write_text(json.dumps(config))
    texts = ["word1 word2", "topic0"]
    np.testing.assert_allclose(umpteen.load(folder).embed(texts), umpteen.load(exported).embed(texts), atol=1e-6)


def test_an_incomplete_export_is_refused(exported, tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(exported, folder)
    config = json.loads((folder / "config.json").read_text())
    del config["files"]["onnx/tokenizer.json"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadModelFile, match=r"lacks 'tokenizer\.json'"):
        umpteen.load(folder).embed(LONG)
