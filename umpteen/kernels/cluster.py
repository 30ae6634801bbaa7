"""Label vectors and their clustering: sums of sparse rows, balanced halving, k-way assignment.

Scratch arrays are zeroed before and after a call, so that a thread can reuse them.
"""

import numpy as np

from umpteen.kernels.jit import inner, jit
from umpteen.kernels.lanes import LANES, axpy, dot
from umpteen.kernels.select import nth_largest

_CANCELLED = np.float32(1e-38)  # replaces a sum of zero, which marks a feature that was not seen yet


@jit
def sum_rows(member_ptr, members, indptr, indices, data, keep, scratch, out_ptr, out_indices, out_data):
    """Sum the rows of each group, keep its ``keep`` largest entries, scale to length one (eq. 4).

    ``scratch`` is one zeroed float32 per feature. Group g is written from ``out_ptr[g]``; the number of entries of each
    group is returned.
    """
    n_groups = len(member_ptr) - 1
    written = np.zeros(n_groups, np.int64)
    touched = np.empty(len(scratch), np.int32)
    for g in range(n_groups):
        n_touched = 0
        for m in range(member_ptr[g], member_ptr[g + 1]):
            row = members[m]
            for k in range(np.uint64(indptr[row]), np.uint64(indptr[row + 1])):
                feature = np.uint32(indices[k])
                if scratch[feature] == 0.0:
                    touched[n_touched] = feature
                    n_touched += 1
                total = scratch[feature] + data[k]
                scratch[feature] = total if total != 0.0 else _CANCELLED
        written[g] = _keep_largest(touched, n_touched, scratch, keep, out_indices, out_data, out_ptr[g])
    return written


@inner
def _keep_largest(touched, n_touched, scratch, keep, out_indices, out_data, start):
    """Move the largest entries of scratch to the output, normalised, and zero scratch again."""
    cut = np.float32(0.0)
    n_ties = n_touched  # number of entries equal to the cut that are kept
    if 0 < keep < n_touched:
        values = np.empty(n_touched, np.float32)
        for t in range(n_touched):
            values[t] = abs(scratch[touched[t]])
        cut, n_ties = _cut(values, n_touched, keep)
    count = 0
    total = 0.0
    for t in range(n_touched):
        feature = touched[t]
        value = scratch[feature]
        scratch[feature] = 0.0
        if abs(value) == cut:
            n_ties -= 1
        if abs(value) > _CANCELLED and (abs(value) > cut or (abs(value) == cut and n_ties >= 0)):
            out_indices[start + count] = feature
            out_data[start + count] = value
            total += value * value
            count += 1
    if total > 0.0:
        scale = np.float32(1.0 / np.sqrt(total))
        for k in range(start, start + count):
            out_data[k] *= scale
    return count


@inner
def _cut(values, n, keep):
    """Return the smallest of the ``keep`` largest values, and how many of its ties are among them; reorders values."""
    cut = nth_largest(values, n, keep - 1)
    n_ties = keep
    for i in range(n):
        n_ties -= values[i] > cut
    return cut, n_ties


