"""Metrics by frequency of the labels and by number of labels of the texts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rankings import made
from umpteen.evaluation import BreakdownMetrics, break_down, frequency_groups
from umpteen.metrics import evaluate
from umpteen.shortlist import TopK


def test_groups_by_hand() -> None:
    # 30 assignments: the label of 9 and the next one reach the first 10, those up to 4 the first 20
    assert frequency_groups([2, 9, 5, 4, 3, 3, 2, 1, 1, 0]).tolist() == [2, 0, 0, 1, 1, 1, 2, 2, 2, 3]
    assert frequency_groups([5, 5, 5]).tolist() == [0, 0, 0]  # labels of one count are not separated
    assert frequency_groups([0, 0]).tolist() == [3, 3]
    assert frequency_groups([7]).tolist() == [0]
    assert frequency_groups([]).tolist() == []


@given(st.lists(st.integers(0, 30), max_size=30))
def test_groups_equal_a_plain_loop(counts: list[int]) -> None:
    total, before, limits = sum(counts), 0, [0, 0]
    for count in sorted(counts, reverse=True):
        for part in (0, 1):
            if count and 3 * before < (part + 1) * total:
                limits[part] = count
        before += count
    expected = [3 if not count else 0 if count >= limits[0] else 1 if count >= limits[1] else 2 for count in counts]
    assert frequency_groups(counts).tolist() == expected


def test_parts_by_hand() -> None:
    top = TopK([[0, 1], [0, 3], [2, 1]], [[0.9, 0.4], [0.7, 0.1], [0.7, 0.1]])
    Y = [[1, 1, 0, 0, 0], [1, 0, 1, 0, 1], [0, 0, 0, 0, 0]]
    found = break_down(top, Y, counts=[12, 4, 1, 1], ks=(1, 2))
    head, tail, unseen = found.by_frequency
    assert (head["group"], head["labels"], head["fewest"], head["most"]) == ("head", 1, 12, 12)
    assert (head["training_assignments"], head["assignments"]) == (12, 2)
    assert (head["P@1"], head["P@2"]) == (pytest.approx(200 / 3), pytest.approx(200 / 6))
    assert (head["recall@1"], head["recall@2"]) == (100, 100)
    assert (tail["group"], tail["labels"], tail["fewest"], tail["most"]) == ("tail", 3, 1, 4)
    assert (tail["assignments"], tail["recall@1"], tail["recall@2"]) == (2, 0, 50)
    assert (unseen["group"], unseen["labels"], unseen["assignments"], unseen["P@2"]) == ("unseen", 1, 1, 0)
    assert [(group["labels_per_text"], group["texts"]) for group in found.by_number] == [("0", 1), ("2", 1), ("3-5", 1)]
    assert [group["P@2"] for group in found.by_number] == [0, 100, 50]
    assert found.by_number[2]["R@2"] == pytest.approx(100 / 3)


@settings(deadline=None)  # the first call loads compiled kernels
@given(st.integers(0, 2**32 - 1))
def test_parts_add_up_to_the_whole(seed: int) -> None:
    top, Y = made(seed)
    found = break_down(top, Y, np.random.default_rng(seed).integers(0, 9, 9))
    whole = evaluate(top, Y)
    for k in (1, 3, 5):
        assert sum(group[f"P@{k}"] for group in found.by_frequency) == pytest.approx(whole[f"P@{k}"])
        mean = sum(group["texts"] * group[f"R@{k}"] for group in found.by_number) / len(Y)
        assert mean == pytest.approx(whole[f"R@{k}"])
    assert sum(group["assignments"] for group in found.by_frequency) == Y.sum()
    assert sum(group["texts"] for group in found.by_number) == len(Y)


def test_blocks_give_what_the_whole_gives() -> None:
    top, Y = made(seed=5)
    collected = BreakdownMetrics([3, 2, 2, 1])
    for rows in (slice(0, 3), slice(3, 20)):
        collected.add(top[rows], Y[rows])
    assert collected.result() == break_down(top, Y, [3, 2, 2, 1])
