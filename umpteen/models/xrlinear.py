"""The linear recipes: one machine, five presets.

They differ in the tree, in how a node is trained, and in how many trees vote. A preset holds only what differs
from the default settings, which are XR-Linear's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from umpteen.models.base import Model


class XRLinear(Model):
    """One balanced tree with up to 128 children a node, squared hinge: fast, small, accurate."""

    recipe = "xr-linear"
    paper = "Yu, Zhong, Zhang, Chang, Dhillon: PECOS (JMLR 2022)"
    preset: ClassVar[Mapping[str, Any]] = {}


class Parabel(Model):
    """Three binary trees whose scores are averaged."""

    recipe = "parabel"
    paper = "Prabhu, Kag, Harsola, Agrawal, Varma: Parabel (WWW 2018)"
    preset: ClassVar[Mapping[str, Any]] = {
        "trees": 3,
        "tree.branching": 2,
        "tree.leaf_size": 100,
        "linear.cost": 1.0,
        "linear.negatives": "tfn",
        "search.upper_beam": 1.0,
    }


class Bonsai(Model):
    """Shallow trees of unbalanced clusters, a hundred wide, three of them."""

    recipe = "bonsai"
    paper = "Khandagale, Xiao, Babbar: Bonsai (Machine Learning 2020)"
    preset: ClassVar[Mapping[str, Any]] = {
        "trees": 3,
        "tree.kind": "unbalanced",
        "tree.branching": 100,
        "tree.leaf_size": 100,
        "linear.cost": 1.0,
        "linear.negatives": "tfn",
        "search.upper_beam": 1.0,
    }


class PLT(Model):
    """A probabilistic label tree: logistic nodes whose probabilities multiply down the path."""

    recipe = "plt"
    paper = "Jasinska-Kobus, Wydmuch, Dembczyński, Kuznetsov, Busa-Fekete: Probabilistic label trees (2020)"
    preset: ClassVar[Mapping[str, Any]] = {
        "tree.branching": 16,
        "linear.loss": "logistic",
        "linear.cost": 10.0,
        "linear.max_iter": 20,
        "linear.negatives": "tfn",
        "search.post": "sigmoid",
        "search.upper_beam": 1.0,
    }


class DiSMEC(Model):
    """One classifier per label against all rows, no tree, small weights dropped: the accurate, slow end."""

    recipe = "dismec"
    paper = "Babbar, Schölkopf: DiSMEC (WSDM 2017)"
    preset: ClassVar[Mapping[str, Any]] = {
        "tree.kind": "none",
        "linear.cost": 1.0,
        "linear.eps": 0.03,
        "linear.max_iter": 60,
        "linear.threshold": 0.05,
    }
