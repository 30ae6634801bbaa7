"""After ``warmup`` nothing is compiled any more: the first real call is as fast as the next."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = """
import importlib, json, pkgutil, sys, tempfile
import numpy as np
import umpteen, umpteen.kernels
from umpteen.models import create, warmup
from contract.conftest import LEARN, LINEAR, NETS, NEURAL, SMALL, learning, make

def compiled():
    found = {}
    for module in pkgutil.iter_modules(umpteen.kernels.__path__):
        if module.name != "reference":
            for name, value in vars(importlib.import_module(f"umpteen.kernels.{module.name}")).items():
                if hasattr(value, "signatures") and value.py_func.__module__.endswith(module.name):
                    found[f"{module.name}.{name}"] = [str(signature) for signature in value.signatures]
    return found

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
    jobs += [(recipe, {**SMALL, **learning(recipe), "encoder.name": sys.argv[1], "net.epochs": 0.5}) for recipe in NETS]
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
for recipe in LINEAR:
    create(recipe, SMALL).fit(X, data.Y).topk(X, 3)
    create(recipe, SMALL).fit(X.toarray(), data.Y.toarray()).topk(X[:1], 3)
after = compiled()
new = {name: sorted(set(after[name]) - set(before[name])) for name in after}
new = {name: kinds for name, kinds in new.items() if kinds}
print(json.dumps({"new": new, "reports": reports, "with_torch": with_torch}))
"""


def test_warmup_compiles_everything(request: pytest.FixtureRequest) -> None:
    encoder = str(request.getfixturevalue("encoder_folder")) if find_spec("torch") else ""
    here = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(here.parent), str(here)])}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, encoder],
        env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["new"] == {}
    assert not result["with_torch"]  # compiling for a recipe with an encoder needs none
    assert result["reports"][0][0] == 0
    assert result["reports"][-1][0] == result["reports"][-1][1]
