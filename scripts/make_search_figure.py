"""Draw docs/img/beam-search.svg: the search for the labels of one text, with the scores of a model of the demo data."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from svg_parts import box, circle, line, picture, words

import umpteen
from umpteen.linear import LinearTree
from umpteen.linear.trace import _children

PATH = Path(__file__).resolve().parent.parent / "docs" / "img" / "beam-search.svg"
TEXT, BEAM, SHOWN = "play chess against the computer", 2, 4
WIDTH, HEIGHT, SIDE = 900, 380, 150  # SIDE: room for the words on the left
ROWS = (96, 176, 256)
RADII, BAR = (17, 13), 8


class Level(NamedTuple):
    """The nodes of a level: how many there are, those that were scored with their scores, and those that were kept."""

    size: int
    scores: dict[int, float]
    kept: list[int]
    parents: np.ndarray


def main() -> None:
    """Train, search and write the picture."""
    data = umpteen.load_demo("train")
    settings = {"tree": {"branching": 5, "leaf_size": 32}, "search": {"beam": BEAM}}
    model = umpteen.XRLinear(**settings, threads=1).fit(data.texts, data.Y, label_names=data.labels)
    levels = search(model.heads_[0], model._rows([TEXT], 1))
    named = [(label, model.labels_.names([int(model.heads_[0].tree.order[label])])[0]) for label in levels[-1].kept]
    title = f"Beam search for the labels of the text '{TEXT}'"
    parts = [*heading(levels), bar(), *edges(levels), *nodes(levels), *results(levels[-1], named)]
    PATH.write_text(picture(WIDTH, HEIGHT, title, parts), encoding="utf-8")


def search(head: LinearTree, rows: object) -> list[Level]:
    """Search the tree for the best labels and keep all scores."""
    triplet, beam, scores, found = head._sparse(rows), np.zeros(1, np.int32), np.ones(1, np.float32), []
    for level in range(head.n_levels):
        numbers, values = _children(head, triplet, level, beam, scores)
        width = SHOWN if level == head.n_levels - 1 else BEAM
        best = np.argsort(-values, kind="stable")[:width]
        scored = dict(zip(numbers.tolist(), values.tolist(), strict=True))
        beam, scores = numbers[best], values[best]
        found.append(Level(head.tree.sizes[level], scored, beam.tolist(), head.tree.parents[level]))
    return found


def place(levels: list[Level], level: int, node: float) -> tuple[float, float]:
    """Return where a node stands."""
    room = WIDTH - SIDE - 20
    return SIDE + room * (node + 0.5) / levels[level].size, ROWS[level]


def heading(levels: list[Level]) -> list[str]:
    """Name the text, the levels and the colours."""
    n_scored = len(levels[-1].scores)
    found = [words(20, 30, f"“{TEXT}”", bold=True, size=15)]
    x = 330.0
    for kind, meaning in (("warm", "scored and kept"), ("cool", "scored and dropped"), ("pale", "never scored")):
        found += [circle(x, 25, 6, kind), words(x + 12, 30, meaning, "grey")]
        x += 170
    for number, (y, level) in enumerate(zip(ROWS, levels, strict=True), start=1):
        is_last = number == len(levels)
        what = f"{level.size} labels" if is_last else f"{level.size} groups"
        detail = f"{n_scored} scored" if is_last else f"the best {BEAM} are kept"
        found += [words(20, y, what, bold=True), words(20, y + 17, detail, "grey", size=12)]
    return found


def edges(levels: list[Level]) -> list[str]:
    """Draw lines from the groups that were kept to their groups, and to the labels areas, for they are many."""
    found = []
    for level in range(1, len(levels) - 1):
        for node in sorted(levels[level].scores, key=lambda node: node in levels[level].kept):
            ends = (*place(levels, level - 1, int(levels[level].parents[node])), *place(levels, level, node))
            is_kept = node in levels[level].kept
            found.append(line(*ends, "strong" if is_kept else "line", 2 if is_kept else 0.7))
    return [*found, *fans(levels)]


def fans(levels: list[Level]) -> list[str]:
    """Draw the areas between the groups that were kept and their labels, and the ways to the best labels."""
    *_, above, labels = levels
    at, found = len(levels) - 1, []
    for parent in above.kept:
        children = [node for node in labels.scores if labels.parents[node] == parent]
        left, right = place(levels, at, min(children) - 0.5)[0], place(levels, at, max(children) + 0.5)[0]
        x, y = place(levels, at - 1, parent)
        corners = f"{x:.1f},{y} {right:.1f},{ROWS[at] - BAR / 2} {left:.1f},{ROWS[at] - BAR / 2}"
        found.append(f'<polygon points="{corners}" class="cool" fill-opacity="0.2"/>')
        found.append(
            f'<rect x="{left:.1f}" y="{ROWS[at] - BAR / 2}" width="{right - left:.1f}" height="{BAR}" class="cool"/>'
        )
    for node in labels.kept:
        found.append(line(*place(levels, at - 1, int(labels.parents[node])), *place(levels, at, node), "strong", 2))
    return found


def nodes(levels: list[Level]) -> list[str]:
    """Draw all nodes of all levels; groups that were scored show their score."""
    at, found = len(levels) - 1, []
    for number, level in enumerate(levels[:-1]):
        for node in range(level.size):
            kind = "warm" if node in level.kept else "cool" if node in level.scores else "pale"
            x, y = place(levels, number, node)
            found.append(circle(x, y, RADII[number], kind))
            if node in level.scores:
                found.append(words(x, y + 4, shown(level.scores[node]), "page", anchor="middle", size=10))
    return [*found, *(circle(*place(levels, at, node), 5, "warm") for node in levels[-1].kept)]


def bar() -> str:
    """Draw all labels as one bar."""
    return f'<rect x="{SIDE}" y="{ROWS[-1] - BAR / 2}" width="{WIDTH - SIDE - 20}" height="{BAR}" class="pale"/>'


def shown(score: float) -> str:
    """Return a score with two decimals and without the leading zero."""
    return f"{score:.2f}".removeprefix("0") if score < 0.995 else "1.0"


def results(level: Level, named: list[tuple[int, str]]) -> list[str]:
    """List the best labels below the tree."""
    found, width = [], (WIDTH - SIDE - 20) / len(named)
    for place_, (label, name) in enumerate(named):
        x = SIDE + width * place_
        found += [
            box(x, 300, width - 10, 50, "answer"),
            words(x + (width - 10) / 2, 321, name, "warm", anchor="middle", bold=True, size=12),
            words(x + (width - 10) / 2, 339, shown(level.scores[label]), "grey", anchor="middle", size=12),
        ]
    return [*found, words(20, 321, "Result", bold=True), words(20, 338, "the best labels", "grey", size=12)]


if __name__ == "__main__":
    main()
