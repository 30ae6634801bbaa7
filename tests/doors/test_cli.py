"""The command: what it prints where, which exit code it ends with, and that it streams."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from rich.console import Console
from rich.progress import Progress
from typer.testing import CliRunner

import umpteen
from tests.doors.manual import documented_commands, run_documented
from umpteen import store
from umpteen.cli import app
from umpteen.cli import terminal as terminal_module
from umpteen.cli.evaluation import propensity_constants
from umpteen.cli.options import collect, spell_out
from umpteen.cli.prediction import typed_texts
from umpteen.cli.terminal import Terminal
from umpteen.errors import BadConfig, BadInput, OutOfMemory
from umpteen.kernels.compiling import compiling
from umpteen.models import rates
from umpteen.models.work import Work

WORDS = {
    "fruit": "apple pear plum cherry",
    "tool": "hammer saw drill wrench",
    "animal": "cat dog horse cow",
    "colour": "red green blue black",
}
SMALL = ["--set", "tree.leaf_size=2", "--set", "tree.branching=2", "--threads", "1"]


def run(*args: Any, stdin: str | bytes | None = None) -> Any:
    """Run a command in this process; ``stdout`` and ``stderr`` stay apart."""
    return CliRunner().invoke(app, [str(arg) for arg in args], input=stdin)


def made_rows(n_rows: int, seed: int) -> list[tuple[str, list[str]]]:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_rows):
        labels = sorted(rng.choice(list(WORDS), size=2, replace=False))
        words = [word for label in labels for word in rng.choice(WORDS[label].split(), size=3)]
        rows.append((" ".join(words), list(labels)))
    return rows


def write_split(folder: Path, split: str, rows: list[tuple[str, list[str]]]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{split}_texts.txt").write_text("".join(f"{text}\n" for text, _ in rows))
    (folder / f"{split}_labels.txt").write_text("".join(" ".join(labels) + "\n" for _, labels in rows))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of made texts with the labels of the words in them."""
    folder = tmp_path_factory.mktemp("data") / "words"
    write_split(folder, "train", made_rows(80, seed=0))
    write_split(folder, "test", made_rows(20, seed=1))
    return folder


@pytest.fixture(scope="module")
def model(data: Path) -> Path:
    """A model trained on it by the command."""
    path = data.parent / "model"
    result = run("train", data, "-o", path, "--quiet", *SMALL)
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture(scope="module")
def rows_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of feature rows in the repository's format: label l has feature l."""
    folder = tmp_path_factory.mktemp("rows")
    for split, n_rows in (("train", 40), ("test", 8)):
        lines = [f"{i % 4} {i % 4}:1 {4 + i % 3}:0.5\n" for i in range(n_rows)]
        (folder / f"{split}.txt").write_text(f"{n_rows} 7 4\n" + "".join(lines))
    return folder


@pytest.fixture(scope="module")
def rows_model(rows_data: Path) -> Path:
    path = rows_data / "model"
    assert run("train", rows_data, "-o", path, "--quiet", *SMALL).exit_code == 0
    return path


LEARN = ["--training.epochs", "1", "--encoder.max_length", "16", *SMALL]


@pytest.fixture(scope="module")
def neural_model(data: Path, encoder_folder: Path) -> Path:
    """A model with an encoder, trained by the command."""
    path = data.parent / "neural"
    words = ["--recipe", "xr-transformer", "--encoder", encoder_folder, "--device", "cpu", *LEARN]
    result = run("train", data, "-o", path, *words)
    assert result.exit_code == 0, result.output
    assert "with the encoder on cpu" in result.stderr.replace("\n", " ")
    return path


def command(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
    """Start the command as a process of its own."""
    streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    words = [sys.executable, "-m", "umpteen.cli", *map(str, args)]
    if os.name == "posix":  # whoever runs the tests in the background may have told them to ignore interrupts
        streams["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(words, **{**streams, **options})


# What a person types


def test_flags_of_settings_become_set() -> None:
    spelled = spell_out(["d", "--tree.branching", "8", "--trees=3", "--seed", "1"], {"--seed"})
    assert spelled == ["d", "--set", "tree.branching=8", "--set", "trees=3", "--seed", "1"]
    assert spell_out(["--", "--tree.branching", "8"], set()) == ["--", "--tree.branching", "8"]
    assert spell_out(["--quite"], set()) == ["--quite"]  # left for the parser to refuse
    with pytest.raises(BadConfig, match="needs a value"):
        spell_out(["--tree.branching"], set())


def test_later_sources_of_settings_win(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"recipe": "plt", "seed": 1, "tree": {"branching": 4, "leaf_size": 9}, "threads": 1}')
    recipe, settings = collect(path, ["tree.branching=8", "tree.branching=16"], seed=5, threads=None)
    assert recipe == "plt"
    assert settings == {"seed": 5, "tree.branching": "16", "tree.leaf_size": 9, "threads": 1}
    assert collect(path, [], "bonsai")[0] == "bonsai"
    assert collect(None, ["recipe=plt"])[0] == "plt"
    assert collect(None, [])[0] == "xr-linear"


def test_a_preset_names_recipe_and_settings_and_everything_else_wins_over_it() -> None:
    recipe, settings = collect(None, ["training.learning_rate=1e-3"], preset="wiki10-31k", **{"encoder.name": "minilm"})
    assert recipe == "xr-transformer"
    assert settings["network.levels"] == (128, 2_048)
    assert settings["training.learning_rate"] == "1e-3"
    assert settings["encoder.name"] == "minilm"
    recipe, settings = collect(None, ["training.epochs=3"], "lightxml", preset="amazon-670k")
    assert (recipe, settings["network.bottleneck"], settings["training.epochs"]) == ("lightxml", 400, "3")
    other = run("train", "demo", "-o", "nowhere", "--preset", "wiki10-31k", "--recipe", "parabel")
    assert "there are presets for xr-transformer, x-transformer, lightxml" in " ".join(other.stderr.split())
    result = run("train", "demo", "-o", "nowhere", "--preset", "wiki-10")
    assert result.exit_code == 2
    assert "the preset must be one of" in " ".join(result.stderr.split())


def test_a_name_stands_for_an_encoder(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"recipe": "xr-transformer", "encoder": "some/model"}')
    assert collect(path, []) == ("xr-transformer", {"encoder.name": "some/model"})
    assert collect(None, ["encoder=other"])[1] == {"encoder.name": "other"}
    assert collect(path, [], **{"encoder.name": "third"})[1] == {"encoder.name": "third"}


@pytest.mark.parametrize("content", ["{", "[1]", '"text"'])
def test_a_config_that_is_no_json_object_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(content)
    with pytest.raises(BadConfig, match=r"settings\.json"):
        collect(path, [])


def test_help_and_version_are_light() -> None:
    heavy = ("numpy", "scipy", "numba", "rich.progress")
    code = f"import sys, umpteen.cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert run("--version").stdout.strip() == f"umpteen {umpteen.__version__}"
    helped = run("--help")
    assert helped.exit_code == 0
    assert all(name in helped.stdout for name in ("train", "predict", "evaluate", "info", "bench", "demo", "warmup"))


TRAIN = ["train", "DATA", "-o", "MODEL"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["train"], "Missing argument 'DATA'"),
        (["train", "DATA"], "Missing option '--output'"),
        (["nonsense"], "No such command 'nonsense'"),
        ([*TRAIN, "--quite"], "No such option: --quite"),
        (["predict", "MODEL", "-k", "0"], "Invalid value for '-k'"),
        (["evaluate", "MODEL", "DATA", "-k", "one"], "-k takes numbers separated by commas, but got 'one'"),
        ([*TRAIN, "--set", "tree.branching"], "--set takes key=value, but got"),
        ([*TRAIN, "--tree.branching"], "--tree.branching needs a value, but none follows"),
        ([*TRAIN, "--set", "tree.branching=one"], "tree.branching must be a number, but is 'one'"),
        ([*TRAIN, "--set", "tree.branching=1"], "tree.branching must be at least 2, but is 1"),
        ([*TRAIN, "--config", "absent.json"], "the config file absent.json cannot be read"),
        (["train", "absent", "-o", "MODEL"], "absent does not exist"),
        (["bench", "DATA", "--recipes", ","], "--recipes takes names separated by commas, but got ','"),
        (["bench", "DATA", "--recipes", "xr-linear", "--encoder", "minilm"], "xr-linear has no setting 'encoder.name'"),
        ([*TRAIN, "--encoder", "minilm"], "xr-linear has no setting 'encoder.name'"),
        ([*TRAIN, "--recipe", "plt", "--device", "cpu"], "plt has no setting 'encoder.device'"),
        ([*TRAIN, "--recipe", "xr-transformer", "--device", "gpu"], "device must be auto, cpu, cuda, mps, or a GPU"),
        ([*TRAIN, "--recipe", "xr-transformer", "--encoder", "not/a/name"], "neither a folder nor a name on the hub"),
    ],
)
def test_wrong_usage_is_exit_code_2(args: list[str], message: str, data: Path, model: Path) -> None:
    places = {"DATA": data, "MODEL": model}
    result = run(*(places.get(arg, arg) for arg in args))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in " ".join(result.stderr.replace("│", " ").split())  # as it reads without its frame
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("flags", [["--set", "tree.brnching=4"], ["--tree.brnching", "4"]])
def test_an_unknown_setting_suggests_the_nearest(flags: list[str], data: Path, tmp_path: Path) -> None:
    result = run("train", data, "-o", tmp_path / "m", *flags)
    assert result.exit_code == 2
    assert "did you mean 'tree.branching'?" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "m").exists()


def test_an_unknown_recipe_suggests_the_nearest(data: Path, tmp_path: Path) -> None:
    result = run("train", data, "-o", tmp_path / "m", "--recipe", "xr-linaer")
    assert result.exit_code == 2
    assert "'xr-linear'" in result.stderr


