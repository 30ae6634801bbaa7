"""Measure an installation for linear recipes: its size, the time of ``warmup``, and that of a first answer.

    python -m benchmarks.install_size [--python python3.12] [--repeat 5] [--page docs/containers.md]

Does what ``docker/Dockerfile`` does, in a folder: makes a virtual environment, installs this checkout without extras in
the versions of ``constraints.txt``, and runs ``umpteen warmup --for predict``. Then all permissions to write are taken
away, and a fresh process opens a model of the demo and answers one text, without a cache folder of its own. The same is
done before ``warmup``. Root, for whom permissions mean nothing, does it without root's capabilities (``setpriv``).
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.cold_start import ANSWER, FIT, TELL, UNPRIVILEGED
from benchmarks.report import machine, number, replace_between, table

ROOT = Path(__file__).parents[1]
MARKERS = ("<!-- install-size:begin -->", "<!-- install-size:end -->")
_WRITE = 0o222
_SMALL = 2e6  # bytes; smaller packages share a row


def main() -> None:
    """Measure, print, and write to a page if asked."""
    options = _options()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # for the user without rights
        text = render(measure(folder, options.python, options.repeat))
    print(text)
    if options.page:
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(replace_between(page, text, *MARKERS), encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the interpreter to install for")
    parser.add_argument("--repeat", type=int, default=5, help="processes per measurement; the median counts")
    parser.add_argument("--page", type=Path, help="also write the figures between the markers of this page")
    return parser.parse_args()


def measure(folder: Path, python: str, repeat: int) -> dict[str, Any]:
    """Install, compile and ask; return what was found."""
    venv, model = folder / "venv", folder / "model"
    install(venv, python)
    own = str(venv / "bin" / "python")
    training = [own, "-c", TELL % FIT, str(model)]
    subprocess.run(training, env=_env(folder / "training"), cwd="/", stdout=subprocess.DEVNULL, check=True)
    with _read_only(venv):
        before = [_answer(own, model) for _ in range(repeat)]
    begun = time.perf_counter()
    subprocess.run([str(venv / "bin" / "umpteen"), "warmup", "--for", "predict", "--quiet"], env=_env(), check=True)
    seconds = time.perf_counter() - begun
    with _read_only(venv):
        after = [_answer(own, model) for _ in range(repeat)]
    shown = subprocess.run([own, "--version"], capture_output=True, text=True, check=True)
    return {
        "machine": machine() | {"python": shown.stdout.split()[-1]},
        "packages": sizes(venv),
        "kernels": _bytes(venv.rglob("*.nbi")),
        "warmup_s": seconds,
        "before": before,
        "after": after,
    }


def install(venv: Path, python: str) -> None:
    """Make a virtual environment with the package of this checkout and what it requires, and nothing else."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(venv)], check=True)
    pip = [python, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "--quiet"]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, "--disable-pip-version-check", *constraints, str(ROOT)], check=True)


def sizes(venv: Path) -> dict[str, int]:
    """Return the bytes of each installed package with its version, compiled kernels apart."""
    (site,) = venv.glob("lib/python*/site-packages")
    found = {}
    for package in importlib.metadata.distributions(path=[str(site)]):
        files = (Path(str(file.locate())) for file in package.files or ())
        found[f"{package.metadata['Name']} {package.version}"] = _bytes(files)
    return found


def render(found: dict[str, Any]) -> str:
    """Write the figures as a table and two sentences."""
    packages = sorted(found["packages"].items(), key=lambda item: -item[1])
    large = [item for item in packages if item[1] >= _SMALL]
    small = packages[len(large) :]
    rows = [
        *large,
        (f"{len(small)} others", sum(size for _, size in small)),
        ("compiled kernels", found["kernels"]),
        ("**all**", sum(found["packages"].values()) + found["kernels"]),
    ]
    here = found["machine"]
    asked = {when: statistics.median(seconds for seconds, _ in found[when]) for when in ("before", "after")}
    compiled = {when: max(n for _, n in found[when]) for when in ("before", "after")}
    sizes_table = table(["package", "MB"], [[name, number(size / 1e6, 1)] for name, size in rows])
    sentences = [
        f"`umpteen warmup --for predict` took {found['warmup_s']:.0f} s.",
        "A fresh process without permission to write anything opened the model of the demo and answered one text in",
        f"{asked['after']:.1f} s, the start of Python and imports included, and compiled {compiled['after']} kernels;",
        f"without `warmup` it took {asked['before']:.1f} s and compiled {compiled['before']}.",
        f"Medians of {len(found['after'])} processes on {here['cores']} cores ({here['cpu']}),",
        f"Python {here['python']}, {here['system']}, {here['date']}.",
    ]
    return f"{sizes_table}\n\n{' '.join(sentences)}"


def _answer(python: str, model: Path) -> tuple[float, int]:
    """Return the seconds of a process that answers one text, and how many kernels it compiled."""
    command = [*UNPRIVILEGED, python, "-c", TELL % ANSWER, str(model)]
    env = _env() | {"HOME": os.devnull}  # in which no folder can be made
    begun = time.perf_counter()
    done = subprocess.run(command, env=env, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    compiled = json.loads(done.stdout.splitlines()[-1])
    return time.perf_counter() - begun, sum(kernel in _kernels() for kernel in compiled)


@functools.cache
def _kernels() -> set[str]:
    """Return the names of the functions that Python calls; others are compiled within them."""
    return {
        f"{path.stem}.{name}"
        for path in (ROOT / "umpteen" / "kernels").glob("*.py")
        for name in re.findall(r"^@jit\ndef (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }


def _env(cache: Path | None = None) -> dict[str, str]:
    """Return the environment without what would lead past the installation."""
    without = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    env = {key: value for key, value in os.environ.items() if key not in without}
    return env | ({} if cache is None else {"NUMBA_CACHE_DIR": str(cache)})


@contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    """Take away all permissions to write, and give them back to the owner."""
    paths = [path for path in (folder, *folder.rglob("*")) if not path.is_symlink()]
    for path in paths:
        path.chmod(path.stat().st_mode & ~_WRITE)
    try:
        yield
    finally:
        for path in paths:
            path.chmod(path.stat().st_mode | 0o200)


def _bytes(paths: Iterator[Path]) -> int:
    return sum(path.stat().st_size for path in paths if path.is_file())


if __name__ == "__main__":
    main()
