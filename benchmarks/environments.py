"""The peers' own Python environments: made with venv and pip on first use, kept afterwards.

PECOS's wheel asks for torch, which its linear models never import, and for old numpy and scipy; so it is
installed without its dependencies, and what ``pecos.xmc.xlinear`` does import is named here.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Environment:
    """What a peer's environment needs, and what must then be importable."""

    module: str
    alone: tuple[str, ...]  # installed without dependencies
    packages: tuple[str, ...]


ENVIRONMENTS = {
    "pecos": Environment("pecos.xmc.xlinear.model", ("libpecos==1.2.8",), ("numpy<2", "scipy<1.14", "scikit-learn")),
    # its XR-Transformer works with transformers of early 2025 only
    "pecos_xt": Environment(
        "pecos.xmc.xtransformer.model",
        ("libpecos==1.2.8",),
        (
            "torch==2.13.0",
            "transformers==4.49.0",
            "tokenizers==0.21.4",
            "huggingface-hub==0.36.0",
            "peft==0.14.0",
            "accelerate==1.4.0",
            "requests",
            "sentencepiece",
            "numpy<2",
            "scipy<1.14",
            "scikit-learn",
        ),
    ),
    "omikuji": Environment("omikuji", (), ("omikuji==0.5.2", "numpy", "scipy")),
    "napkinxc": Environment("napkinxc.models", (), ("napkinxc==0.7.2", "numpy", "scipy")),
}


def python_of(runner: str, folder: Path) -> Path:
    """Return the interpreter of a runner, making its environment if it is not there.

    Raises
    ------
    RuntimeError
        The peer cannot be installed here; the message ends with pip's own words.
    """
    if runner not in ENVIRONMENTS:
        return Path(sys.executable)
    needs = ENVIRONMENTS[runner]
    python = folder / runner / "bin" / "python"
    if _imports(python, needs.module):
        return python
    print(f"making an environment for {runner}", flush=True)
    _call(sys.executable, "-m", "venv", str(folder / runner))
    install = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    if needs.alone:
        _call(*install, "--no-deps", *needs.alone)
    _call(*install, *needs.packages)
    if not _imports(python, needs.module):
        raise RuntimeError(f"{runner} was installed, but {needs.module} cannot be imported")
    return python


def _imports(python: Path, module: str) -> bool:
    if not python.exists():
        return False
    return subprocess.run([str(python), "-c", f"import {module}"], capture_output=True).returncode == 0


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise RuntimeError(f"'{' '.join(command[1:4])}' failed: " + " | ".join(words))