def test_debug_shows_where_an_error_came_from(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["train", data, "-o", tmp_path / "m", "--set", "nonsense=1"]
    assert isinstance(run(*words).exception, SystemExit)
    assert isinstance(run(*words, "--debug").exception, BadConfig)
    assert isinstance(run("--debug", *words).exception, BadConfig)
    monkeypatch.setenv("UMPTEEN_DEBUG", "1")
    assert isinstance(run(*words).exception, BadConfig)


# train


def test_train_keeps_stdout_for_results(data: Path, tmp_path: Path) -> None:
    result = run("train", data, "-o", tmp_path / "m", *SMALL)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "80 rows" in result.stderr
    assert "MB" in result.stderr  # the estimate, and the size of the model
    assert f"Next: umpteen predict {tmp_path / 'm'}" in result.stderr.replace("\n/", " /")
    assert run("train", data, "-o", tmp_path / "m", "--quiet", *SMALL).stderr == ""


def test_settings_reach_the_model(data: Path, tmp_path: Path) -> None:
    config = tmp_path / "settings.json"
    config.write_text('{"recipe": "parabel", "tree": {"leaf_size": 3}, "seed": 1}')
    path = tmp_path / "m"
    words = ["--config", config, "--seed", "7", "--linear.cost", "2", "--trees", "1", "--threads=1"]
    result = run("train", data, "-o", path, "--quiet", *words)
    assert result.exit_code == 0, result.output
    found = umpteen.load(path).config
    assert (found.recipe, found.seed, found.trees) == ("parabel", 7, 1)
    assert (found.tree.leaf_size, found.linear.cost) == (3, 2.0)


def test_train_on_the_first_rows(data: Path, tmp_path: Path) -> None:
    result = run("train", data, "-o", tmp_path / "m", "--rows", "10", *SMALL)
    assert result.exit_code == 0
    assert "10 rows" in result.stderr


def test_a_folder_of_somebody_else_is_refused_before_training(data: Path, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    for target in (tmp_path, tmp_path / "letter.txt", tmp_path / "letter.txt" / "m"):
        result = run("train", data, "-o", target, *SMALL)
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1
    assert os.listdir(tmp_path) == ["letter.txt"]


def test_places_are_checked_before_data_is_read(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umpteen.cli.training.read", lambda *_, **__: pytest.fail("data was read"))
    (tmp_path / "file").write_text("mine")
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text("{}")
    m, stages, file = tmp_path / "m", tmp_path / "stages", tmp_path / "file"
    for output, checkpoint, message in (
        (tmp_path / "bert", stages, "holds no umpteen model"),
        (m, file, "stages are kept in a folder"),
        (m, file / "stages", "is not a folder you may write to"),
        (m, m / "stages", "choose a folder outside it"),
        (m, m, "choose a folder outside it"),
        (stages / "trees" / "m", stages, "for stages are kept in"),
    ):
        result = run("train", data, "-o", output, "--checkpoint", checkpoint, *SMALL)
        assert result.exit_code == 2
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert sorted(os.listdir(tmp_path)) == ["bert", "file"]


def test_a_full_disk_is_exit_code_1(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from umpteen.models import RECIPES

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RECIPES["xr-linear"], "save", full)
    result = run("train", data, "-o", tmp_path / "m", "--quiet", *SMALL)
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
    assert len(result.stderr.splitlines()) == 1


class _FullDisk:
    """Files below these folders cannot be written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *folders: Path):
        self.folders, self.write = folders, store.saving.atomic_write
        monkeypatch.setattr("umpteen.store.saving.atomic_write", self)

    def __call__(self, path: Path, *rest: Any) -> None:
        if any(folder in path.parents for folder in self.folders):
            raise OSError(28, "No space left on device")
        self.write(path, *rest)


@pytest.mark.parametrize("place", ["stages", "beside", "cache", "home", "temporary"])
def test_a_model_that_cannot_be_saved_is_kept_elsewhere(
    place: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {name: tmp_path / name for name in ("stages", "beside", "cache", "home", "temporary")}
    for name in places:
        if name not in ("stages", "cache"):
            places[name].mkdir()
    if place != "home":
        places["cache"].mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(places["cache"]))
    monkeypatch.setenv("HOME", str(places["home"]))
    monkeypatch.setattr("tempfile.tempdir", str(places["temporary"]))
    output = places["beside"] / "my  model"
    before = list(places)[: list(places).index(place)]
    words = ["train", data, "-o", output, "--checkpoint", places["stages"], *SMALL]
    with monkeypatch.context() as patch:
        _FullDisk(patch, output, *(places[name] for name in before))
        result = run(*words, "--quiet")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "No space left on device" in result.stderr
    assert f"its stages are kept in '{places['stages']}': the same command goes on" in result.stderr
    kept = next(places[place].glob("my  model-unsaved-*"))
    assert f"The trained model is kept in '{kept}'" in result.stderr
    assert os.name == "nt" or kept.stat().st_mode & 0o777 == 0o700
    assert not any(list(places[name].glob("*unsaved*")) for name in places if name != place)
    assert any(places["stages"].glob("trees/*.safetensors"))
    assert not output.exists()
    command = result.stderr.partition("save it with: ")[2].partition(" (its stages")[0]
    environment = os.environ | {"PYTHONPATH": str(Path(umpteen.__file__).parents[1])}
    subprocess.run(shlex.split(command), env=environment, check=True)
    assert umpteen.load(output).topk(["apple pear plum"], 1).names == [["fruit"]]
    assert run(*words).exit_code == 0
    assert not any(places["stages"].rglob("trees"))


def test_a_model_that_fits_nowhere_is_told(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _FullDisk(monkeypatch, Path("/").absolute())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = run("train", data, "-o", tmp_path / "m", "--checkpoint", tmp_path / "stages", "--quiet", *SMALL)
    assert result.exit_code == 1
    assert "could not be kept elsewhere either" in result.stderr
    assert "the same command goes on from there" in result.stderr
    assert os.listdir(tmp_path) == ["stages"]


def test_a_file_that_appears_in_the_way_of_a_model(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Terminal, "progress", lambda self: _StopsWhen(lambda: (tmp_path / "m").write_text("mine") < 0))
    result = run("train", data, "-o", tmp_path / "m", "--quiet", *SMALL)
    assert result.exit_code == 1
    assert "is a file; choose another name" in result.stderr
    assert (tmp_path / "m").read_text() == "mine"
    assert umpteen.load(next(tmp_path.glob("m-unsaved-*"))).labels_


def test_an_unknown_setting_of_a_recipe_is_named(data: Path, tmp_path: Path) -> None:
    result = run("train", data, "-o", tmp_path / "m", "--encoder", "minilm")
    assert "xr-linear has no setting 'encoder.name'" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "m").exists()


def test_a_missing_extra_is_exit_code_1(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umpteen.neural.encoder", None)
    result = run("train", data, "-o", tmp_path / "m", "--recipe", "xr-transformer", "--encoder", "some/model", *SMALL)
    assert result.exit_code == 1
    assert "pip install 'umpteen[transformers]'" in result.stderr.replace("\n", " ")
    assert not (tmp_path / "m").exists()


class _StopsWhen:
    """A progress callback that is interrupted as soon as something is the case."""

    def __init__(self, reached: Callable[[], bool]) -> None:
        self.reached = reached

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self.reached():
            raise KeyboardInterrupt

    def __enter__(self) -> _StopsWhen:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_an_interrupt_is_exit_code_130(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Terminal, "progress", lambda self: _StopsWhen(lambda: True))
    result = run("train", data, "-o", tmp_path / "m", *SMALL)
    assert result.exit_code == 130
    assert "Interrupted; nothing was saved" in result.stderr
    assert not (tmp_path / "m").exists()
    early = run("train", data, "-o", tmp_path / "m", "--checkpoint", tmp_path / "stages", *SMALL)
    assert early.exit_code == 130
    assert "before a stage or an epoch was finished" in early.stderr
    early = run("train", data, "-o", tmp_path / "m", "--checkpoint", data, *SMALL)
    assert "before a stage or an epoch was finished" in early.stderr  # what else is in the folder is no stage


def test_an_interrupted_training_resumes(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = tmp_path / "stages"
    words = ["train", data, "-o", tmp_path / "m", "--checkpoint", stages, *SMALL]
    with monkeypatch.context() as patch:
        patch.setattr(
            Terminal, "progress", lambda self: _StopsWhen(lambda: any(stages.rglob("*-level-0-*.safetensors")))
        )
        result = run(*words)
    assert result.exit_code == 130
    assert "the same command resumes" in result.stderr
    assert any(stages.rglob("*.safetensors"))
    resumed = run(*words)
    assert resumed.exit_code == 0
    whole = run("train", data, "-o", tmp_path / "whole", "--checkpoint", tmp_path / "other", *SMALL)
    assert len(resumed.stderr.splitlines()) < len(whole.stderr.splitlines())  # a line per stage that was run
    names = sorted(path.name for path in (tmp_path / "whole").glob("*.safetensors"))  # digests of the content
    assert names == sorted(path.name for path in (tmp_path / "m").glob("*.safetensors"))


# predict


def test_predict_reads_lines_and_json_lines(model: Path, tmp_path: Path) -> None:
    texts = ["apple pear plum", "dog horse"]
    plain = run("predict", model, "-k", "1", stdin="".join(f"{text}\n" for text in texts))
    assert plain.exit_code == 0
    lines = plain.stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == texts
    assert [line.split("\t")[1].split(" (")[0] for line in lines] == ["fruit", "animal"]
    as_json = "".join(json.dumps({"text": text}) + "\n\n" for text in texts)
    assert run("predict", model, "-", "-k", "1", stdin=as_json).stdout == plain.stdout
    (tmp_path / "texts.jsonl").write_text(as_json)
    from_file = run("predict", model, tmp_path / "texts.jsonl", "-k", "1")
    assert from_file.stdout == plain.stdout
    assert "2 rows" in from_file.stderr
    assert run("predict", model, tmp_path / "texts.jsonl", "-k", "1", "--quiet").stderr == ""


def test_predict_prints_json_lines(model: Path) -> None:
    result = run("predict", model, "-k", "2", "--json", stdin="red green blue\n\n")
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [len(answer["labels"]) for answer in answers] == [2, 2]  # an empty text has labels too
    best = answers[0]["labels"][0]
    assert set(best) == {"label", "id", "key", "score"}
    assert (best["label"], best["key"]) == ("colour", "colour")
    assert umpteen.load(model).labels_.names([best["id"]]) == ["colour"]
    assert best["score"] >= answers[0]["labels"][1]["score"]


def test_predict_leaves_out_what_scores_less(model: Path) -> None:
    text = "red green blue\n"
    every = json.loads(run("predict", model, "-k", "4", "--json", stdin=text).stdout)["labels"]
    least = every[1]["score"]
    some = json.loads(run("predict", model, "-k", "4", "--threshold", str(least), "--json", stdin=text).stdout)
    assert some["labels"] == [label for label in every if label["score"] >= least]
    assert run("predict", model, "--threshold", "2", "--quiet", stdin=text).stdout == text


def test_predict_more_labels_than_there_are(model: Path) -> None:
    answer = json.loads(run("predict", model, "-k", "50", "--beam", "9", "--json", stdin="apple\n").stdout)
    assert {label["label"] for label in answer["labels"]} == set(WORDS)


def test_predict_nothing_prints_nothing(model: Path) -> None:
    result = run("predict", model, stdin="")
    assert (result.exit_code, result.stdout) == (0, "")


def test_predict_only_allowed_labels(model: Path, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed.txt"
    allowed.write_text("tool\nanimal\n")
    answer = json.loads(run("predict", model, "--allowed", allowed, "--json", stdin="apple hammer\n").stdout)
    assert {label["label"] for label in answer["labels"]} == {"tool", "animal"}
    allowed.write_text("tol\n")
    result = run("predict", model, "--allowed", allowed, stdin="apple\n")
    assert result.exit_code == 2
    assert "did you mean 'tool'?" in result.stderr


def test_predict_refuses_what_is_not_utf8(model: Path) -> None:
    result = run("predict", model, stdin=b"apple\n\xff\n")
    assert result.exit_code == 2
    assert "standard input:2" in result.stderr


@pytest.mark.parametrize("verb", [["predict"], ["info"], ["evaluate"]])
def test_a_bad_model_is_exit_code_1(verb: list[str], data: Path, tmp_path: Path) -> None:
    words = [*verb, tmp_path, *([data] if verb == ["evaluate"] else [])]
    result = run(*words, stdin="apple\n")
    assert result.exit_code == 1
    assert str(tmp_path) in result.stderr.replace("\n", "")
    assert len(result.stderr.splitlines()) == 1


def test_predict_feature_rows(rows_model: Path, rows_data: Path, tmp_path: Path) -> None:
    result = run("predict", rows_model, rows_data / "test.txt", "-k", "1", "--json")
    ids = [json.loads(line)["labels"][0]["id"] for line in result.stdout.splitlines()]
    assert ids == [i % 4 for i in range(8)]
    sp.save_npz(tmp_path / "X.npz", sp.csr_matrix(np.eye(7, dtype=np.float32)[:4]))
    readable = run("predict", rows_model, tmp_path / "X.npz", "-k", "1").stdout.splitlines()
    assert [line.split(" (")[0] for line in readable] == [f"row {i}\t{i}" for i in range(4)]
    for wrong in ("-", tmp_path / "absent.npz"):
        refused = run("predict", rows_model, wrong, stdin="apple\n")
        assert refused.exit_code == 2
        assert len(refused.stderr.splitlines()) == 1


def test_a_text_model_refuses_feature_rows(model: Path, rows_data: Path, tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "X.npz", sp.csr_matrix(np.eye(3)))
    assert run("predict", model, tmp_path / "X.npz").exit_code == 2
    result = run("evaluate", model, rows_data)
    assert result.exit_code == 2
    assert "trained on texts" in result.stderr


class _Slow:
    """A stream that gives one piece at a time, like somebody typing."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def read1(self, size: int) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""


def test_blocks_end_where_nothing_more_has_arrived() -> None:
    assert list(typed_texts(_Slow(b"a\nb\n", b"c", b"\r\nd\n\n", b"e"))) == [
        ["a", "b"],
        ["c", "d", ""],
        ["e"],
    ]
    assert list(typed_texts(_Slow(b"a\rb", b"\rc\r"))) == [["a", "b", "c"]]  # classic Mac
    line = b'{"text": "a"}\n'
    assert list(typed_texts(_Slow(line + b"\n", b"\n" + line))) == [["a"], ["a"]]


def test_predict_answers_while_more_is_to_come(model: Path) -> None:
    with command("predict", model, "-k", "1", "--threads", "1") as process:
        for text, label in (("apple pear\n", "fruit"), ("saw drill\n", "tool")):
            process.stdin.write(text.encode())
            process.stdin.flush()
            assert f"\t{label} (" in process.stdout.readline().decode()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert err.decode().splitlines()[-1] == "Interrupted."  # kernels may have been compiled before


def test_a_closed_pipe_is_silent(model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("apple pear plum\n" * 20_000)
    with command("predict", model, tmp_path / "texts.txt", "--threads", "1", "-q") as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=300) == 0
        assert process.stderr.read() == b""


@pytest.mark.skipif(os.name != "posix", reason="closes streams as a shell does")
def test_streams_that_are_closed_get_a_sentence(model: Path, data: Path, tmp_path: Path) -> None:
    def shell(line: str) -> subprocess.CompletedProcess[str]:
        words = f"{shlex.quote(sys.executable)} -m umpteen.cli {line}"
        return subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=300)

    no_input = shell(f"predict {model} - <&-")
    assert (no_input.returncode, no_input.stdout) == (2, "")
    assert "standard input, but that is closed; name a file" in " ".join(no_input.stderr.split())
    for verb in (f"predict {model} {data}", f"info {model}", f"info {model} --json"):
        no_output = shell(f"{verb} --quiet >&-" if "predict" in verb else f"{verb} >&-")
        assert no_output.returncode == 1
        assert "standard output is closed" in no_output.stderr
        assert len(no_output.stderr.splitlines()) == 1
    trained = shell(f"train {data} -o {tmp_path / 'm'} --quiet {' '.join(SMALL)} <&- >&- 2>&-")
    assert trained.returncode == 0  # it has no results to print
    assert umpteen.load(tmp_path / "m").labels_.names() == sorted(WORDS)


def test_a_training_goes_on_if_nobody_reads_its_progress(data: Path, tmp_path: Path) -> None:
    with command("train", data, "-o", tmp_path / "m", *SMALL) as process:
        process.stderr.close()
        process.stdout.close()
        assert process.wait(timeout=300) == 0
    assert umpteen.load(tmp_path / "m").labels_.names() == sorted(WORDS)


def test_a_closed_pipe_ends_a_table_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    with command("settings") as process:
        process.stdout.close()
        assert process.wait(timeout=300) == 0
        assert process.stderr.read() == b""


NASTY = "red\x1b[2J\x07\x9b\u202e\ttape"


@pytest.fixture(scope="module")
def nasty_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a stranger: its names would clear a screen, ring a bell, and turn the direction of writing."""
    path = tmp_path_factory.mktemp("nasty") / "m"
    umpteen.XRLinear(threads=1).fit(["apple pear", "saw drill"], [[NASTY], ["tool"]]).save(path)
    return path


def test_names_do_not_command_the_terminal(nasty_model: Path, tmp_path: Path) -> None:
    shown = run("predict", nasty_model, "-k", "1", stdin="apple \x1b[31mpear\n")
    assert shown.stdout.split(" (")[0] == r"apple \x1b[31mpear" + "\t" + r"red\x1b[2J\x07\x9b\u202e\ttape"
    for_programs = run("predict", nasty_model, "-k", "1", "--json", stdin="apple\n").stdout
    assert json.loads(for_programs)["labels"][0]["label"] == NASTY
    assert for_programs.strip().isprintable()
    (tmp_path / "allowed.txt").write_text("tol\x1b[2J\n")
    refused = run("predict", nasty_model, "--allowed", tmp_path / "allowed.txt", stdin="apple\n")
    assert refused.exit_code == 2
    assert "allowed.txt:1: " in refused.stderr.replace("\n", "")
    assert "\x1b" not in refused.stderr


def test_what_a_terminal_prints_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    terminal.note(f"one\n{NASTY}")
    terminal.error(NASTY)
    terminal.say(NASTY)
    terminal.table([NASTY, "score"], [[NASTY, 1.0]], title=NASTY)
    terminal.json({NASTY: NASTY})
    printed = capsys.readouterr()
    lines = (printed.out + printed.err).splitlines()
    assert all(line.isprintable() for line in lines)
    assert sum(r"red\x1b[2J" in line for line in lines) == 6
    assert printed.err.splitlines()[0] == "one"


def test_names_add_no_lines_to_tables(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Terminal().table(["label", "values"], [["red\nwine", ("first\nline", "second")]])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[3:-1]]
    assert rows == [["│", r"red\nwine", "│", r"first\nline", "│"], ["│", "│", "second", "│"]]
    umpteen.XRLinear(threads=1).fit(["apple pear", "saw drill"], [["red\nwine"], ["tool"]]).save(tmp_path / "m")
    shown = run("explain", tmp_path / "m", "--text", "apple").stdout
    assert shown.count(r"red\nwine") == 2  # the sentence and a row of the suggestions
    assert not any(line.startswith("wine") or "│ wine" in line for line in shown.splitlines())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--threshold", "nan"], "--threshold takes a number, but got nan"),
        (["--threshold", "inf"], "--threshold takes a number, but got inf"),
        (["--threads", "-7"], "--threads"),
    ],
)
def test_predict_refuses_numbers_that_are_none(model: Path, flags: list[str], message: str) -> None:
    result = run("predict", model, *flags, stdin="apple\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--threshold", "nan"], "threshold must be a number"),
        (["-k", ","], "-k takes numbers"),
        (["-k", "0"], "k must be"),
    ],
)
def test_evaluate_refuses_numbers_that_are_none(model: Path, data: Path, flags: list[str], message: str) -> None:
    result = run("evaluate", model, data, *flags, "--quiet")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


FULL_GPU = OutOfMemory("the GPU is out of memory; lower encoder.batch_tokens")
FEWER_LABELS = "out of memory; ask for fewer labels (-k) or use fewer threads (--threads)"
FREE_GPU = "the GPU is out of memory; end other processes on it, or set CUDA_VISIBLE_DEVICES to nothing"


@pytest.mark.parametrize(
    ("verb", "error", "sentence"),
    [
        ("train", MemoryError(), "out of memory; use fewer rows (--rows), or bound it with --memory 8GB"),
        ("train", FULL_GPU, str(FULL_GPU)),
        ("predict", MemoryError(), FEWER_LABELS),
        ("predict", FULL_GPU, FREE_GPU),
        ("evaluate", MemoryError(), FEWER_LABELS),
        ("evaluate", FULL_GPU, FREE_GPU),
    ],
)
def test_out_of_memory_errors_name_options_of_the_command(
    verb: str, error: MemoryError, sentence: str, model: Path, data: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    from umpteen.models import RECIPES

    def hungry(*_: Any, **__: Any) -> None:
        raise error

    for method in ("fit", "topk"):
        monkeypatch.setattr(RECIPES["xr-linear"], method, hungry)
    words = {"train": [data, "-o", tmp_path / "m"], "predict": [model, data], "evaluate": [model, data]}[verb]
    result = run(verb, *words, "--quiet")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines() == [f"error: {sentence}"]


def test_predict_of_rows_gives_no_advice_on_training(rows_model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("Just a text.\n")
    result = run("predict", rows_model, tmp_path / "texts.txt")
    assert result.exit_code == 2
    assert "the model was trained on feature rows, not texts" in " ".join(result.stderr.split())
    assert "train_texts" not in result.stderr


# evaluate


def test_evaluate_prints_percentages(model: Path, data: Path) -> None:
    result = run("evaluate", model, data, "--json", "-k", "1,2", "--threshold", "0.3", "--propensity", "0.55,1.5")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["rows"] == 20
    assert figures["rows_per_s"] > 0
    assert {"P@1", "P@2", "R@2", "nDCG@2", "PSP@1", "PSP@2", "MRR", "micro-F1", "macro-F1"} <= set(figures)
    assert figures["P@1"] > 90
    assert "P@5" not in figures
    table = run("evaluate", model, data, "--threads", "1")
    assert table.exit_code == 0
    assert "@5" in table.stdout
    assert "20 rows" in table.stdout
    assert "texts/s" in table.stdout


def test_evaluate_has_f1_at_k_and_at_the_stored_threshold(model: Path, data: Path) -> None:
    figures = json.loads(run("evaluate", model, data, "--json").stdout)
    assert {"P@1", "F1@1", "F1@3", "F1@5", "micro-F1", "macro-F1"} <= set(figures)
    assert figures["threshold"] == umpteen.load(model).describe()["threshold"] == 0.3
    assert figures["F1@5"] == pytest.approx(100 * 2 * 2 / (4 + 2))  # of four labels all are predicted, two are true
    assert (
        json.loads(run("evaluate", model, data, "--json", "--threshold", "0.3").stdout)["micro-F1"]
        == (figures["micro-F1"])
    )
    assert not any(name.startswith("ECE") for name in figures)  # the model has no probabilities
    assert "a score of at least 0.3" in run("evaluate", model, data).stdout


class _Calibrated(umpteen.TopK):
    """Predictions whose scores are probabilities."""

    def __init__(self, labels: Any, scores: Any, label_names: Any = None):
        super().__init__(labels, scores, label_names)
        self.probabilities = np.clip(self.scores, 0, 1)

    def __getitem__(self, rows: Any) -> _Calibrated:
        return _Calibrated(self.labels[rows], self.scores[rows], self.label_names)


@pytest.fixture
def calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let XR-Linear give probabilities."""
    topk = umpteen.XRLinear.topk

    def with_probabilities(*args: Any, **options: Any) -> umpteen.TopK:
        top = topk(*args, **options)
        return _Calibrated(top.labels, top.scores, top.label_names)

    monkeypatch.setattr(umpteen.XRLinear, "topk", with_probabilities)


@pytest.mark.usefixtures("calibrated")
def test_evaluate_tells_the_calibration_error_as_a_fraction(model: Path, data: Path) -> None:
    figures = json.loads(run("evaluate", model, data, "--json", "-k", "1,2").stdout)
    assert 0 < figures["ECE@1"] < 1
    assert 0 < figures["ECE@2"] < 1
    shown = run("evaluate", model, data, "-k", "1,2").stdout
    assert f"ECE@1 {figures['ECE@1']:.4f}, ECE@2 {figures['ECE@2']:.4f} (0 to 1, 20 bins)" in shown


def test_evaluate_says_whose_counts_and_constants_propensities_have(model: Path, data: Path) -> None:
    flags = ["--propensity", "0.5,0.4"]
    figures = json.loads(run("evaluate", model, data, "--json", *flags).stdout)
    assert figures["propensity"] == [0.5, 0.4]
    assert (figures["propensity_counts"], figures["propensity_rows"]) == ("training", 80)
    shown = run("evaluate", model, data, *flags).stdout
    assert "PSP by the label counts of the 80 training rows, stored in the model; A = 0.5, B = 0.4" in shown


def test_evaluate_breaks_metrics_down(model: Path, data: Path, tmp_path: Path) -> None:
    result = run("evaluate", model, data, "--json", "--breakdown")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    by_frequency, by_number = figures["breakdown"]["by_frequency"], figures["breakdown"]["by_number"]
    assert sum(group["P@5"] for group in by_frequency) == pytest.approx(figures["P@5"], abs=1e-3)
    assert sum(group["labels"] for group in by_frequency) == 4
    assert sum(group["training_assignments"] for group in by_frequency) == 160
    assert sum(group["assignments"] for group in by_frequency) == 40
    assert [(group["labels_per_text"], group["texts"]) for group in by_number] == [("2", 20)]
    assert by_number[0]["F1@5"] == pytest.approx(figures["F1@5"], abs=1e-3)
    shown = run("evaluate", model, data, "--breakdown").stdout
    assert all(words in shown for words in ("head", "recall@5", "training assignments", "labels of a text"))
    opened = umpteen.load(model)
    opened.targets_ = replace(opened.targets_, counts=None)
    opened.save(tmp_path / "m")
    refused = run("evaluate", tmp_path / "m", data, "--breakdown")
    assert refused.exit_code == 2
    assert "without counts of its labels, which groups of labels need" in " ".join(refused.stderr.split())


def test_evaluate_writes_a_row_per_text(model: Path, data: Path, tmp_path: Path) -> None:
    lines, table = tmp_path / "rows.jsonl", tmp_path / "rows.tsv"
    figures = json.loads(run("evaluate", model, data, "--json", "--per-text", lines).stdout)
    assert run("evaluate", model, data, "--per-text", table, "-k", "1").exit_code == 0  # whatever the depths
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    header, *cells = [line.split("\t") for line in table.read_text().splitlines()]
    names = ["row", "n_labels", "hits@1", "hits@3", "hits@5", "P@5", "R@5", "F1@5", "label", "score"]
    assert list(rows[0]) == header == names
    assert [[str(value) for value in row.values()] for row in rows] == cells
    assert len(rows) == 20
    assert np.mean([row["F1@5"] for row in rows]) == pytest.approx(figures["F1@5"], abs=1e-3)
    assert 100 * np.mean([row["hits@1"] for row in rows]) == pytest.approx(figures["P@1"], abs=1e-3)
    assert {row["label"] for row in rows} <= set(WORDS)


@pytest.mark.skipif(os.name != "posix", reason="needs pipes that can be closed")
def test_evaluate_writes_rows_even_if_nobody_reads_its_table(model: Path, data: Path, tmp_path: Path) -> None:
    lines = tmp_path / "rows.jsonl"
    with command("evaluate", model, data, "--per-text", lines) as process:
        process.stdout.close()
        assert process.wait(timeout=300) == 0, process.stderr.read()
    assert len(lines.read_text().splitlines()) == 20


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--per-text", "rows.csv"], "--per-text writes .tsv or .jsonl files, but got 'rows.csv'"),
        (["--per-text", "nowhere/rows.tsv"], "--per-text must be a file in an existing folder"),
        (["--pr-curve", "plot.pdf"], "--pr-curve writes .png or .svg files, but got 'plot.pdf'"),
        (["--reliability", "plot"], "--reliability writes .png or .svg files, but got 'plot'"),
    ],
)
def test_evaluate_checks_files_before_it_predicts(model: Path, data: Path, flags: list[str], message: str) -> None:
    result = run("evaluate", model, data, *flags)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in " ".join(result.stderr.split())


