"""``umpteen predict``: read texts, documents or feature rows and print predictions block by block.

A block of standard input is what has arrived: a line in a terminal, many lines of a fast pipe.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from umpteen.cli.terminal import Terminal
from umpteen.data import Labels, Vocabulary, stream_documents, stream_texts
from umpteen.data.lines import arriving_lines
from umpteen.data.tables import is_json_row, json_rows
from umpteen.engine.printable import json_line, printable
from umpteen.errors import BadInput, nearest
from umpteen.models.answers import Answers, Named, as_json_value, printed_decision
from umpteen.models.inputs import check_texts, documents_of, read_features

_BLOCK = 4096  # maximum number of texts predicted at a time
_BLOCK_CHARACTERS = 1 << 26  # of documents, after which a block ends
_SHOWN = 60  # characters of a text shown in a terminal

Block = tuple[list[str], Any]  # how the rows are shown, and the rows: texts or features


def predict(
    model: Any,
    source: str,
    *,
    k: int | None,
    terminal: Terminal,
    threshold: float | None = None,
    as_json: bool = False,
    beam: int | None = None,
    allowed: Path | None = None,
    threads: int | None = None,
    whole_file: bool = False,
    columns: Mapping[str, Any] | None = None,
    vocab: Path | None = None,
    language: str | None = None,
) -> None:
    """Print the best labels of every text of ``source``, which is a file, a folder or ``-``.

    Without ``k``, the labels that reach ``threshold``, or the model's own threshold if it is calibrated. With
    ``whole_file`` every file is one text. The names of ``vocab`` are printed in place of those of the model, if given.
    """
    if threshold is not None and not math.isfinite(threshold):
        raise BadInput(f"--threshold takes a number, but got {threshold}; probabilities lie between 0 and 1")
    decision = printed_decision(model, k, threshold)
    options = {"beam": beam, "threads": threads}
    if allowed is not None:
        options["allowed"] = read_allowed(allowed, model.labels_)
    labels = model.labels_
    if vocab is not None:
        labels = renamed(labels, vocab, language, terminal)
    unreadable: list[BadInput] = []

    def note(error: BadInput) -> None:
        terminal.error(str(error))
        unreadable.append(error)

    blocks, has_files = blocks_of(model, source, whole_file, columns or {}, note)
    line = _LINES[has_files, as_json]
    n_rows, begun = 0, time.perf_counter()
    for shown, X in blocks:
        answers = Answers.of(model.topk(X, decision.depth, **options), decision)
        sys.stdout.write("".join(line(text, found) for text, found in zip(shown, answers.named(labels), strict=True)))
        sys.stdout.flush()
        n_rows += len(shown)
    seconds = time.perf_counter() - begun
    if source != "-":
        rows = "row" if n_rows == 1 else "rows"
        terminal.note(f"{n_rows:,} {rows} in {seconds:.2f} s, {n_rows / max(seconds, 1e-9):,.0f} rows/s")
    if unreadable:
        raise BadInput(f"{len(unreadable)} of {n_rows + len(unreadable)} documents could not be read, see above")


def blocks_of(
    model: Any, source: str, whole_file: bool, columns: Mapping[str, Any], unreadable: Callable[[BadInput], None]
) -> tuple[Iterator[Block], bool]:
    """Return the rows of ``source`` in blocks, and whether they are shown by the names of their files.

    ``unreadable`` is called for each document of a folder that cannot be read.
    """
    if not model.takes_texts:
        return feature_blocks(read_features(source, model.n_features_in_, whole_file=whole_file)), False
    documents = documents_of(source, whole_file)
    if documents is None:
        return text_blocks(source, columns), False
    return document_blocks(stream_documents(documents, unreadable)), True


def document_blocks(documents: Iterator[tuple[str, str]]) -> Iterator[Block]:
    """Yield the names and texts of documents in blocks of bounded size."""
    names, texts, n_characters = [], [], 0
    for name, text in documents:
        names.append(name)
        texts.append(text)
        n_characters += len(text)
        if len(texts) == _BLOCK or n_characters >= _BLOCK_CHARACTERS:
            yield names, texts
            names, texts, n_characters = [], [], 0
    if texts:
        yield names, texts


def text_blocks(source: str, columns: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the texts of a file, of the test split of a folder or of standard input."""
    if source == "-":
        if sys.stdin is None:
            raise BadInput("texts are read from standard input, but that is closed; name a file, or pipe texts in")
        blocks = typed_texts(sys.stdin.buffer, columns.get("text_column", "text"))
    else:
        check_texts(source)
        blocks = _in_blocks(stream_texts(source, "test", **columns))
    for texts in blocks:
        yield texts, texts


