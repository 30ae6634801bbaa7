"""Tasks on a Ray cluster of several nodes, which are started on this machine and may end at any moment."""

import hashlib
import importlib
import importlib.util
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

import umpteen
from tests.task_module import install
from umpteen import XRLinear
from umpteen.cli import app
from umpteen.engine import LocalEngine, Task, silent
from umpteen.engine.cluster import RayEngine, check_storage
from umpteen.engine.cluster_nodes import _ask_all
from umpteen.engine.processes import ProcessEngine, TaskFailed
from umpteen.engine.select import make_engine
from umpteen.errors import BadConfig, BadInput, MissingExtra

HAS_RAY = importlib.util.find_spec("ray") is not None  # ray reads the environment when it is imported
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="ray is not installed")

DIGEST, FAIL, DIE, DIE_ONCE, HANG, ALONE, LARGE = (
    f"umpteen.tests_of_cluster:{name}" for name in ("digest", "fail", "die", "die_once", "hang", "alone", "large")
)

MODULE = """
@task
def digest(source, start, stop, target, threads, doomed=""):
    if doomed:
        import ray
        caught = Path(target).with_name("caught")
        if ray.util.get_node_ip_address() == doomed:  # runs until its node is killed
            caught.touch()
            time.sleep(600)
        while not caught.exists():  # the tasks of other nodes leave one for it
            time.sleep(0.01)
    with open(source, "rb") as file:
        file.seek(start)
        content = hashlib.sha256(file.read(stop - start)).hexdigest()
    Path(target).write_text(content)
    return {"digest": content, "range": [start, stop]}

@task
def hang(path, threads):
    Path(path + ".new").write_text(str(os.getpid()))
    os.replace(path + ".new", path)
    time.sleep(600)

@task
def alone(path, threads):
    Path(path).touch(exist_ok=False)
    time.sleep(0.05)
    Path(path).unlink()
    return threads

@task
def large(n, threads):
    return n * "x"
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """A module of tasks inside the package, in this process and on the nodes."""
    folder, patch = tmp_path_factory.mktemp("module"), pytest.MonkeyPatch()
    install(folder, "tests_of_cluster", MODULE, patch)
    yield
    patch.undo()


@pytest.fixture(scope="module")
def cluster(module):
    """A head node and two worker nodes of one core."""
    if not HAS_RAY:
        pytest.skip("ray is not installed")
    if sys.platform != "linux":
        pytest.skip("nodes of one machine need several loopback addresses, which Linux has")
    from benchmarks.ray_nodes import cluster

    with cluster(2) as started:
        yield started


@pytest.fixture(scope="module")
def engine(cluster):
    made = RayEngine(cluster.address)
    yield made
    made.close()


def digests(folder: Path, n_tasks: int = 12, **arguments) -> list[Task]:
    """Return tasks that read ranges of a file and write a file each."""
    folder.mkdir()
    source = folder.parent / "source"
    source.write_bytes(hashlib.shake_256(b"umpteen").digest(100_000))
    bounds = [source.stat().st_size * i // n_tasks for i in range(n_tasks + 1)]
    return [
        Task(
            DIGEST, {"source": str(source), "start": a, "stop": b, "target": str(folder / f"{a}"), **arguments}, cost=b
        )
        for a, b in itertools.pairwise(bounds)
    ]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def test_results_and_files_are_those_of_a_local_run(engine, tmp_path):
    seen = []
    tasks = digests(tmp_path / "ray")
    results = engine.run(tasks, stage="hashing", progress=lambda *report: seen.append(report))
    assert engine.n_workers == 2
    assert results == LocalEngine().run(digests(tmp_path / "local"))
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    total = sum(task.cost for task in tasks)
    assert (seen[0], seen[-1], len(seen)) == (("hashing", 0, total), ("hashing", total, total), 1 + len(tasks))
    assert engine.run([]) == []


def test_tasks_of_a_node_that_is_killed_run_again(engine, cluster, tmp_path):
    (node,) = cluster.add(1)
    tasks = digests(tmp_path / "ray", doomed=node.host)

    def kill_once_a_task_has_begun() -> None:
        wait_for(tmp_path / "ray" / "caught")
        node.kill()

    killer = threading.Thread(target=kill_once_a_task_has_begun, daemon=True)
    killer.start()
    counting = RayEngine()
    results = counting.run(tasks)
    killer.join()
    (tmp_path / "ray" / "caught").unlink()
    assert results == LocalEngine().run(digests(tmp_path / "local"))
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    assert counting.object_store_report().n_lost == 1


def test_a_training_of_which_a_node_is_killed_gives_the_same_model(engine, cluster, tiny, tmp_path):
    (node,) = cluster.add(1)
    doomed, texts = [node], tiny.texts * 3
    Y = sp.vstack([tiny.Y] * 3).tocsr()

    def kill_after_the_first_task(stage: str, done: int, total: int) -> None:
        if doomed and done:
            doomed.pop().kill()

    for name, chosen in {"local": LocalEngine(1), "ray": RayEngine()}.items():
        model, progress = XRLinear(threads=1), kill_after_the_first_task if name == "ray" else silent
        model.fit(texts, Y, engine=chosen, checkpoint=str(tmp_path / f"{name}.stages"), progress=progress)
        model.save(tmp_path / name)
    assert not doomed
    assert weights(tmp_path / "ray") == weights(tmp_path / "local")


def weights(folder: Path) -> dict[str, bytes]:
    """Return all arrays of a model, tf-idf included."""
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def test_a_task_whose_process_is_killed_runs_again(engine, tmp_path):
    assert engine.run([Task(DIE_ONCE, {"path": str(tmp_path / "mark")})]) == ["done"]


def test_a_node_whose_process_is_killed_is_asked_again(engine, tmp_path):
    die_once = importlib.import_module("umpteen.tests_of_cluster").die_once
    answers = _ask_all(die_once, 1, str(tmp_path / "mark"), 1)
    assert [(answer.value, answer.error) for answer in answers] == [("done", "")] * 2


def test_a_task_that_always_ends_its_process_is_given_up(engine):
    with pytest.raises(TaskFailed, match=r"ended 3 times while it ran umpteen\.tests_of_cluster:die"):
        engine.run([Task(DIE, {})])


def test_a_run_ends_if_no_node_is_left(engine, cluster):
    (node,) = cluster.add(1, n_cores=2)
    only = RayEngine(threads=2, patience=0.0)
    assert only.n_workers == 1
    node.kill()
    with pytest.raises(TaskFailed, match="no node with 2 cores"):
        only.run([Task(FAIL, {})])
    with pytest.raises(BadConfig, match="no node of the cluster has 2 cores"):
        RayEngine(threads=2, patience=0.0)
    only.close()
    assert engine.run([Task(LARGE, {"n": 1})]) == ["x"]  # the connection was not made by it


def test_errors_of_tasks_keep_their_kind_and_message(engine):
    with pytest.raises(BadInput, match="row 3 is empty"):
        engine.run([Task(FAIL, {}), *(Task(LARGE, {"n": 1}) for _ in range(5))])
    with pytest.raises(BadInput, match="is not a task"):
        engine.run([Task("os:getcwd", {})])


@pytest.fixture
def ctrl_c():
    """Let Ctrl-C interrupt this process, also if it is a background job of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_the_tasks(engine, tmp_path, ctrl_c):
    def interrupt() -> None:
        wait_for(tmp_path / "pid")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        engine.run([Task(HANG, {"path": str(tmp_path / "pid")})])
    assert not is_running(int((tmp_path / "pid").read_text()))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_the_number_of_tasks_at_the_same_time_can_be_limited(engine, tmp_path):
    limited = make_engine("ray", workers=1)
    assert limited.n_workers == 1
    assert limited.run([Task(ALONE, {"path": str(tmp_path / "lock")})] * 6) == [1] * 6


