"""Draw docs/img/which-recipe.svg: a decision diagram from what you have to a recipe."""

from __future__ import annotations

from pathlib import Path

from svg_parts import box, line, picture, words

PATH = Path(__file__).resolve().parent.parent / "docs" / "img" / "which-recipe.svg"
WIDTH, HEIGHT = 900, 370
LEFT, MIDDLE, RIGHT, LAST = (20, 150), (220, 180), (450, 180), (680, 200)  # x and width of the columns
ROWS = (46, 106, 166, 236, 296)  # centres of the answers
BOX = 46

# column, centre, lines of a question; its two answers: word, and the row of an answer or another question
QUESTIONS = {
    "gpu": (LEFT, 181, ("Is there a GPU?",)),
    "time": (MIDDLE, 91, ("Is accuracy worth several", "times the training time?")),
    "few": (RIGHT, 136, ("Are there at most a few", "thousand labels?")),
    "many": (MIDDLE, 271, ("100,000 labels or more,", "most with few texts?")),
}
ANSWERS = (
    ("xr-linear", "one label tree; start here"),
    ("dismec", "one classifier per label"),
    ("xr-linear --trees 3", "the average of three trees"),
    ("xr-transformer", "encoder, and tf-idf of all words"),
    ("full", "one classifier per label, in blocks"),
)
BRANCHES: tuple[tuple[str, str, str | int], ...] = (
    ("gpu", "no", "time"),
    ("gpu", "yes", "many"),
    ("time", "no", 0),
    ("time", "yes", "few"),
    ("few", "yes", 1),
    ("few", "no", 2),
    ("many", "no", 3),
    ("many", "yes", 4),
)
NOTES = "Rare labels matter most: bonsai.   Scores of a probabilistic model: plt.   Several models: xr-linear+dismec."


def main() -> None:
    """Write the picture."""
    parts = [part for branch in BRANCHES for part in branch_parts(*branch)]
    parts += [part for column, centre, lines in QUESTIONS.values() for part in question(column, centre, lines)]
    parts += [part for row, (name, why) in zip(ROWS, ANSWERS, strict=True) for part in answer(row, name, why)]
    parts.append(words(WIDTH / 2, HEIGHT - 18, NOTES, "grey", anchor="middle"))
    PATH.write_text(picture(WIDTH, HEIGHT, "Which recipe?", parts), encoding="utf-8")


def question(column: tuple[int, int], centre: float, lines: tuple[str, ...]) -> list[str]:
    """Draw a question."""
    x, width = column
    first = centre + 5 - 8.5 * (len(lines) - 1)
    texts = [words(x + width / 2, first + 17 * i, text, anchor="middle") for i, text in enumerate(lines)]
    return [box(x, centre - BOX / 2, width, BOX, "question"), *texts]


def answer(centre: float, name: str, why: str) -> list[str]:
    """Draw a recipe."""
    x, width = LAST
    return [
        box(x, centre - BOX / 2, width, BOX, "answer"),
        words(x + width / 2, centre - 4, name, "warm", anchor="middle", bold=True),
        words(x + width / 2, centre + 14, why, "grey", anchor="middle", size=11),
    ]


def branch_parts(asked: str, reply: str, target: str | int) -> list[str]:
    """Draw the way from a question to what follows: across, up or down, and across."""
    (x, width), start, _ = QUESTIONS[asked]
    end, stop = (LAST[0], ROWS[target]) if isinstance(target, int) else (QUESTIONS[target][0][0], QUESTIONS[target][1])
    turn = x + width + 14
    above = stop < start
    return [
        line(x + width, start, turn, start),
        line(turn, start, turn, stop),
        line(turn, stop, end, stop),
        words(turn + 6, stop - 5 if above else stop + 15, reply, "grey", size=12),
    ]


if __name__ == "__main__":
    main()
