"""Model folders from strangers, and files of the user's: nothing leaves a folder, nothing else is removed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from umpteen import store
from umpteen.config import EncoderConfig
from umpteen.errors import BadInput, BadModelFile
from umpteen.models.lazy_neural import SavedEncoder
from umpteen.store import names, places

ROOT = Path(store.__file__).parents[2]
needs_links = pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")


def save(path: Path, value: float = 1.0) -> None:
    extra = {"note.bin": bytes([int(value)]) * 9, "encoder/config.json": b"{}", "encoder/deep/w.bin": b"w"}
    arrays = {"weights": {"data": np.full(10, value)}}
    store.write(path, config={"meta": {"value": value}}, arrays=arrays, labels=["a"], extra=extra)


def value_of(path: Path) -> float:
    stored = store.read(path)
    stored.verify()
    return stored.config["meta"]["value"]


def listing(path: Path) -> list[str]:
    return sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if not file.is_dir())


def change_table(path: Path, change: Any) -> None:
    document = json.loads((path / "config.json").read_text())
    change(document["files"])
    (path / "config.json").write_text(json.dumps(document))


# --- names ---

HOSTILE = [
    "/etc/passwd", "//any/path", "..", "../up", "a/../../up", "a//b", "a/", "/a", "", ".", "./a", ".hidden", "a/.b",
    "a\\b", "c:a", "c:/a", "\\\\host\\share", "a\0b", "a\nb", "a\n", "CON", "nul", "nul.txt", "aux/b", "com1.bin",
    "lpt9", "end.", "end./a", "a b", "~", "é", "a" * 256, "file:stream",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_names_that_could_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    assert not names.is_plain(name)
    with pytest.raises(BadInput, match="rename it"):
        store.write(tmp_path / "new", config={}, arrays={}, extra={name: b""})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", [*HOSTILE, "encoder//etc/x", "encoder/../../x", "encoder/"])
def test_keys_of_the_table_are_checked(tmp_path: Path, name: str) -> None:
    save(tmp_path / "model")
    change_table(tmp_path / "model", lambda table: table.update({name: table["encoder/config.json"]}))
    with pytest.raises(BadModelFile, match=r"its entry for the file .* is not valid"):
        store.read(tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        *(("x", hostile) for hostile in HOSTILE),
        ("x", "config.json"),
        ("x", "x"),
        ("x", "x-0123456789abcdef\n"),
        ("x", "y-0123456789abcdef"),
        ("x.bin", "note-{note}.bin"),
        ("encoder/other", "encoder-{encoder}/config.json"),
        ("encoder/other", "encoder-0123456789abcdef/other"),
        ("other/config.json", "encoder-{encoder}/config.json"),
        ("encoder/deep", "encoder-{encoder}-0123456789abcdef"),
    ],
)
def test_values_of_the_table_are_what_a_save_would_give(tmp_path: Path, name: str, file: str) -> None:
    save(tmp_path / "model")
    digest_of = {path.name.partition("-")[0]: path.stem.partition("-")[2] for path in (tmp_path / "model").iterdir()}
    file = file.format(**{stem: digest_of[stem] for stem in ("note", "encoder")})
    change_table(tmp_path / "model", lambda table: table.update({name: {"file": file, "bytes": 2}}))
    with pytest.raises(BadModelFile, match="where no save puts it"):
        store.read(tmp_path / "model")


def test_an_encoder_is_never_written_outside_its_folder(tmp_path: Path) -> None:
    target = tmp_path / "stolen"
    saved = SavedEncoder(EncoderConfig(), content={f"/{target}": np.frombuffer(b"bytes", np.uint8)})
    pytest.importorskip("transformers")
    with pytest.raises(BadModelFile, match="rename it"):
        saved.get()
    assert not target.exists()


# --- what lies behind a name ---


@needs_links
@pytest.mark.parametrize("pattern", ["config.json", "weights-*", "labels-*", "encoder-*/config.json", "encoder-*/deep"])
@pytest.mark.parametrize("mmap", [True, False])
def test_links_that_leave_the_folder_are_refused(tmp_path: Path, pattern: str, mmap: bool) -> None:
    save(tmp_path / "model")
    path = next((tmp_path / "model").glob(pattern))
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadModelFile, match="is a link that leaves the folder; put the file itself there"):
        store.read(tmp_path / "model", mmap=mmap)


@needs_links
def test_links_inside_the_folder_and_to_it_are_followed(tmp_path: Path) -> None:
    save(tmp_path / "model")
    path = next((tmp_path / "model").glob("weights-*"))
    path.rename(tmp_path / "model" / "kept")
    path.symlink_to("kept")
    (tmp_path / "link").symlink_to("model")
    assert value_of(tmp_path / "link") == 1.0
    save(tmp_path / "link", 2.0)
    assert value_of(tmp_path / "model") == 2.0
    assert len(listing(tmp_path / "model")) == 7  # and the file behind the link, which no table named


@needs_links
def test_a_link_in_the_encoders_folder_is_refused_though_no_table_names_it(tmp_path: Path) -> None:
    save(tmp_path / "model")
    (tmp_path / "secret").write_text("x")
    next((tmp_path / "model").glob("encoder-*")).joinpath("tokenizer.json").symlink_to(tmp_path / "secret")
    with pytest.raises(BadModelFile, match=r"tokenizer\.json' is a link that leaves the folder"):
        store.read(tmp_path / "model").folder("encoder")


@needs_links
def test_a_file_that_becomes_a_link_after_it_was_checked_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exchange a folder for a link between the look at it and the opening."""
    save(tmp_path / "model")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    encoder, real = next((tmp_path / "model").glob("encoder-*")), names.is_below

    def exchange(path: str, folder: str) -> bool:
        if path.endswith("config.json") and encoder.name in path and not encoder.is_symlink():
            encoder.rename(tmp_path / "old")
            encoder.symlink_to(tmp_path / "other")
        return real(path, folder)

    monkeypatch.setattr(names, "is_below", exchange)
    with pytest.raises(BadModelFile):
        store.read(tmp_path / "model")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
