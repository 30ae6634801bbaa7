"""The house rules that a machine can check: imports, public names, documentation that runs, the wheel."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import umpteen
from umpteen.config import ModelConfig

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "umpteen"
SOURCES = sorted(PACKAGE.rglob("*.py"))
MODULES = sorted(["umpteen", *(module.name for module in pkgutil.walk_packages(umpteen.__path__, "umpteen."))])
OPTIONAL = {
    "fastapi", "huggingface_hub", "matplotlib", "onnx", "onnxruntime", "prometheus_client", "pyarrow", "ray", "rdflib",
    "safetensors", "starlette", "tensorboard", "torch", "transformers", "triton", "uvicorn",
}  # fmt: skip

PUBLIC = {
    "AttentionXML", "Bonsai", "CascadeDiSMEC", "CascadeXML", "Dataset", "DiSMEC", "Ensemble", "ExtremeText", "FullHead",
    "LabelTree", "LightXML", "PLT", "Parabel", "Tfidf", "TopK", "XMLCNN", "XRLinear", "XRTransformer", "XTransformer",
    "__version__", "evaluate", "evaluate_model", "load", "load_demo", "read",
}  # fmt: skip


def fresh(code: str) -> str:
    """Run code in a new interpreter, in the repository's root, and return what it prints."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


# Imports


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = set(json.loads(fresh("import umpteen, sys, json; print(json.dumps(list(sys.modules)))")))
    heavy = {
        "numpy",
        "scipy",
        "numba",
        "torch",
        "sklearn",
        "transformers",
        "pandas",
        "typer",
        "rich",
        "pyarrow",
        "matplotlib",
    }
    assert not loaded & heavy


def test_submodules_are_attributes() -> None:
    code = "import umpteen; print(umpteen.data.Labels.__name__, umpteen.metrics.__name__, umpteen.errors.BadInput)"
    assert fresh(code).split()[:2] == ["Labels", "umpteen.metrics"]


def test_the_package_is_the_command() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "umpteen", "--version"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout == f"umpteen {umpteen.__version__}\n"


def test_a_linear_model_needs_neither_torch_nor_sklearn() -> None:
    code = """
import sys, json, tempfile
import umpteen
model = umpteen.XRLinear(threads=1).fit(["red apple", "green pear"], [["red"], ["green"]])
with tempfile.TemporaryDirectory() as folder:
    model.save(folder + "/m")
    umpteen.load(folder + "/m").topk(["red"], 1)
print(json.dumps(list(sys.modules)))
"""
    assert not set(json.loads(fresh(code))) & {"torch", "sklearn", "transformers", "pandas", "typer"}


def test_requirements_are_imported_and_extras_are_not_required() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {_package(line) for line in project["dependencies"]}
    extras = project["optional-dependencies"]
    assert set(extras) == {"transformers", "data", "skos", "plot", "tensorboard", "serve", "hub", "onnx", "ray", "all"}
    assert set(re.findall(r"\w+", extras["all"][0])) == set(extras) - {"all"} | {"umpteen"}
    optional = {_package(line) for name in set(extras) - {"all"} for line in extras[name]}
    assert not required & optional
    code = f"""
import importlib, json, sys
blocked = {sorted(OPTIONAL | optional | {"tokenizers", "sklearn"})}
sys.modules.update(dict.fromkeys(blocked))  # importing one of them is an ImportError
for name in {MODULES}:
    try:
        importlib.import_module(name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in blocked:
            raise
print(json.dumps(sorted(sys.modules)))
"""
    assert required <= set(json.loads(fresh(code)))