def test_evaluate_needs_matplotlib_to_draw(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("evaluate", model, data, "--pr-curve", tmp_path / "plot.png")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "pip install 'umpteen[plot]'" in " ".join(result.stderr.split())


@pytest.mark.usefixtures("calibrated")
def test_evaluate_draws_curves(model: Path, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = ["--pr-curve", tmp_path / "pr.png", "--reliability", tmp_path / "reliability.svg"]
    result = run("evaluate", model, data, *files)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "pr.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "reliability.svg").read_text()


def test_a_reliability_plot_needs_probabilities(model: Path, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = run("evaluate", model, data, "--reliability", tmp_path / "plot.png")
    assert result.exit_code == 2
    assert "P" in result.stdout  # the metrics are not lost
    assert "--reliability needs probabilities, but this model predicts scores only" in " ".join(result.stderr.split())


def test_labels_the_model_never_saw_count_in_recall(model: Path, data: Path, tmp_path: Path) -> None:
    rows = [(text, [*labels, "unseen", "also-unseen"]) for text, labels in made_rows(20, seed=1)]
    write_split(tmp_path / "more", "test", rows)
    known = json.loads(run("evaluate", model, data, "--json").stdout)
    more = json.loads(run("evaluate", model, tmp_path / "more", "--json").stdout)
    assert more["P@1"] == known["P@1"]
    assert more["R@5"] == pytest.approx(known["R@5"] / 2)


def test_train_says_which_settings_change_nothing(data: Path, encoder_folder: Path, tmp_path: Path) -> None:
    words = ["--recipe", "full", "--encoder", encoder_folder, "--device", "cpu", "--encoder.max_length", "16"]
    idle = ["--set", "linear.cost=2", "--set", "network.depth=3", "--set", "tree.leaf_size=9"]
    idle += ["--set", "search.threshold=0.5"]
    result = run("train", data, "-o", tmp_path / "model", *words, *idle, "--set", "training.epochs=0")
    assert result.exit_code == 0, result.output
    assert "linear has no effect here, only where there is a ranker" in result.stderr
    assert "network.depth has no effect here" in result.stderr
    assert "tree has no effect here, only where labels are clustered or ranked" in result.stderr
    assert "search" not in result.stderr  # predict asks for that threshold
    assert "features" not in result.stderr  # the estimate speaks of none
    assert "network.beam has no effect" not in result.stderr  # nobody set it


def test_train_names_faster_recipes_where_an_encoder_is_slow(
    data: Path, encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--recipe", "lightxml", "--encoder", encoder_folder, "--device", "cpu", "--encoder.max_length", "16"]
    words += ["--set", "training.epochs=0.1"]
    result = run("train", data, "-o", tmp_path / "model", *words)
    assert result.exit_code == 0, result.output
    assert "slow without a GPU" not in result.stderr
    monkeypatch.setattr("umpteen.cli.training._LONG", 0)
    slow = rates.TYPICAL._replace(step=1e4)  # of an optimiser, so of encoders only
    monkeypatch.setattr("umpteen.models.work.Work.of", partial(Work.of, rates=slow))
    result = run("train", data, "-o", tmp_path / "model", *words)
    assert result.exit_code == 0, result.output
    assert "slow without a GPU; on this data xr-linear takes about 0." in " ".join(result.stderr.split())


def test_evaluate_says_when_no_label_is_known(model: Path, tmp_path: Path) -> None:
    (tmp_path / "test_texts.txt").write_text("apple pear\n")
    (tmp_path / "test_labels.txt").write_text("elsewhere\n")
    result = run("evaluate", model, tmp_path)
    assert result.exit_code == 0, result.output
    assert "no label" in result.stderr


def test_evaluate_feature_rows(rows_model: Path, rows_data: Path) -> None:
    figures = json.loads(run("evaluate", rows_model, rows_data, "--json", "--propensity", "amazon-670k").stdout)
    assert figures["P@1"] == figures["PSP@1"] == 100


@pytest.mark.parametrize("wrong", ["0.5", "a,b", "amazon-670", "0.5,1,2"])
def test_propensity_is_two_numbers_or_a_name(wrong: str) -> None:
    assert propensity_constants("0.5,0.4") == propensity_constants("Wiki-500K") == (0.5, 0.4)
    with pytest.raises(BadInput, match="--propensity"):
        propensity_constants(wrong)


def test_propensities_come_from_the_rows_that_the_model_was_trained_on(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import umpteen.cli.benchmark
    import umpteen.models

    path = tmp_path / "test.tsv"
    path.write_text("apple pear\tfruit\n")
    assert json.loads(run("evaluate", model, path, "--json", "--propensity", "0.55,1.5").stdout)["PSP@1"] == 100
    monkeypatch.setattr(umpteen.models, "warmup", lambda progress: None)
    monkeypatch.setattr(umpteen.cli.benchmark, "in_own_process", umpteen.cli.benchmark.measure_job)
    words = ["--rows", "13", "--quiet", *SMALL]
    (row,) = json.loads(run("bench", data, "--recipes", "xr-linear", "--json", *words).stdout)
    assert run("train", data, "-o", tmp_path / "m", *words).exit_code == 0
    figures = json.loads(run("evaluate", tmp_path / "m", data, "--json", "--propensity", "0.55,1.5").stdout)
    for k in (1, 3, 5):
        assert row[f"PSP@{k}"] == pytest.approx(figures[f"PSP@{k}"], abs=1e-3)


def test_propensities_need_the_counts_of_the_model(model: Path, data: Path, tmp_path: Path) -> None:
    opened = umpteen.load(model)
    opened.targets_ = replace(opened.targets_, counts=None)
    opened.save(tmp_path / "m")
    assert umpteen.load(tmp_path / "m").targets_.counts is None
    assert run("evaluate", tmp_path / "m", data).exit_code == 0
    refused = run("evaluate", tmp_path / "m", data, "--propensity", "0.55,1.5")
    assert refused.exit_code == 2
    assert "saved without counts of its labels" in " ".join(refused.stderr.split())


def test_evaluate_and_bench_tell_the_share_of_labels_that_training_never_saw(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import umpteen.cli.benchmark
    import umpteen.models

    folder = tmp_path / "some"
    write_split(folder, "train", made_rows(40, seed=0))
    write_split(folder, "test", [(text, [labels[0], "unseen"]) for text, labels in made_rows(10, seed=1)])
    (folder / "label_names.txt").write_text("".join(f"{label}\n" for label in (*WORDS, "unseen")))
    result = run("evaluate", model, folder, "--json")
    assert json.loads(result.stdout)["unseen_labels"] == 50
    assert "50 % of the labels" in result.stderr
    assert "unseen labels │ 50.00" in run("evaluate", model, folder).stdout
    monkeypatch.setattr(umpteen.models, "warmup", lambda progress: None)
    monkeypatch.setattr(umpteen.cli.benchmark, "in_own_process", umpteen.cli.benchmark.measure_job)
    benched = run("bench", folder, "--recipes", "xr-linear", "--json", *SMALL)  # the vocabulary has it, no row does
    assert json.loads(benched.stdout)[0]["unseen_labels"] == 50
    assert "50 % of the labels" in benched.stderr
    assert "unseen %" in run("bench", folder, "--recipes", "xr-linear", "--quiet", *SMALL).stdout


def test_test_labels_are_separated_as_those_of_training(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,labels\n" + "apple pear,sweet fruit; food\nsaw drill,hand tool\n" * 9)
    (tmp_path / "other").mkdir()
    alone = tmp_path / "other" / "test.csv"
    alone.write_text("text,labels\napple pear,sweet fruit\nsaw drill,hand tool\n")
    assert run("train", tmp_path / "train.csv", "-o", tmp_path / "m", "--quiet", *SMALL).exit_code == 0
    figures = json.loads(run("evaluate", tmp_path / "m", alone, "--json", "-k", "1,2").stdout)
    assert (figures["unseen_labels"], figures["R@2"]) == (0, 100)
    assert json.loads((tmp_path / "m" / "config.json").read_text())["meta"]["data"] == {"separator": ";"}


# compare


def test_compare_tells_differences(model: Path, data: Path, tmp_path: Path) -> None:
    worse = tmp_path / "worse"
    assert run("train", data, "-o", worse, "--rows", "3", "--quiet", *SMALL).exit_code == 0
    result = run("compare", model, worse, data, "--json", "-k", "1,2")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    for place, path in (("a", model), ("b", worse)):
        figures = json.loads(run("evaluate", path, data, "--json", "-k", "1,2").stdout)
        assert all(one[place] == pytest.approx(figures[name], abs=1e-3) for name, one in found["metrics"].items())
    first = found["metrics"]["P@2"]
    assert first["difference"] < 0
    assert first["low"] <= first["difference"] <= first["high"]
    assert first["significant"] is (first["high"] < 0)
    assert (found["rows"], found["resamples"]) == (20, 1000)
    assert len(found["texts"]) <= 10
    gaps = [abs(b - a) for a, b in (text["P@2"] for text in found["texts"])]
    assert gaps == sorted(gaps, reverse=True)
    texts = (data / "test_texts.txt").read_text().splitlines()
    assert all(texts[text["row"]][:60] == text["text"] for text in found["texts"])
    assert json.loads(run("compare", model, worse, data, "--json", "-k", "1,2").stdout) == found
    shown = run("compare", model, worse, data).stdout
    assert all(words in shown for words in ("B - A", "95 % interval", "significant", "1,000 resamples", "P@5 of B"))


def test_compare_says_that_a_model_knows_other_labels(model: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "others.tsv").write_text("a saw\tmetal\na drill\tmetal\n")
    assert run("train", tmp_path / "others.tsv", "-o", tmp_path / "others", "--quiet", *SMALL).exit_code == 0
    found = " ".join(run("compare", model, tmp_path / "others", data).stderr.split())
    assert "others: no label of" in found
    assert f"{model}: no label of" not in found


def test_compare_finds_what_evaluate_finds_in_either_order(data: Path, tmp_path: Path) -> None:
    (tmp_path / "keys.tsv").write_text("sweet apple\turn:f\nripe pear\turn:f\na saw\turn:t\na drill\turn:t\n")
    (tmp_path / "names.csv").write_text("text,labels\nsweet apple,fruit\nripe pear,fruit\na saw,tool\na drill,tool\n")
    (tmp_path / "vocab.tsv").write_text("urn:f\tfruit\nurn:t\ttool\n")
    keys, names = tmp_path / "k", tmp_path / "n"
    vocab = ["--vocab", tmp_path / "vocab.tsv"]
    assert run("train", tmp_path / "keys.tsv", "-o", keys, "-q", *vocab, *SMALL).exit_code == 0
    assert run("train", tmp_path / "names.csv", "-o", names, "-q", *SMALL).exit_code == 0
    test = tmp_path / "keys.tsv"
    single = [json.loads(run("evaluate", path, test, "--json", "-k", "1").stdout)["P@1"] for path in (keys, names)]
    for order in ((0, 1), (1, 0)):
        models = [(keys, names)[i] for i in order]
        found = json.loads(run("compare", *models, test, "--json", "-k", "1").stdout)["metrics"]["P@1"]
        assert [found["a"], found["b"]] == pytest.approx([single[i] for i in order], abs=1e-3)


def test_compare_escapes_texts_and_takes_feature_rows(
    model: Path, tmp_path: Path, rows_model: Path, rows_data: Path
) -> None:
    path = tmp_path / "test.tsv"
    path.write_text("apple \x1b[2J pear\tfruit\nhammer\ttool\n")
    other = tmp_path / "other"
    umpteen.XRLinear(threads=1).fit(["apple", "hammer"], [["tool"], ["fruit"]]).save(other)
    result = run("compare", model, other, path, "-k", "1")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.stdout
    assert r"apple \x1b[2J pear" in result.stdout
    assert run("compare", rows_model, rows_model, rows_data).exit_code == 0
    assert run("compare", model, rows_model, path).exit_code == 2


# ensembles


@pytest.fixture(scope="module")
def ensemble_model(data: Path) -> Path:
    """Two recipes in one folder, trained by the command."""
    path = data.parent / "ensemble"
    words = ["--recipe", "xr-linear+plt", "--rule", "rank-average", "--weights", "2,1", "--set", "plt:linear.cost=3"]
    result = run("train", data, "-o", path, *words, *SMALL)
    assert result.exit_code == 0, result.output
    assert "model 2: " in result.stderr
    return path


def test_train_makes_an_ensemble_of_recipes(ensemble_model: Path) -> None:
    opened = umpteen.load(ensemble_model)
    assert (opened.rule, opened.weights) == ("rank-average", [2.0, 1.0])
    assert [model.recipe for model in opened.models] == ["xr-linear", "plt"]
    assert (opened.models[0].config.linear.cost < 3, opened.models[1].config.linear.cost) == (True, 3.0)
    assert {model.config.tree.leaf_size for model in opened.models} == {2}


def test_train_makes_an_ensemble_of_seeds(data: Path, tmp_path: Path) -> None:
    result = run("train", data, "-o", tmp_path / "m", "--recipe", "parabel*3", "--ensemble", "rank-average", *SMALL)
    assert result.exit_code == 0, result.output
    opened = umpteen.load(tmp_path / "m")
    assert [model.config.seed for model in opened.models] == [0, 1, 2]
    assert opened.rule == "average"
    assert {model.config.ensemble for model in opened.models} == {"rank-average"}  # that of the trees of each


def test_an_ensemble_is_asked_like_a_model(ensemble_model: Path, data: Path) -> None:
    answered = run("predict", ensemble_model, "-", "-k", "2", "--json", "--quiet", stdin="apple hammer\nsaw cat\n")
    assert answered.exit_code == 0, answered.output
    found = [{label["label"] for label in json.loads(line)["labels"]} for line in answered.stdout.splitlines()]
    assert found == [{"fruit", "tool"}, {"tool", "animal"}]
    figures = json.loads(run("evaluate", ensemble_model, data, "--json", "--propensity", "0.55,1.5").stdout)
    test = umpteen.read(data, "test")
    expected = umpteen.evaluate_model(umpteen.load(ensemble_model), test, propensity=(0.55, 1.5))
    assert {name: figures[name] for name in expected.metrics} == pytest.approx(expected.metrics, abs=1e-4)
    assert figures["P@1"] > 90


def test_info_shows_the_models_of_an_ensemble(ensemble_model: Path) -> None:
    shown = run("info", ensemble_model, "--tree", "--verify").stdout
    assert all(word in shown for word in ("rank-average", "model 1", "model 2", "xr-linear", "plt", "every byte"))
    facts = json.loads(run("info", ensemble_model, "--json", "--tree").stdout)
    assert [model["recipe"] for model in facts["models"]] == ["xr-linear", "plt"]
    assert {level["tree"] for level in facts["tree"]} == {1, 2}
    assert facts["size_on_disk"] > 0


def test_training_an_ensemble_is_resumed(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = tmp_path / "stages"
    words = ["train", data, "-o", tmp_path / "m", "--recipe", "xr-linear*2", "--checkpoint", stages, *SMALL]
    with monkeypatch.context() as patched:
        stops = _StopsWhen(lambda: any(stages.rglob("tree-0-packed-*.safetensors")))  # in the second model
        patched.setattr(Terminal, "progress", lambda self: stops)
        stopped = run(*words, "--quiet")
    assert stopped.exit_code == 130
    assert "the same command resumes from there" in " ".join(stopped.stderr.split())
    assert run(*words, "--quiet").exit_code == 0
    assert not stages.exists()
    assert len(umpteen.load(tmp_path / "m").models_) == 2


def test_an_ensemble_that_cannot_be_saved_is_kept_elsewhere(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _FullDisk(monkeypatch, tmp_path / "m")
    result = run("train", data, "-o", tmp_path / "m", "--recipe", "xr-linear*2", "--quiet", *SMALL)
    assert result.exit_code == 1
    assert "The trained model is kept in" in result.stderr
    assert len(umpteen.load(next(tmp_path.glob("m-unsaved-*"))).models_) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--recipe", "xr-linear*0"], "write NAME*3 for three models of a recipe"),
        (["--recipe", "xr-linear+plx"], "did you mean 'plt'"),
        (["--rule", "average"], "merge models, but xr-linear is one; write --recipe 'xr-linear*3' for three"),
        (["--recipe", "plt*2", "--rule", "averge"], "did you mean 'average'"),
        (["--recipe", "plt*2", "--weights", "1,2,3"], "one weight per model (2), but there are 3"),
        (["--recipe", "plt*2", "--weights", "heavy"], "--weights takes numbers"),
        (["--recipe", "plt*2", "--set", "bonsai:trees=2"], "names the recipe bonsai, which is not one of plt"),
        (["--recipe", "plt*2", "--encoder", "minilm"], "plt has no setting 'encoder.name'"),
        (["--all-encoders"], "name it, as in --preset wiki10-31k"),
        (["--all-encoders", "--preset", "wiki10-31k", "--encoder", "minilm"], "but minilm is named, too"),
    ],
)
def test_wrong_ensembles_are_told_before_data_is_read(words: list[str], message: str, tmp_path: Path) -> None:
    result = run("train", "absent", "-o", tmp_path / "m", *words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert len(result.stderr.splitlines()) == 1


def test_all_encoders_of_a_preset_are_trained(
    data: Path, encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from umpteen.models import presets

    small = presets.preset("wiki10-31k")._replace(encoders=(str(encoder_folder),) * 2, seeds=(0, 1))
    paper = small.settings | {"encoder.name": str(encoder_folder)}
    monkeypatch.setitem(presets.PRESETS, "wiki10-31k", small._replace(settings=paper))
    words = ["--preset", "wiki10-31k", "--all-encoders", "--network.levels", "2", "--device", "cpu", *LEARN]
    result = run("train", data, "-o", tmp_path / "m", *words)
    assert result.exit_code == 0, result.output
    opened = umpteen.load(tmp_path / "m")
    assert (opened.rule, [model.config.seed for model in opened.models]) == ("rank-average", [0, 1])


# info, recipes, settings, warmup, bench, demo


def test_info_tells_what_a_model_is(model: Path) -> None:
    facts = json.loads(run("info", model, "--json", "--tree").stdout)
    assert facts["recipe"] == "xr-linear"
    assert facts["labels"] == 4
    assert facts["settings"]["tree.leaf_size"] == 2
    assert facts["size_on_disk"] > 0
    assert {"features", "levels", "format", "umpteen"} <= set(facts)
    assert [level["nodes"] for level in facts["tree"]] == facts["levels"]
    shown = run("info", model, "--tree").stdout
    assert "xr-linear" in shown
    assert "tree.leaf_size = 2" in shown
    assert "most children" in shown


def test_info_shows_the_nodes_of_a_tree_by_name(model: Path, data: Path, tmp_path: Path) -> None:
    shown = run("info", model, "--tree", "--depth", "1")
    assert shown.exit_code == 0, shown.output
    assert "the tree: all labels (4 labels, " in shown.stdout
    assert "fruit (" not in shown.stdout
    facts = json.loads(run("info", model, "--json", "--tree").stdout)
    (root,) = facts["nodes"]
    assert (root["part"], root["n_labels"], root["n_children"]) == ("the tree", 4, 2)
    labels = [label for group in root["children"] for label in group["children"]]
    assert {label["name"] for label in labels} == set(WORDS)
    assert sum(label["n_texts"] for label in labels) == root["n_texts"]
    assert all(label["name"] in run("info", model, "--tree").stdout for label in labels)
    assert (
        "children"
        not in json.loads(run("info", model, "--json", "--tree", "--depth", "1").stdout)["nodes"][0]["children"][0]
    )


def test_info_says_when_a_model_has_no_tree(data: Path, tmp_path: Path) -> None:
    assert run("train", data, "-o", tmp_path / "m", "--recipe", "dismec", "--threads", "1").exit_code == 0
    shown = run("info", tmp_path / "m", "--tree")
    assert "This dismec model scores each of its 4 labels directly and has no label tree." in shown.stdout
    assert json.loads(run("info", tmp_path / "m", "--tree", "--json").stdout)["nodes"] == []
    refused = run("info", tmp_path / "m", "--depth", "2")
    assert refused.exit_code == 2
    assert "add --tree" in refused.stderr


def test_info_verifies_every_byte_on_request(model: Path, tmp_path: Path) -> None:
    assert "verified" not in run("info", model).stdout
    assert json.loads(run("info", model, "--verify", "--json").stdout)["verified"] is True
    assert "every byte is as it was saved" in run("info", model, "--verify").stdout
    shutil.copytree(model, tmp_path / "m")
    changed = next((tmp_path / "m").glob("tfidf-*"))
    content = changed.read_bytes()
    changed.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    refused = run("info", tmp_path / "m", "--verify")
    assert refused.exit_code == 1
    assert "its content has changed since it was saved" in refused.stderr


def test_info_tells_of_an_encoder_without_torch(neural_model: Path, encoder_folder: Path) -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from umpteen.cli import app; "
        "print(CliRunner().invoke(app, ['info', sys.argv[1], '--json']).stdout); "
        "print({'torch', 'transformers'} & set(sys.modules), file=sys.stderr)"
    )
    words = [sys.executable, "-c", code, str(neural_model)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "set()"
    facts = json.loads(done.stdout)
    assert (facts["recipe"], facts["input"]) == ("xr-transformer", "texts")
    assert (facts["encoder"], facts["embedding"]) == (str(encoder_folder), 32)
    assert facts["settings"]["training.epochs"] == [1.0]
    assert "embedding" in run("info", neural_model).stdout


def test_a_model_with_an_encoder_predicts_and_is_evaluated(neural_model: Path, data: Path, rows_data: Path) -> None:
    answer = run("predict", neural_model, "-k", "1", stdin="apple pear plum\nhammer saw\n")
    assert [line.split("\t")[1].split(" (")[0] for line in answer.stdout.splitlines()] == ["fruit", "tool"]
    figures = json.loads(run("evaluate", neural_model, data, "--json").stdout)
    assert figures["P@1"] > 90
    refused = run("evaluate", neural_model, rows_data)
    assert refused.exit_code == 2
    assert "trained on texts" in refused.stderr


def test_a_model_of_embeddings_alone_reads_texts(data: Path, encoder_folder: Path, tmp_path: Path) -> None:
    words = ["--recipe", "xr-transformer", "--encoder", encoder_folder, "--device", "cpu", "--features", "encoder"]
    assert run("train", data, "-o", tmp_path / "m", "--quiet", *words, *LEARN).exit_code == 0
    assert run("predict", tmp_path / "m", "-k", "1", stdin="apple pear plum\n").exit_code == 0
    assert json.loads(run("info", tmp_path / "m", "--json").stdout)["embedding"] == 32


def test_recipes_and_settings_are_listed() -> None:
    from umpteen.config import ModelConfig, describe, describe_all
    from umpteen.models import RECIPES

    listed = json.loads(run("recipes", "--json").stdout)
    assert [row["recipe"] for row in listed] == list(RECIPES)
    assert all(row["doc"] for row in listed)
    assert all(name in run("recipes").stdout for name in RECIPES)
    keys = [key for key, *_ in describe_all()]
    assert {key for key, *_ in describe(ModelConfig)} < set(keys)
    assert [row["key"] for row in json.loads(run("settings", "--json").stdout)] == keys
    assert all(key in run("settings").stdout for key in keys)
    of_recipe = {row["key"]: row["default"] for row in json.loads(run("settings", "--json", "--recipe", "plt").stdout)}
    assert of_recipe["linear.loss"] == "logistic"
    assert list(of_recipe) == [key for key, *_ in describe(ModelConfig)]
    neural = json.loads(run("settings", "--json", "--recipe", "xr-transformer").stdout)
    assert [row["key"] for row in neural] == [key for key, *_ in describe(RECIPES["xr-transformer"].config_class)]
    assert {row["key"]: row["default"] for row in neural}["network.head"] == "auto"
    assert run("settings", "--recipe", "ptl").exit_code == 2


def test_warmup_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    import umpteen.models

    purposes = []

    def compile_(progress: Any, purpose: str) -> None:
        purposes.append(purpose)
        progress("compile", 1, 1)

    monkeypatch.setattr(umpteen.models, "warmup", compile_)
    result = run("warmup")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "compile" in result.stderr
    assert run("warmup", "--for", "predict", "--quiet").stderr == ""
    assert purposes == ["all", "predict"]


def test_warmup_for_something_else_is_refused() -> None:
    result = run("warmup", "--for", "predicting")
    assert result.exit_code == 2
    assert "must be one of all, predict, but is 'predicting'; did you mean 'predict'?" in result.stderr


def test_bench_compares_recipes(data: Path) -> None:
    result = run("bench", data, "--recipes", "xr-linear", "--rows", "40", "--json", "--quiet", *SMALL)
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    measured = {"fit_s", "peak_mb", "model_mb", "ms_per_text", "p50_ms"}
    assert {"recipe", "P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5"} | measured <= set(row)
    assert row["recipe"] == "xr-linear"
    assert row["P@1"] > 50
    assert run("bench", data, "--recipes", "xr-linear,nonsense", "--quiet").exit_code == 2
    refused = run("bench", data / "train_labels.txt", "--recipes", "xr-linear", "--quiet")
    assert refused.exit_code == 2
    assert len(refused.stderr.splitlines()) == 1


def test_bench_gives_an_encoder_to_the_recipe_that_has_one(
    data: Path, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import umpteen.cli.benchmark
    import umpteen.models
    from umpteen.cli.benchmark import measure_job
    from umpteen.cli.inspection import recipe_names
    from umpteen.models.recipes import own_settings

    assert recipe_names(None) == ["xr-linear", "parabel", "bonsai", "plt", "dismec"]  # none of them needs torch
    settings = {"encoder.name": "x", "seed": 1}
    assert own_settings(["xr-linear"], ["xr-linear", "xr-transformer"], settings) == {"seed": 1}
    assert own_settings(["xr-transformer"], ["xr-linear", "xr-transformer"], settings) == settings
    assert own_settings(["xr-linear"], ["xr-linear", "plt"], settings) == settings  # which is then an error
    words = ["--recipes", "xr-transformer", "--encoder", encoder_folder, "--device", "cpu", *LEARN]
    has_gpu = import_module("torch").cuda.is_available()
    monkeypatch.setattr(umpteen.models, "warmup", lambda progress: None)
    monkeypatch.setattr(umpteen.cli.benchmark, "in_own_process", measure_job)
    result = run("bench", data, *words, "--json", "--quiet")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert row["recipe"] == "xr-transformer"
    assert row["settings"]["training.epochs"] == "1"
    assert row["P@1"] > 90
    assert has_gpu or row["gpu_mb"] is None
    assert row["expected"]["seconds"] > 0
    assert row["expected"]["memory_mb"] > 0
    shown = run("bench", data, *words, "--quiet").stdout
    assert "model MB" in shown
    assert has_gpu or "GPU MB" not in shown  # a column without a figure is left out


def test_changed_data_are_measured_again(data: Path, tmp_path: Path) -> None:
    from umpteen.cli.benchmark import Job

    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    job = Job(str(folder), "plt", {}, None, "test", quiet=True)
    before = job.key
    assert job.key == before
    (labels,) = folder.glob("test_labels*")
    labels.write_bytes(labels.read_bytes() + b"\n")
    assert job.key != before


def test_bench_keeps_what_a_network_with_levels_scores_of_the_truth(
    data: Path, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import umpteen.cli.benchmark
    import umpteen.models
    from umpteen.cli.benchmark import measure_job

    monkeypatch.setattr(umpteen.models, "warmup", lambda progress: None)
    monkeypatch.setattr(umpteen.cli.benchmark, "in_own_process", measure_job)
    words = [
        "--encoder",
        encoder_folder,
        "--device",
        "cpu",
        "--training.epochs",
        "1",
        "--encoder.max_length",
        "16",
        "--json",
    ]
    found = {}
    for beam in (1, 2):
        levels = ["--network.levels", "2", "--network.few_labels", "0", "--network.beam", str(beam)]
        result = run("bench", data, "--recipes", "cascadexml", *words, *levels, "--quiet")
        assert result.exit_code == 0, result.output
        (row,) = json.loads(result.stdout)
        (found[beam],) = row["shortlist_recall"]
    assert found[1] < found[2] == 100.0


def test_train_with_windows(data: Path, encoder_folder: Path, tmp_path: Path) -> None:
    words = ["--recipe", "full", "--encoder", encoder_folder, "--device", "cpu", *LEARN, "--quiet"]
    refused = run("train", data, "-o", tmp_path / "m", *words, "--set", "encoder.windows=0")
    assert refused.exit_code == 2
    assert "encoder.windows must be at least 1, but is 0" in refused.stderr
    trained = run("train", data, "-o", tmp_path / "m", *words, "--set", "encoder.windows=2")
    assert trained.exit_code == 0, trained.output
    assert json.loads((tmp_path / "m" / "config.json").read_text())["settings"]["encoder"]["windows"] == 2
    assert run("predict", tmp_path / "m", "-", stdin="apple " * 30 + "\n").exit_code == 0


def test_info_shows_the_levels_of_a_network(data: Path, encoder_folder: Path, tmp_path: Path) -> None:
    words = ["--encoder", encoder_folder, "--device", "cpu", "--training.epochs", "0", "--encoder.max_length", "16"]
    levels = ["--network.levels", "2", "--network.few_labels", "0"]
    trained = run("train", data, "-o", tmp_path / "m", "--recipe", "cascadexml", *words, *levels, "--quiet")
    assert trained.exit_code == 0, trained.output
    shown = run("info", tmp_path / "m", "--tree")
    assert shown.exit_code == 0, shown.output
    found = json.loads(run("info", tmp_path / "m", "--tree", "--json").stdout)["tree"]
    assert [level["nodes"] for level in found] == [2, len(WORDS)]
    assert "the network: all labels" in shown.stdout


def test_bench_shows_what_it_knows_when_a_recipe_fails(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from umpteen.cli import benchmark

    def measured(job: benchmark.Job) -> dict[str, Any]:
        if job.recipe == "plt":
            raise benchmark.BenchFailed("the disk is full")
        return benchmark.measure_job(job)

    monkeypatch.setattr(benchmark, "in_own_process", measured)
    result = run("bench", data, "--recipes", "xr-linear,plt,bonsai", "--json", "--quiet", *SMALL)
    assert result.exit_code != 0
    assert "the disk is full" in result.stderr
    assert [row["recipe"] for row in json.loads(result.stdout)] == ["xr-linear"]


def test_bench_distinguishes_a_bug_from_a_lack_of_memory(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from umpteen.cli import benchmark

    job = benchmark.Job(str(data), "plt", {}, None, "test", quiet=True)
    with pytest.raises(benchmark.BenchFailed, match=r"^training 'plt' failed: TypeError: "):
        benchmark.in_own_process(replace(job, n_rows="ten"))
    assert "Traceback" in capfd.readouterr().err
    before = multiprocessing.active_children()
    with benchmark.Running(job) as running:
        (process,) = set(multiprocessing.active_children()) - set(before)
        process.kill()
        with pytest.raises(
            benchmark.BenchFailed, match="the process that trained 'plt' died, most likely out of memory"
        ):
            running.result()


def test_bench_goes_on_where_it_was_and_lets_models_vote(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import umpteen.cli.benchmark
    import umpteen.models
    from umpteen.cli.benchmark import measure_job

    trained = []

    def watched(job: Any) -> Any:
        trained.append((job.recipe, job.settings, job.own, job.split))
        return measure_job(job)

    monkeypatch.setattr(umpteen.models, "warmup", lambda progress: None)
    monkeypatch.setattr(umpteen.cli.benchmark, "in_own_process", watched)
    words = ["--recipes", "plt,xr-linear*2", "--set", "plt:linear.cost=2", "--set", "tree.leaf_size=8", "--quiet"]
    kept = ["--out", tmp_path / "rows.json", "--split", "train"]
    first = run("bench", data, *words, *kept)
    assert first.exit_code == 0, first.output
    assert "xr-linear × 2" in first.stdout
    common = {"tree.leaf_size": "8"}
    own = {"plt": {"linear.cost": "2"}}
    assert trained == [("plt", common, own, "train"), ("xr-linear*2", common, {}, "train")]
    assert run("bench", data, *words, *kept).stdout == first.stdout
    assert len(trained) == 2
    assert run("bench", data, "--recipes", "plt", "--set", "linear.cost=3", *kept, "--quiet").exit_code == 0
    assert len(trained) == 3  # other settings are measured
    (tmp_path / "other").mkdir()
    (tmp_path / "damaged.json").write_text('{"a": [')
    (tmp_path / "foreign.json").write_text('{"a": {}}')
    for wrong in (
        ["--recipes", "plt*x"],
        ["--recipes", "plt*²"],
        ["--recipes", "plt*0"],
        ["--recipes", "plt", "--set", "bonsai:trees=2"],
        ["--recipes", "plt", "--set", ":trees=2"],
        ["--recipes", "plt", "--out", tmp_path / "damaged.json"],
        ["--recipes", "plt", "--out", tmp_path / "foreign.json"],
        ["--recipes", "plt", "--out", tmp_path / "other"],
        ["--recipes", "plt", "--out", tmp_path / "nowhere" / "rows.json"],
    ):
        refused = run("bench", data, *wrong, "--quiet")
        assert refused.exit_code == 2, wrong
        assert len(refused.stderr.splitlines()) == 1
    assert len(trained) == 3


def test_bench_shows_mean_and_deviation_of_seeds(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import umpteen.cli.benchmark

    trained: list[tuple[str, int]] = []

    def measured(job: Any) -> dict[str, Any]:
        trained.append((job.recipe, job.settings["seed"]))
        value = 80.0 + job.settings["seed"]
        row = dict.fromkeys(umpteen.cli.benchmark.COLUMNS, value) | {"gpu_mb": None, "unseen_labels": 0.0}
        settings = {key: str(value) for key, value in job.settings.items()}
        return row | {"recipe": job.recipe, "settings": settings, "propensity": list(job.propensity)}

    monkeypatch.setattr(umpteen.cli.benchmark, "in_own_process", measured)
    words = ["bench", data, "--recipes", "plt,xr-linear*2", "--seeds", "3", "--propensity", "0.6,2.6", "--quiet"]
    words += ["--out", tmp_path / "rows.json"]
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    plt, pair = json.loads(result.stdout)
    assert trained == [("plt", 0), ("plt", 1), ("plt", 2), *(("xr-linear*2", seed) for seed in (0, 2, 4))]
    assert (plt["P@1"], plt["std"]["P@1"], plt["seeds"]) == (81, 1, [0, 1, 2])
    assert (pair["P@1"], pair["std"]["P@1"], pair["seeds"]) == (82, 2, [0, 2, 4])
    assert [row["P@1"] for row in plt["runs"]] == [80, 81, 82]
    assert plt["propensity"] == [0.6, 2.6]
    shown = run(*words).stdout
    lines = [line for line in shown.splitlines() if line.startswith("│")]
    assert lines[0].startswith("│ plt         │ 81.00  │")
    assert lines[1].startswith("│             │ ± 1.00 │")
    assert lines[3].startswith("│             │ ± 2.00 │")
    assert "PSP with A = 0.6, B = 2.6" in shown
    assert "PSP uses the label counts of the training rows." in shown
    assert "Mean ± standard deviation of 3 seeds." in shown
    assert len(trained) == 6  # every training is kept
    assert run(*words, "--seed", "2").exit_code == 0
    assert trained[6:] == [("plt", 3), ("plt", 4), ("xr-linear*2", 6)]
    refused = run(*words, "--set", "plt:seed=3")
    assert refused.exit_code == 2
    assert "--seeds chooses the seeds of all recipes" in " ".join(refused.stderr.split())


def test_bench_measures_psp_with_the_constants_it_is_given(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import umpteen.cli.benchmark
    import umpteen.models

    monkeypatch.setattr(umpteen.models, "warmup", lambda progress: None)
    monkeypatch.setattr(umpteen.cli.benchmark, "in_own_process", umpteen.cli.benchmark.measure_job)
    words = ["--recipes", "plt", "--rows", "5", "--json", "--quiet", *SMALL]
    (usual,) = json.loads(run("bench", data, *words).stdout)
    (other,) = json.loads(run("bench", data, *words, "--propensity", "2,0.1").stdout)
    assert (usual["propensity"], other["propensity"]) == ([0.55, 1.5], [2, 0.1])
    assert usual["P@1"] == other["P@1"]
    assert usual["PSP@1"] != other["PSP@1"]
    assert run("bench", data, *words, "--propensity", "2").exit_code == 2
    assert run("bench", data, *words, "--seeds", "0").exit_code == 2


def test_demo_trains_measures_tags_and_saves(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import umpteen.cli.demo
    import umpteen.models

    monkeypatch.setattr(umpteen.cli.demo, "load_demo", lambda split: umpteen.read(data, split))
    monkeypatch.setattr(umpteen.models, "warmup", lambda progress: None)
    result = run("demo", "-o", tmp_path / "m", *SMALL)
    assert result.exit_code == 0, result.output
    assert all(shown in result.stdout for shown in ("xr-linear", "P@1", "nDCG@5", "PSP@5", "a new text"))
    assert all(sentence[:20] in result.stdout for sentence in umpteen.cli.demo.SENTENCES)
    assert "umpteen predict" in result.stderr
    assert umpteen.load(tmp_path / "m").labels_.names() == sorted(WORDS)


# The manual


@pytest.mark.parametrize("page", ["cli.md", "coming-from.md"])
def test_every_command_of_the_manual_runs(
    page: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On small data: its labels are renamed to those the manual allows, and demo means this folder."""
    import umpteen.cli.demo
    import umpteen.models

    folder = tmp_path / "renamed"
    for split, seed in (("train", 0), ("test", 1)):
        rows = made_rows(60, seed)
        write_split(folder, split, [(text, [f"use::{label}" for label in labels]) for text, labels in rows])
    labels = (folder / "train_labels.txt").read_text().replace("use::tool", "use::gameplaying")
    (folder / "train_labels.txt").write_text(labels)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(umpteen.cli.options, "DEMO", folder)
    monkeypatch.setattr(umpteen.cli.demo, "load_demo", lambda split: umpteen.read(folder, split))
    monkeypatch.setattr(umpteen.models, "warmup", lambda progress, purpose="all": None)
    commands = documented_commands(page)
    assert len(commands) > 10
    for line in commands:
        result = run_documented(line)
        assert result is None or result.exit_code == 0, (line, result.output)


@pytest.mark.parametrize(
    "command",
    ["bench", "calibrate", "compare", "evaluate", "explain", "history", "info", "plan", "predict", "train", "tune"],
)
def test_a_command_has_a_section_with_an_example(command: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    headings = [line.removeprefix("## ").split(" and ") for line in text.splitlines() if line.startswith("## ")]
    assert any(command in words for words in headings)
    assert any(f"umpteen {command} " in line for line in documented_commands("cli.md"))


# Progress


def test_a_bar_shows_the_time_that_is_left_at_the_measured_speed() -> None:
    clock = [0.0]
    with Progress(console=Console(file=io.StringIO()), get_time=lambda: clock[0], auto_refresh=False) as bars:
        number = bars.add_task("training", total=100)
        found = []
        for clock[0], done in ((1.0, 10), (2.0, 20), (12.0, 40), (20.0, 100)):
            bars.update(number, completed=done)
            found.append(terminal_module._Times().render(bars.tasks[0]).plain)
    assert found == ["0:00:01", "0:00:02, 0:00:08 left", "0:00:12, 0:00:22 left", "0:00:20"]


def test_lines_say_what_is_left_of_a_long_stage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(terminal_module.time, "monotonic", lambda: clock[0])
    with Terminal().progress() as progress:
        for clock[0], done in ((0, 20), (5, 30), (20, 60), (30, 70), (45, 80), (50, 100)):  # 20 were done before
            progress("training", done, 100)
    assert capsys.readouterr().err.splitlines() == [
        "training: 60 %, about 20.0 s left",
        "training: 80 %, about 15.0 s left",
        "training: 50.0 s",
    ]


# Compiling


def test_a_command_says_once_that_kernels_are_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    with Terminal().compiling():
        for kernel in ("score.search", "score.search_level"):
            with compiling(kernel):
                pass
    assert capsys.readouterr().err.splitlines() == ["Compiling kernels, which are kept for the next time"]
    with Terminal(quiet=True).progress(), compiling("score.search"):
        pass
    assert capsys.readouterr().err == ""


# calibrate and tune


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on a part of the demo data, enough for probabilities."""
    folder = tmp_path_factory.mktemp("tagged") / "model"
    assert run("train", "demo", "-o", folder, "--rows", "1500", "--quiet").exit_code == 0
    return folder


def test_tune_and_evaluate_agree_on_what_is_predicted(tagged: Path) -> None:
    result = run("tune", tagged, "demo", "--for", "f1@3", "--rows", "400")
    assert "at most 3 labels per text" in " ".join(result.stderr.split())
    figures = json.loads(run("evaluate", tagged, "demo", "--json").stdout)
    assert figures["limit"] == json.loads(run("info", tagged, "--json").stdout)["limit"] == 3
    assert "at most 3 per text" in " ".join(run("evaluate", tagged, "demo").stdout.split())
    assert run("tune", tagged, "demo", "--for", "labels=500").exit_code == 2  # more than are ranked: nothing is stored
    assert json.loads(run("info", tagged, "--json").stdout)["limit"] == 3
    run("tune", tagged, "demo", "--for", "labels=100")  # all ranked labels, whatever their probability
    figures = json.loads(run("evaluate", tagged, "demo", "--json").stdout)
    assert 0 < figures["micro-F1"] < 20
    given = json.loads(run("evaluate", tagged, "demo", "--json", "--threshold", "1").stdout)
    assert (given["micro-F1"], given["threshold"]) == (0.0, 1.0)


def test_tables_with_other_columns_can_be_tuned_on(tagged: Path, tmp_path: Path) -> None:
    test = umpteen.load_demo("test").take(slice(300))
    names = test.labels.names()
    lines = [f"{i}\t{text}\t{'|'.join(names[j] for j in test.Y[i].indices)}" for i, text in enumerate(test.texts)]
    (tmp_path / "rows.tsv").write_text("\n".join(lines))
    columns = ["--no-header", "--text-column", "1", "--label-column", "2", "--label-separator", "|", "--quiet"]
    for command in (["calibrate", tagged], ["tune", tagged], ["compare", tagged, tagged]):
        result = run(*command, tmp_path / "rows.tsv", *columns)
        assert result.exit_code == 0, result.output
