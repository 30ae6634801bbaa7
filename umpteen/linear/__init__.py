"""Linear classifiers in a tree: training, storage and search."""

from umpteen.linear.choose import settle
from umpteen.linear.dense import DenseHead
from umpteen.linear.fit import train
from umpteen.linear.pack import Level
from umpteen.linear.search import LinearTree

__all__ = ["DenseHead", "Level", "LinearTree", "settle", "train"]
