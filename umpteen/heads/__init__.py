"""How a node scores a text: training and packed prediction of linear scorers."""

from umpteen.heads.choose import settle
from umpteen.heads.dense import DenseHead
from umpteen.heads.fit import train
from umpteen.heads.linear import LinearTree
from umpteen.heads.pack import Level

__all__ = ["DenseHead", "Level", "LinearTree", "settle", "train"]
