"""Model folders, checkpoints and atomic files: what comes back, and what a crash or a bad file does."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from umpteen import __version__, store
from umpteen.errors import BadInput, BadModelFile, UmpteenError
from umpteen.store import atomic, folder, labels, tensors

IN_FOLDER = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
DTYPES = [np.dtype(spelling) for spelling in tensors.DTYPES.values()]


def some_arrays(value: float = 1.0) -> dict[str, dict[str, np.ndarray]]:
    return {
        "weights": {
            "data": np.full(1000, value, np.float32),
            "indptr": np.arange(11),
            "mask": np.ones(3, bool),
        },
        "tree": {"parents": np.full((5, 2), int(value), np.int32)},
    }


def save(path: Path, value: float = 1.0) -> None:
    store.write(
        path,
        config={"recipe": "toy", "settings": {"tree": {"branching": 16}}, "meta": {"value": value}},
        arrays=some_arrays(value),
        labels=[f"label {value}", "b"],
        extra={"note.bin": bytes([int(value)]) * 9, "encoder/config.json": b"{}", "encoder/deep/w.bin": b"w"},
    )


def check(path: Path) -> float:
    """Read a model and return its value, which every file must agree on."""
    stored = store.read(path)
    value = stored.config["meta"]["value"]
    for stem, arrays in some_arrays(value).items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(stored.arrays(stem)[name], array)
    assert stored.labels == [f"label {value}", "b"]
    assert stored.content("note.bin") == bytes([int(value)]) * 9
    assert (stored.folder("encoder") / "deep" / "w.bin").read_bytes() == b"w"
    stored.verify()
    return value


def listing(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def damage(path: Path, **changes: object) -> None:
    """Rewrite parts of config.json."""
    document = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(document | changes))


# --- what comes back ---


def test_round_trip(tmp_path):
    save(tmp_path / "a" / "model", 3.0)
    stored = store.read(tmp_path / "a" / "model")
    assert check(tmp_path / "a" / "model") == 3.0
    assert stored.config == {
        "format": store.FORMAT,
        "umpteen": __version__,
        "recipe": "toy",
        "settings": {"tree": {"branching": 16}},
        "meta": {"value": 3.0},
    }
    assert stored.stems == ["weights", "tree"]
    assert stored.extra == ["note.bin", "encoder/config.json", "encoder/deep/w.bin"]
    assert stored.size == sum(len(content) for name, content in listing(stored.path).items() if name != "config.json")
    assert store.is_model(stored.path)
    assert not store.is_model(tmp_path)


def test_views_are_mapped_aligned_and_read_only_or_in_memory(tmp_path):
    save(tmp_path / "model")
    mapped = store.read(tmp_path / "model").arrays("weights")
    loaded = store.read(tmp_path / "model", mmap=False).arrays("weights")
    for name, array in mapped.items():
        assert type(array) is np.ndarray
        assert not array.flags.writeable
        assert array.flags.aligned
        assert loaded[name].flags.writeable
        np.testing.assert_array_equal(array, loaded[name])
    assert mapped["indptr"].ctypes.data % tensors.ALIGNMENT == 0  # the widest type comes first
    with pytest.raises(ValueError, match="read-only"):
        mapped["data"][0] = 2


@pytest.mark.parametrize("mmap", [True, False])
def test_a_model_inside_another(tmp_path, mmap):
    arrays, extra = {"weights": {"data": np.arange(3.0)}}, {"encoder/x.bin": b"x"}
    inner = store.files_of(config={"recipe": "inner"}, arrays=arrays, labels=["a"], extra=extra)
    outer = {f"model-0/{name}": content for name, content in inner.items()}
    store.write(tmp_path / "model", config={"recipe": "outer"}, arrays={}, extra=outer)
    stored = store.read(tmp_path / "model", mmap=mmap)
    stored.verify()
    assert (stored.config["recipe"], stored.stems, stored.labels) == ("outer", [], None)
    inside = stored.nested("model-0")
    inside.verify()
    assert (inside.config["recipe"], inside.stems, inside.labels) == ("inner", ["weights"], ["a"])
    assert inside.arrays("weights")["data"].tolist() == [0, 1, 2]
    assert inside.arrays("weights")["data"].flags.writeable != mmap
    assert inside.content("encoder/x.bin") == b"x"
    assert inside.folder("encoder").joinpath("x.bin").read_bytes() == b"x"
    assert store.is_model(inside.path)
    with pytest.raises(BadModelFile, match="has no model 'model-1'"):
        stored.nested("model-1")


def test_mapped_arrays_outlive_a_new_version(tmp_path):
    save(tmp_path / "model", 1.0)
    old = store.read(tmp_path / "model")
    save(tmp_path / "model", 2.0)
    assert old.arrays("weights")["data"][0] == 1.0
    assert old.labels[0] == "label 1.0"
    assert check(tmp_path / "model") == 2.0


def test_same_content_same_bytes(tmp_path):
    save(tmp_path / "a")
    save(tmp_path / "b")
    assert listing(tmp_path / "a") == listing(tmp_path / "b")


def test_saving_over_itself_keeps_unchanged_files(tmp_path):
    save(tmp_path / "model", 1.0)
    before = {file.name: file.stat().st_ino for file in (tmp_path / "model").glob("*.safetensors")}
    save(tmp_path / "model", 1.0)
    assert before == {file.name: file.stat().st_ino for file in (tmp_path / "model").glob("*.safetensors")}
    damaged = next((tmp_path / "model").glob("weights-*"))
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    save(tmp_path / "model", 1.0)  # a file of the right name and size but other content is not trusted
    assert check(tmp_path / "model") == 1.0


def test_a_new_version_leaves_nothing_of_the_old(tmp_path):
    save(tmp_path / "model", 1.0)
    first = set(listing(tmp_path / "model"))
    save(tmp_path / "model", 2.0)
    second = set(listing(tmp_path / "model"))
    assert len(first) == len(second) == 7
    assert first & second == {"config.json", *(name for name in first if name.startswith("encoder-"))}


def test_files_of_the_user_beside_a_model_stay(tmp_path):
    save(tmp_path / "model", 1.0)
    (tmp_path / "model" / "README.md").write_text("mine")
    save(tmp_path / "model", 2.0)
    assert (tmp_path / "model" / "README.md").read_text() == "mine"


def test_model_without_labels_or_arrays(tmp_path):
    store.write(tmp_path / "model", config={}, arrays={})
    stored = store.read(tmp_path / "model")
    assert stored.labels is None
    assert stored.stems == []
    assert stored.config["settings"] == {}


@IN_FOLDER
@given(names=st.lists(st.text(st.characters(), max_size=8), max_size=8))
def test_any_label_name_comes_back(names):
    content = labels.format_labels(names)
    assert labels.parse_labels(content, "labels.txt") == names
    assert len(content.decode().splitlines()) == len(names)


def test_escapes_are_readable():
    assert (
        labels.format_labels(["a\tb\n", "c\\n", "\u2028", "", "äöü"]).decode() == "a\\tb\\n\nc\\\\n\n\\u2028\n\näöü\n"
    )


@IN_FOLDER
@given(
    arrays=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        st.sampled_from(DTYPES).flatmap(
            lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
        ),
        max_size=6,
    ),
    mmap=st.booleans(),
)
def test_safetensors_both_ways(tmp_path, arrays, mmap):
    official = pytest.importorskip("safetensors.numpy")
    ours, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
    store.save_tensors(ours, arrays)
    official.save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, theirs)
    header = int.from_bytes(ours.read_bytes()[:8], "little")
    assert (8 + header) % tensors.ALIGNMENT == 0
    for read in (official.load_file(ours), store.load_tensors(ours, mmap=mmap)):
        assert read.keys() == arrays.keys()
        for name, array in arrays.items():
            assert read[name].dtype == array.dtype
            np.testing.assert_array_equal(read[name], array)
            assert read[name].shape == array.shape
    for name, array in store.load_tensors(theirs, mmap=mmap).items():
        np.testing.assert_array_equal(array.reshape(arrays[name].shape), arrays[name])
        assert array.flags.aligned


def test_other_layouts_are_written_plain(tmp_path):
    grid = np.arange(6, dtype=">i4").reshape(2, 3)
    store.save_tensors(tmp_path / "a.safetensors", {"t": grid.T, "step": grid[:, ::2], "f": np.asfortranarray(grid)})
    loaded = store.load_tensors(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(loaded["t"], grid.T)
    np.testing.assert_array_equal(loaded["step"], grid[:, ::2])
    np.testing.assert_array_equal(loaded["f"], grid)


def test_bfloat16_is_read_as_float32(tmp_path):
    values = np.array([1.5, -2.0, 0.0], np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    content = b"".join(bytes(part) for part in tensors.encode({"w": bits})).replace(b'"U16"', b'"BF16"')
    content = (len(content) - 8 - bits.nbytes).to_bytes(8, "little") + content[8:]
    (tmp_path / "b.safetensors").write_bytes(content)
    np.testing.assert_array_equal(store.load_tensors(tmp_path / "b.safetensors")["w"], values)


# --- what is refused ---


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([None]), np.array([1j]), np.array(["2020"], "M8")])
def test_arrays_of_other_things_are_refused(tmp_path, array):
    with pytest.raises(BadInput, match="array 'x' must hold"):
        store.save_tensors(tmp_path / "a.safetensors", {"x": array})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"config": {"format": 2}}, "must not hold format"),
        ({"config": {"meta": {"a": np.ones(2)}}}, "plain JSON"),
        ({"config": {"meta": {"a": float("nan")}}}, "plain JSON"),
        ({"labels": ["a", 3]}, "name 1 is 3"),
        ({"extra": {"../up": b""}}, "'../up'; rename it"),
        ({"extra": {"config.json": b""}}, "'config.json'"),
        ({"extra": {"weights.safetensors": b""}}, "'weights.safetensors'"),
        ({"arrays": {"a/b c": {}}}, "rename it"),
        ({"arrays": {"a": {"__metadata__": np.ones(1)}}}, "__metadata__"),
    ],
)
def test_bad_arguments_touch_nothing(tmp_path, arguments, message):
    with pytest.raises(BadInput, match=message):
        store.write(tmp_path / "model", **{"config": {}, "arrays": {}} | arguments)
    assert not (tmp_path / "model").exists()


def test_foreign_folders_and_files_are_left_alone(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("irreplaceable")
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text('{"architectures": ["BertModel"]}')
    (tmp_path / "file").write_text("x")
    before = listing(tmp_path)
    for name, message in (
        ("thesis", "holds no umpteen model"),
        ("bert", "no umpteen model"),
        ("file", "is a file"),
    ):
        with pytest.raises(BadInput, match=message):
            save(tmp_path / name)
    assert listing(tmp_path) == before


def test_an_empty_folder_is_used(tmp_path):
    (tmp_path / "model").mkdir()
    save(tmp_path / "model")
    assert check(tmp_path / "model") == 1.0


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda path: os.rename(path, path.with_name("gone")), "does not exist"),
        (lambda path: (path / "config.json").unlink(), "has no config.json"),
        (lambda path: (path / "config.json").write_text("{"), "config.json' is truncated or damaged"),
        (lambda path: (path / "config.json").write_text("[1]"), "config.json' is truncated or damaged"),
        (lambda path: (path / "config.json").write_text('{"model_type": "bert"}'), "not one of ours"),
        (lambda path: damage(path, format="1"), "not one of ours"),
        (
            lambda path: damage(path, format=store.FORMAT + 1),
            rf"newer umpteen \(format {store.FORMAT + 1}, this version reads up to {store.FORMAT}\); upgrade with pip",
        ),
        (lambda path: damage(path, settings=[]), "'settings' is missing"),
        (
            lambda path: damage(path, files={"a.safetensors": {"file": "../../x", "bytes": 1}}),
            "'a.safetensors'",
        ),
        (lambda path: damage(path, files={"a.safetensors": 3}), "'a.safetensors'"),
        (lambda path: next(path.glob("weights-*")).unlink(), "lacks 'weights-"),
        (
            lambda path: os.truncate(next(path.glob("weights-*")), 500),
            r"weights-\w+.safetensors' is truncated",
        ),
        (lambda path: os.truncate(next(path.glob("labels-*")), 5), r"labels-\w+.txt' is truncated"),
        (lambda path: os.truncate(next(path.glob("tree-*")), 0), r"tree-\w+.safetensors' is truncated"),
    ],
)
@pytest.mark.parametrize("mmap", [True, False])
def test_broken_models_are_named(tmp_path, break_it, message, mmap):
    save(tmp_path / "model")
    break_it(tmp_path / "model")
    with pytest.raises(BadModelFile, match=message):
        store.read(tmp_path / "model", mmap=mmap)


def test_unknown_parts_are_named(tmp_path):
    save(tmp_path / "model")
    stored = store.read(tmp_path / "model")
    with pytest.raises(BadModelFile, match="no arrays 'wieghts'; did you mean 'weights'"):
        stored.arrays("wieghts")
    with pytest.raises(BadModelFile, match="no file 'note'"):
        stored.content("note")
    with pytest.raises(BadModelFile, match="no folder 'decoder'"):
        stored.folder("decoder")
    with pytest.raises(BadModelFile, match="is a file, not a folder"):
        store.read(tmp_path / "model" / "config.json")


def test_verify_sees_a_flipped_bit(tmp_path):
    save(tmp_path / "model")
    path = next((tmp_path / "model").glob("weights-*"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadModelFile, match=path.name):
        store.read(tmp_path / "model").verify()


def test_older_formats_are_upgraded_step_by_step(tmp_path, monkeypatch):
    save(tmp_path / "model")
    damage(tmp_path / "model", format=1)
    monkeypatch.setattr(folder, "FORMAT", 3)
    monkeypatch.delitem(folder.UPGRADES, 2)
    monkeypatch.setitem(folder.UPGRADES, 1, lambda config: config | {"meta": {"steps": [1]}})
    with pytest.raises(BadModelFile, match="format 2"):
        store.read(tmp_path / "model")
    monkeypatch.setitem(folder.UPGRADES, 2, lambda config: config | {"meta": {"steps": [*config["meta"]["steps"], 2]}})
    stored = store.read(tmp_path / "model")
    assert stored.config["meta"] == {"steps": [1, 2]}
    assert stored.config["format"] == 3


SAMPLE = b"".join(bytes(part) for part in tensors.encode({"a": np.arange(4.0), "b": np.ones((2, 3), np.int8)}))


def decodes_or_refuses(content: bytes) -> None:
    try:
        arrays, _ = tensors.decode(np.frombuffer(content, np.uint8), "file")
    except BadModelFile:
        return
    assert sum(array.nbytes for array in arrays.values()) <= 2 * len(content)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes(content):
    decodes_or_refuses(content)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_flipped_bytes(changes):
    content = bytearray(SAMPLE)
    for position, value in changes:
        content[position] = value
    decodes_or_refuses(bytes(content))


numbers = st.one_of(st.integers(-3, 40), st.integers(-(2**70), 2**70), st.booleans(), st.none())
entries = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "dtype": st.one_of(st.sampled_from([*tensors.DTYPES, "BF16", "F8_E4M3"]), numbers),
            "shape": st.one_of(st.lists(numbers, max_size=3), st.just([0] * 70), numbers),
            "data_offsets": st.one_of(st.lists(numbers, min_size=2, max_size=2), st.lists(numbers), numbers),
        }
    ),
)


@settings(max_examples=300, deadline=None)
@given(header=st.dictionaries(st.sampled_from(["a", "b", "__metadata__"]), entries), size=st.integers(0, 64))
def test_headers_that_lie(header, size):
    text = json.dumps(header).encode()
    decodes_or_refuses(len(text).to_bytes(8, "little") + text + bytes(size))


@settings(max_examples=100, deadline=None)
@given(shape=st.lists(st.one_of(st.just(0), st.integers(0, 2**63 - 1)), max_size=70))
def test_empty_arrays_of_impossible_shape(shape):
    header = {"a": {"dtype": "F32", "shape": [0, *shape], "data_offsets": [0, 0]}}
    text = json.dumps(header).encode()
    decodes_or_refuses(len(text).to_bytes(8, "little") + text)


def test_deeply_nested_header():
    text = b"[" * 200_000
    with pytest.raises(BadModelFile, match="no valid JSON"):
        tensors.decode(np.frombuffer(len(text).to_bytes(8, "little") + text, np.uint8), "file")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@IN_FOLDER
@given(key=st.sampled_from(["format", "umpteen", "files", "recipe", "settings", "meta"]), value=json_values)
def test_configs_that_lie(tmp_path, key, value):
    save(tmp_path / "model")
    honest = (tmp_path / "model" / "config.json").read_bytes()
    damage(tmp_path / "model", **{key: value})
    try:
        opened = store.read(tmp_path / "model")
        assert key in ("files", "format") or opened.config[key] == value
    except BadModelFile:
        pass
    finally:
        (tmp_path / "model" / "config.json").write_bytes(honest)


# --- full disks, crashes and other writers ---


@pytest.mark.parametrize(("name", "call"), [*(("fsync", n) for n in range(9)), *(("replace", n) for n in range(5))])
def test_full_disk_leaves_the_old_model_and_no_litter(tmp_path, monkeypatch, name, call):
    save(tmp_path / "model", 1.0)
    before = listing(tmp_path)
    calls = iter(range(1000))
    real = getattr(os, name)

    def full_from_now_on(*arguments: object) -> None:
        if next(calls) >= call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(atomic.os, name, full_from_now_on)
        with pytest.raises(store.SaveFailed, match=r"model.*No space left on device; .* unchanged") as caught:
            save(tmp_path / "model", 2.0)
    assert caught.value.errno == errno.ENOSPC
    assert listing(tmp_path) == before
    save(tmp_path / "model", 3.0)
    assert check(tmp_path / "model") == 3.0


def test_full_disk_leaves_no_new_folder(tmp_path, monkeypatch):
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic.os, "fsync", fail)
    with pytest.raises(OSError, match="No space left on device") as caught:
        save(tmp_path / "model")
    assert isinstance(caught.value, UmpteenError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("is_new", [True, False])
def test_killed_at_every_step(tmp_path, is_new):
    """End the process at its first, second, third ... file operation until a save comes through."""
    steps = 0
    outcomes = []
    while True:
        path = tmp_path / f"model{steps if is_new else ''}"
        if not is_new:
            save(path, 1.0)
        finished = save_and_die(path, steps)
        outcomes.append(check(path) if store.is_model(path) else None)
        if finished:
            break
        save(path, 1.0)  # a half-made folder is taken over
        assert check(path) == 1.0
        assert len(listing(path)) == 7  # and nothing of the killed save is left
        steps += 1
    assert steps > 10
    assert outcomes[0] == (None if is_new else 1.0)
    assert outcomes[-1] == 2.0
    assert sorted(outcomes, key=lambda value: value or 0) == outcomes  # old, then new, with nothing between


def save_and_die(path: Path, steps: int) -> bool:
    """Save in a child that ends without a word at file operation number ``steps``."""
    child = os.fork()
    if child == 0:
        left = steps

        def hook(event: str, arguments: object) -> None:
            nonlocal left
            if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"):
                left -= 1
                if left < 0:
                    os._exit(9)

        sys.addaudithook(hook)
        save(path, 2.0)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


LOOP = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from test_store import save
value = 0
while True:
    value += 1
    save(Path(sys.argv[3]), float(value % 200))
    if value == 1:
        print("started", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs kill -9")
def test_kill_9_while_saving(tmp_path):
    path = tmp_path / "model"
    save(path, 0.0)
    moments = random.Random(0)
    root = Path(store.__file__).parents[2]
    for _ in range(15):
        command = [sys.executable, "-c", LOOP, str(root), str(Path(__file__).parent), str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout.readline() == "started\n"
            time.sleep(moments.uniform(0, 0.05))
            check_while_it_changes(path)
            writer.send_signal(signal.SIGKILL)
        check(path)
    save(path, 7.0)
    assert check(path) == 7.0
    assert len(listing(path)) == 7  # nothing of the killed runs is left


def check_while_it_changes(path: Path) -> None:
    """Open a model that another process keeps replacing."""
    for _ in range(3):
        stored = store.read(path)
        value = stored.config["meta"]["value"]
        assert stored.arrays("weights")["data"][-1] == value
        assert stored.labels[0] == f"label {value}"


@pytest.mark.skipif(atomic.fcntl is None, reason="folders cannot be locked here")
def test_two_writers_take_turns(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda value: save(tmp_path / "model", float(value)), range(24)))
    check(tmp_path / "model")
    assert len(listing(tmp_path / "model")) == 7


# --- single files ---


def test_atomic_write_takes_text_bytes_and_parts(tmp_path):
    path = tmp_path / "file.txt"
    for content, expected in (("ä", "ä".encode()), (b"b", b"b"), ([b"c", memoryview(b"d")], b"cd")):
        atomic.atomic_write(path, content)
        assert path.read_bytes() == expected
    assert os.listdir(tmp_path) == ["file.txt"]


def test_atomic_write_keeps_the_old_file_when_it_is_interrupted(tmp_path):
    path = tmp_path / "numbers.npy"
    path.write_text("old")

    def parts() -> Iterator[bytes]:
        yield b"half"
        assert len(os.listdir(tmp_path)) == 2
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic.atomic_write(path, parts())
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["numbers.npy"]


def test_atomic_write_leaves_other_files_alone(tmp_path):
    mine = tmp_path / ".tmp-1-abcd-a.txt"
    mine.write_text("mine")
    os.utime(mine, (0, 0))
    atomic.atomic_write(tmp_path / "a.txt", "new")
    assert sorted(os.listdir(tmp_path)) == [mine.name, "a.txt"]


def test_missing_parent_is_explained(tmp_path):
    with pytest.raises(store.SaveFailed, match="No such file or directory"):
        atomic.atomic_write(tmp_path / "none" / "a.txt", "x")


# --- checkpoints ---


def stages_in(path: Path) -> list[str]:
    return sorted(file.name.rpartition("-")[0] for file in path.glob("*.safetensors"))


def test_checkpoint_stages(tmp_path):
    checkpoint = store.Checkpoint(tmp_path / "run", key="k1")
    assert not checkpoint.has("tree")
    with pytest.raises(BadModelFile, match="no stage 'tree'"):
        checkpoint.load("tree")
    checkpoint.save("tree", {"parents": np.arange(5)})
    checkpoint.save("level.0", {"w": np.ones(2)})
    checkpoint.save("underway", {"w": np.ones(2)})
    checkpoint.save("underway", {"w": np.zeros(2)})
    assert checkpoint.load("underway")["w"].sum() == 0
    checkpoint.drop("underway")
    checkpoint.drop("underway")
    assert stages_in(tmp_path / "run") == ["level.0", "tree"]
    np.testing.assert_array_equal(checkpoint.load("tree")["parents"], np.arange(5))
    assert checkpoint.load("tree", mmap=False)["parents"].flags.writeable
    with pytest.raises(BadInput, match=r"\.\./x"):
        checkpoint.has("../x")
    checkpoint.clear()
    assert not (tmp_path / "run").exists()
    checkpoint.clear()


def test_stale_and_damaged_stages_count_as_absent(tmp_path):
    store.Checkpoint(tmp_path, key="k1").save("tree", {"parents": np.arange(5)})
    path = next(tmp_path.glob("tree-*"))
    other = store.Checkpoint(tmp_path, key="k2")
    assert not other.has("tree")
    other.save("tree", {"parents": np.arange(3)})
    assert other.has("tree")
    assert store.Checkpoint(tmp_path, key="k1").has("tree")
    stolen = next(file for file in tmp_path.glob("tree-*") if file != path)
    stolen.write_bytes(path.read_bytes())
    with pytest.raises(BadModelFile, match="other settings or data"):
        other.load("tree")
    os.truncate(path, 70)
    assert not store.Checkpoint(tmp_path, key="k1").has("tree")
    store.Checkpoint(tmp_path, key="k1").save("tree", {"parents": np.arange(3)})
    assert store.Checkpoint(tmp_path, key="k1").has("tree")


def test_fingerprint_tells_data_apart():
    base = np.arange(4, dtype=np.int32)
    prints = {
        store.fingerprint(part)
        for part in (
            base,
            base.astype(np.int64),
            base.reshape(2, 2),
            base.view(np.float32),
            {"a": 1},
            {"a": 2},
        )
    }
    prints |= {store.fingerprint("ab", "c"), store.fingerprint("a", "bc"), store.fingerprint(["ab", "c"])}
    prints |= {store.fingerprint(b"ab"), store.fingerprint("ab"), store.fingerprint()}
    assert len(prints) == 12
    assert store.fingerprint({"a": 1, "b": 2}, base) == store.fingerprint({"b": 2, "a": 1}, base.copy())
    with pytest.raises(BadInput, match="convert it first"):
        store.fingerprint(object())
