"""``umpteen predict``: read texts, documents or feature rows and print predictions block by block.

A block of standard input is what has arrived: a line in a terminal, many lines of a fast pipe.
"""

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from umpteen.cli.terminal import Terminal, json_line, printable
from umpteen.data import Labels, Vocabulary, read, stream_documents, stream_texts
from umpteen.data.lines import arriving_lines
from umpteen.data.readers import document_folder
from umpteen.data.tables import is_json_row, json_rows
from umpteen.data.xmc import NO_TEXTS, load_npz
from umpteen.errors import BadInput, nearest

_USUAL_K = 5  # labels of a model that is not calibrated
_BLOCK = 4096  # maximum number of texts predicted at a time
_BLOCK_CHARACTERS = 1 << 26  # of documents, after which a block ends
_SHOWN = 60  # characters of a text shown in a terminal
_FEATURE_FILES = (".npz", ".svm", ".svmlight", ".libsvm")

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
    decision = _decision(model, k, threshold)
    options = {"beam": beam, "threads": threads}
    if allowed is not None:
        options["allowed"] = read_allowed(allowed, model.labels_)
    labels = model.labels_
    if vocab is not None:
        labels = _renamed(labels, vocab, language, terminal)
    blocks, has_files = blocks_of(model, source, whole_file, columns or {})
    line = _LINES[has_files, as_json]
    n_rows, begun = 0, time.perf_counter()
    for shown, X in blocks:
        top = model.topk(X, decision.depth, **options)
        probabilities = [None] * len(shown) if top.probabilities is None else top.probabilities.tolist()
        answers = zip(shown, top.labels.tolist(), top.scores.tolist(), probabilities, decision.chosen(top), strict=True)
        sys.stdout.write("".join(line(text, _named(labels, *found)) for text, *found in answers))
        sys.stdout.flush()
        n_rows += len(shown)
    seconds = time.perf_counter() - begun
    if source != "-":
        rows = "row" if n_rows == 1 else "rows"
        terminal.note(f"{n_rows:,} {rows} in {seconds:.2f} s, {n_rows / max(seconds, 1e-9):,.0f} rows/s")


def _decision(model: Any, k: int | None, threshold: float | None) -> Any:
    """Return which labels are printed: those of ``predict``, but the first few if there are no probabilities."""
    if k is None and threshold is None and model.calibration_ is None:
        k = _USUAL_K
    return model.decision(k, threshold)


def blocks_of(model: Any, source: str, whole_file: bool, columns: Mapping[str, Any]) -> tuple[Iterator[Block], bool]:
    """Return the rows of ``source`` in blocks, and whether they are shown by the names of their files."""
    if not model.takes_texts:
        if whole_file:
            raise BadInput("--whole-file reads texts, but the model was trained on feature rows; leave it out")
        return feature_blocks(model, source), False
    documents = source if whole_file else None if source == "-" else document_folder(source)
    if documents is None:
        return text_blocks(source, columns), False
    return document_blocks(stream_documents(documents)), True


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
        if Path(source).suffix in _FEATURE_FILES:
            raise BadInput(f"the model was trained on texts, but {source} holds feature rows; pass texts")
        blocks = _in_blocks(stream_texts(source, "test", **columns))
    for texts in blocks:
        yield texts, texts


def feature_blocks(model: Any, source: str) -> Iterator[Block]:
    """Yield the feature rows of a file or of the test split of a folder."""
    X = _read_features(source, model.n_features_in_)
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


def _renamed(labels: Labels, vocab: Path, language: str | None, terminal: Terminal) -> Labels:
    vocabulary = Vocabulary.read(vocab)
    renamed = vocabulary.rename(labels, language)
    terminal.note(str(vocabulary.coverage(labels, language)))
    return renamed


def _in_blocks(texts: Iterator[str]) -> Iterator[list[str]]:
    while block := list(islice(texts, _BLOCK)):
        yield block


def _read_features(source: str, n_features: int) -> Any:
    if source == "-":
        raise BadInput("the model was trained on feature rows, not texts; pass a file of rows (XMC, svmlight, npz)")
    if Path(source).suffix == ".npz":
        return load_npz(Path(source))
    try:
        dataset = read(source, "test", n_features=n_features)
    except BadInput as error:  # the hint about texts applies to training only
        raise BadInput(str(error).replace(NO_TEXTS, "; the model was trained on feature rows, not texts")) from error
    if dataset.X is None:
        raise BadInput(f"the model was trained on feature rows, but {source} holds texts; pass rows of features")
    return dataset.X


class Named(NamedTuple):
    """A label of a text."""

    label: str
    id: int
    key: str
    score: float
    probability: float | None


def _named(
    labels: Labels, ids: Sequence[int], scores: Sequence[float], probabilities: Sequence[float] | None, chosen: Any
) -> list[Named]:
    places = chosen.nonzero()[0].tolist()
    found = [ids[place] for place in places]
    return [
        Named(name, i, key, scores[place], None if probabilities is None else probabilities[place])
        for place, i, name, key in zip(places, found, labels.names(found), labels.keys(found), strict=True)
    ]


def _json_text_line(text: str, answers: list[Named]) -> str:
    return json_line(_answer(answers))


def _answer(answers: list[Named]) -> dict[str, Any]:
    return {"labels": [_without_none(answer) for answer in answers]}


def _without_none(answer: Named) -> dict[str, Any]:
    return {name: value for name, value in answer._asdict().items() if value is not None}


def _json_file_line(file: str, answers: list[Named]) -> str:
    return json_line({"file": file, **_answer(answers)})


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
