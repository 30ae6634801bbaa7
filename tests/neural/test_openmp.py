"""OpenMP's threads sleep while they wait: the environment is set before torch is imported, and only then."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from umpteen.engine.openmp import PASSIVE

ROOT = Path(__file__).parents[2]
NAMES = (*PASSIVE, "GOMP_SPINCOUNT", "KMP_LIBRARY")
WITH_TORCH = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "umpteen").rglob("*.py")
    if re.search(r"^import torch$", path.read_text(encoding="utf-8"), re.MULTILINE)
)
SHOW = f"import json, os; print(json.dumps({{n: os.environ[n] for n in {NAMES} if n in os.environ}}))"


def fresh(code: str, **chosen: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter, in which nobody has said how threads wait, but for what is ``chosen``."""
    environment = {name: value for name, value in os.environ.items() if name not in NAMES}
    environment |= {"PYTHONPATH": str(ROOT), **chosen}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


def shown(code: str, **chosen: str) -> dict[str, str]:
    return json.loads(fresh(f"{code}\n{SHOW}", **chosen).stdout)


def test_it_is_set_before_any_module_imports_torch() -> None:
    code = f"""
import importlib, json, os, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            seen.append(os.environ.get("OMP_WAIT_POLICY"))
            raise ImportError("not here", name="torch")

sys.meta_path.insert(0, Watch())
found = {{}}
for module in {WITH_TORCH}:
    for name in {NAMES}:
        os.environ.pop(name, None)
    for name in [name for name in sys.modules if name.startswith("umpteen") and ".kernels" not in name]:
        del sys.modules[name]
    seen = []
    try:
        importlib.import_module(module)
    except ImportError:
        found[module] = seen[0]
print(json.dumps(found))
"""
    found = json.loads(fresh(code).stdout)
    assert "umpteen.neural.encoder" in found
    assert found == dict.fromkeys(WITH_TORCH, "passive")


@pytest.mark.parametrize("name", NAMES)
def test_what_the_user_has_chosen_stays(name: str) -> None:
    assert shown("import umpteen.engine.openmp", **{name: "1"}) == {name: "1"}


def test_nothing_is_set_once_torch_is_loaded() -> None:
    loaded = "import sys, types; sys.modules['torch'] = types.ModuleType('torch')"
    assert shown(f"{loaded}\nimport umpteen.engine.openmp") == {}


def test_nothing_is_set_for_a_linear_model() -> None:
    code = """
import umpteen
umpteen.XRLinear(threads=1).fit(["red apple", "green pear"], [["red"], ["green"]]).topk(["red"], 1)
"""
    assert shown(code) == {}


@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
def test_the_library_that_torch_loads_follows() -> None:
    done = fresh(f"import umpteen.neural.encoder\n{SHOW}", OMP_DISPLAY_ENV="true")
    assert json.loads(done.stdout) == PASSIVE
    told = re.findall(r"OMP_WAIT_POLICY ?= ?'(\w+)'", done.stderr)  # by the library itself, where it is GNU's or LLVM's
    assert set(told) <= {"PASSIVE"}
    assert told or sys.platform != "linux"
