"""Evaluation of models on datasets: metrics, results per text, breakdowns, curves and comparisons."""

from umpteen.evaluation.breakdown import Breakdown, BreakdownMetrics, break_down, frequency_groups
from umpteen.evaluation.comparison import Comparison, Difference, compare_models, compare_rankings
from umpteen.evaluation.curves import (
    PrecisionRecall,
    ThresholdCurve,
    draw_precision_recall,
    draw_reliability,
    precision_recall,
)
from umpteen.evaluation.model import Evaluation, evaluate_model, label_weights, read_for, training_counts, unseen_labels
from umpteen.evaluation.texts import TextResults, text_metrics

__all__ = [
    "Breakdown", "BreakdownMetrics", "Comparison", "Difference", "Evaluation", "PrecisionRecall", "TextResults",
    "ThresholdCurve", "break_down", "compare_models", "compare_rankings", "draw_precision_recall", "draw_reliability",
    "evaluate_model", "frequency_groups", "label_weights", "precision_recall", "read_for", "text_metrics",
    "training_counts", "unseen_labels",
]  # fmt: skip