def feature_blocks(X: Any) -> Iterator[Block]:
    """Yield feature rows in blocks."""
    for start in range(0, X.shape[0], _BLOCK):
        block = X[start : start + _BLOCK]
        yield [f"row {start + i}" for i in range(block.shape[0])], block


def typed_texts(stream: BinaryIO, text_column: str = "text") -> Iterator[list[str]]:
    """Yield texts, or JSON lines if the first line is one, in blocks as they arrive."""
    n_lines, is_json = 0, False
    for lines in arriving_lines(stream):
        is_json = is_json_row(lines[0], text_column) if n_lines == 0 else is_json
        texts = lines
        if is_json:
            texts = [text for text, _ in json_rows(lines, "standard input", text_column, first_line=n_lines + 1)]
        n_lines += len(lines)
        for start in range(0, len(texts), _BLOCK):
            yield texts[start : start + _BLOCK]


def read_allowed(path: Path, labels: Labels) -> list[int]:
    """Read the labels that may be predicted, one key or name per line; return their ids."""
    lines = enumerate(stream_texts(path), start=1)
    allowed = {number: label for number, line in lines if (label := line.strip())}
    if not allowed:
        raise BadInput(f"{path} names no label; write one a line")
    found = labels.encode([[label] for label in allowed.values()], unknown="ignore")
    for (number, label), count in zip(allowed.items(), found.getnnz(axis=1), strict=True):
        if not count:
            hint = nearest(label, labels.keys(range(min(len(labels), 10_000))))
            raise BadInput(f"{path}:{number}: {label!r} is none of the {len(labels)} labels of the model{hint}")
    return found.indices.tolist()


def renamed(labels: Labels, vocab: Path, language: str | None, terminal: Terminal) -> Labels:
    """Return labels with the names of a vocabulary, and note how many have none."""
    vocabulary = Vocabulary.read(vocab)
    renamed = vocabulary.rename(labels, language)
    terminal.note(str(vocabulary.coverage(renamed, language)))
    return renamed


def _in_blocks(texts: Iterator[str]) -> Iterator[list[str]]:
    while block := list(islice(texts, _BLOCK)):
        yield block


def _json_text_line(text: str, answers: list[Named]) -> str:
    return json_line(as_json_value(answers))


def _json_file_line(file: str, answers: list[Named]) -> str:
    return json_line({"file": file, **as_json_value(answers)})


def _text_line(text: str, answers: list[Named]) -> str:
    text = " ".join(text.split())
    if sys.stdout.isatty() and len(text) > _SHOWN:
        text = text[: _SHOWN - 1] + "…"
    return _file_line(text, answers)


def _file_line(file: str, answers: list[Named]) -> str:
    named = [
        f"{printable(answer.label)} ({answer.score if answer.probability is None else answer.probability:.3f})"
        for answer in answers
    ]
    return "\t".join([printable(file), *named]) + "\n"


# How an answer is printed, by whether it is that of a file, and whether as JSON
_LINES = {
    (False, False): _text_line,
    (False, True): _json_text_line,
    (True, False): _file_line,
    (True, True): _json_file_line,
}
