"""The table of files in ``config.json``: names of files, and their names on disk.

weights.safetensors     is stored as  weights-<digest>.safetensors
encoder/config.json     is stored as  encoder-<digest>/config.json, with one digest for all files of the folder
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from umpteen.store.atomic import Buffer
from umpteen.store.journal import is_temporary
from umpteen.store.names import is_plain
from umpteen.store.tensors import ARRAYS, damaged

CONFIG = "config.json"
LABELS = "labels.txt"
_DIGEST = re.compile(r"-[0-9a-f]{16}\Z")


def stored_names(files: Mapping[str, Sequence[Buffer]]) -> dict[str, str]:
    """Map file names to names on disk: with a digest before the extension, or after the name of the folder."""
    digests = {name: digest_of(parts) for name, parts in files.items()}
    names = {}
    for name, digest in digests.items():
        top, slash, rest = name.partition("/")
        if slash:
            inside = [other for other in sorted(files) if other.startswith(f"{top}/")]
            folder_digest = digest_of(f"{other} {digests[other]}\n".encode() for other in inside)
            names[name] = f"{top}-{folder_digest}/{rest}"
        else:
            stem, dot, ending = name.partition(".")
            names[name] = f"{stem}-{digest}{dot}{ending}"
    return names


def digest_of(parts: Iterable[Buffer]) -> str:
    """Return the digest of content in parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


def check_files(table: Mapping[str, Any], folder: Path) -> dict[str, tuple[str, int]]:
    """Check the table of files: names must be plain and stored where a save puts them, so no two share a file."""
    files, digests = {}, {}
    for name, entry in table.items():
        file, size = (entry.get("file"), entry.get("bytes")) if isinstance(entry, dict) else (None, None)
        if not isinstance(file, str) or not is_plain(name) or type(size) is not int or size < 0:
            raise damaged(folder / CONFIG, f"its entry for the file {name[:80]!r} is not valid")
        plain, digest = _without_digest(file)
        place = f"{name.partition('/')[0]}/" if "/" in name else name  # the files of a folder have one digest
        if plain != name or digests.setdefault(place, digest) != digest:
            raise damaged(folder / CONFIG, f"its file {name[:80]!r} is at {file[:80]!r}, where no save puts it")
        files[name] = (file, size)
    return files


def is_stored_name(file: str) -> bool:
    """Return whether a save uses such a name on disk, for a final or a temporary file."""
    if is_temporary(file):
        file = f"{file[: file.rfind('/') + 1]}temporary" if "/" in file else "temporary-0123456789abcdef"
    return is_plain(_without_digest(file)[0])


def holds_arrays(name: str) -> bool:
    """Return whether a file holds arrays of the model; files in folders belong to encoders or other models."""
    return name.endswith(ARRAYS) and "/" not in name


def _without_digest(file: str) -> tuple[str, str]:
    """Return the plain name of a file on disk and the digest in its name; empty strings if it has none."""
    top, slash, rest = file.partition("/")
    stem, dot, ending = (top, "", "") if slash else top.partition(".")
    found = _DIGEST.search(stem)
    return (f"{stem[: found.start()]}{dot}{ending}{slash}{rest}", found[0]) if found else ("", "")
