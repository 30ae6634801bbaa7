"""``umpteen explain``: print why a label is suggested for a text, or why not."""

from pathlib import Path
from typing import Any

from umpteen.cli.terminal import Terminal
from umpteen.errors import BadInput
from umpteen.models.explanation import Explanation, Step
from umpteen.store import atomic_write

_WORDS = 10  # words that are printed
_SHOWN = 200  # characters of a training text
_TERMS = 5  # contributions that are printed of each level


def explain(
    model: Any, text: str, *, label: str | None, k: int, terminal: Terminal, as_json: bool = False,
    html: Path | None = None, max_words: int = 200, threads: int | None = None,
) -> None:  # fmt: skip
    """Print the explanation of one label of a text as tables or JSON, and write it as HTML if asked to."""
    if not model.takes_texts:
        raise BadInput("the model was trained on feature rows, not texts; in Python, model.explain takes a row")
    found = model.explain(text, label, k, max_words=max_words, threads=threads)
    if html is not None:
        atomic_write(html, found.to_html().encode("utf-8", "xmlcharrefreplace"))  # half a character is none of UTF-8
        terminal.note(f"Written to {html}")
    if as_json:
        terminal.json(found.to_dict())
        return
    show(found, terminal)


def show(found: Explanation, terminal: Terminal, name: str = "") -> None:
    """Print an explanation, then that of each model of an ensemble."""
    terminal.say(f"{name}{found.label} ({found.recipe}): {found.numbers}. {found.reason}")
    for note in found.notes:
        terminal.note(note)
    if not name:
        terminal.table(*found.suggestion_table(), title="Suggested")
    words = sorted(found.top_words(len(found.words)), key=lambda item: -abs(item[1]))[:_WORDS]
    if words:
        terminal.table(["word", "contribution"], words, title=f"Words ({found.word_scale})")
    parts = [[part.name, part.weight, part.value, part.contribution, part.fraction] for part in found.parts]
    columns = ["part", "weight", "value", "contribution", "fraction"]
    terminal.table(columns, parts, title=f"Parts of the {found.scale}")
    for path in found.paths:
        columns = ["level", "node", "margin", "factor", "score", "rank", "kept", "last kept", "largest contributions"]
        terminal.table(columns, [_row(step) for step in path.steps], title=f"Path: {path.part}", lines=True)
    if found.nearest:
        rows = [[one.similarity, _shortened(one.text), ", ".join(one.labels)] for one in found.nearest]
        terminal.table(["similarity", "training text", "labels"], rows, title="Nearest training texts", lines=True)
    for number, one in enumerate(found.models, start=1):
        show(one, terminal, f"Model {number}: ")


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _row(step: Step) -> list[Any]:
    terms = [f"{one.name} {one.contribution:+.3f}" for one in step.contributions[:_TERMS]]
    bias = [] if step.bias is None else [f"bias {step.bias:+.3f}"]
    last = None if step.last_kept_score is None else f"{step.last_kept_score:.3g}"
    numbers = [step.margin, f"{step.factor:.3g}", f"{step.score:.3g}", step.rank, step.n_kept, last]
    return [step.level, step.node, *numbers, ", ".join(terms + bias)]
