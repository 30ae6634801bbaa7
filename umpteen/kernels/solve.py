"""Train sixteen sibling labels at once by dual coordinate descent.

For each label b the problem is  min_w ½‖w‖² + Σ_i c_ib · max(0, 1 − y_ib w·x_i)²  (eq. 9). The dual has one variable
per row; with β_ib = y_ib α_ib, w = Σ_i β_ib x_i. A step on row i computes the products of the row with all lanes in one
pass over its features, updates β_i, and adds the change to the weights if it is not negligible. (Hsieh et al. 2008 has
the method for one label.)

Features are renumbered by chunk, so that the table of weights is as small as possible. A private feature, which occurs
in one row only, is not in the table: it adds β_ib times its square to the product of that row, which is exact, and its
weight is recovered at the end.
"""

import numpy as np

from umpteen.kernels.hinge import add_step, hinge_step
from umpteen.kernels.jit import inner, jit
from umpteen.kernels.lanes import LANES, axpy, dot, prefetch

_BLOCK = 16  # consecutive rows that are visited together: neighbours often share features, which are in the cache
_LOOK_AGAIN = 5  # passes after which converged rows are visited again, although others have not converged
_NEGLIGIBLE = np.float32(0.02)  # moves below this fraction of eps are not written back


@jit
def gather(rows, indptr, indices, data, local):
    """Copy rows with features renumbered in order of first use and without private features.

    ``local`` is one zeroed int32 per feature and is left zeroed. Return the local triplet, the features of the local
    ids, the squared length of each row, that of its private features, and the private entries as (pointer, feature,
    value) by row.
    """
    n = len(rows)
    total = 0
    for i in range(n):
        total += indptr[rows[i] + 1] - indptr[rows[i]]
    n_features = 0
    n_private = 0
    for i in range(n):
        for k in range(np.uint64(indptr[rows[i]]), np.uint64(indptr[rows[i] + 1])):
            feature = np.uint32(indices[k])
            seen = local[feature]
            if seen == 0:
                local[feature] = -1
                n_private += 1
            elif seen == -1:
                n_features += 1
                n_private -= 1
                local[feature] = 1
    features = np.empty(n_features, np.int32)
    ptr = np.zeros(n + 1, np.int64)
    ids = np.empty(total - n_private, np.int32)
    values = np.empty(total - n_private, np.float32)
    square = np.empty(n, np.float32)
    private = np.empty(n, np.float32)
    private_ptr = np.zeros(n + 1, np.int64)
    private_features = np.empty(n_private, np.int32)
    private_values = np.empty(n_private, np.float32)
    next_id = 0
    at = 0
    alone = 0
    for i in range(n):
        row_square, private_square = np.float32(0.0), np.float32(0.0)
        for k in range(np.uint64(indptr[rows[i]]), np.uint64(indptr[rows[i] + 1])):
            feature = np.uint32(indices[k])
            value = data[k]
            row_square += value * value
            slot = local[feature]
            if slot == -1:
                private_square += value * value
                private_features[alone] = feature
                private_values[alone] = value
                alone += 1
                continue
            if slot == 1:  # shared but not numbered yet: ids start at 2
                slot = next_id + 2
                local[feature] = slot
                features[next_id] = feature
                next_id += 1
            ids[at] = slot - 2
            values[at] = value
            at += 1
        square[i], private[i] = row_square, private_square
        ptr[i + 1] = at
        private_ptr[i + 1] = alone
    for k in range(n_features):
        local[features[k]] = 0
    for k in range(n_private):
        local[private_features[k]] = 0
    return ptr, ids, values, features, square, private, private_ptr, private_features, private_values