@pytest.mark.parametrize("pattern", ["config.json", "weights-*", "labels-*", "encoder-*/config.json"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, pattern: str) -> None:
    save(tmp_path / "model")
    path = next((tmp_path / "model").glob(pattern))
    path.unlink()
    os.mkfifo(path)
    code = f"import umpteen; umpteen.load({str(tmp_path / 'model')!r})"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert "must be a regular file, but is something else" in done.stderr


def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model" / "config.json").mkdir(parents=True)
    with pytest.raises(BadModelFile, match="must be a regular file"):
        store.read(tmp_path / "model")


def test_a_config_without_end_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with open(tmp_path / "model" / "config.json", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(BadModelFile, match="may have 67,108,864 bytes at most, but has more"):
        store.read(tmp_path / "model")


@pytest.mark.parametrize("mmap", [True, False])
def test_sizes_are_compared_before_a_file_is_read(tmp_path: Path, mmap: bool) -> None:
    save(tmp_path / "model")
    path = next((tmp_path / "model").glob("weights-*"))
    os.truncate(path, 1 << 40)
    with pytest.raises(BadModelFile, match="it has 1099511627776 bytes where"):
        store.read(tmp_path / "model", mmap=mmap)


# --- nothing of the user's is removed ---


def test_saving_removes_no_file_for_its_name(tmp_path: Path) -> None:
    save(tmp_path / "pics", 1.0)
    mine = [
        "holiday-0123456789abcdef.jpg", "weights-0123456789abcdef.safetensors", "trip-0123456789abcdef/a.jpg",
        ".tmp-mine.safetensors", ".tmp-0123456789abcdef-0", "notes.txt",
    ]  # fmt: skip
    for name in mine:
        (tmp_path / "pics" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "pics" / name).write_text("mine")
    in_encoder = next((tmp_path / "pics").glob("encoder-*")) / "mine.txt"
    in_encoder.write_text("mine")
    save(tmp_path / "pics", 2.0)
    store.write(tmp_path / "pics", config={"meta": {"value": 3.0}}, arrays={})
    assert value_of(tmp_path / "pics") == 3.0
    kept = [*mine, in_encoder.relative_to(tmp_path / "pics").as_posix()]
    assert listing(tmp_path / "pics") == sorted([*kept, "config.json"])


def test_a_folder_of_names_like_ours_is_somebody_elses(tmp_path: Path) -> None:
    (tmp_path / "pics").mkdir()
    (tmp_path / "pics" / "holiday-0123456789abcdef.jpg").write_text("mine")
    (tmp_path / "pics" / ".tmp-0123456789abcdef-0").write_text("mine")
    before = listing(tmp_path)
    with pytest.raises(BadInput, match="holds no umpteen model, so it is left alone"):
        save(tmp_path / "pics")
    assert listing(tmp_path) == before


def test_a_file_in_the_way_is_not_replaced(tmp_path: Path) -> None:
    save(tmp_path / "other", 2.0)
    name = next(path.name for path in (tmp_path / "other").glob("weights-*"))
    save(tmp_path / "model", 1.0)
    (tmp_path / "model" / name).write_text("mine")
    with pytest.raises(BadInput, match=f"{name}' is in the way and was not written by umpteen; move it"):
        save(tmp_path / "model", 2.0)
    assert (tmp_path / "model" / name).read_text() == "mine"
    assert value_of(tmp_path / "model") == 1.0


@needs_links
def test_nothing_is_written_or_removed_behind_a_link(tmp_path: Path) -> None:
    save(tmp_path / "model", 1.0)
    encoder = next((tmp_path / "model").glob("encoder-*"))
    encoder.rename(tmp_path / "elsewhere")
    encoder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="is a link, behind which no model is saved; remove it"):
        save(tmp_path / "model", 2.0)
    store.write(tmp_path / "model", config={"meta": {"value": 3.0}}, arrays={})
    assert listing(tmp_path / "elsewhere") == ["config.json", "deep/w.bin"]


def journal_lines(path: Path) -> list[str]:
    return [json.loads(line) for line in (path / ".umpteen-save").read_text().splitlines()[1:] if line]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_save_is_cleaned_up_by_its_journal(tmp_path: Path) -> None:
    save(tmp_path / "model", 1.0)
    before = set(listing(tmp_path / "model"))
    child = os.fork()
    if child == 0:
        real = os.replace
        os.replace = lambda source, target: os._exit(9) if str(target).endswith("config.json") else real(source, target)
        save(tmp_path / "model", 2.0)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    left = set(listing(tmp_path / "model")) - before - {".umpteen-save"}
    assert left  # files of the killed save, all of them in its journal
    assert left <= set(journal_lines(tmp_path / "model"))
    assert value_of(tmp_path / "model") == 1.0
    mine = tmp_path / "model" / "mine-0123456789abcdef.txt"
    mine.write_text("mine")
    save(tmp_path / "model", 3.0)
    assert value_of(tmp_path / "model") == 3.0
    assert len(listing(tmp_path / "model")) == 7
    assert mine.exists()


def test_a_journal_that_was_cut_anywhere_is_read(tmp_path: Path) -> None:
    journal, listed = places.journal_of(tmp_path), ["a-0123456789abcdef.bin", "b-0123456789abcdef/c.bin"]
    journal.add(listed)
    whole = (tmp_path / journal.name).read_bytes()
    for cut in range(len(whole) + 1):
        (tmp_path / journal.name).write_bytes(whole[:cut])
        kept = [name for name in listed if json.dumps(name).encode() in whole[:cut]]
        assert journal.names() == kept
        journal.add(["d-0123456789abcdef.bin"])
        assert journal.names() == [*kept, "d-0123456789abcdef.bin"]
        journal.settle()
        assert listing(tmp_path) == []
    assert kept == listed


def test_a_journal_is_not_believed_about_names_that_no_save_gives(tmp_path: Path) -> None:
    save(tmp_path / "model")
    hostile = ["../thesis.tex", "thesis.tex", "/etc/passwd", "config.json", "a-0123456789abcdef/../../thesis.tex", ".."]
    (tmp_path / "thesis.tex").write_text("mine")
    (tmp_path / "model" / "thesis.tex").write_text("mine")
    journal = places.journal_of(tmp_path / "model")
    journal.add([*hostile, "a-0123456789abcdef.bin"])
    assert journal.names() == ["a-0123456789abcdef.bin"]
    save(tmp_path / "model", 2.0)
    assert value_of(tmp_path / "model") == 2.0
    assert (tmp_path / "thesis.tex").exists()
    assert (tmp_path / "model" / "thesis.tex").exists()


def test_a_file_of_the_journals_name_is_not_overwritten(tmp_path: Path) -> None:
    save(tmp_path / "model")
    (tmp_path / "model" / ".umpteen-save").write_text("mine")
    with pytest.raises(BadInput, match="was not written by umpteen, which needs that name; move it away"):
        save(tmp_path / "model", 2.0)
    assert (tmp_path / "model" / ".umpteen-save").read_text() == "mine"
    assert value_of(tmp_path / "model") == 1.0


def test_files_in_use_are_removed_by_a_later_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some systems do not remove a mapped file."""
    save(tmp_path / "model", 1.0)
    real = Path.unlink

    def busy(path: Path, *arguments: Any) -> None:
        if path.name.startswith("weights-"):
            raise PermissionError
        real(path, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", busy)
        save(tmp_path / "model", 2.0)
    assert len(listing(tmp_path / "model")) == 8  # the old weights, and the journal that names them
    save(tmp_path / "model", 2.0)
    assert len(listing(tmp_path / "model")) == 6


# --- checkpoints ---


def run_of(folder: Path, key: str, *stages: str) -> store.Run:
    run = store.Run(folder)
    for stage in stages:
        run.part("tree-0", key).save(stage, {"w": np.ones(2)})
    return run


def test_runs_share_a_folder_and_remove_their_own_stages(tmp_path: Path) -> None:
    first, second = (run_of(tmp_path / "stages", key, "tree", "level-0") for key in ("one", "two"))
    first.clear()
    assert not store.Checkpoint(tmp_path / "stages" / "tree-0", "one").has("tree")
    assert store.Checkpoint(tmp_path / "stages" / "tree-0", "two").has("tree")
    second.clear()
    assert listing(tmp_path) == []
    assert not (tmp_path / "stages").exists()  # made for stages, by the first


def test_clearing_a_checkpoint_leaves_everything_else(tmp_path: Path) -> None:
    mine = [
        "finetuning/thesis.safetensors",
        "tree-0/data.safetensors",
        "tree-oak/a.safetensors",
        "tree-0/.tmp-1.safetensors",
    ]
    for name in mine:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    run_of(tmp_path, "one", "tree").clear()
    assert listing(tmp_path) == sorted(mine)
    (tmp_path / "empty" / "tree-0").mkdir(parents=True)
    run_of(tmp_path / "empty", "one", "tree").clear()
    assert (tmp_path / "empty" / "tree-0").is_dir()  # the user's, though it is empty


def test_a_stage_in_the_way_is_not_replaced(tmp_path: Path) -> None:
    checkpoint = store.Checkpoint(tmp_path / "a", "key")
    checkpoint.save("tree", {"w": np.ones(2)})
    name = next((tmp_path / "a").glob("*.safetensors")).name
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / name).write_text("mine")
    with pytest.raises(BadInput, match="is in the way and was not written by this training; move it"):
        store.Checkpoint(tmp_path / "b", "key").save("tree", {"w": np.ones(2)})
    assert (tmp_path / "b" / name).read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_what_a_killed_run_left_is_removed_by_the_same_run(tmp_path: Path) -> None:
    other = run_of(tmp_path / "stages", "other", "tree")
    child = os.fork()
    if child == 0:
        run_of(tmp_path / "stages", "key", "tree")
        os.replace = lambda *_: os._exit(9)
        run_of(tmp_path / "stages", "key", "level-0")
    os.waitpid(child, 0)
    assert any(".tmp-" in name for name in listing(tmp_path))
    run_of(tmp_path / "stages", "key", "level-1").clear()
    assert [name for name in listing(tmp_path) if not name.endswith(".umpteen-made")] == [
        name for name in listing(tmp_path) if store.fingerprint("other")[:16] in name
    ]
    other.clear()
    assert not (tmp_path / "stages").exists()


STAGES = """
import sys
import numpy as np
from umpteen import store

run = store.Run(sys.argv[1])
run.part("tree-0", sys.argv[2]).save("tree", {"w": np.ones(2)})
print("saved", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.name == "nt", reason="files are not locked there")
def test_one_process_at_a_time_uses_the_stages_of_a_training(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STAGES, str(tmp_path / "stages"), "key"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"saved\n"
        with pytest.raises(BadInput, match=r"another process runs the same training with its stages in '.*tree-0'"):
            run_of(tmp_path / "stages", "key", "level-0")
        run_of(tmp_path / "stages", "another", "tree").clear()
        other.kill()
    mine = run_of(tmp_path / "stages", "key", "level-0")
    mine.release()  # as after an error
    done = subprocess.run(command, cwd=ROOT, input=b"", capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    run_of(tmp_path / "stages", "key", "level-1").clear()
    assert not (tmp_path / "stages").exists()


def test_runs_that_come_and_go_in_one_folder(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(number: int) -> None:
        run_of(tmp_path / "stages", str(number), "tree", "level-0").clear()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(40)))
    assert listing(tmp_path) == []


# --- places are checked before work begins ---


def foreign_config(path: Path) -> Path:
    (path / "bert").mkdir()
    (path / "bert" / "config.json").write_text('{"architectures": ["BertModel"]}')
    return path / "bert"


def foreign_folder(path: Path) -> Path:
    (path / "thesis").mkdir()
    (path / "thesis" / "chapter.tex").write_text("mine")
    return path / "thesis"


def linked_to_nothing(path: Path) -> Path:
    (path / "link").symlink_to(path / "nothing")
    return path / "link"


def a_file(path: Path) -> Path:
    (path / "file").write_text("mine")
    return path / "file"


REFUSED = [
    (foreign_config, "holds no umpteen model"),
    (foreign_folder, "holds no umpteen model"),
    (linked_to_nothing, "is a link to nothing"),
    (lambda path: linked_to_nothing(path) / "m", "is a link to nothing"),
    (a_file, "is a file; choose another name"),
    (lambda path: a_file(path) / "a" / "m", "is not a folder you may write to"),
    (lambda path: path / ("m" * 300), "File name too long"),
    (lambda path: path / "m\0", "no NUL character"),
]


@needs_links
@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_a_place_for_a_model_is_checked_as_save_does(tmp_path: Path, make: Any, message: str) -> None:
    place = make(tmp_path)
    before = listing(tmp_path)
    for write in (store.check_output, save):
        with pytest.raises(BadInput, match=message):
            write(place)
    assert listing(tmp_path) == before


def test_folders_nobody_may_write_to_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # the tests may run as root, who may write anywhere
    with pytest.raises(BadInput, match=f"cannot be saved in '.*': '{tmp_path}' is not a folder you may write to"):
        save(tmp_path / "a" / "model")
    with pytest.raises(BadInput, match=r"stages cannot be kept in .* is not a folder you may write to"):
        store.check_checkpoint(tmp_path / "a" / "stages", ["tree-0"])
    assert list(tmp_path.iterdir()) == []


@needs_links
def test_a_place_for_stages_is_checked(tmp_path: Path) -> None:
    def refuse(checkpoint: Path, message: str, output: Path | None = None) -> None:
        with pytest.raises(BadInput, match=message):
            store.check_checkpoint(checkpoint, ["tree-0", "finetuning"], output)

    refuse(linked_to_nothing(tmp_path), "is a link to nothing")
    refuse(a_file(tmp_path), "stages are kept in a folder, but .* is a file")
    refuse(tmp_path / "file" / "stages", "is not a folder you may write to")
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages" / "tree-0").write_text("mine")
    refuse(tmp_path / "stages", "stages are kept in a folder, but .*tree-0' is a file")
    refuse(tmp_path / "m" / "stages", "for the model is saved in", tmp_path / "m")
    refuse(tmp_path / "m", "for the model is saved in", tmp_path / "m")
    refuse(tmp_path / "runs", "for stages are kept in", tmp_path / "runs" / "tree-0")
    refuse(tmp_path / "runs", "for stages are kept in", tmp_path / "runs" / "finetuning" / "m")
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    refuse(tmp_path / "alias" / "stages", "for the model is saved in", tmp_path / "real")
    store.check_checkpoint(tmp_path, ["tree-0"], tmp_path / "m")
    store.check_checkpoint(tmp_path / "runs", ["tree-0"], tmp_path / "runs" / "m")


def test_a_part_is_written_beside_an_attempt_that_was_killed(tmp_path: Path) -> None:
    checkpoint = store.Checkpoint(tmp_path, "key")
    (token,) = checkpoint.reserve(["rows"])
    of_another = tmp_path / f".tmp-{token}-0"
    of_another.write_bytes(b"half")
    checkpoint.write("rows", {"data": np.arange(3)}, token)
    assert checkpoint.load("rows")["data"].tolist() == [0, 1, 2]
    assert of_another.read_bytes() == b"half"  # it may still be written by a process elsewhere
    checkpoint.sweep()
    assert not of_another.exists()
