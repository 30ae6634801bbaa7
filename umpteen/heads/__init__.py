"""How a node scores a text: training and packed prediction of linear scorers."""

from umpteen.heads.fit import negatives_for, train
from umpteen.heads.linear import Level, LinearTree

__all__ = ["Level", "LinearTree", "negatives_for", "train"]
