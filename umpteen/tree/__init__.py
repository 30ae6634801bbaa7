"""Label vectors, their clustering, and the label tree."""

from umpteen.tree.build import (
    FEW_LABELS,
    build,
    check_given,
    cluster_bytes,
    grow,
    grow_top,
    network_levels,
    resolutions,
    shape,
    starts_of,
)
from umpteen.tree.columns import Columns, count_entries, lifted_columns, mask_columns
from umpteen.tree.embed import both, pifa, pifa_dense, sum_members
from umpteen.tree.tree import LabelTree, relevance

__all__ = [
    "FEW_LABELS", "Columns", "LabelTree", "both", "build", "check_given", "cluster_bytes", "count_entries",
    "grow", "grow_top", "lifted_columns", "mask_columns", "network_levels", "pifa", "pifa_dense", "relevance",
    "resolutions", "shape", "starts_of", "sum_members",
]  # fmt: skip
