"""The commands of the manual, and the output that it shows of them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from umpteen.cli import app

_DOCS = Path(__file__).parents[2] / "docs"
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_CLOSE = 0.02  # relative; another kind of processor rounds in another way


def documented_commands(page: str) -> list[str]:
    """Return the lines of the blocks of a page that a shell can run."""
    blocks = (_DOCS / page).read_text(encoding="utf-8").split("```sh\n")[1:]
    return [line for block in blocks for line in block.split("```")[0].splitlines()]


def shown_outputs(page: str) -> list[list[str]]:
    """Return the lines of the indented blocks of a page."""
    text = re.sub(r"^```.*?^```", "", (_DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [block.splitlines() for block in re.findall(r"(?:^ {4}.+\n)+", text, re.MULTILINE)]


def run_documented(line: str) -> Any:
    """Run a command of a page in this process; ``mkdir``, and an ``echo`` into a file, have None as their result."""
    words, text = shlex.split(line), None
    if words[0] == "mkdir":
        Path(words[-1]).mkdir(parents=True)
        return None
    if words[0] == "echo":
        text, mark, *words = words[1:]
        if mark == ">":
            Path(words[0]).write_text(f"{text}\n", encoding="utf-8")
            return None
    return CliRunner().invoke(app, words[1:], input=None if text is None else f"{text}\n")


def is_part(shown: list[str], printed: list[str]) -> bool:
    """Return whether lines of a page are consecutive lines of an output, with numbers that are about the same."""
    starts = range(len(printed) - len(shown) + 1)
    return any(all(map(_is_alike, shown, printed[start : start + len(shown)])) for start in starts)


def _is_alike(shown: str, printed: str) -> bool:
    numbers = [[float(number.replace(",", "")) for number in _NUMBER.findall(line)] for line in (shown, printed)]
    words = [_NUMBER.sub("0", line).split() for line in (shown, printed)]
    return words[0] == words[1] and all(abs(a - b) <= _CLOSE * abs(b) for a, b in zip(*numbers, strict=True))
