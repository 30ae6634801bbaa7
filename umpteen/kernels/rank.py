"""Kernels over rankings: keep the best of a row, merge several rankings, sum up how good one is.

They know arrays only: no label names, no percentages, no rule's name. Equal scores are ordered by label, so
every result is the same on every machine.
"""

from __future__ import annotations

import numpy as np

from umpteen.kernels.jit import inner, jit

# Rows of the array that ``rank_sums`` fills; column d holds the sum over texts at depth d + 1.
HITS, RECALL, R_PRECISION, NDCG, PS_GAIN, PS_BEST, PS_DCG, PS_DCG_BEST, RECIPROCAL = range(9)
N_SUMS = 9

_LOW_31_BITS = 0x7FFFFFFF
_LOW_32_BITS = 0xFFFFFFFF
_LARGEST = np.iinfo(np.int64).max


@inner
def _order_key(bits, label):
    """Pack the bits of a float32 score and a label: ascending keys are descending scores, then labels."""
    ordered = bits ^ ((bits >> 31) & _LOW_31_BITS)  # compares like the float does
    return (np.int64(~ordered) << 32) | np.int64(label)


@inner
def _unpack(keys, n, out_labels, out_bits):
    """Write the first n keys back as labels and score bits; the rest becomes padding."""
    for j in range(n):
        ordered = ~(keys[j] >> 32)
        out_labels[j] = keys[j] & _LOW_32_BITS
        out_bits[j] = ordered ^ ((ordered >> 31) & _LOW_31_BITS)
    out_labels[n:] = -1
    out_bits[n:] = 0


@jit
def keep_top(indptr, indices, bits, out_labels, out_bits):
    """Write the k best entries of every CSR row, best first.

    ``bits`` and ``out_bits`` are float32 scores seen as int32. Keys gather in a buffer of 2k; when it is full
    it is sorted and its better half stays, so a row of m entries costs m comparisons and few sorts.
    """
    n, k = out_labels.shape
    room = np.empty(2 * k, np.int64)
    for i in range(n):
        held = 0
        limit = _LARGEST
        for j in range(indptr[i], indptr[i + 1]):
            key = _order_key(bits[j], indices[j])
            if key < limit:
                room[held] = key
                held += 1
                if held == 2 * k:
                    room.sort()
                    held = k
                    limit = room[k - 1]
        room[:held].sort()
        _unpack(room, min(held, k), out_labels[i], out_bits[i])


@inner
def _combine(room, held, values, take_largest, scale):
    """Replace sorted (label, position) keys by one order key a label, in place; return how many."""
    score = np.empty(1, np.float32)
    bits = score.view(np.int32)
    position = 0
    merged = 0
    while position < held:
        label = room[position] >> 32
        total = 0.0
        while position < held and room[position] >> 32 == label:
            value = np.float64(values[room[position] & _LOW_32_BITS])
            total = max(total, value) if take_largest else total + value
            position += 1
        score[0] = total * scale
        room[merged] = _order_key(bits[0], label)
        merged += 1
    return merged


@jit
def merge_rows(labels, values, out_labels, out_bits, take_largest, scale):
    """Merge rankings laid side by side: add up (or take the largest of) each label's values, keep the best.

    ``labels`` and ``values`` are (n, width) with -1 pads anywhere; a merged value is multiplied by ``scale``.
    With ``take_largest`` values must not be negative.
    """
    n, width = labels.shape
    k = out_labels.shape[1]
    room = np.empty(width, np.int64)
    for i in range(n):
        held = 0
        for j in range(width):
            if labels[i, j] >= 0:
                room[held] = (np.int64(labels[i, j]) << 32) | j
                held += 1
        room[:held].sort()
        merged = _combine(room, held, values[i], take_largest, scale)
        room[:merged].sort()
        _unpack(room, min(merged, k), out_labels[i], out_bits[i])


@inner
def _contains(indices, low, high, label):
    """Tell whether a sorted slice holds the label."""
    end = high
    while low < high:
        middle = (low + high) >> 1
        if indices[middle] < label:
            low = middle + 1
        else:
            high = middle
    return low < end and indices[low] == label


