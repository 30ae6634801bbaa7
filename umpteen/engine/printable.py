"""Escape control characters in text that may come from a stranger: label names, texts, settings."""

import json
import re
from typing import Any

# Control characters of terminals: C0, DEL, C1, line and paragraph separators, and the marks of bidirectional text.
# Unpaired surrogates are escaped by the streams.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str, keep: str = "") -> str:
    """Escape control characters, for label names and texts may be untrusted.

    >>> printable("red\\x1b[2J\\tblue")
    'red\\\\x1b[2J\\\\tblue'
    """
    if not UNSAFE.search(text):
        return text
    return UNSAFE.sub(lambda match: match[0] if match[0] in keep else repr(match[0])[1:-1], text)


def json_line(value: Any) -> str:
    """Format a value as JSON on one line, with control characters escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"
