"""Tasks run by name: in this process, and in others that may end at any moment."""

import os
import signal

import pytest

from tests.task_module import install
from umpteen.engine import LocalEngine, Task, name_of, task
from umpteen.engine.processes import ProcessEngine, TaskFailed
from umpteen.errors import BadInput

DOUBLE, FAIL, DIE, DIE_ONCE, PRINT = (
    f"umpteen.tests_of_tasks:{name}" for name in ("double", "fail", "die", "die_once", "shout")
)

MODULE = """
@task
def double(number, threads):
    return [2 * number, threads, os.getpid()]

@task
def shout(threads):
    print("not an answer")
    return "answer"

def plain(threads):
    return 1
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of tasks inside the package, in this process and in its children."""
    install(tmp_path, "tests_of_tasks", MODULE, monkeypatch)


@pytest.fixture(params=["local", "processes"])
def engine(request, module):
    made = LocalEngine(threads=2) if request.param == "local" else ProcessEngine(2)
    yield made
    made.close()


def test_results_keep_the_order_of_the_tasks(engine):
    seen = []
    tasks = [Task(DOUBLE, {"number": n}, cost=n) for n in range(5)]
    results = engine.run(tasks, stage="doubling", progress=lambda *report: seen.append(report))
    assert [result[0] for result in results] == [0, 2, 4, 6, 8]
    assert seen[0] == ("doubling", 0, 10)
    assert seen[-1] == ("doubling", 10, 10)


def test_errors_of_tasks_keep_their_kind_and_message(engine):
    with pytest.raises(BadInput, match="row 3 is empty"):
        engine.run([Task(FAIL, {})])


@pytest.mark.parametrize("name", ["os:getcwd", "umpteen.tests_of_tasks:plain", "umpteen.tests_of_tasks:nothing"])
def test_only_marked_functions_of_the_library_are_tasks(name, module):
    with pytest.raises(BadInput, match="is not a task"):
        LocalEngine().run([Task(name, {})])


def test_local_tasks_get_all_threads_and_others_run_in_other_processes(module):
    (local,) = LocalEngine(threads=3).run([Task(DOUBLE, {"number": 1})])
    assert local[1:] == [3, os.getpid()]
    engine = ProcessEngine(1)
    (first,), (second,) = engine.run([Task(DOUBLE, {"number": 1})]), engine.run([Task(DOUBLE, {"number": 1})])
    engine.close()
    assert first[2] == second[2] != os.getpid()


def test_a_task_whose_process_is_killed_runs_again(module, tmp_path):
    engine = ProcessEngine(2)
    assert engine.run([Task(DIE_ONCE, {"path": str(tmp_path / "mark")})]) == ["done"]
    engine.close()


def test_a_task_that_always_ends_its_process_is_given_up(module):
    engine = ProcessEngine(1)
    with pytest.raises(TaskFailed, match="ended 3 times"):
        engine.run([Task(DIE, {})])
    engine.close()


def test_what_a_task_prints_is_not_its_answer(module):
    engine = ProcessEngine(1)
    assert engine.run([Task(PRINT, {})]) == ["answer"]
    engine.close()


def test_processes_end_with_the_engine(module):
    engine = ProcessEngine(1)
    ((*_, pid),) = engine.run([Task(DOUBLE, {"number": 1})])
    engine.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIG_DFL)


def test_tasks_are_named_by_module_and_function():
    assert name_of(task) == "umpteen.engine.tasks:task"
