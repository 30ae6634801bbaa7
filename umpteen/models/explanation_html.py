"""Show an explanation as an HTML page: no scripts, no other files, and every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from umpteen.models.explanation import Explanation, Path, Step

_SHADES = 5  # of a highlighted word, for and against the label
_TERMS = 10  # contributions that are listed at each level

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --line: #d0d0d0; --for: 0 140 60;
  --against: 200 40 40 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #161616; --line: #444; --for: 60 190 110; --against: 240 90 90 }
}
body { color: var(--ink); background: var(--paper); font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem }
.text { border: 1px solid var(--line); border-radius: .4rem; padding: .8rem 1rem; white-space: pre-wrap;
  overflow-wrap: anywhere; unicode-bidi: isolate }
table { border-collapse: collapse; margin: .5rem 0 1rem }
th, td { border-bottom: 1px solid var(--line); padding: .15rem .8rem .15rem 0; text-align: left;
  overflow-wrap: anywhere }
td.number { text-align: right; font-variant-numeric: tabular-nums }
mark { color: inherit; background: none; border-radius: .2rem }
section { border-left: .2rem solid var(--line); padding-left: 1rem }
"""


def page(explanation: Explanation) -> str:
    """Return the whole page."""
    title = f"Why {explanation.label}?" if explanation.is_suggested else f"Why not {explanation.label}?"
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{_shades()}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{_body(explanation)}</body>\n</html>\n"
    )


def _shades() -> str:
    """Return the colours of words that speak for a label, and against it."""
    rules = (
        f".{kind}{shade} {{ background: rgb(var(--{kind}) / {shade / _SHADES * 0.6:.2f}) }}\n"
        for kind in ("for", "against")
        for shade in range(1, _SHADES + 1)
    )
    return "".join(rules)


def _body(explanation: Explanation) -> str:
    parts = [
        f"<p>{escape(explanation.recipe)}: {explanation.numbers}. {escape(explanation.reason)}</p>\n",
        "".join(f"<p>{escape(note)}</p>\n" for note in explanation.notes),
        _text(explanation),
        _table(*explanation.suggestion_table(), "Suggested"),
        _table(
            ["part", "weight", "value", "contribution", "fraction"],
            [(part.name, part.weight, part.value, part.contribution, part.fraction) for part in explanation.parts],
            f"Parts of the {explanation.scale}",
        ),
        "".join(_path(path) for path in explanation.paths),
        _table(
            ["similarity", "training text", "labels"],
            [(one.similarity, one.text, ", ".join(one.labels)) for one in explanation.nearest],
            "Nearest training texts",
        ),
    ]
    for number, model in enumerate(explanation.models, start=1):
        parts.append(f"<section>\n<h2>Model {number}</h2>\n{_body(model)}</section>\n")
    return "".join(parts)


def _text(explanation: Explanation) -> str:
    """Return the text with its words highlighted; for feature rows, the features."""
    if explanation.text is None:
        rows = [(one.name, one.contribution) for one in explanation.features[: 2 * _TERMS]]
        return _table(["feature", "contribution"], rows, "Features")
    most = max((abs(word.contribution) for word in explanation.words), default=0.0)
    pieces, at = [], 0
    for word in explanation.words:
        pieces.append(escape(explanation.text[at : word.start]))
        shade = round(_SHADES * abs(word.contribution) / most) if most else 0
        shown = escape(explanation.text[word.start : word.end])
        kind = "for" if word.contribution > 0 else "against"
        title = f"{word.contribution:+.3g}"
        pieces.append(f'<mark class="{kind}{shade}" title="{title}">{shown}</mark>' if shade else shown)
        at = word.end
    pieces.append(escape(explanation.text[at:]))
    return f'<p class="text">{"".join(pieces)}</p>\n<p>Highlighted: {escape(_meaning(explanation.word_scale))}.</p>\n'


def _meaning(word_scale: str) -> str:
    """Say what contributions of words are."""
    if word_scale == "margins":
        return "what each word adds to the margins on the path"
    if word_scale == "models":
        return "what each word adds in each model, as a fraction of the strongest word there"
    return f"by how much the {word_scale} of the label would fall without the word"


def _path(path: Path) -> str:
    items = "".join(_step(step, is_last=step is path.steps[-1]) for step in path.steps)
    return f"<h2>Path: {escape(path.part)}</h2>\n<ol>\n{items}</ol>\n"


def _step(step: Step, *, is_last: bool) -> str:
    what = "the label" if is_last else f"node {step.node}"
    head = f"{what}: margin {step.margin:.4g}, factor {step.factor:.4g}, score {step.score:.4g}"
    if step.rank is not None and step.last_kept_score is not None:
        head += f", rank {step.rank} ({step.n_kept} are kept, down to a score of {step.last_kept_score:.4g})"
    rows: list[Sequence[Any]] = [(one.name, one.contribution) for one in step.contributions[:_TERMS]]
    if rest := step.contributions[_TERMS:]:
        rows.append((f"{len(rest)} others", sum(one.contribution for one in rest)))
    if step.bias is not None:
        rows.append(("bias", step.bias))
    return f"<li>{head}\n{_table(['feature', 'contribution'], rows)}</li>\n"


def _table(columns: Iterable[str], rows: Sequence[Sequence[Any]], title: str = "") -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in rows)
    heading = f"<h2>{escape(title)}</h2>\n" if title else ""
    return f"{heading}<table>\n<tr>{head}</tr>\n{body}</table>\n"


def _cell(value: Any) -> str:
    return f'<td class="number">{value:.4g}</td>' if isinstance(value, float) else f"<td>{escape(str(value))}</td>"
