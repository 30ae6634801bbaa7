"""The ``umpteen`` command. Results are printed to stdout, everything else to stderr."""

from umpteen.cli.app import app, main

__all__ = ["app", "main"]
