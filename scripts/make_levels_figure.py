"""Draw docs/img/levels.svg: the resolutions of XR-Transformer and its ranker."""

from __future__ import annotations

from pathlib import Path

PATH = Path(__file__).resolve().parent.parent / "docs" / "img" / "levels.svg"
INK, GREY, PALE, WARM, COOL = "#334155", "#64748b", "#dbe2ea", "#c2410c", "#0e7490"
WIDTH, HEIGHT, TREE = 940, 400, 570
ROWS = (60, 138, 216)
SIZES, BRANCHING = (4, 12, 36), 3
# one text: the nodes it belongs to at each level, and those that the level above lets through
TRUE = ({1}, {4}, {12, 14})
SCORED = (set(range(4)), {3, 4, 5, 6, 7, 8}, {12, 13, 14, 18, 19, 20})
NOTES = (
    ("1. Coarse clusters", "All clusters are scored."),
    ("2. Finer clusters", "Only children of the true clusters and of", "those predicted by the level above."),
    ("3. Labels", "As in 2. Classifiers start at the linear", "solution; the encoder is trained further."),
)


def main() -> None:
    """Write the picture."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="13" role="img" aria-label="The resolutions of XR-Transformer and its ranker">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *edges(), *nodes(), *notes(), *legend(), *ranker(), "</svg>", "",
    ]  # fmt: skip
    PATH.write_text("\n".join(parts), encoding="utf-8")


def place(level: int, node: int) -> tuple[float, float]:
    """Return where a node stands."""
    return 20 + TREE * (node + 0.5) / SIZES[level], ROWS[level]


def edges() -> list[str]:
    """Draw lines from parents to children."""
    found = []
    for level in (1, 2):
        for node in range(SIZES[level]):
            (x1, y1), (x2, y2) = place(level - 1, node // BRANCHING), place(level, node)
            colour = GREY if node in SCORED[level] else PALE
            found.append(f'<line x1="{x1:.1f}" y1="{y1}" x2="{x2:.1f}" y2="{y2}" stroke="{colour}"/>')
    return found


def nodes() -> list[str]:
    """Draw the groups and labels as one text sees them."""
    found = []
    for level, size in enumerate(SIZES):
        for node in range(size):
            fill = WARM if node in TRUE[level] else COOL if node in SCORED[level] else PALE
            x, y = place(level, node)
            found.append(f'<circle cx="{x:.1f}" cy="{y}" r="{(13, 10, 6)[level]}" fill="{fill}"/>')
    return found


def notes() -> list[str]:
    """Say what happens at each level."""
    found = []
    for y, (title, *lines) in zip(ROWS, NOTES, strict=True):
        found.append(words(620, y - 8, title, bold=True))
        found += [words(620, y + 10 + 17 * number, line, GREY) for number, line in enumerate(lines)]
    return found


def legend() -> list[str]:
    """Say what the colours mean."""
    found, x = [], 26.0
    for fill, meaning in ((WARM, "true for the text"), (COOL, "negative, scored"), (PALE, "not scored")):
        found += [f'<circle cx="{x}" cy="258" r="6" fill="{fill}"/>', words(x + 12, 263, meaning, GREY)]
        x += 185
    return found


def ranker() -> list[str]:
    """Draw what stands after the last resolution."""
    return [
        f'<line x1="20" y1="286" x2="{WIDTH - 20}" y2="286" stroke="{PALE}"/>',
        words(20, 347, "text"),
        *box(86, 150, INK, "encoder", "trained in 1 to 3"), *box(86 + 150 + 60, 110, COOL, "embedding", "first tokens"),
        *box(86 + 150 + 60 + 116, 150, PALE, "tf-idf", "whole text", ink=INK),
        *box(632, 190, WARM, "4. Ranker", "XR-Linear on a new tree"),
        words(882, 347, "labels"),
        arrow(54, 82), arrow(242, 290), arrow(568, 626), arrow(828, 876),
    ]  # fmt: skip


def box(x: float, width: float, fill: str, title: str, line: str, *, ink: str = "white") -> list[str]:
    """Return a box with two lines of words."""
    middle = x + width / 2
    return [
        f'<rect x="{x}" y="312" width="{width}" height="60" rx="8" fill="{fill}"/>',
        words(middle, 338, title, ink, "middle", bold=True),
        words(middle, 357, line, ink, "middle"),
    ]


def words(x: float, y: float, line: str, fill: str = INK, anchor: str = "start", *, bold: bool = False) -> str:
    """Return words at a place."""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}"{weight}>{line}</text>'


def arrow(x1: float, x2: float) -> str:
    """Return an arrow to the right."""
    line = f'<line x1="{x1}" y1="342" x2="{x2 - 6}" y2="342" stroke="{GREY}" stroke-width="1.5"/>'
    return f'{line}<polygon points="{x2 - 8},337 {x2 - 8},347 {x2},342" fill="{GREY}"/>'


if __name__ == "__main__":
    main()