def test_an_engine_that_was_closed_connects_again(engine, tmp_path):
    again = RayEngine()
    again.close()
    assert again.run([Task(LARGE, {"n": 2})]) == ["xx"]


def test_the_object_store_holds_only_what_is_large(cluster, tmp_path, engine):
    small = RayEngine()
    small.run(digests(tmp_path / "ray"))
    report = small.object_store_report()
    assert report.share_of((tmp_path / "source").stat().st_size) < 0.01
    assert 0 < report.message_bytes < 12 * 1000
    assert report.n_nodes >= 3
    small.run([Task(LARGE, {"n": 1_000_000})])  # what tasks must not do is seen
    assert small.object_store_report().store_bytes >= 1_000_000


@pytest.fixture(scope="module")
def trained(engine, cluster, tiny, tmp_path_factory):
    """A folder with texts, their labels and a model, which the command trained on the cluster, and what it printed."""
    folder = tmp_path_factory.mktemp("trained")
    rows = [np.asarray(tiny.label_names)[row.indices].tolist() for row in tiny.Y]
    lines = [json.dumps({"text": text, "labels": labels}) for text, labels in zip(tiny.texts, rows, strict=True)]
    (folder / "data.jsonl").write_text("\n".join(lines))
    ran = command("train", folder / "data.jsonl", "-o", folder / "model", *on(cluster), "--threads", "1")
    assert sorted(path.name for path in folder.iterdir()) == ["data.jsonl", "model"]
    return folder, ran