def test_imports_point_one_way() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    if not linter.exists():
        pytest.skip("import-linter is not installed")
    done = subprocess.run([str(linter), "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_is_in_the_contract() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    layers = text[text.index("layers = [") :]
    named = set(re.findall(r"umpteen\.(\w+)", layers[: layers.index("]")]))
    packages = {
        path.stem for path in PACKAGE.iterdir() if (path.is_dir() or path.suffix == ".py") and path.stem[0] != "_"
    }
    assert packages == named


# Public names


def test_public_names() -> None:
    assert set(umpteen.__all__) == PUBLIC
    assert set(dir(umpteen)) == PUBLIC
    for name in PUBLIC:
        assert getattr(umpteen, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'XRLinaer'"):
        _ = umpteen.XRLinaer


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_is(name: str) -> None:
    module = _import(name)
    assert (module.__doc__ or "").strip() or name.endswith("__main__"), f"{name} has no docstring"
    for public in getattr(module, "__all__", []):
        assert hasattr(module, public), f"{name} lists '{public}' but does not have it"


# Documentation that runs

EXAMPLE = re.compile(r"^ *>>> ", re.MULTILINE)
SESSION = re.compile(r"^```\w*\n(>>> .*?)^```", re.DOTALL | re.MULTILINE)
PLAIN = re.compile(r"^```python\n(?!>>> )(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if path.exists()]


def n_examples(path: Path) -> int:
    return len(EXAMPLE.findall(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", [path for path in SOURCES if n_examples(path)], ids=relative)
def test_docstring_examples(path: Path) -> None:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    result = doctest.testmod(_import(name), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert result.failed == 0
    assert result.attempted == n_examples(path), "an example is written where doctest does not look"


@pytest.mark.parametrize("path", [path for path in PAGES if n_examples(path)], ids=relative)
def test_examples_in_the_docs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "\n".join(SESSION.findall(path.read_text(encoding="utf-8")))  # a page is one session
    test = doctest.DocTestParser().get_doctest(text, {}, relative(path), relative(path), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(test)
    assert runner.failures == 0
    assert runner.tries == n_examples(path), "an example is not at the beginning of a block"


@pytest.mark.parametrize("path", [path for path in PAGES if PLAIN.search(path.read_text("utf-8"))], ids=relative)
def test_code_in_the_docs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks without answers run as well; each makes a model, and its settings are checked if it is not trained."""
    monkeypatch.chdir(tmp_path)
    for block in PLAIN.findall(path.read_text(encoding="utf-8")):
        names = {"umpteen": umpteen}
        exec(compile(block, relative(path), "exec"), names)
        assert isinstance(names["model"].config, ModelConfig)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples(path: Path, tmp_path: Path) -> None:
    assert len(path.read_text().splitlines()) < 60
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


# Habits


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_no_assert_no_print_no_pickle(path: Path) -> None:
    is_door = "cli" in path.relative_to(PACKAGE).parts
    for node in ast.walk(ast.parse(path.read_text())):
        place = f"{relative(path)}:{getattr(node, 'lineno', 0)}"
        assert not isinstance(node, ast.Assert), f"{place}: assert vanishes under -O; raise an error"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print" or is_door, f"{place}: the library does not print"
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = {alias.name for alias in node.names} | {getattr(node, "module", "")}
            assert not names & {"pickle", "joblib", "dill"}, f"{place}: models are not pickled"


# Words that say nothing about what a file holds
VAGUE = {
    "common", "core", "general", "helper", "helpers", "lib", "misc", "shared", "stuff", "tools", "util", "utils",
    "utilities", "various",
}  # fmt: skip


def test_names_of_files_say_what_they_hold() -> None:
    beside = [path for folder in ("benchmarks", "scripts", "examples") for path in (ROOT / folder).glob("*.py")]
    for path in (*SOURCES, *beside, *(ROOT / "tests").rglob("*.py")):
        words = {word for part in path.relative_to(ROOT).with_suffix("").parts for word in part.split("_")}
        assert not words & VAGUE, f"{relative(path)}: name it after what it holds"


# The wheel


def test_the_wheel_is_pure_and_complete(tmp_path: Path) -> None:
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed")
    source = tmp_path / "source"
    source.mkdir()
    for name in ("umpteen", "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert wheel.name == f"umpteen-{umpteen.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert "umpteen/py.typed" in names
    assert {relative(path) for path in SOURCES} <= names
    demo = {relative(path) for path in (PACKAGE / "data" / "demo").rglob("*") if path.is_file()}
    page = {relative(path) for path in (PACKAGE / "serve" / "page").iterdir()}
    assert demo
    assert page
    assert demo | page <= names
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)


def _package(requirement: str) -> str:
    """Return the name in a requirement such as ``numpy>=2.0``."""
    return re.split(r"[^\w-]", requirement)[0]


def _import(name: str) -> object:
    """Import a module; one that needs an extra that is not installed is skipped."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] in OPTIONAL:
            pytest.skip(f"{error.name} is not installed")
        raise
