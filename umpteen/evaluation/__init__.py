"""Evaluation of models on datasets: metrics, results per text, breakdowns, curves and comparisons."""

from umpteen.evaluation.model import Evaluation, evaluate_model, label_weights, read_for, unseen_labels

__all__ = ["Evaluation", "evaluate_model", "label_weights", "read_for", "unseen_labels"]