def on(cluster) -> list[str]:
    return ["--engine", "ray", "--address", cluster.address]


def command(*words, code: int = 0):
    ran = CliRunner().invoke(app, [str(word) for word in words])
    assert ran.exit_code == code, ran.output
    return ran


def test_the_command_says_what_went_through_the_object_stores(trained):
    (line,) = [line for line in trained[1].stderr.splitlines() if "object stores" in line]
    pattern = (
        r"Tasks and answers had \d+\.\d kB; 0 bytes went through Ray's object stores on \d nodes(, \d of which ended)?"
    )
    assert re.fullmatch(pattern, line)


def test_predictions_of_a_cluster_are_those_of_one_process(trained, cluster, tmp_path):
    model, data = trained[0] / "model", trained[0] / "data.jsonl"
    for name, flags in {"ray": on(cluster), "local": ["--threads", "1"]}.items():
        command("predict", model, data, "-o", tmp_path / f"{name}.jsonl", "--block-rows", "30", "-q", *flags)
    assert (tmp_path / "ray.jsonl").read_bytes() == (tmp_path / "local.jsonl").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_figures_of_a_cluster_are_those_of_one_process(trained, cluster, tmp_path, monkeypatch):
    for module in ("umpteen.cli.evaluation", "umpteen.evaluation.model"):
        monkeypatch.setattr(f"{module}.BLOCK", 30)
    found = []
    for flags in ([*on(cluster), "--storage", str(tmp_path / "storage")], []):
        rows = tmp_path / f"{len(found)}.tsv"
        ran = command("evaluate", *(trained[0] / name for name in ("model", "data.jsonl")), "-q", "--json",
                      "--per-text", rows, *flags)  # fmt: skip
        found.append((json.loads(ran.stdout) | {"rows_per_s": None}, rows.read_text()))
    assert found[0] == found[1]
    assert found[0][0]["rows"] == 200
    assert not (tmp_path / "storage").exists()