@inner
def _largest_weights(weights, indices, low, high, best):
    """Fill ``best`` with the largest weights of the slice's labels, descending, zeros after them."""
    best[:] = 0.0
    depth = best.shape[0]
    for j in range(low, high):
        weight = weights[indices[j]]
        if weight > best[depth - 1]:
            d = depth - 1
            while d > 0 and best[d - 1] < weight:
                best[d] = best[d - 1]
                d -= 1
            best[d] = weight


@inner
def _add_row(row, hit_at, n_true, weights, best, sums):
    """Add one text to the sums: ``hit_at[d]`` says whether its label at rank d is true."""
    hits = 0
    dcg, ideal, gain, gain_best, gain_dcg, gain_dcg_best, reciprocal = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    weighted = weights.shape[0] > 0
    for d in range(sums.shape[1]):
        discount = 1.0 / np.log2(d + 2.0)
        if d < n_true:
            ideal += discount
        if hit_at[d]:
            hits += 1
            dcg += discount
            if hits == 1:
                reciprocal = 1.0 / (d + 1.0)
            if weighted:
                gain += weights[row[d]]
                gain_dcg += weights[row[d]] * discount
        sums[HITS, d] += hits
        sums[RECALL, d] += hits / n_true
        sums[R_PRECISION, d] += hits / min(d + 1, n_true)
        sums[NDCG, d] += dcg / ideal
        sums[RECIPROCAL, d] += reciprocal
        if weighted:
            gain_best += best[d]
            gain_dcg_best += best[d] * discount
            sums[PS_GAIN, d] += gain
            sums[PS_BEST, d] += gain_best
            sums[PS_DCG, d] += gain_dcg / ideal
            sums[PS_DCG_BEST, d] += gain_dcg_best / ideal


@jit
def first_repeat(labels, depth):
    """Return the first row that holds a label twice among its first ``depth`` places, or -1."""
    for i in range(labels.shape[0]):
        for d in range(1, min(depth, labels.shape[1])):
            for earlier in range(d):
                if labels[i, d] >= 0 and labels[i, earlier] == labels[i, d]:
                    return i
    return -1


@jit
def rank_sums(indptr, indices, labels, weights, sums, first_hit, n_true):
    """Compare rankings with the truth in one pass.

    Parameters
    ----------
    indptr, indices
        The true labels, each row sorted.
    labels
        (n, width) predicted labels, best first, -1 pads.
    weights
        Inverse propensity of every label, or an empty array.
    sums
        (N_SUMS, depth) float64, added to. Texts without a true label add nothing.
    first_hit
        Per label the best rank (from 0) at which it was predicted rightly, lowered in place.
    n_true
        Per label the number of texts that have it, added to.
    """
    n, width = labels.shape
    depth = sums.shape[1]
    best = np.zeros(depth, np.float64)
    hit_at = np.zeros(depth, np.bool_)
    for i in range(n):
        low, high = indptr[i], indptr[i + 1]
        if low == high:
            continue
        for j in range(low, high):
            n_true[indices[j]] += 1
        for d in range(min(depth, width)):
            label = labels[i, d]
            hit_at[d] = label >= 0 and _contains(indices, low, high, label)
            if hit_at[d]:
                first_hit[label] = min(first_hit[label], d)
        if weights.shape[0] > 0:
            _largest_weights(weights, indices, low, high, best)
        _add_row(labels[i], hit_at, high - low, weights, best, sums)


@jit
def count_above(indptr, indices, labels, scores, threshold, n_hit, n_predicted):
    """Count per label how often its score reaches the threshold, and how often rightly."""
    n, width = labels.shape
    for i in range(n):
        for d in range(width):
            label = labels[i, d]
            if label >= 0 and scores[i, d] >= threshold:
                n_predicted[label] += 1
                if _contains(indices, indptr[i], indptr[i + 1], label):
                    n_hit[label] += 1
