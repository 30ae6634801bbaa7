"""Where a model may be saved and where stages may be kept: looked at before work begins, and again when writing."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from umpteen.errors import BadInput, BadModelFile
from umpteen.store.folder import named
from umpteen.store.journal import Journal
from umpteen.store.names import lies_in
from umpteen.store.table import CONFIG, is_stored_name

_JOURNAL = ".umpteen-save"


def journal_of(folder: Path) -> Journal:
    """Return the list of what saves in a model folder wrote and did not clean up."""
    return Journal(folder, _JOURNAL, is_stored_name)


def check_output(path: str | os.PathLike[str]) -> None:
    """Refuse a place that cannot take a model: somebody else's folder, a file, a place nobody may write to."""
    folder = Path(path)
    with _explained("a model cannot be saved in", folder):
        is_folder = _is_folder(folder)
        if is_folder:
            _refuse_foreign(folder)
        elif is_folder is not None:
            raise BadInput(f"a model is saved as a folder, but '{folder}' is a file; choose another name")
        _check_writable("a model cannot be saved in", folder)


def check_checkpoint(
    path: str | os.PathLike[str], parts: Iterable[str], output: str | os.PathLike[str] | None = None
) -> None:
    """Refuse a place that cannot take stages, in folders named by ``parts``, or whose stages would meet the model's."""
    folder = Path(path)
    places = [folder, *(folder / part for part in parts)]
    if output is not None:
        _refuse_nested(folder, places[1:], Path(output))
    for place in places:
        with _explained("stages cannot be kept in", place):
            if _is_folder(place) is False:
                raise BadInput(f"stages are kept in a folder, but '{place}' is a file; choose another name")
            _check_writable("stages cannot be kept in", place)


def _is_folder(path: Path) -> bool | None:
    """Say whether a folder is there, None if there is nothing; asked once, as another process may make it meanwhile."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # a NUL character is told of later
        return None


def _refuse_nested(folder: Path, stages: Iterable[Path], output: Path) -> None:
    """Refuse stages inside the model's folder, and a model inside a folder of stages."""
    target = os.path.realpath(output)
    if _is_in(os.path.realpath(folder), target):
        raise BadInput(
            f"stages cannot be kept in '{folder}', for the model is saved in '{output}'; choose a folder outside it"
        )
    for place in stages:
        if _is_in(target, os.path.realpath(place)):
            raise BadInput(f"a model cannot be saved in '{output}', for stages are kept in '{place}'; choose another")


def _is_in(path: str, folder: str) -> bool:
    return path == folder or lies_in(path, folder)


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder with files of somebody else, unless a model already lives there."""
    entries = set(os.listdir(folder))
    if not (_is_replaceable(folder) if CONFIG in entries else entries <= _of_killed_saves(folder)):
        raise BadInput(
            f"'{folder}' is not empty and holds no umpteen model, so it is left alone; "
            "choose a new folder or empty this one first"
        )


def _is_replaceable(folder: Path) -> bool:
    """Say whether a model lives there and it is known which files are its own."""
    try:
        named(folder)
    except BadModelFile:
        return False
    return True


def _of_killed_saves(folder: Path) -> set[str]:
    journal = journal_of(folder)
    return {journal.name, *(name.partition("/")[0] for name in journal.names())}


def _check_writable(rule: str, folder: Path) -> None:
    """Refuse a folder that cannot be made or written to."""
    if "\0" in str(folder):
        raise BadInput(f"{rule} {str(folder)!r}: a path has no NUL character; choose another folder")
    there = next((place for place in (folder, *folder.absolute().parents) if os.path.lexists(place)), folder)
    if not there.exists():
        raise BadInput(f"{rule} '{folder}': '{there}' is a link to nothing; remove it or choose another folder")
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise BadInput(f"{rule} '{folder}': '{there}' is not a folder you may write to; choose another folder")


@contextmanager
def _explained(rule: str, folder: Path) -> Iterator[None]:
    """Turn what the system says of a path it cannot even look at into a sentence."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{rule} '{folder}': {error.strerror or error}; choose another folder") from error
