"""The specification: plain numpy, slow, obviously right. Every kernel is tested against its twin here."""

from __future__ import annotations

import re

import numpy as np

# --- rankings (rank.py) ----------------------------------------------------------------------------


def keep_top(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k best (labels, scores) of every CSR row, best first, then by label; -1 and 0 fill up."""
    n = len(indptr) - 1
    labels, scores = np.full((n, k), -1, np.int32), np.zeros((n, k), np.float32)
    for i in range(n):
        row = slice(indptr[i], indptr[i + 1])
        order = np.lexsort((indices[row], -data[row]))[:k]
        labels[i, : len(order)], scores[i, : len(order)] = indices[row][order], data[row][order]
    return labels, scores


def merge_rows(
    labels: np.ndarray, values: np.ndarray, k: int, take_largest: bool, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k best labels after adding up (or taking the largest of) the values of equal labels."""
    out_labels, out_scores = np.full((len(labels), k), -1, np.int32), np.zeros((len(labels), k), np.float32)
    for i in range(len(labels)):
        filled = labels[i] >= 0
        unique, place = np.unique(labels[i][filled], return_inverse=True)
        totals = np.zeros(len(unique))
        (np.maximum if take_largest else np.add).at(totals, place, values[i][filled].astype(np.float64))
        totals = (totals * scale).astype(np.float32)
        order = np.lexsort((unique, -totals))[:k]
        out_labels[i, : len(order)], out_scores[i, : len(order)] = unique[order], totals[order]
    return out_labels, out_scores


def first_repeat(labels: np.ndarray, depth: int) -> int:
    """Return the first row that holds a label twice among its first ``depth`` places, or -1."""
    for i, row in enumerate(labels[:, :depth]):
        filled = row[row >= 0]
        if len(np.unique(filled)) < len(filled):
            return i
    return -1


def rank_sums(
    Y: np.ndarray, labels: np.ndarray, weights: np.ndarray, depth: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of rank.py (its order of rows) and each label's best rank, from dense true labels."""
    sums = np.zeros((9, depth))
    first_hit = np.full(Y.shape[1], np.iinfo(np.int32).max, np.int32)
    discounts = 1.0 / np.log2(np.arange(depth) + 2.0)
    places = np.arange(1, depth + 1)
    weigh = weights if len(weights) else np.zeros(Y.shape[1])
    for truth, row in zip(Y.astype(bool), labels, strict=True):
        n_true = int(truth.sum())
        if n_true == 0:
            continue
        row = np.concatenate([row, np.full(depth, -1)])[:depth].astype(np.int64)
        hit = (row >= 0) & truth[row]
        ideal = np.cumsum(discounts * (places <= n_true))
        gain = np.where(hit, weigh[row], 0.0)
        best = np.concatenate([np.sort(weigh[truth])[::-1], np.zeros(depth)])[:depth]
        sums += np.stack([
            np.cumsum(hit), np.cumsum(hit) / n_true, np.cumsum(hit) / np.minimum(places, n_true),
            np.cumsum(hit * discounts) / ideal, np.cumsum(gain), np.cumsum(best),
            np.cumsum(gain * discounts) / ideal, np.cumsum(best * discounts) / ideal,
            np.maximum.accumulate(hit / places),
        ])  # fmt: skip
        found = row[hit]
        first_hit[found] = np.minimum(first_hit[found], np.flatnonzero(hit))
    return sums, first_hit


def count_above(
    Y: np.ndarray, labels: np.ndarray, scores: np.ndarray, threshold: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return per label how often its score reaches the threshold rightly, and how often at all."""
    predicted = np.zeros(Y.shape, bool)
    rows, places = np.nonzero((labels >= 0) & (scores >= threshold))
    predicted[rows, labels[rows, places]] = True
    return (predicted & Y.astype(bool)).sum(axis=0), predicted.sum(axis=0)


# --- lines of label,label feature:value (parse.py) ---------------------------------------------------


def parse_rows(
    text: bytes, n_labels: int, n_features: int, keep_blank: bool
) -> tuple[list[tuple[list[int], list[tuple[int, float]]]], bool]:
    """Return each line's labels and features up to the first bad line, and whether all lines were good."""
    pattern = rb"(\d+(?:,\d+)*)?((?:(?:[ \t\r]+|^)\d+:[^ \t\r#]+)*)[ \t\r]*((?<![^ \t\r])#.*)?"
    rows = []
    for line in text.split(b"\n")[:-1]:
        parts = re.fullmatch(pattern, line)
        if parts is None:
            return rows, False
        labels = [int(label) for label in (parts[1] or b"").split(b",") if label]
        pairs = [pair.split(b":", 1) for pair in parts[2].split()]
        numeral = rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
        if not all(re.fullmatch(numeral, value) for _, value in pairs):
            return rows, False
        features = [(int(index), float(value)) for index, value in pairs]
        largest = float(np.finfo(np.float32).max)
        in_range = all(index < n_features and abs(value) <= largest for index, value in features)
        if not in_range or max(labels, default=-1) >= n_labels:
            return rows, False
        if keep_blank or labels or features:
            rows.append((labels, features))
    return rows, True


# --- terms of texts (text.py, vocabulary.py) -----------------------------------------------------------


def text_terms(text: str, analyzer: str, shortest: int, longest: int) -> list[tuple[str, ...]]:
    """Return every n-gram of a text as a tuple of its units: words for "word", otherwise characters."""
    if analyzer == "word":
        groups = [re.findall(r"\w\w+", text)]
    elif analyzer == "char":
        groups = [list(re.sub(r"\s\s+", " ", text))]
    else:
        groups = [[" ", *word, " "] for word in text.split()]
    terms = []
    for units in groups:
        for i in range(len(units)):
            terms += [tuple(units[i : i + n]) for n in range(shortest, longest + 1) if i + n <= len(units)]
        if analyzer == "char_wb" and len(units) < shortest:
            # A padded word too short for any n-gram counts once, as a whole.
            terms.append(tuple(units))
    return terms


def term_key(units: tuple[str, ...], analyzer: str) -> int:
    """Return the 64-bit key of an n-gram."""
    bits, seed = (1 << 64) - 1, 0x243F6A8885A308D3

    def mix(x: int) -> int:
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & bits
        x = (x ^ x >> 27) * 0x94D049BB133111EB & bits
        return x ^ x >> 31

    def unit_key(unit: str) -> int:
        if analyzer != "word":
            return mix(seed + ord(unit) & bits)
        data, key = unit.encode(), seed
        whole = len(data) // 8 * 8
        for i in range(0, whole, 8):
            key = mix(key ^ int.from_bytes(data[i : i + 8], "big"))
        return mix(key ^ int.from_bytes(data[whole:], "big"))

    key = unit_key(units[0])
    for unit in units[1:]:
        key = mix(key * 0x9E3779B97F4A7C15 + unit_key(unit) & bits)
    return key or 1


def partition_terms(
    keys: np.ndarray, counts: np.ndarray, n_shards: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Order terms by the highest bits of their keys, otherwise as they were; count those of each shard."""
    shards = np.array([int(key) * n_shards >> 64 for key in keys], np.int64)
    order = np.argsort(shards, kind="stable")
    return keys[order], counts[order], np.bincount(shards, minlength=n_shards)


def merge_terms(keys: np.ndarray, counts: np.ndarray) -> dict[int, tuple[int, int]]:
    """Return each key's number of entries and the sum of its counts."""
    return {int(key): (int((keys == key).sum()), int(counts[keys == key].sum())) for key in np.unique(keys)}


def weigh_row(counts: dict[int, int], idf: np.ndarray, sublinear: bool) -> np.ndarray:
    """Return the dense row of length one of a text with these counts per column."""
    row = np.zeros(idf.size)
    for column, count in counts.items():
        row[column] = (1 + np.log(count) if sublinear else count) * idf[column]
    return row / np.linalg.norm(row) if counts else row
