"""Predictions of a file written to another: formats, engines, runs that are killed, and bad input."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import umpteen
from tests.conftest import Tiny
from umpteen.cli import app
from umpteen.engine import LocalEngine
from umpteen.engine.processes import ProcessEngine
from umpteen.engine.select import make_engine
from umpteen.errors import BadConfig, BadInput, BadModelFile, MissingExtra
from umpteen.models import batch_run
from umpteen.models.background import Background
from umpteen.models.batch import LINEAR_ROWS, NEURAL_ROWS, default_rows, predict_to_file

BLOCK = 16  # rows: the 200 texts are 13 blocks
N_ROWS = 200


@pytest.fixture(scope="module")
def model(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the 200 texts, with probabilities."""
    path = tmp_path_factory.mktemp("batch") / "model"
    made = umpteen.XRLinear(threads=1, tree={"leaf_size": 8, "branching": 4})
    made.fit(tiny.texts, tiny.Y, label_names=tiny.label_names).calibrate(tiny.texts, tiny.Y).save(path)
    return path


@pytest.fixture
def data(tiny: Tiny, tmp_path: Path) -> Path:
    """The texts as JSON lines, with ids."""
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps({"text": text, "id": f"t{i}"}) + "\n" for i, text in enumerate(tiny.texts)))
    return path


@pytest.fixture(scope="module")
def expected(model: Path, tiny: Tiny) -> list[list[tuple[str, float, float]]]:
    """Keys, scores and probabilities of the three best labels of each text, predicted block by block."""
    loaded, found = umpteen.load(model), []
    for first in range(0, N_ROWS, BLOCK):
        top = loaded.topk(tiny.texts[first : first + BLOCK], 3)
        tables = (top.labels.tolist(), top.scores.tolist(), top.probabilities.tolist())
        for ids, scores, probabilities in zip(*tables, strict=True):
            found.append(list(zip(loaded.labels_.keys(ids), scores, probabilities, strict=True)))
    return found