@pytest.mark.parametrize("name", ["predict", "evaluate"])
def test_a_model_that_nodes_do_not_have_is_refused(name, trained, cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(trained[0])  # nodes have other working directories
    here, shared = Path("/proc/self/cwd"), tmp_path / "shared"
    shared.mkdir()
    place = {"predict": ["-o", shared / "out.jsonl"], "evaluate": ["--storage", shared]}[name]
    ran = command(name, here / "model", trained[0] / "data.jsonl", *place, *on(cluster), code=2)
    assert "tasks read '/proc/self/cwd/model/config.json', which these nodes of the cluster do not have" in ran.stderr
    assert all(f"{node.host} ([Errno 2] No such file" in ran.stderr for node in cluster.workers[:2])
    assert not list(shared.iterdir())


def test_an_output_that_nodes_do_not_see_is_refused(trained, cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = Path("/proc/self/cwd/out.jsonl")
    ran = command("predict", trained[0] / "model", trained[0] / "data.jsonl", "-o", output, *on(cluster), code=2)
    assert "'/proc/self/cwd' is not shared with these nodes" in ran.stderr
    assert "or write the output (-o) to a folder that is shared" in ran.stderr
    assert not list(tmp_path.iterdir())


def test_nodes_must_have_the_same_versions(engine, cluster, monkeypatch):
    monkeypatch.setattr(umpteen, "__version__", "9.9.9")
    with pytest.raises(BadConfig, match=r"has umpteen \S+ instead of 9\.9\.9") as caught:
        RayEngine()
    assert all(f"node {node.host} " in str(caught.value) for node in cluster.workers[:2])
    with pytest.raises(BadConfig, match=r"has umpteen \S+ instead of 9\.9\.9"):  # as on a node that joined later
        engine.run([Task(LARGE, {"n": 1})])


def test_nodes_must_be_able_to_import_the_package(engine, cluster, monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['umpteen'] = None")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("umpteen.engine.cluster_nodes._python_path", lambda: [str(tmp_path)])
    with pytest.raises(BadConfig, match=rf"node {cluster.workers[0].host} cannot import umpteen"):
        RayEngine()


def test_storage_that_all_nodes_see_is_left_as_it_was(engine, tmp_path):
    check_storage(tmp_path)
    assert not list(tmp_path.iterdir())


def test_storage_that_a_node_does_not_see_is_refused(engine, cluster, monkeypatch):
    seeing, other = cluster.workers[:2]
    monkeypatch.chdir(seeing.folder)  # its processes have this working directory, those of other nodes have their own
    with pytest.raises(BadConfig, match="is not shared with these nodes") as caught:
        check_storage("/proc/self/cwd")
    assert f"{other.host} (" in str(caught.value)
    assert f"{seeing.host} (" not in str(caught.value)
    assert not list(seeing.folder.glob(".umpteen-storage*"))


def test_storage_may_be_created_later(engine, tmp_path):
    engine.check_storage(tmp_path / "later" / "stages")
    assert not list(tmp_path.iterdir())


def test_storage_must_be_a_folder(engine, tmp_path):
    with pytest.raises(BadConfig, match="must be a folder"):
        check_storage(tmp_path / "nothing")


@needs_ray
def test_an_address_without_a_cluster_is_refused():
    code = """
from umpteen.engine.cluster import RayEngine
for address in ("ray://127.0.0.1:10001", "nonsense", "127.0.0.1:1"):
    try:
        RayEngine(address)
    except Exception as error:
        print(type(error).__name__, error)
"""
    first, second, third = run_python(code).stdout.splitlines()
    assert first.startswith("BadConfig the address of a cluster is host:port or auto")
    assert second.startswith("BadConfig the address of a cluster is host:port or auto")
    assert third.startswith("BadConfig nothing answers at '127.0.0.1:1'")


@needs_ray
def test_without_an_address_a_cluster_of_this_machine_is_started():
    code = """
from umpteen.engine.select import make_engine
engine = make_engine("ray", threads=1)
print([node["NodeManagerAddress"] for node in __import__("ray").nodes()])
engine.close()
print(engine.object_store_report().n_nodes)
"""
    done = run_python(code)
    assert done.stdout.splitlines() == ["['127.0.0.1']", "1"], done.stderr


def run_python(code: str):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)


def test_engines_by_name(monkeypatch):
    assert isinstance(make_engine("local"), LocalEngine)
    processes = make_engine("processes", workers=2)
    assert isinstance(processes, ProcessEngine)
    assert processes.n_workers == 2
    with pytest.raises(BadConfig, match="did you mean 'processes'"):
        make_engine("process")
    with pytest.raises(BadConfig, match="an address is for the engine 'ray'"):
        make_engine("local", address="auto")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'umpteen\[ray\]'"):
        make_engine("ray")
