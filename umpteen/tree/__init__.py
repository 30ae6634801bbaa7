"""Label vectors, their clustering, and the label tree."""

from umpteen.tree.build import FEW_LABELS, build, check_given, cluster_bytes, network_levels, resolutions, shape
from umpteen.tree.embed import both, pifa, pifa_dense
from umpteen.tree.tree import LabelTree, relevance

__all__ = [
    "FEW_LABELS", "LabelTree", "both", "build", "check_given", "cluster_bytes", "network_levels", "pifa", "pifa_dense",
    "relevance", "resolutions", "shape",
]  # fmt: skip
