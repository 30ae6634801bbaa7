"""The specification: plain numpy, slow, obviously right. Every kernel is tested against its twin here."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np

# --- rankings (rank.py) ----------------------------------------------------------------------------


def keep_top(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
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


def rank_sums(Y: np.ndarray, labels: np.ndarray, weights: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of rank.py (its order of rows) and each label's best rank, from dense true labels."""
    sums = np.zeros((10, depth))
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
            np.maximum.accumulate(hit / places), 2.0 * np.cumsum(hit) / (np.cumsum(row >= 0) + n_true),
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


def partition_terms(keys: np.ndarray, counts: np.ndarray, n_shards: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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


# --- sixteen labels at a time (lanes.py) ---------------------------------------------------------------


def dot(
    table: np.ndarray, indices: np.ndarray, values: np.ndarray, start: int, stop: int, out: np.ndarray
) -> np.ndarray:
    """Return out + sum over k in start..stop of values[k] * table[indices[k], :]."""
    return out + values[start:stop].astype(np.float64) @ table[indices[start:stop]].astype(np.float64)


def axpy(
    table: np.ndarray, indices: np.ndarray, values: np.ndarray, start: int, stop: int, step: np.ndarray
) -> np.ndarray:
    """Return the table with values[k] * step added to row indices[k], for k in start..stop."""
    moved = table.astype(np.float64)
    np.add.at(moved, indices[start:stop], np.outer(values[start:stop], step))
    return moved


# --- training (solve.py) -------------------------------------------------------------------------------
# Twins take dense matrices: a zero is a feature that a row does not have.


def gather(X: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the features that several rows have in order of first use, their columns, and all others'."""
    chunk = X[rows]
    shared = (chunk != 0).sum(axis=0) > 1
    first_use = {int(feature): None for row in chunk for feature in np.flatnonzero(row) if shared[feature]}
    features = np.array(list(first_use), np.int32)
    return features, chunk[:, features], np.where(shared, 0, chunk)


def objective(weights: np.ndarray, X: np.ndarray, signs: np.ndarray, costs: np.ndarray, logistic: bool) -> float:
    """Return ½‖w‖² + Σ_i c_i loss(y_i w·x_i), the loss max(0, 1 − m)² or ln(1 + exp(−m)) (eq. 9)."""
    margins = signs * (X @ weights)
    losses = np.logaddexp(0, -margins) if logistic else np.maximum(0, 1 - margins) ** 2
    return float(0.5 * weights @ weights + costs @ losses)


def solve(X: np.ndarray, signs: np.ndarray, costs: np.ndarray, logistic: bool) -> np.ndarray:
    """Minimise the objective for one label by Newton's method, halving a step until it helps."""
    X, weights = X.astype(np.float64), np.zeros(X.shape[1])
    for _ in range(200):
        margins = signs * (X @ weights)
        if logistic:
            wrong = 1 / (1 + np.exp(margins))
            slopes, curves = -costs * wrong, costs * wrong * (1 - wrong)
        else:
            slopes, curves = -2 * costs * np.maximum(0, 1 - margins), 2 * costs * (margins < 1)
        gradient = weights + X.T @ (signs * slopes)
        if np.linalg.norm(gradient) < 1e-9 * (1 + costs.sum()):
            return weights
        step = np.linalg.solve(np.eye(len(weights)) + X.T @ (curves[:, None] * X), gradient)
        now, size = objective(weights, X, signs, costs, logistic), 1.0
        while size > 1e-9 and objective(weights - size * step, X, signs, costs, logistic) > now:
            size /= 2
        weights = weights - size * step
    return weights


def start(X: np.ndarray, is_positive: np.ndarray, negative_cost: float) -> np.ndarray:
    """Return dual variables (rows, lanes): zero for positives, one best common value for all other rows.

    The value is the best one if all rows were negative. The last column of X is the constant feature.
    """
    n, total = len(X), X.astype(np.float64).sum(axis=0)
    common = n / (total @ total + n / (2 * negative_cost))
    return np.where(is_positive, 0.0, -common)


def extract(
    features: np.ndarray, weights: np.ndarray, beta: np.ndarray, private: np.ndarray, threshold: float
) -> np.ndarray:
    """Return all weights (features, lanes): the table's, those of private features, none below threshold."""
    full = private.T @ beta
    full[features] += weights
    return np.where(np.abs(full) >= threshold, full, 0)


# --- one query (row.py) --------------------------------------------------------------------------------


def check_row(indices: np.ndarray, data: np.ndarray, n_features: int, normalize: bool) -> np.ndarray | None:
    """Return the row's values, of length one if asked, or None if it is not sorted, in range and finite."""
    ascending = np.all(np.diff(np.concatenate([[-1], indices, [n_features]])) > 0)
    if not ascending or not np.isfinite(data).all():
        return None
    length = np.linalg.norm(data.astype(np.float64))
    return data / length if normalize and length > 0 else data


# --- clustering (cluster.py) ---------------------------------------------------------------------------


def sum_rows(X: np.ndarray, members: np.ndarray, keep: int) -> np.ndarray:
    """Return the sum of the rows, its largest entries only (of equals the first used), of length one."""
    total = X[members].astype(np.float64).sum(axis=0)
    used = list({int(feature): None for row in X[members] for feature in np.flatnonzero(row)})
    largest = sorted(used, key=lambda feature: -abs(total[feature]))[: keep or None]
    kept = np.zeros_like(total)
    kept[largest] = total[largest]
    return kept / np.linalg.norm(kept) if kept.any() else kept


def halve(X: np.ndarray, n_left: int, pair: tuple[int, int], max_iter: int) -> np.ndarray:
    """Return which rows are left after balanced spherical 2-means that starts from the given pair of rows."""
    X = X.astype(np.float64)
    left, right = (np.arange(len(X)) == one for one in pair)
    for _ in range(max_iter):
        centres = np.stack([X[left].sum(axis=0), X[right].sum(axis=0)])
        length = np.linalg.norm(centres, axis=1, keepdims=True)
        centres = np.divide(centres, length, out=np.zeros_like(centres), where=length > 0)
        order = np.argsort(-(X @ (centres[0] - centres[1])), kind="stable")
        new = np.isin(np.arange(len(X)), order[:n_left])
        if np.array_equal(new, left) and np.array_equal(~new, right):
            break
        left, right = new, ~new
    return left


def add_members(X: np.ndarray, cluster: np.ndarray, k: int) -> np.ndarray:
    """Return the sum of the rows of each cluster, (k, features)."""
    return np.stack([X[cluster == c].sum(axis=0) for c in range(k)])


def fill(scores: np.ndarray, capacity: int) -> np.ndarray:
    """Return each row's best column that has room, giving the choice to the most decided rows first."""
    ranked = np.sort(scores, axis=1)[:, ::-1]
    decided = ranked[:, 0] - ranked[:, 1] if scores.shape[1] > 1 else ranked[:, 0]
    cluster = np.full(len(scores), -1)
    for i in np.argsort(-decided, kind="stable"):
        room = np.bincount(cluster[cluster >= 0], minlength=scores.shape[1]) < capacity
        cluster[i] = np.argmax(np.where(room, scores[i], -np.inf))
    return cluster


# --- prediction (score.py, batch.py) -------------------------------------------------------------------


def post(margins: np.ndarray, kind: str) -> np.ndarray:
    """Return the factors that margins contribute to scores."""
    if kind == "identity":
        return margins
    if kind == "sigmoid":
        return 1 / (1 + np.exp(-margins))
    return np.exp(-(np.maximum(0, 1 - margins) ** int(kind[1])))


def node_scores(
    X: np.ndarray,
    weights: list[np.ndarray],
    bias: list[np.ndarray],
    starts: list[np.ndarray],
    posts: list[str],
) -> list[np.ndarray]:
    """Return, level by level, the score of every node (rows, nodes) whether or not a beam would reach it."""
    above, levels = np.ones((len(X), 1)), []
    for W, b, start, kind in zip(weights, bias, starts, posts, strict=True):
        factors = post(X.astype(np.float64) @ W + b, kind)
        parents = np.repeat(np.arange(len(start) - 1), np.diff(start))
        above = factors if kind == "identity" else factors * above[:, parents]
        levels.append(above)
    return levels


def take_down(scores: np.ndarray, start: np.ndarray, beam: np.ndarray, keep: int, allowed: np.ndarray) -> np.ndarray:
    """Return the best ``keep`` children of one row's beam; of equals, the earlier parent's come first."""
    children = np.concatenate([np.arange(start[p], start[p + 1]) for p in beam] or [np.empty(0, np.int64)])
    children = children[allowed[children] != 0].astype(np.int64)
    return children[np.argsort(-scores[children], kind="stable")][:keep]


def search(
    scores: list[np.ndarray], starts: list[np.ndarray], beams: list[int], k: int, allowed: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Beam-search all rows of ``node_scores``; return nodes of the last level and scores, -1 and 0 pad."""
    n = len(scores[0])
    labels, values = np.full((n, k), -1, np.int32), np.zeros((n, k))
    for i in range(n):
        beam = np.zeros(1, np.int64)
        for level, start in enumerate(starts):
            keep = k if level == len(starts) - 1 else beams[level]
            beam = take_down(scores[level][i], start, beam, keep, allowed[level])
        labels[i, : len(beam)], values[i, : len(beam)] = beam, scores[-1][i, beam]
    return labels, values


def pairs_by_chunk(beam: np.ndarray, n_chunks: int) -> list[list[tuple[int, int]]]:
    """Return, for each chunk, the (row, place) pairs at which the beam holds it."""
    return [[(int(row), int(j)) for row, j in np.argwhere(beam == chunk)] for chunk in range(n_chunks)]


# --- layouts (layout.py) -------------------------------------------------------------------------------


def sort_by_feature(
    features: np.ndarray, nodes: np.ndarray, values: np.ndarray, n_features: int, first: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (pointer, nodes, values) of features from ``first`` on, ordered by feature, otherwise as they were."""
    order = np.argsort(features, kind="stable")
    pointer = np.searchsorted(features[order], first + np.arange(n_features + 1))
    mine = order[pointer[0] : pointer[-1]]
    return pointer - pointer[0], nodes[mine], values[mine]


def encode_log(values: np.ndarray, low: float, per_step: float) -> np.ndarray:
    """Return the code of each weight before rounding: steps above ``low``, and 128 more if it is negative."""
    steps = np.log(np.maximum(np.abs(values.astype(np.float64)), low) / low) * per_step
    return np.clip(steps, 0, 127) + np.where(values < 0, 128, 0)


def split_runs(pointer: np.ndarray, nodes: np.ndarray, starts: np.ndarray) -> list[list[tuple[int, list[int]]]]:
    """Return, for each feature, its runs: a chunk and the places of the feature's nodes in it."""
    chunks = np.searchsorted(starts, nodes, side="right") - 1
    runs = []
    for low, high in pairwise(pointer):
        here, mine = chunks[low:high], nodes[low:high]
        runs.append([(int(c), (mine[here == c] - starts[c]).tolist()) for c in dict.fromkeys(here)])
    return runs


# --- arrays from a file (check.py) ---------------------------------------------------------------------


def check_runs(
    ptr: np.ndarray, run_ptr: np.ndarray, run_chunk: np.ndarray, run_last: np.ndarray, local: np.ndarray,
    starts: np.ndarray, first: int, last: int,
) -> int:  # fmt: skip
    """Return the first feature whose runs do not share out its postings among ascending chunks, or -1."""
    widths = np.diff(starts)
    for f in range(first, last):
        runs = slice(run_ptr[f], run_ptr[f + 1])
        chunks, lengths = run_chunk[runs].astype(int), run_last[runs].astype(int) + 1
        postings = local[ptr[f] : ptr[f + 1]].astype(int)
        if lengths.sum() != len(postings) or (np.diff(chunks) <= 0).any() or (chunks >= len(widths)).any():
            return f
        for chunk, children in zip(chunks, np.split(postings, np.cumsum(lengths)[:-1]), strict=False):
            if (np.diff(children) <= 0).any() or (children >= widths[chunk]).any():
                return f
    return -1


# --- targets of nodes (lift.py) ------------------------------------------------------------------------


def rows_by_node(
    Y: np.ndarray, node_of: np.ndarray, predicted: np.ndarray, n_nodes: int, *, has_true: bool
) -> list[dict[int, float]]:
    """Return, for each node, the rows that have it and the sum of the values of their labels below it."""
    found: list[dict[int, float]] = [{} for _ in range(n_nodes)]
    for row in range(len(Y)):
        for label in np.flatnonzero(Y[row]) if has_true else []:
            node = found[node_of[label]]
            node[row] = node.get(row, 0.0) + float(Y[row, label])
        for node in predicted[row][predicted[row] >= 0]:
            found[node].setdefault(row, 0.0)
    return [dict(sorted(rows.items())) for rows in found]