@jit
def halve(indptr, indices, data, members, n_left, seed, max_iter, tolerance, n_sample, sums):
    """Reorder ``members`` so that the first ``n_left`` form one spherical cluster and the rest the other.

    Balanced 2-means: every iteration ranks the members by the difference of their similarities to the two centres and
    splits the ranking at ``n_left``. At most ``n_sample`` members, evenly spaced, determine the centres, by which all
    members are then ranked. ``sums`` is a zeroed (features, 2) table.
    """
    n = len(members)
    if n_left <= 0 or n_left >= n:
        return
    some = members if n <= n_sample else members[:: -(-n // n_sample)].copy()
    some_left = min(max(n_left * len(some) // n, 1), len(some) - 1)
    side = _two_means(indptr, indices, data, some, some_left, seed, max_iter, tolerance, sums)
    if len(some) < n:
        norm0, norm1 = _add_sides(indptr, indices, data, some, side, sums)
        scores = np.empty(n, np.float32)
        _score_sides(indptr, indices, data, members, sums, _inverse_root(norm0), _inverse_root(norm1), scores)
        _clear(indptr, indices, some, sums)
        side = np.zeros(n, np.int8)
        _take_largest(scores, n_left, np.empty(n, np.float32), side)
    at_left, at_right = np.int64(0), n_left
    ranked = np.empty(n, members.dtype)
    for i in range(n):
        if side[i] == 1:
            ranked[at_left] = members[i]
            at_left += 1
        else:
            ranked[at_right] = members[i]
            at_right += 1
    for i in range(n):
        members[i] = ranked[i]


@inner
def _two_means(indptr, indices, data, members, n_left, seed, max_iter, tolerance, sums):
    """Return the side, 1 or 2, of every member."""
    n = len(members)
    np.random.seed(seed)
    side = np.zeros(n, np.int8)
    _seed_sides(n, side)
    scores, spare = np.empty(n, np.float32), np.empty(n, np.float32)
    before = -1.0
    for sweep in range(max_iter):
        norm0, norm1 = _add_sides(indptr, indices, data, members, side, sums)
        quality = np.sqrt(norm0) + np.sqrt(norm1)
        _score_sides(indptr, indices, data, members, sums, _inverse_root(norm0), _inverse_root(norm1), scores)
        _clear(indptr, indices, members, sums)
        changed = _take_largest(scores, n_left, spare, side)
        if changed == 0 or (sweep > 1 and quality <= before * (1.0 + tolerance)):
            break
        before = quality
    return side


@inner
def _inverse_root(square):
    """Return 1 / √square, or 0 for 0."""
    return np.float32(1.0 / np.sqrt(square)) if square > 0 else np.float32(0.0)


@inner
def _take_largest(scores, n_left, spare, side):
    """Assign the ``n_left`` largest scores to side 1, the first ones of ties, and the others to side 2.

    Return the number of changes.
    """
    n = len(scores)
    for i in range(n):
        spare[i] = scores[i]
    cut, n_ties = _cut(spare, n, n_left)
    changed = 0
    for i in range(n):
        is_left = scores[i] > cut
        if scores[i] == cut and n_ties > 0:
            is_left = True
            n_ties -= 1
        new = 1 if is_left else 2
        changed += side[i] != new
        side[i] = new
    return changed


@inner
def _seed_sides(n, side):
    """Assign one random member to each side, 1 and 2; the others, with 0, do not count in the first centres."""
    a = np.random.randint(n)
    b = np.random.randint(n - 1)
    if b >= a:
        b += 1
    side[a] = 1
    side[b] = 2


@inner
def _add_sides(indptr, indices, data, members, side, sums):
    """Add each member to the sum of its side; return the squared norms of the two sums."""
    norm0 = 0.0
    norm1 = 0.0
    for i in range(len(members)):
        if side[i] == 0:
            continue
        s = np.uint8(side[i] - 1)
        row = members[i]
        grown = 0.0
        for k in range(np.uint64(indptr[row]), np.uint64(indptr[row + 1])):
            feature, value = np.uint32(indices[k]), data[k]
            old = sums[feature, s]
            grown += value * (2.0 * old + value)
            sums[feature, s] = old + value
        if s == 0:
            norm0 += grown
        else:
            norm1 += grown
    return norm0, norm1


@inner
def _score_sides(indptr, indices, data, members, sums, scale0, scale1, scores):
    for i in range(len(members)):
        row = members[i]
        left = np.float32(0.0)
        right = np.float32(0.0)
        for k in range(np.uint64(indptr[row]), np.uint64(indptr[row + 1])):
            feature = np.uint32(indices[k])
            left += data[k] * sums[feature, 0]
            right += data[k] * sums[feature, 1]
        scores[i] = left * scale0 - right * scale1


@inner
def _clear(indptr, indices, members, sums):
    """Zero the entries of the members, or the whole table if that is less work."""
    total = 0
    for i in range(len(members)):
        total += indptr[members[i] + 1] - indptr[members[i]]
    if total > len(sums):
        for feature in range(len(sums)):
            sums[feature, 0] = 0.0
            sums[feature, 1] = 0.0
        return
    for i in range(len(members)):
        for k in range(np.uint64(indptr[members[i]]), np.uint64(indptr[members[i] + 1])):
            feature = np.uint32(indices[k])
            sums[feature, 0] = 0.0
            sums[feature, 1] = 0.0


@jit
def assign(indptr, indices, data, members, centres, scores):
    """Compute ``scores`` (members, k), the similarities to ``centres`` (groups of lanes, features, LANES)."""
    k = scores.shape[1]
    out = np.empty(LANES, np.float32)
    for i in range(len(members)):
        row = members[i]
        for g in range(centres.shape[0]):
            for b in range(LANES):
                out[b] = 0.0
            dot(centres[g], indices, data, indptr[row], indptr[row + 1], out)
            for b in range(min(LANES, k - g * LANES)):
                scores[i, g * LANES + b] = out[b]


@jit
def add_members(indptr, indices, data, members, cluster, centres):
    """Add the row of every member to the lane of its cluster."""
    step = np.zeros(LANES, np.float32)
    for i in range(len(members)):
        row = members[i]
        lane = cluster[i] % LANES
        step[lane] = 1.0
        axpy(centres[cluster[i] // LANES], indices, data, indptr[row], indptr[row + 1], step)
        step[lane] = 0.0


@jit
def fill(scores, capacity, cluster):
    """Assign every member to its best cluster that is not full, in the order of the margins between clusters."""
    n, k = scores.shape
    n_free = np.full(k, capacity, np.int64)
    margin = np.empty(n, np.float32)
    for i in range(n):
        best = np.float32(-np.inf)
        second = np.float32(-np.inf)
        for c in range(k):
            if scores[i, c] > best:
                second = best
                best = scores[i, c]
            elif scores[i, c] > second:
                second = scores[i, c]
        margin[i] = best - second if k > 1 else best
    for i in np.argsort(-margin, kind="mergesort"):
        chosen = -1
        for c in range(k):
            if n_free[c] > 0 and (chosen < 0 or scores[i, c] > scores[i, chosen]):
                chosen = c
        cluster[i] = chosen
        n_free[chosen] -= 1
