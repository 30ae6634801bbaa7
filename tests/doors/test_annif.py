"""The real Annif suggests through our server, by its ``http`` backend, and its documents train our models.

``make annif-check`` installs Annif in an environment of its own and runs this; elsewhere it is skipped.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ANNIF = os.environ.get("UMPTEEN_ANNIF", "")

pytestmark = pytest.mark.skipif(
    not ANNIF or not Path(ANNIF).is_file(),
    reason="UMPTEEN_ANNIF does not name an annif executable; make annif-check installs one and runs this",
)

SUBJECTS = {"http://example.org/cats": "cats", "http://example.org/dogs": "dogs", "http://example.org/law": "law"}
DOCUMENTS = {
    "a kitten purrs and hunts mice": "cats",
    "the tomcat sleeps on the sofa and purrs": "cats",
    "a puppy barks at the postman": "dogs",
    "the hound fetches a stick and barks": "dogs",
    "the court decides on the contract": "law",
    "a judge reads the statute in court": "law",
}
PROJECTS = """
[ours]
name=umpteen
language=en
backend=http
endpoint={url}/v1/projects/animals/suggest
vocab=animals
limit=2
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """An Annif corpus and vocabulary."""
    uri = {name: key for key, name in SUBJECTS.items()}
    lines = [f"{text}\t<{uri[name]}>\n" for text, name in DOCUMENTS.items()]
    (tmp_path / "documents.tsv").write_text("".join(lines * 3))
    (tmp_path / "animals.tsv").write_text("".join(f"<{key}>\t{name}\n" for key, name in SUBJECTS.items()))
    return tmp_path


def umpteen(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "umpteen", *arguments]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "300"}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a model and yield the address."""
    command = umpteen("serve", str(folder), "--port", "0")
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as server:
        try:
            found = None
            for line in server.stderr:  # type: ignore[union-attr]
                found = found or re.search(r"http://127\.0\.0\.1:\d+", line)
                if '"event": "ready"' in line:
                    break
            assert found
            yield found[0]
        finally:
            server.send_signal(signal.SIGTERM)


@pytest.fixture
def url(data: Path) -> Iterator[str]:
    """A server of a model that the command has trained on the corpus."""
    train = ["train", str(data / "documents.tsv"), "--vocab", str(data / "animals.tsv"), "-o", str(data / "animals")]
    done = subprocess.run(umpteen(*train), env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with served(data / "animals") as address:
        yield address


def annif(folder: Path, *arguments: str, text: str = "") -> str:
    """Run Annif in a folder."""
    own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [ANNIF, *arguments], cwd=folder, input=text, env=own, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_annif_suggests_through_our_server(data: Path, url: str) -> None:
    (data / "projects.cfg").write_text(PROJECTS.format(url=url))
    annif(data, "load-vocab", "animals", "animals.tsv", "--language", "en")
    shown = annif(data, "show-project", "ours")
    assert re.search(r"Trained: +True", shown)
    assert re.search(r"Modification time: +\d{4}-\d\d-\d\d", shown)
    for text, name in {"the kitten purrs": "cats", "a dog that barks": "dogs", "the judge of the court": "law"}.items():
        first = annif(data, "suggest", "ours", text=text).splitlines()[0].split("\t")
        assert first[:2] == [f"<http://example.org/{name}>", name]
        assert 0 < float(first[2]) <= 1
    (data / "documents").mkdir()
    (data / "documents" / "one.txt").write_text("a puppy that barks")
    annif(data, "index", "ours", "documents")
    assert (data / "documents" / "one.annif").read_text().splitlines()[0].split("\t")[1] == "dogs"
    scores = annif(data, "eval", "ours", "documents.tsv", "--metric", "Precision@1", "--metrics-file", "metrics.json")
    assert "Precision@1" in scores
    assert json.loads((data / "metrics.json").read_text())["Precision@1"] == 1.0


def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "annif.md").read_text(encoding="utf-8")
    first, *others = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert first.endswith("umpteen serve animals\n")
    assert len(others) == 2
    shell(tmp_path, first.replace("umpteen serve animals\n", ""))
    with served(tmp_path / "animals") as address:
        output = [shell(tmp_path, block.replace("http://127.0.0.1:8000", address)) for block in others]
    assert "<http://example.org/cats>\tcats\t" in output[0]
    assert "Precision@1" in output[0]
    assert '"results"' in output[1]
    assert '"error"' not in output[1]


def shell(folder: Path, script: str) -> str:
    """Run commands of a page as a user would."""
    ours = f'umpteen() {{ PYTHONPATH={shlex.quote(str(ROOT))} {shlex.quote(sys.executable)} -m umpteen "$@"; }}\n'
    ours += f'annif() {{ {shlex.quote(ANNIF)} "$@"; }}\nset -e\n'
    own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        ["bash", "-c", ours + script], cwd=folder, env=own, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
