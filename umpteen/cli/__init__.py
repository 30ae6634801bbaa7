"""The ``umpteen`` command: what a person types becomes calls of the library.

Results go to stdout, everything else to stderr. Nothing in the library knows this package.
"""

from umpteen.cli.app import app, main

__all__ = ["app", "main"]
