"""Output of the commands: results to stdout; notes, progress and errors to stderr."""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from umpteen.cli.streams import discard
from umpteen.engine import Callback as RecordCallback
from umpteen.engine import Progress as Callback
from umpteen.engine import Record, silent, stage_name
from umpteen.engine.printable import json_line, printable
from umpteen.kernels.compiling import on_compile

_WIDE = 160  # width of tables if the output is not a terminal
_PAUSE = 0.05  # minimum seconds between two updates of a bar
_FIRST_NOTE = 10.0  # seconds until the remaining time of a stage is noted if the output is not a terminal; then doubled


class Terminal:
    """The two streams of a command.

    Parameters
    ----------
    quiet : print results and errors only.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.out = _console(stderr=False)
        self.err = _console(stderr=True)

    def note(self, text: str) -> None:
        """Print a message that is not a result."""
        if not self.quiet:
            self.err.print(printable(text, keep="\n"), markup=False, highlight=False, soft_wrap=True)

    def error(self, text: str) -> None:
        """Print an error message on one line."""
        self.err.print(Text("error: ", style="bold red") + Text(printable(text), style="red"), soft_wrap=True)

    def json(self, value: Any) -> None:
        """Print a result as JSON on one line."""
        self.out.file.write(json_line(value))

    def say(self, text: str) -> None:
        """Print a result as a line of text."""
        self.out.print(printable(text), markup=False, highlight=False)

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "", lines: bool = False
    ) -> None:
        """Print a result as a table; numbers are right-aligned, ``lines`` draws lines between rows.

        A cell that is a tuple has a line for each of its values.
        """
        rows = [list(row) for row in rows]
        title = printable(title)
        table = Table(title=Text(title) if title else None, title_justify="left", title_style="bold", show_lines=lines)
        for i, column in enumerate(columns):
            is_number = all(isinstance(row[i], (int, float)) or row[i] is None for row in rows)
            table.add_column(Text(printable(column)), justify="right" if is_number else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(_cell(value)) for value in row))
        self.out.print(table)

    def tree(self, root: Tree) -> None:
        """Print a result as a tree; its texts come from ``branch``."""
        self.out.print(root, soft_wrap=True)

    @contextmanager
    def progress(self) -> Iterator[Callback]:
        """Yield a callback that shows a bar per stage, or prints finished stages if stderr is not a terminal."""
        if self.quiet:
            yield silent
        elif not self.err.is_terminal:
            with self.compiling():
                yield _Lines(self)
        else:
            columns = (
                TextColumn("{task.description:24}"), BarColumn(bar_width=20), TaskProgressColumn(), _Times(),
                TextColumn("{task.fields[figures]}", markup=False),
            )  # fmt: skip
            with Progress(*columns, console=self.err) as bars, on_compile(_CompileBar(bars)):
                yield _Bars(bars)

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Print a note before the first kernel that is compiled within the block."""
        is_noted = False

        def note(kernel: str, seconds: float | None) -> None:
            nonlocal is_noted
            if not is_noted:
                is_noted = True
                self.note("Compiling kernels, which are kept for the next time")

        with on_compile(note):
            yield


class _Figures:
    """The present loss and the last held-out P@5 of each stage, as text."""

    def __init__(self) -> None:
        self._last: dict[str, Record] = {}

    def __call__(self, stage: str) -> str:
        last = self._last.get(stage, {})
        return ", ".join(f"{name} {last[name]:.4g}" for name in ("loss", "P@5") if name in last)

    def add(self, record: Record) -> str:
        """Take up a record and return its stage, under the name that progress has for it."""
        stage = stage_name(record)
        self._last[stage] = {**self._last.get(stage, {}), **record}
        return stage


class _Bars:
    """One bar per stage."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self._finished: dict[str, TaskID] = {}
        self._figures = _Figures()
        self._drawn = 0.0

    def record(self, record: Record) -> None:
        """Show loss and precision beside the bar of their stage."""
        stage = self._figures.add(record)
        task = self._tasks.get(stage, self._finished.get(stage))
        if task is not None:
            self._bars.update(task, figures=self._figures(stage))

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if stage in self._tasks and done < total and now - self._drawn < _PAUSE:
            return
        self._drawn = now
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, figures=self._figures(stage))
        self._bars.update(self._tasks[stage], completed=done, total=max(total, 1))
        if done >= total:
            self._finished[stage] = self._tasks.pop(stage)  # a stage may be repeated
            self._bars.update(self._finished[stage], completed=max(total, 1))


class _Times(ProgressColumn):
    """The time since a stage began, and what is left at the speed of its steps in the last half minute."""

    max_refresh = 0.5  # seconds

    def render(self, task: Task) -> Text:
        taken, left = timedelta(seconds=round(task.finished_time or task.elapsed or 0.0)), task.time_remaining
        is_known = left is not None and not task.finished
        return Text(f"{taken}, {timedelta(seconds=round(left))} left" if is_known else str(taken))


class _CompileBar:
    """An indeterminate bar while kernels are compiled, whose number is not known."""

    def __init__(self, bars: Progress) -> None:
        self._bars, self._depth = bars, 0
        self._task: TaskID | None = None

    def __call__(self, kernel: str, seconds: float | None) -> None:
        self._depth += 1 if seconds is None else -1
        if self._task is None:
            self._task = self._bars.add_task("compile kernels", total=None, figures="")
        self._bars.update(self._task, visible=self._depth > 0)


class _Lines:
    """One line per finished stage, and some while a stage takes long: its remaining time at the speed so far."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._started: dict[str, tuple[float, int]] = {}
        self._next_note: dict[str, float] = {}
        self._figures = _Figures()

    def record(self, record: Record) -> None:
        """Add loss and precision to the next line of their stage."""
        self._figures.add(record)

    def __call__(self, stage: str, done: int, total: int) -> None:
        begun, before = self._started.setdefault(stage, (time.monotonic(), done))
        seconds = time.monotonic() - begun
        if done >= total:
            del self._started[stage]
            self._next_note.pop(stage, None)
            self._terminal.note(f"{stage}: {duration(seconds)}{self._shown(stage)}")
        elif done > before and seconds >= self._next_note.setdefault(stage, _FIRST_NOTE):
            self._next_note[stage] = 2.0 * seconds
            left = seconds * (total - done) / (done - before)
            self._terminal.note(f"{stage}: {100 * done // total} %, about {duration(left)} left{self._shown(stage)}")

    def _shown(self, stage: str) -> str:
        figures = self._figures(stage)
        return f", {figures}" if figures else ""


def figures_of(progress: Callback) -> list[RecordCallback]:
    """Return what shows the figures of records beside the progress, if anything does."""
    return [progress.record] if isinstance(progress, (_Bars, _Lines)) else []


def branch(text: str) -> Tree:
    """Return a tree with a text as its root; ``add`` puts others below it."""
    return Tree(Text(printable(text)))


def duration(seconds: float) -> str:
    """Format a time.

    >>> duration(0.25), duration(75), duration(7300)
    ('0.25 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class _Console(Console):
    """A console whose reader may exit: results end with BrokenPipeError, work goes on without notes and progress."""

    def on_broken_pipe(self) -> None:
        if not self.stderr:
            raise BrokenPipeError
        self.quiet = True
        discard(sys.stderr)


def _console(stderr: bool) -> Console:
    console = _Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = _WIDE
    return console


def _cell(value: Any) -> str:
    """Return what a cell shows; line breaks in names and texts are escaped."""
    if isinstance(value, tuple):
        return "\n".join(_cell(line) for line in value)
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else printable(str(value))
