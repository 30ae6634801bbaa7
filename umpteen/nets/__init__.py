"""Networks that score labels themselves: texts in, scores and losses out. Tables without an optimiser step themselves;
the loop that trains all else is not known here.
"""

import umpteen.engine.openmp  # noqa: F401  before torch
from umpteen.nets.build import Network
from umpteen.nets.cascade import Cascade
from umpteen.nets.full import Full

__all__ = ["Cascade", "Full", "Network"]
