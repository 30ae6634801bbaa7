"""Who is near whom: label vectors, clustering, and the tree itself."""

from umpteen.tree.build import build, shape
from umpteen.tree.embed import both, pifa
from umpteen.tree.tree import LabelTree, relevance

__all__ = ["LabelTree", "both", "build", "pifa", "relevance", "shape"]
