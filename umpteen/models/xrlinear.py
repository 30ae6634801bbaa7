"""The linear recipes: one machine, five presets.

They differ in the tree, in how a node is trained, and in how many trees vote. XR-Linear is Yu et al., "PECOS:
Prediction for Enormous and Correlated Output Spaces" (JMLR 2022); the others name their papers below.
"""

from __future__ import annotations

from umpteen.models.base import Model


class XRLinear(Model):
    """A balanced tree with up to 64 children a node, squared hinge, one tree: fast, small, accurate."""

    recipe = "xr-linear"
    paper = "Yu, Zhong, Zhang, Chang, Dhillon: PECOS (JMLR 2022)"
    preset = {}


class Parabel(Model):
    """Three binary trees whose scores are averaged."""

    recipe = "parabel"
    paper = "Prabhu, Kag, Harsola, Agrawal, Varma: Parabel (WWW 2018)"
    preset = {"linear.negatives": "tfn", "trees": 3, "tree.branching": 2, "tree.leaf_size": 100}


class Bonsai(Model):
    """Shallow trees of unbalanced clusters, a hundred wide, three of them."""

    recipe = "bonsai"
    paper = "Khandagale, Xiao, Babbar: Bonsai (Machine Learning 2020)"
    preset = {"linear.negatives": "tfn", "trees": 3, "tree.kind": "unbalanced", "tree.branching": 100, "tree.leaf_size": 100}


class PLT(Model):
    """A probabilistic label tree: logistic nodes whose probabilities multiply down the path."""

    recipe = "plt"
    paper = "Jasinska-Kobus, Wydmuch, Dembczyński, Kuznetsov, Busa-Fekete: Probabilistic label trees (2020)"
    preset = {"linear.negatives": "tfn", "linear.loss": "logistic", "linear.cost": 10.0, "search.post": "sigmoid", "tree.branching": 16}


class DiSMEC(Model):
    """One scorer per label against all rows, no tree, small weights dropped: the accurate, slow end."""

    recipe = "dismec"
    paper = "Babbar, Schölkopf: DiSMEC (WSDM 2017)"
    preset = {"tree.kind": "none", "linear.threshold": 0.05, "linear.eps": 0.03}
