"""Label names as text: one name per line, escaped."""

import os
import re
from collections.abc import Iterable

from umpteen.errors import BadInput
from umpteen.store.tensors import damaged

# Characters that end a line in some editor or language, and those that UTF-8 cannot encode.
_UNSAFE = re.compile("[\\\\\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(?:u([0-9a-f]{4})|(.))", re.DOTALL)
_SHORT = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_LONG = {character: f"\\{letter}" for letter, character in _SHORT.items()}


def format_labels(labels: Iterable[str]) -> bytes:
    """Return one name per line; backslashes, line breaks and other control characters are escaped."""
    lines = []
    for position, name in enumerate(labels):
        if not isinstance(name, str):
            raise BadInput(f"label names must be text, but name {position} is {name!r}; pass str(name)")
        lines.append(_UNSAFE.sub(_escape, name) if _UNSAFE.search(name) else name)
    return "".join(f"{line}\n" for line in lines).encode()


def parse_labels(content: bytes, source: str | os.PathLike[str]) -> list[str]:
    """Return the names that ``format_labels`` has written."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise damaged(source, f"it is not UTF-8 text ({error})") from None
    lines = text.split("\n")
    if lines.pop():
        raise damaged(source, "its last line has no end")
    return [_ESCAPED.sub(_unescape, line) if "\\" in line else line for line in lines]


def _escape(match: re.Match[str]) -> str:
    return _LONG.get(match[0], f"\\u{ord(match[0]):04x}")


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _SHORT.get(match[2], match[0])
