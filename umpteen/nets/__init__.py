"""Networks that score labels themselves: texts in, scores of nodes out. How they are trained is not known here."""

from umpteen.nets.build import Network
from umpteen.nets.cascade import Cascade
from umpteen.nets.full import Full

__all__ = ["Cascade", "Full", "Network"]