def read_lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else open(path) as lines:
        return [json.loads(line) for line in lines]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of an output, in the form of Parquet."""
    if path.suffix == ".parquet":
        return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
    columns = {"labels": "key", "names": "label", "scores": "score", "probabilities": "probability"}
    return [
        {key: value for key, value in row.items() if key != "labels"}
        | {name: [label[key] for label in row["labels"]] for name, key in columns.items()}
        for row in read_lines(path)
    ]


def triples(rows: list[dict[str, Any]]) -> list[list[tuple[str, float, float]]]:
    return [list(zip(row["labels"], row["scores"], row["probabilities"], strict=True)) for row in rows]


def run(*args: Any, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args], input=stdin)


def message(result: Any) -> str:
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())


# Formats


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.parquet", "OUT.PARQUET.jsonl"])
def test_the_output_has_the_predictions_of_each_row_in_order(
    name: str, model: Path, data: Path, tmp_path: Path, expected: Any
) -> None:
    output = tmp_path / name
    written = predict_to_file(model, data, output, k=3, block_rows=BLOCK)
    rows = read_rows(output)
    assert written[:2] == (N_ROWS, 0)
    assert [row["row"] for row in rows] == list(range(N_ROWS))
    assert triples(rows) == expected
    labels = umpteen.load(model).labels_
    names = dict(zip(labels.keys(), labels.names(), strict=True))
    assert all(row["names"] == [names[key] for key in row["labels"]] for row in rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["data.jsonl", name])


def write_parquet(path: Path, columns: dict[str, Any]) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(columns), path, row_group_size=70)


INPUTS: dict[str, Callable[[Path, list[str]], Any]] = {
    "a.txt": lambda path, texts: path.write_text("".join(f"{text}\n" for text in texts)),
    "a.txt.gz": lambda path, texts: path.write_bytes(gzip.compress("".join(f"{text}\n" for text in texts).encode())),
    "a.jsonl.bz2": lambda path, texts: path.write_bytes(
        bz2.compress("\n\n".join(json.dumps({"text": text}) for text in texts).encode())
    ),
    "a.csv": lambda path, texts: path.write_text(
        "n,text\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(texts))
    ),
    "a.tsv": lambda path, texts: path.write_text("".join(f"{text}\t<urn:a>\n" for text in texts)),
    "a.parquet": lambda path, texts: write_parquet(path, {"text": texts}),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_of_all_formats_give_the_same_bytes(
    name: str, model: Path, data: Path, tiny: Tiny, tmp_path: Path
) -> None:
    INPUTS[name](tmp_path / name, tiny.texts)
    predict_to_file(model, data, tmp_path / "expected.jsonl", block_rows=BLOCK)
    predict_to_file(model, tmp_path / name, tmp_path / "out.jsonl", block_rows=BLOCK)
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "expected.jsonl").read_bytes()


IDS: dict[str, tuple[Callable[[Path, list[str]], Any], list[Any]]] = {
    "a.csv": (INPUTS["a.csv"], [str(i) for i in range(N_ROWS)]),
    "a.parquet": (lambda path, texts: write_parquet(path, {"n": range(N_ROWS), "text": texts}), list(range(N_ROWS))),
    "a.ndjson": (
        lambda path, texts: path.write_text(
            "".join(json.dumps({"text": text, "n": -i}) + "\n" for i, text in enumerate(texts))
        ),
        [-i for i in range(N_ROWS)],
    ),
    "lines": (
        lambda path, texts: path.write_text(
            "".join(json.dumps({"text": text, "n": f"ä{i}"}) + "\n" for i, text in enumerate(texts))
        ),
        [f"ä{i}" for i in range(N_ROWS)],
    ),
    "a.tsv": (
        lambda path, texts: path.write_text("n\ttext\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(texts))),
        [str(i) for i in range(N_ROWS)],
    ),
}


@pytest.mark.parametrize("ending", [".parquet", ".jsonl"])
@pytest.mark.parametrize("name", IDS)
def test_ids_of_the_input_are_copied(
    name: str, ending: str, model: Path, tiny: Tiny, tmp_path: Path, expected: Any
) -> None:
    make, ids = IDS[name]
    make(tmp_path / name, tiny.texts)
    predict_to_file(model, tmp_path / name, tmp_path / f"out{ending}", k=3, id_column="n", block_rows=BLOCK)
    rows = read_rows(tmp_path / f"out{ending}")
    assert [row["n"] for row in rows] == ids
    assert "row" not in rows[0]
    assert triples(rows) == expected


def test_a_row_group_is_a_block(model: Path, data: Path, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    predict_to_file(model, data, tmp_path / "out.parquet", block_rows=90)
    facts = pq.read_metadata(tmp_path / "out.parquet")
    assert [facts.row_group(i).num_rows for i in range(facts.num_row_groups)] == [90, 90, 20]


def test_long_texts_end_a_block(model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("umpteen.models.batch_input._BLOCK_CHARACTERS", 1500)
    predict_to_file(model, data, tmp_path / "out.parquet")
    facts = pq.read_metadata(tmp_path / "out.parquet")
    assert facts.num_rows == N_ROWS
    assert facts.num_row_groups > 5


def test_documents_are_named_by_their_files(model: Path, tiny: Tiny, tmp_path: Path, expected: Any) -> None:
    folder = tmp_path / "letters"
    (folder / "old").mkdir(parents=True)
    (folder / "b.txt").write_text(tiny.texts[1])
    (folder / "old" / "c.txt").write_text(tiny.texts[2])
    predict_to_file(model, folder, tmp_path / "out.jsonl", k=3)
    rows = read_rows(tmp_path / "out.jsonl")
    assert [row["file"] for row in rows] == ["b.txt", "old/c.txt"]
    assert [row["labels"] for row in rows] == [[key for key, *_ in found] for found in expected[1:3]]


def test_feature_rows_are_predicted(tiny: Tiny, tmp_path: Path) -> None:
    import scipy.sparse as sp

    made = umpteen.XRLinear(threads=1).fit(tiny.X, tiny.Y)
    made.save(tmp_path / "model")
    sp.save_npz(tmp_path / "rows.npz", tiny.X)
    predict_to_file(tmp_path / "model", tmp_path / "rows.npz", tmp_path / "out.jsonl", k=2, block_rows=150)
    lines = read_lines(tmp_path / "out.jsonl")
    top = np.concatenate([made.topk(tiny.X[:150], 2).labels, made.topk(tiny.X[150:], 2).labels])
    assert [[label["id"] for label in line["labels"]] for line in lines] == top.tolist()
    assert "probability" not in lines[0]["labels"][0]


def test_options_choose_the_labels_and_their_names(model: Path, data: Path, tmp_path: Path) -> None:
    loaded = umpteen.load(model)
    texts = [row["text"] for row in read_lines(data)]
    keys = loaded.labels_.keys()[:5]
    (tmp_path / "allowed.txt").write_text("".join(f"{key}\n" for key in keys))
    (tmp_path / "names.tsv").write_text("".join(f"{key}\tname of {key}\n" for key in keys))
    flags = ["--allowed", tmp_path / "allowed.txt", "--vocab", tmp_path / "names.tsv", "--beam", 3, "-k", 2]
    result = run("predict", model, data, "-o", tmp_path / "out.jsonl", *flags)
    assert result.exit_code == 0, result.output
    assert "200 rows in" in result.stderr
    assert result.stdout == ""
    rows = read_rows(tmp_path / "out.jsonl")
    top = loaded.topk(texts, 2, beam=3, allowed=keys)
    assert [row["labels"] for row in rows] == [loaded.labels_.keys(ids) for ids in top.labels.tolist()]
    assert rows[0]["names"] == [f"name of {key}" for key in rows[0]["labels"]]
    predict_to_file(model, data, tmp_path / "out.jsonl", threshold=0.9)
    assert all(min(row["probabilities"], default=1.0) >= 0.9 for row in read_rows(tmp_path / "out.jsonl"))
    predict_to_file(model, data, tmp_path / "out.jsonl")
    given = loaded.predict(texts)
    assert [len(row["labels"]) for row in read_rows(tmp_path / "out.jsonl")] == np.diff(given.indptr).tolist()


def test_lines_have_the_form_of_predict_json(model: Path, data: Path, tmp_path: Path) -> None:
    assert run("predict", model, data, "-o", tmp_path / "out.jsonl", "-k", 2).exit_code == 0
    printed = [json.loads(line) for line in run("predict", model, data, "--json", "-k", 2).stdout.splitlines()]
    written = read_lines(tmp_path / "out.jsonl")
    assert written == [{"row": number, **line} for number, line in enumerate(printed)]


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.parquet"])
def test_halves_of_surrogate_pairs_are_written(model: Path, tmp_path: Path, name: str) -> None:
    lines = [{"text": "soup", "id": "a\ud800b"}, {"text": "salad", "id": "\U0001f600"}]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    predict_to_file(model, tmp_path / "data.jsonl", tmp_path / name, k=1, id_column="id")
    half = "\ufffd"
    assert [row["id"] for row in read_rows(tmp_path / name)] == [f"a{half}b", "\U0001f600"]


def test_texts_come_from_standard_input(model: Path, data: Path, tmp_path: Path) -> None:
    result = run("predict", model, "-", "-o", tmp_path / "out.jsonl", stdin=data.read_text())
    assert result.exit_code == 0, result.output
    assert len(read_rows(tmp_path / "out.jsonl")) == N_ROWS


# Engines


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessEngine]:
    """Two processes, which many tests use: it takes a second to start them."""
    engine = ProcessEngine(2)
    yield engine
    engine.close()


@pytest.mark.parametrize("ending", [".parquet", ".jsonl", ".jsonl.gz"])
def test_engines_give_the_same_bytes(
    ending: str, model: Path, data: Path, tmp_path: Path, processes: ProcessEngine
) -> None:
    found = set()
    for number, engine in enumerate([LocalEngine(1), LocalEngine(2), processes]):
        output = tmp_path / f"out-{number}{ending}"
        predict_to_file(model, data, output, block_rows=BLOCK, engine=engine)
        found.add(output.read_bytes())
    assert len(found) == 1


def test_a_killed_worker_does_not_matter(
    model: Path, data: Path, tmp_path: Path, processes: ProcessEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_run, "_AHEAD", 5)  # ten blocks at a time
    pids, run_all = [], processes.run

    def run_and_kill(*args: Any, **options: Any) -> list[Any]:
        done = run_all(*args, **options)
        pids.append(processes._free[-1]._process.pid)
        os.kill(pids[-1], signal.SIGKILL)  # it is asked for the next block
        return done

    monkeypatch.setattr(processes, "run", run_and_kill)
    predict_to_file(model, data, tmp_path / "out.jsonl", block_rows=BLOCK, engine=processes)
    assert len(set(pids)) == 3
    predict_to_file(model, data, tmp_path / "expected.jsonl", block_rows=BLOCK)
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "expected.jsonl").read_bytes()


def test_progress_counts_rows(model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class AtOnce(Background):
        """Ends before anything else begins, so that the number of rows is known."""

        def __init__(self, call: Callable[[], Any]) -> None:
            super().__init__(call)
            self._thread.join()

    monkeypatch.setattr(batch_run, "Background", AtOnce)

    def reports(**options: Any) -> list[tuple[int, int]]:
        seen = []
        with contextlib.suppress(Stopped):
            predict_to_file(
                model, data, tmp_path / "out.jsonl", block_rows=BLOCK, progress=lambda *r: seen.append(r), **options
            )
        return [(done, total) for stage, done, total in seen if stage == "predicting"]

    rows = reports(engine=Stopping(5))
    assert rows[0] == (0, N_ROWS)
    assert rows[-1] == (5 * BLOCK, N_ROWS)
    rows = reports()  # of the rows that are left
    assert rows[0] == (0, N_ROWS - 5 * BLOCK)
    assert rows[-1] == (N_ROWS - 5 * BLOCK, N_ROWS - 5 * BLOCK)
    assert [done for done, _ in rows] == sorted(done for done, _ in rows)
    assert [done >= total for done, total in rows].count(True) == 1


def test_engines_are_chosen_by_name() -> None:
    assert isinstance(make_engine("local", threads=1), LocalEngine)
    engine = make_engine("processes", workers=3, threads=2)
    assert (engine.n_workers, engine.threads) == (3, 2)  # type: ignore[attr-defined]
    with pytest.raises(BadConfig, match="did you mean 'processes'"):
        make_engine("process")
    with pytest.raises(BadConfig, match="one worker"):
        make_engine("local", workers=2)


def test_blocks_of_slow_models_are_small(model: Path) -> None:
    class Slow:
        neural_ = object()

    class Both:
        models_ = (umpteen.load(model), Slow())

    assert default_rows(umpteen.load(model)) == LINEAR_ROWS
    assert default_rows(Slow()) == default_rows(Both()) == NEURAL_ROWS


# Runs that end early


class Stopped(Exception):
    """The engine stops."""


class Stopping(LocalEngine):
    """Runs so many tasks, then fails."""

    def __init__(self, n_tasks: int) -> None:
        super().__init__(1)
        self.left = n_tasks

    def run(self, tasks: Any, **options: Any) -> list[Any]:
        done = super().run(tasks[: self.left], **options)
        self.left -= len(done)
        if self.left == 0:
            raise Stopped
        return done


def test_a_run_continues_where_another_stopped(model: Path, data: Path, tmp_path: Path) -> None:
    output, parts = tmp_path / "out.jsonl", tmp_path / "out.jsonl.parts"
    with pytest.raises(Stopped):
        predict_to_file(model, data, output, block_rows=BLOCK, engine=Stopping(4))
    assert len(list(parts.glob("part-*"))) == 4
    assert not output.exists()
    damaged, untouched = sorted(parts.glob("part-*"))[:2]
    damaged.write_text("{}\n")
    before = untouched.stat().st_mtime_ns, untouched.stat().st_ino
    with pytest.raises(Stopped):  # the damaged one is predicted again
        predict_to_file(model, data, output, block_rows=BLOCK, engine=Stopping(1))
    assert (untouched.stat().st_mtime_ns, untouched.stat().st_ino) == before
    assert damaged.read_text() != "{}\n"
    written = predict_to_file(model, data, output, block_rows=BLOCK)
    assert written[:2] == (N_ROWS, 4 * BLOCK)
    assert not parts.exists()
    predict_to_file(model, data, tmp_path / "expected.jsonl", block_rows=BLOCK)
    assert output.read_bytes() == (tmp_path / "expected.jsonl").read_bytes()


def test_runs_with_other_options_rows_or_models_are_not_mixed(
    model: Path, data: Path, tiny: Tiny, tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    with pytest.raises(Stopped):
        predict_to_file(model, data, output, k=2, block_rows=BLOCK, engine=Stopping(4))
    other = tmp_path / "other"
    umpteen.load(model).save(other)
    copied = predict_to_file(other, data, tmp_path / "copy.jsonl", k=2, block_rows=BLOCK)
    assert copied.n_kept == 0
    umpteen.load(model).calibrate(tiny.texts[:150], tiny.Y[:150]).save(other)
    lines = data.read_text().splitlines(keepends=True)
    data.write_text("".join([*lines[:20], lines[0], *lines[21:]]))  # a row of the second block
    for changed in ({"k": 1}, {"k": 2, "beam": 1}, {"k": 2, "id_column": "id"}):
        with pytest.raises(Stopped):
            predict_to_file(model, data, output, block_rows=BLOCK, engine=Stopping(1), **changed)
    with pytest.raises(Stopped):
        predict_to_file(other, data, output, k=2, block_rows=BLOCK, engine=Stopping(1))
    written = predict_to_file(model, data, output, k=2, block_rows=BLOCK)
    assert written.n_kept == 3 * BLOCK
    assert [len(row["labels"]) for row in read_rows(output)] == [2] * N_ROWS
    assert not (tmp_path / "out.jsonl.parts").exists()


def in_another_process(*args: Any, **options: Any) -> Any:
    """Begin to predict in a process that is forked from this one, which has everything loaded."""
    process = multiprocessing.get_context("fork").Process(target=predict_to_file, args=args, kwargs=options)
    process.start()
    return process


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.parametrize(("seed", "ending"), list(enumerate([".jsonl", ".jsonl.gz", ".parquet", ".parquet"])))
def test_runs_killed_at_random_moments_give_the_same_bytes(
    seed: int, ending: str, model: Path, data: Path, tmp_path: Path
) -> None:
    output, expected, moments = tmp_path / f"out{ending}", tmp_path / f"expected{ending}", random.Random(seed)
    begun = time.monotonic()
    predict_to_file(model, data, expected, block_rows=8)
    seconds = time.monotonic() - begun
    output.write_text("the output of an older run")
    n_killed = 0
    for _ in range(5):
        process = in_another_process(model, data, output, block_rows=8)
        process.join(moments.uniform(0.0, seconds))
        process.kill()
        process.join()
        n_killed += process.exitcode == -signal.SIGKILL
        assert output.read_bytes() in (b"the output of an older run", expected.read_bytes())
    assert n_killed
    predict_to_file(model, data, output, block_rows=8)
    assert output.read_bytes() == expected.read_bytes()
    assert [row["row"] for row in read_rows(output)] == list(range(N_ROWS))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([data.name, output.name, expected.name])


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_the_command_with_processes_resumes_after_a_kill(model: Path, data: Path, tmp_path: Path) -> None:
    output, parts = tmp_path / "out.jsonl", tmp_path / "out.jsonl.parts"
    flags = ["--engine", "processes", "--workers", "2", "--block-rows", "4"]
    command = [sys.executable, "-m", "umpteen", "predict", str(model), str(data), "-o", str(output), *flags]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(list(parts.glob("part-*"))) < 5:
        time.sleep(0.001)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    predict_to_file(model, data, tmp_path / "expected.jsonl", block_rows=4)
    assert output.read_bytes() == (tmp_path / "expected.jsonl").read_bytes()
    assert "of them predicted before" in done.stderr
    assert not parts.exists()


def test_an_interrupted_command_says_how_to_continue(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalEngine, "run", interrupt)
    result = run("predict", model, data, "-o", tmp_path / "out.jsonl")
    assert result.exit_code == 130
    assert "The same command continues" in result.stderr
    monkeypatch.undo()
    assert run("predict", model, data, "-o", tmp_path / "out.jsonl", "--quiet").stderr == ""


@pytest.mark.skipif(os.name != "posix", reason="locks")
def test_two_runs_do_not_write_one_output(model: Path, data: Path, tmp_path: Path) -> None:
    class Nested(LocalEngine):
        def run(self, *args: Any, **options: Any) -> list[Any]:
            with pytest.raises(BadInput, match="another run is writing"):
                predict_to_file(model, data, tmp_path / "out.jsonl")
            return super().run(*args, **options)

    predict_to_file(model, data, tmp_path / "out.jsonl", engine=Nested())
    assert len(read_rows(tmp_path / "out.jsonl")) == N_ROWS


# What belongs to others


def test_files_of_others_among_the_parts_are_left_alone(model: Path, data: Path, tmp_path: Path) -> None:
    parts = tmp_path / "out.jsonl.parts"
    parts.mkdir()
    mine = {"thesis.txt", "part-000000000000-16-0123456789abcdef.jsonl", ".tmp-0123456789abcdef-1"}
    for name in mine:
        (parts / name).write_text("mine")
    predict_to_file(model, data, tmp_path / "out.jsonl", block_rows=BLOCK)
    assert {path.name: path.read_text() for path in parts.iterdir()} == dict.fromkeys(mine, "mine")


def test_a_file_of_others_in_place_of_a_part_is_refused(model: Path, data: Path, tmp_path: Path) -> None:
    output, parts = tmp_path / "out.jsonl", tmp_path / "out.jsonl.parts"
    with pytest.raises(Stopped):
        predict_to_file(model, data, output, block_rows=BLOCK, engine=Stopping(1))
    (name,) = [path.name for path in parts.glob("part-*")]
    for path in parts.iterdir():
        path.unlink()
    (parts / name).write_text("mine")
    with pytest.raises(BadInput, match="was not written by umpteen"):
        predict_to_file(model, data, output, block_rows=BLOCK)
    assert (parts / name).read_text() == "mine"
    assert not output.exists()


def test_a_file_in_place_of_the_folder_is_refused(model: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl.parts").write_text("mine")
    with pytest.raises(BadInput, match="is in the way"):
        predict_to_file(model, data, tmp_path / "out.jsonl")


def test_a_part_that_is_changed_during_the_run_is_noticed(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.jsonl"

    class Losing(LocalEngine):
        def run(self, *args: Any, **options: Any) -> list[Any]:
            done = super().run(*args, **options)
            path = max(Path(f"{output}.parts").glob("part-*"))  # the one of this call
            path.write_bytes(path.read_bytes().split(b"\n", 1)[1])
            return done

    with pytest.raises(BadInput, match=r"must have 100 rows, but has 99"):
        predict_to_file(model, data, output, block_rows=100, engine=Losing())
    assert not output.exists()
    assert predict_to_file(model, data, output, block_rows=100)[:2] == (N_ROWS, 0)


def test_a_model_that_is_replaced_during_the_run_is_noticed(
    model: Path, data: Path, tiny: Tiny, tmp_path: Path, processes: ProcessEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    umpteen.load(model).save(tmp_path / "model")

    run_all = processes.run

    def replace_and_run(*args: Any, **options: Any) -> list[Any]:
        umpteen.load(model).calibrate(tiny.texts[:99], tiny.Y[:99]).save(tmp_path / "model")
        return run_all(*args, **options)

    monkeypatch.setattr(processes, "run", replace_and_run)
    with pytest.raises(BadInput, match="was replaced while"):
        predict_to_file(tmp_path / "model", data, tmp_path / "out.jsonl", engine=processes)


# Bad input


@pytest.fixture
def bad(data: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder of inputs; nothing may be written beside them."""
    folder = tmp_path / "bad"
    (folder / "folder.jsonl").mkdir(parents=True)
    (folder / "empty.txt").touch()
    (folder / "empty.csv").touch()
    (folder / "broken.jsonl").write_text('{"text": "a"}\n{"text": \n')
    (folder / "plain.txt").write_text("a text\n")
    (folder / "mixed.jsonl").write_text('{"text": "a", "id": 1}\n{"text": "b", "id": "2"}\n')
    (folder / "no-id.jsonl").write_text('{"text": "a", "id": null}\n')
    (folder / "labels.jsonl").write_text('{"text": "a", "labels": "x"}\n')
    (folder / "good.jsonl").write_text('{"text": "a", "id": 1}\n')
    before = sorted(folder.iterdir())
    yield folder
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["good.jsonl", "-o", "folder.jsonl"], "'folder.jsonl' is a folder; name a file in it"),
        (["good.jsonl", "-o", "out.csv"], "written as .parquet, .jsonl, .jsonl.gz, but 'out.csv' ends otherwise"),
        (["good.jsonl", "-o", "nowhere/out.jsonl"], "the folder 'nowhere' does not exist"),
        (["good.jsonl", "-o", "good.jsonl"], "is the input and would be replaced"),
        (["missing.jsonl", "-o", "out.jsonl"], "missing.jsonl does not exist"),
        (["missing.parquet", "-o", "out.jsonl"], "missing.parquet does not exist"),
        (["empty.txt", "-o", "out.jsonl"], "the input has no rows"),
        (["empty.csv", "-o", "out.jsonl"], "is empty; a CSV file needs a header"),
        (["broken.jsonl", "-o", "out.jsonl"], "broken.jsonl:2: not valid JSON"),
        (["good.jsonl", "-o", "out.jsonl", "--text-column", "txt"], "no column 'txt' but only 'text', 'id'"),
        (["good.jsonl", "-o", "out.jsonl", "--id-column", "ib"], "no column 'ib' but only 'text', 'id'; did you mean"),
        (["plain.txt", "-o", "out.jsonl", "--id-column", "id"], "plain.txt has no columns"),
        (["mixed.jsonl", "-o", "out.jsonl", "--id-column", "id"], "ids must be all text or all whole numbers"),
        (["no-id.jsonl", "-o", "out.jsonl", "--id-column", "id"], "an id must be text or a whole number, but is None"),
        (["labels.jsonl", "-o", "out.jsonl", "--id-column", "labels"], "like a column of the predictions"),
        ([".", "-o", "out.jsonl", "--whole-file", "--id-column", "id"], "identified by the names of their files"),
        (["good.jsonl", "-o", "out.jsonl", "--engine", "prozesses"], "did you mean 'processes'"),
        (["good.jsonl", "-o", "out.jsonl", "--workers", "2"], "has one worker, but got 2"),
        (["good.jsonl", "-o", "out.jsonl", "--vocab", "none.tsv"], "none.tsv"),
        (["good.jsonl", "-o", "out.jsonl", "--threshold", "nan"], "threshold must be a number"),
        (["good.jsonl", "--engine", "processes"], "--engine is for predictions that are written to a file"),
        (["good.jsonl", "--id-column", "id"], "--id-column is for predictions that are written to a file"),
    ],
)
def test_bad_input_is_refused(
    args: list[str], expected: str, model: Path, bad: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bad)
    assert expected in message(run("predict", model, *args))


def test_a_missing_model_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match="does not exist"):
        predict_to_file(tmp_path / "model", data, tmp_path / "out.jsonl")


def test_parquet_needs_pyarrow(model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"writing Parquet needs .*umpteen\[data\]"):
        predict_to_file(model, data, tmp_path / "out.parquet")
    assert sorted(tmp_path.iterdir()) == [data]


def test_an_error_in_a_later_block_keeps_the_parts_before(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_run, "_AHEAD", 2)
    lines = data.read_text().splitlines(keepends=True)
    data.write_text("".join([*lines[:100], "{\n", *lines[100:]]))
    with pytest.raises(BadInput, match=r"data\.jsonl:101: not valid JSON"):
        predict_to_file(model, data, tmp_path / "out.jsonl", block_rows=BLOCK)
    data.write_text("".join(lines))
    written = predict_to_file(model, data, tmp_path / "out.jsonl", block_rows=BLOCK)
    assert written.n_rows == N_ROWS
    assert written.n_kept >= 2 * BLOCK
