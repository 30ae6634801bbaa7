"""Rankings: the best entries of a row, merging, and sums for metrics. Ties are ordered by label."""

import numpy as np

from umpteen.kernels.jit import inner, jit

# Rows of the array that ``rank_sums`` fills; column d is the sum over texts at depth d + 1.
HITS, RECALL, R_PRECISION, NDCG, PS_GAIN, PS_BEST, PS_DCG, PS_DCG_BEST, RECIPROCAL, F1 = range(10)
N_SUMS = 10

_LOW_31_BITS = 0x7FFFFFFF
_LOW_32_BITS = 0xFFFFFFFF
_LARGEST = np.iinfo(np.int64).max


@inner
def _order_key(bits, label):
    """Pack the bits of a float32 score and a label into a key: ascending keys are descending scores, then labels."""
    ordered = bits ^ ((bits >> 31) & _LOW_31_BITS)  # compares like the float does
    return (np.int64(~ordered) << 32) | np.int64(label)


@inner
def _unpack(keys, n, out_labels, out_bits):
    """Write the first n keys as labels and score bits, followed by padding."""
    for j in range(n):
        ordered = ~(keys[j] >> 32)
        out_labels[j] = keys[j] & _LOW_32_BITS
        out_bits[j] = ordered ^ ((ordered >> 31) & _LOW_31_BITS)
    out_labels[n:] = -1
    out_bits[n:] = 0


@jit
def keep_top(indptr, indices, bits, out_labels, out_bits):
    """Write the k best entries of every CSR row, best first.

    ``bits`` and ``out_bits`` are float32 scores viewed as int32. Keys are collected in a buffer of 2k, which is sorted
    and halved when it is full, so a row of m entries takes m comparisons and few sorts.
    """
    n, k = out_labels.shape
    buffer = np.empty(2 * k, np.int64)
    for i in range(n):
        n_keys = 0
        limit = _LARGEST
        for j in range(indptr[i], indptr[i + 1]):
            key = _order_key(bits[j], indices[j])
            if key < limit:
                buffer[n_keys] = key
                n_keys += 1
                if n_keys == 2 * k:
                    buffer.sort()
                    n_keys = k
                    limit = buffer[k - 1]
        buffer[:n_keys].sort()
        _unpack(buffer, min(n_keys, k), out_labels[i], out_bits[i])


@inner
def _combine(buffer, n_keys, values, take_largest, scale):
    """Replace sorted (label, position) keys by one order key per label, in place; return their number."""
    score = np.empty(1, np.float32)
    bits = score.view(np.int32)
    position = 0
    merged = 0
    while position < n_keys:
        label = buffer[position] >> 32
        total = 0.0
        while position < n_keys and buffer[position] >> 32 == label:
            value = np.float64(values[buffer[position] & _LOW_32_BITS])
            total = max(total, value) if take_largest else total + value
            position += 1
        score[0] = total * scale
        buffer[merged] = _order_key(bits[0], label)
        merged += 1
    return merged


@jit
def merge_rows(labels, values, out_labels, out_bits, take_largest, scale):
    """Merge concatenated rankings: add the values of each label, or take the largest, and keep the best labels.

    ``labels`` and ``values`` are (n, width), with padding of -1 anywhere; merged values are multiplied by ``scale``.
    With ``take_largest`` values must not be negative.
    """
    n, width = labels.shape
    k = out_labels.shape[1]
    buffer = np.empty(width, np.int64)
    for i in range(n):
        n_keys = 0
        for j in range(width):
            if labels[i, j] >= 0:
                buffer[n_keys] = (np.int64(labels[i, j]) << 32) | j
                n_keys += 1
        buffer[:n_keys].sort()
        merged = _combine(buffer, n_keys, values[i], take_largest, scale)
        buffer[:merged].sort()
        _unpack(buffer, min(merged, k), out_labels[i], out_bits[i])


@inner
def _contains(indices, low, high, label):
    """Return whether a sorted slice contains the label."""
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
    """Fill ``best`` with the largest weights of the labels of a slice, descending, followed by zeros."""
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
    """Add one text to the sums; ``hit_at[d]`` is whether its label at rank d is true."""
    hits, n_predicted = 0, 0
    dcg, ideal, gain, gain_best, gain_dcg, gain_dcg_best, reciprocal = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    weighted = weights.shape[0] > 0
    for d in range(sums.shape[1]):
        discount = 1.0 / np.log2(d + 2.0)
        if d < row.shape[0] and row[d] >= 0:
            n_predicted += 1
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
        sums[F1, d] += 2.0 * hits / (n_predicted + n_true)
        if weighted:
            gain_best += best[d]
            gain_dcg_best += best[d] * discount
            sums[PS_GAIN, d] += gain
            sums[PS_BEST, d] += gain_best
            sums[PS_DCG, d] += gain_dcg / ideal
            sums[PS_DCG_BEST, d] += gain_dcg_best / ideal


@jit
def rank_sums(indptr, indices, labels, weights, sums, first_hit, n_true):
    """Compare rankings with the true labels.

    Parameters
    ----------
    indptr, indices
        The true labels, each row sorted.
    labels
        (n, width) predicted labels, best first, padded by -1.
    weights
        Inverse propensity of every label, or an empty array.
    sums
        (N_SUMS, depth) float64, incremented. Texts without true labels add nothing.
    first_hit
        Best rank (from 0) of a correct prediction of each label, updated.
    n_true
        Number of texts with each label, incremented.
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
    """Count for each label how often its score reaches the threshold, and how often it is true then."""
    n, width = labels.shape
    for i in range(n):
        for d in range(width):
            label = labels[i, d]
            if label >= 0 and scores[i, d] >= threshold:
                n_predicted[label] += 1
                if _contains(indices, indptr[i], indptr[i + 1], label):
                    n_hit[label] += 1
