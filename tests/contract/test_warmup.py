"""After ``warmup`` nothing is compiled any more: the first real call is as fast as the next."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from umpteen import XRLinear
from umpteen.engine import LocalEngine, Task

from .conftest import make

COMPILED = """
import importlib, json, pkgutil, sys
import umpteen, umpteen.kernels

def compiled():
    found = {}
    for module in pkgutil.iter_modules(umpteen.kernels.__path__):
        for name, value in vars(importlib.import_module(f"umpteen.kernels.{module.name}")).items():
            if hasattr(value, "signatures") and value.py_func.__module__.endswith(module.name):
                found[f"{module.name}.{name}"] = [str(signature) for signature in value.signatures]
    return found
"""

EVERYTHING = """
import tempfile
import numpy as np
from umpteen.models import create, warmup
from contract.conftest import LEARN, LINEAR, NETS, NEURAL, SMALL, learning, make

reports = []
warmup(progress=lambda stage, done, total: reports.append((done, total)))
before = compiled()
with_torch = "torch" in sys.modules
data, X = make(600, seed=1), None
encoder = {"encoder.name": sys.argv[1], **LEARN}
flat = {**SMALL, **encoder, "tree.kind": "auto"}
jobs = [(recipe, s) for recipe in LINEAR for s in ({}, SMALL, {**SMALL, "linear.negatives": "man"})]
if sys.argv[1]:
    jobs += [(recipe, {**s, "features": f}) for recipe in NEURAL if recipe not in NETS for f in ("both", "encoder")
             for s in (flat, {**SMALL, **encoder})]
    brief = {"encoder.name": sys.argv[1], "training.epochs": 0.5}
    jobs += [(recipe, {**SMALL, **learning(recipe), **brief}) for recipe in NETS]
for recipe, settings in jobs:
    model = create(recipe, settings).fit(data.texts, data.lists)
    X = X if X is not None else model.tfidf_.transform(data.texts)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/m")
        for opened in (model, umpteen.load(f"{folder}/m"), umpteen.load(f"{folder}/m", mmap=False)):
            opened.topk(data.texts, 5)
            opened.topk(data.texts[:1], 5)
            opened.topk(data.texts, 5, allowed=[0, 1, 2])
            opened.score_labels(data.texts, data.Y)
            opened.evaluate(data.texts, data.lists)
many = [" ".join(f"{row}w{word}" for word in range(100)) for row in range(600)]
for analyzer in ("word", "char", "char_wb"):
    create("xr-linear", {**SMALL, "tfidf.analyzer": analyzer}).fit(many, data.lists)
umpteen.TopK.from_csr(data.Y, 2)
for recipe in LINEAR:
    create(recipe, SMALL).fit(X, data.Y).topk(X, 3)
    create(recipe, SMALL).fit(X.toarray(), data.Y.toarray()).topk(X[:1], 3)
after = compiled()
new = {name: sorted(set(after[name]) - set(before[name])) for name in after}
new = {name: kinds for name, kinds in new.items() if kinds}
used = [name for name in before if before[name]]
print(json.dumps({"new": new, "used": used, "reports": reports, "with_torch": with_torch}))
"""

# Models of 700 labels, in trees with fewer and with more than 256 leaves and without a tree, for each precision
MODELS = """
import sys
import numpy as np
from umpteen.models import create
from contract.conftest import LEARN, make

folder, encoder = sys.argv[1:]
texts = make(800, seed=1).texts
numbers = [[str(row % 700), str(row * 7 % 700)] for row in range(800)]
shapes = {"few": {"tree.leaf_size": 16}, "many": {"tree.leaf_size": 2}, "flat": {"tree.kind": "none"}}
models = {f"{shape}-{weights}": {**shapes[shape], "store.weights": weights}
          for shape in shapes for weights in ("int8", "float16", "float32")}
models |= {"char": {"tfidf.analyzer": "char"}, "trees": {"trees": 3, "ensemble": "round-robin"}}
for name, settings in models.items():
    model = create("xr-linear", {**settings, "linear.max_iter": 1}).fit(texts, numbers)
    model.save(f"{folder}/{name}")
    sizes = {size for head in model.heads_ for size in head.tree.sizes[:-1]}
    assert (max(sizes, default=1) > 256) == name.startswith("many")
    if name == "few-int8":
        rows = model.tfidf_.transform(texts) * 2
        create("xr-linear", {"linear.max_iter": 1}).fit(rows, numbers).save(f"{folder}/rows")