@inner
def _next(state):
    """Return the next state of a xorshift generator, which is the same on every platform."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    return state ^ (state << np.uint64(17))


@inner
def _shuffle(order, n, state):
    """Shuffle the first n entries."""
    for i in range(n - 1, 0, -1):
        state = _next(state)
        j = np.int64(state % np.uint64(i + 1))
        order[i], order[j] = order[j], order[i]
    return state


@jit
def positives(node_ptr, node_rows, node_values, first, last, rows, where):
    """List for each row which of the nodes first..last are positive, and their values.

    ``where`` is scratch, one zeroed int32 per row of the data. Rows that are not in ``rows`` are ignored.
    """
    n = len(rows)
    for i in range(n):
        where[rows[i]] = i + 1
    ptr = np.zeros(n + 1, np.int64)
    for k in range(node_ptr[first], node_ptr[last]):
        i = where[node_rows[k]]
        if i > 0:
            ptr[i] += 1
    for i in range(n):
        ptr[i + 1] += ptr[i]
    lanes = np.empty(ptr[n], np.int32)
    values = np.empty(ptr[n], np.float32)
    fill = ptr[:n].copy()
    for node in range(first, last):
        for k in range(node_ptr[node], node_ptr[node + 1]):
            i = where[node_rows[k]]
            if i > 0:
                lanes[fill[i - 1]] = node - first
                values[fill[i - 1]] = node_values[k]
                fill[i - 1] += 1
    for i in range(n):
        where[rows[i]] = 0
    return ptr, lanes, values


@jit
def sum_features(ptr, ids, values, private, dense, rows, sums):
    """Add all rows to ``sums`` (features, dense ones last); return the squared length of the sum.

    The length includes private features, which are not in ``sums``.
    """
    n_dense = dense.shape[1]
    for k in range(ptr[len(ptr) - 1]):
        sums[np.uint32(ids[k])] += values[k]
    total = np.float64(0.0)
    for i in range(len(private)):
        total += private[i]
        for d in range(n_dense):
            sums[len(sums) - n_dense + d] += dense[rows[i], d]
    for f in range(len(sums)):
        total += sums[f] * sums[f]
    return total


@jit
def start(
    ptr, ids, values, dense, dense_ids, rows, positive_ptr, positive_lane, n_lanes, negative_cost, bias,
    sums, squared_length, weights, bias_weights, beta,
):  # fmt: skip
    """Warm start: all negative rows have the same dual variable, the best common value.

    From zero, the first rows visited would take all the weight of pushing the bias to −1, and further passes would have
    to distribute it.
    """
    n, n_dense = len(rows), dense.shape[1]
    dense_weights = weights[len(weights) - n_dense :]
    common = np.float32(n / (squared_length + bias * bias * n * n + n * 0.5 / negative_cost))
    for f in range(len(weights)):
        for b in range(LANES):
            weights[f, b] = -common * sums[f] if b < n_lanes else np.float32(0.0)
    for b in range(LANES):
        bias_weights[b] = -common * bias * n if b < n_lanes else np.float32(0.0)
    step = np.zeros(LANES, np.float32)
    for i in range(n):
        for b in range(LANES):
            beta[i, b] = -common if b < n_lanes else np.float32(0.0)
        if positive_ptr[i] == positive_ptr[i + 1]:
            continue
        for b in range(LANES):
            step[b] = 0.0
        for p in range(positive_ptr[i], positive_ptr[i + 1]):
            beta[i, positive_lane[p]] = 0.0
            step[positive_lane[p]] = common
        axpy(weights, ids, values, ptr[i], ptr[i + 1], step)
        if n_dense > 0:
            axpy(dense_weights, dense_ids, dense[rows[i]], 0, n_dense, step)
        for b in range(LANES):
            bias_weights[b] += bias * step[b]


@inner
def _prefetch_rows(active, first, n_active, ptr, ids, values, beta):
    """Prefetch the beginnings of the rows of the next block."""
    for at in range(first, min(first + _BLOCK, n_active)):
        i = active[at]
        prefetch(ids, ptr[i])
        prefetch(values, ptr[i])
        prefetch(beta, i * LANES)


@inner
def _keep_moving(active, moves, n_active, eps):
    """Keep the rows that moved by more than eps, in order; return their number."""
    kept = 0
    for at in range(n_active):
        if moves[at] > eps:
            active[kept] = active[at]
            kept += 1
    return kept


@inner
def _step_logistic(score, target, cost, row_square, beta, i, n_lanes, step):
    """Compute the moves of the lanes of row i for the logistic loss; return the largest.

    The optimum solves Q(α − α₀) + y w·x + t = 0 with α = cost · σ(t). The left side grows with t at least as fast as t
    itself, so Newton's method within the bracket converges.
    """
    moved = np.float32(0.0)
    for b in range(LANES):
        step[b] = 0.0
    for b in range(n_lanes):
        alpha = target[b] * beta[i, b]
        margin = target[b] * score[b]
        low = -margin - row_square * (cost[b] - alpha)
        high = -margin + row_square * alpha
        t = min(max(np.float32(0.0), low), high)
        sigma = np.float32(0.0)
        for _ in range(8):
            sigma = np.float32(1.0) / (np.float32(1.0) + np.exp(-t))
            excess = row_square * (cost[b] * sigma - alpha) + margin + t
            if excess > 0.0:
                high = t
            else:
                low = t
            if abs(excess) < 1e-3:
                break
            t -= excess / (row_square * cost[b] * sigma * (np.float32(1.0) - sigma) + np.float32(1.0))
            if t < low or t > high:
                t = np.float32(0.5) * (low + high)
        step[b] = target[b] * (cost[b] * sigma - alpha)
        moved = max(moved, abs(step[b]))
    return moved


@jit
def solve(
    ptr, ids, values, square, private, dense, dense_ids, rows, positive_ptr, positive_lane, positive_cost,
    n_lanes, negative_cost, bias, logistic, eps, max_iter, seed, weights, bias_weights, beta,
):  # fmt: skip
    """Solve up to LANES labels on one set of rows; return the number of row steps.

    ``weights`` (features, LANES), ``bias_weights`` (LANES) and ``beta`` (rows, LANES) are the initial values, zeros or
    a consistent warm start, and become the solution. ``positive_*`` are the lanes for which a row is positive, with
    their costs; all others are negative with ``negative_cost``. ``dense`` (all rows, d) is an optional block of further
    features, whose weights are the last ones.
    """
    n = len(rows)
    n_dense = dense.shape[1]
    dense_weights = weights[len(weights) - n_dense :]
    target = np.empty(LANES, np.float32)
    cost = np.empty(LANES, np.float32)
    score = np.empty(LANES, np.float32)
    step = np.empty(LANES, np.float32)
    lanes = np.zeros(LANES, np.float32)
    for b in range(LANES):  # negative; positives are set for a step and reset afterwards
        target[b] = -1.0
        cost[b] = negative_cost
        lanes[b] = 1.0 if b < n_lanes else 0.0
    moves = np.empty(n, np.float32)
    active = np.arange(n)  # rows that have not converged, ascending
    blocks = np.arange(-(-n // _BLOCK))
    state = np.uint64(seed) * np.uint64(2654435761) + np.uint64(88172645463325252)
    n_active = n
    n_steps = 0
    for sweep in range(max_iter):
        n_blocks = -(-n_active // _BLOCK)
        for j in range(n_blocks):
            blocks[j] = j
        state = _shuffle(blocks, n_blocks, state)
        worst = np.float32(0.0)
        for turn in range(n_blocks):
            first = blocks[turn] * _BLOCK
            if turn + 1 < n_blocks:
                _prefetch_rows(active, blocks[turn + 1] * _BLOCK, n_active, ptr, ids, values, beta)
            state = _next(state)
            shift, stride = np.int64(state >> np.uint64(8)) & (_BLOCK - 1), np.int64(state >> np.uint64(40)) | 1
            for place in range(_BLOCK):  # an odd stride gives a permutation
                at = first + ((place * stride + shift) & (_BLOCK - 1))
                if at >= n_active:
                    continue
                i = active[at]
                row_square = square[i] + bias * bias
                for p in range(positive_ptr[i], positive_ptr[i + 1]):
                    target[positive_lane[p]] = 1.0
                    cost[positive_lane[p]] = positive_cost[p]
                dense_row = dense[rows[i]] if n_dense > 0 else dense[0]
                if logistic:
                    for b in range(LANES):
                        score[b] = bias * bias_weights[b] + private[i] * beta[i, b]
                    dot(weights, ids, values, ptr[i], ptr[i + 1], score)
                    dot(dense_weights, dense_ids, dense_row, 0, n_dense, score)
                    moved = _step_logistic(score, target, cost, row_square, beta, i, n_lanes, step)
                else:
                    moved = hinge_step(
                        weights, ids, values, ptr[i], ptr[i + 1], dense_weights, dense_ids, dense_row, n_dense,
                        bias_weights, bias, private[i], beta, i, row_square, target, cost, lanes, step,
                    )  # fmt: skip
                for p in range(positive_ptr[i], positive_ptr[i + 1]):
                    target[positive_lane[p]] = -1.0
                    cost[positive_lane[p]] = negative_cost
                n_steps += 1
                violation = moved * row_square
                if violation > _NEGLIGIBLE * eps:
                    axpy(weights, ids, values, ptr[i], ptr[i + 1], step)
                    if n_dense > 0:
                        axpy(dense_weights, dense_ids, dense_row, 0, n_dense, step)
                    add_step(beta, i, bias_weights, bias, step)
                worst = max(worst, violation)
                moves[at] = violation
        if worst <= eps and n_active == n:
            break
        if worst <= eps or sweep + 1 == _LOOK_AGAIN:
            for i in range(n):
                active[i] = i
            n_active = n
        else:
            n_active = _keep_moving(active, moves, n_active, eps)
    return n_steps


@jit
def extract(features, weights, beta, private_ptr, private_features, private_values, n_lanes, threshold):
    """List the weights of at least ``threshold`` as (feature, lane, value), including private features."""
    least = max(np.float32(threshold), np.float32(1e-38))  # not zeros
    n_features = len(features)
    kept = np.empty(n_features, np.uint8)
    count = 0
    for f in range(n_features):
        found = 0
        for b in range(LANES):  # unused lanes are zero
            found += abs(weights[f, b]) >= least
        kept[f] = found
        count += found
    n = len(private_ptr) - 1
    largest = np.zeros(n, np.float32)  # private value of each row: most dual variables are too small for any of them
    for i in range(n):
        for k in range(private_ptr[i], private_ptr[i + 1]):
            largest[i] = max(largest[i], abs(private_values[k]))
        for b in range(n_lanes):
            if abs(beta[i, b] * largest[i]) >= least:
                for k in range(private_ptr[i], private_ptr[i + 1]):
                    count += abs(beta[i, b] * private_values[k]) >= least
    out_features = np.empty(count, np.int32)
    out_lanes = np.empty(count, np.uint8)
    out_values = np.empty(count, np.float32)
    at = 0
    for f in range(n_features):
        if kept[f] == 0:
            continue
        for b in range(n_lanes):
            if abs(weights[f, b]) >= least:
                out_features[at], out_lanes[at], out_values[at] = features[f], b, weights[f, b]
                at += 1
    for i in range(n):
        for b in range(n_lanes):
            if abs(beta[i, b] * largest[i]) >= least:
                for k in range(private_ptr[i], private_ptr[i + 1]):
                    value = beta[i, b] * private_values[k]
                    if abs(value) >= least:
                        out_features[at], out_lanes[at], out_values[at] = private_features[k], b, value
                        at += 1
    return out_features, out_lanes, out_values


@jit
def row_squares(indptr, data, dense, out):
    """Compute the squared lengths of rows with a dense block."""
    for i in range(len(indptr) - 1):
        total = np.float32(0.0)
        for k in range(indptr[i], indptr[i + 1]):
            total += data[k] * data[k]
        for d in range(dense.shape[1]):
            total += dense[i, d] * dense[i, d]
        out[i] = total
