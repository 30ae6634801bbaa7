"""Check folders for models and checkpoints: before training begins, and again before they are written."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from umpteen.errors import BadInput, BadModelFile
from umpteen.store.folder import named
from umpteen.store.journal import Journal
from umpteen.store.table import CONFIG, is_stored_name

_JOURNAL = ".umpteen-save"


def journal_of(folder: Path) -> Journal:
    """Return the journal of the saves in a model folder."""
    return Journal(folder, _JOURNAL, is_stored_name)


def check_output(path: str | os.PathLike[str]) -> None:
    """Refuse a folder that a model cannot be saved in: it has other files, is a file, or is not writable."""
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
    """Refuse a folder that stages cannot be saved in, in subfolders ``parts``, or that overlaps with the output."""
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
    """Return whether a path is a folder, None if it does not exist; one call, for another process may create it."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL character, refused later
        return None


def _refuse_nested(folder: Path, stages: Iterable[Path], output: Path) -> None:
    """Refuse stages inside the model folder, and a model inside a folder of stages."""
    target = Path(os.path.realpath(output))
    if Path(os.path.realpath(folder)).is_relative_to(target):
        raise BadInput(
            f"stages cannot be kept in '{folder}', for the model is saved in '{output}'; choose a folder outside it"
        )
    for place in stages:
        if target.is_relative_to(os.path.realpath(place)):
            raise BadInput(f"a model cannot be saved in '{output}', for stages are kept in '{place}'; choose another")


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder with other files, unless it holds a model already."""
    entries = set(os.listdir(folder))
    if not (_is_replaceable(folder) if CONFIG in entries else entries <= _written_by_killed_saves(folder)):
        raise BadInput(
            f"'{folder}' is not empty and holds no umpteen model, so it is left alone; "
            "choose a new folder or empty this one first"
        )


def _is_replaceable(folder: Path) -> bool:
    """Return whether the folder holds a model whose files are known."""
    try:
        named(folder)
    except BadModelFile:
        return False
    return True


def _written_by_killed_saves(folder: Path) -> set[str]:
    journal = journal_of(folder)
    return {journal.name, *(name.partition("/")[0] for name in journal.names())}


def _check_writable(rule: str, folder: Path) -> None:
    """Refuse a folder that cannot be created or written to."""
    if "\0" in str(folder):
        raise BadInput(f"{rule} {str(folder)!r}: a path has no NUL character; choose another folder")
    existing = next((place for place in (folder, *folder.absolute().parents) if os.path.lexists(place)), folder)
    if not existing.exists():
        raise BadInput(f"{rule} '{folder}': '{existing}' is a link to nothing; remove it or choose another folder")
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        raise BadInput(f"{rule} '{folder}': '{existing}' is not a folder you may write to; choose another folder")


@contextmanager
def _explained(rule: str, folder: Path) -> Iterator[None]:
    """Turn an OSError about a path into BadInput."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{rule} '{folder}': {error.strerror or error}; choose another folder") from error
