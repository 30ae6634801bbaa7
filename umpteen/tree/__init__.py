"""Who is near whom: label vectors, clustering, and the tree itself."""

from umpteen.tree.build import FEW_LABELS, build, check_given, cluster_bytes, network_levels, resolutions, shape
from umpteen.tree.embed import both, pifa, pifa_dense
from umpteen.tree.tree import LabelTree, relevance

__all__ = [
    "FEW_LABELS",
    "LabelTree",
    "both",
    "build",
    "check_given",
    "cluster_bytes",
    "network_levels",
    "pifa",
    "pifa_dense",
    "relevance",
    "resolutions",
    "shape",
]
