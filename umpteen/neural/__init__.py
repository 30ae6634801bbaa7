"""Encoders and the networks on them: everything that imports torch."""

import umpteen.engine.openmp  # noqa: F401  before torch