if encoder:
    settings = {**LEARN, "encoder.name": encoder, "training.epochs": (0.1,), "linear.max_iter": 1}
    create("xr-transformer", settings).fit(texts, numbers).save(f"{folder}/encoder")
"""

ASK = """
import os
import scipy.sparse as sp
from umpteen.models import warmup
from contract.conftest import make

warmup(purpose="predict")
before = compiled()
folder = sys.argv[1]
texts = make(200, seed=2).texts
pairs = sp.random(len(texts), 700, 0.01, format="csr", random_state=0)
for name in os.listdir(folder):
    for mmap in (True, False):
        model = umpteen.load(f"{folder}/{name}", mmap=mmap)
        asked = texts
        if name == "rows":
            asked = sp.random(len(texts), model.n_features_in_, 0.01, format="csr", dtype="float32", random_state=0)
        for rows in (asked, asked[:1], asked[:20]):
            for k in (1, 5, 100):
                model.topk(rows, k)
            model.topk(rows, 5, allowed=[0, 1, 2])
            model.topk(rows, 5, beam=2)
            model.predict(rows)
        model.score_labels(asked, pairs)
after = compiled()
new = {name: sorted(set(after[name]) - set(before[name])) for name in after}
print(json.dumps({"new": {name: kinds for name, kinds in new.items() if kinds},
                  "used": sorted(name for name in before if before[name]),
                  "n_models": len(os.listdir(folder))}))
"""


def run(*code: str, arguments: list[str]) -> str:
    here = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(here.parent), str(here)])}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code), *arguments],
        env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def encoder(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("encoder_folder")) if find_spec("torch") else ""


def test_warmup_compiles_everything(encoder: str) -> None:
    result = json.loads(run(COMPILED, EVERYTHING, arguments=[encoder]))
    kernels = {"text.count_texts", "cluster.halve", "solve.solve", "score.search", "batch.score_chunks"}
    assert kernels <= set(result["used"])
    assert result["new"] == {}
    assert not result["with_torch"]  # compiling for a recipe with an encoder needs none
    assert result["reports"][0][0] == 0
    assert result["reports"][-1][0] == result["reports"][-1][1]


def test_warmup_for_predict_compiles_what_saved_models_need(encoder: str, tmp_path: Path) -> None:
    run(MODELS, arguments=[str(tmp_path), encoder])
    result = json.loads(run(COMPILED, ASK, arguments=[str(tmp_path)]))
    assert result["n_models"] >= 12
    assert result["new"] == {}
    assert "score.search" in result["used"]
    assert not [name for name in result["used"] if name.startswith(("solve.", "cluster."))]
    assert "text.count_texts" not in result["used"]


def test_warmup_for_something_else_is_refused() -> None:
    from umpteen.models import warmup

    with pytest.raises(ValueError, match="purpose must be one of all, predict, but is 'predictions'; did you mean"):
        warmup(purpose="predictions")


class SharedFiles(LocalEngine):
    """Stands for a cluster: ``warm`` gets the tasks that its processes are to warm up with."""

    def __init__(self) -> None:
        super().__init__(1)
        self.warm: list[Task] = []

    def check_storage(self, folder: Any, remedy: str = "") -> None:
        pass

    def check_file(self, path: Any) -> None:
        pass

    def warm_up(self, task: Task) -> None:
        self.warm.append(task)


def test_the_processes_of_a_cluster_warm_up_while_tasks_are_prepared(tmp_path):
    engine, data = SharedFiles(), make(60, seed=1)
    for X in (data.texts, np.eye(60)):
        XRLinear(tree={"leaf_size": 5}).fit(X, data.lists, engine=engine, checkpoint=tmp_path)
    of_texts, of_rows = engine.warm
    assert of_texts.arguments["from_texts"]
    assert not of_rows.arguments["from_texts"]
    assert of_texts(1) is None
    assert of_rows(1) is None
