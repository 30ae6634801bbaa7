"""Beam search in a tree of linear classifiers for sparse queries, row by row.

Weights are stored by feature, because a query is a list of features. A level has one of two layouts:

- *whole*: the postings of a feature are nodes of the level, and all are added up. For few nodes.
- *runs*: the postings of a feature are grouped by chunk (the children of one parent), and are children of the chunk;
  runs of chunks outside the beam are skipped. For many nodes.

A weight is float32, or a code of 8 or 16 bits that a table decodes.

In hot loops indices are unsigned: numba tests signed ones for negative values, which took a fifth of a query.

``meta`` has a row per level: (whole?, nodes, parents, offset of its nodes in ``bias``, offset of its parents in
``children``, row in ``run_ptr``, maximum number of children).
"""

import numpy as np
from numba import types
from numba.extending import overload

from umpteen.kernels import POSTS
from umpteen.kernels.alloc import empty
from umpteen.kernels.jit import inner, jit
from umpteen.kernels.lanes import LANES, dot, prefetch

WHOLE, NODES, PARENTS, NODE_AT, PARENT_AT, RUN_ROW, WIDEST, N_META = 0, 1, 2, 3, 4, 5, 6, 7
IDENTITY, SIGMOID = POSTS.index("identity"), POSTS.index("sigmoid")
_FEATURES_AT_ONCE = 16  # features whose runs are found before any of them is added
_STAGE = 4  # parents scored before the next ones are tested for relevance
_NO_OFFSETS = np.empty((0, 0), np.uint16)
_SKIPPED, _UNIT = np.uint64(16), np.uint64(1)  # runs that are skipped at once
_AHEAD = 4  # features between the prefetch of postings and their use
# With a literal argument a function would be compiled a second time for that number.
_ZERO, _ONE = np.int64(0), np.int64(1)


def weight(codes, table, k):
    """Return weight k, decoded if necessary."""
    return codes[k] if codes.dtype.kind == "f" else table[codes[k]]


@overload(weight, inline="always")
def _weight(codes, table, k):
    if isinstance(codes.dtype, types.Float):
        return lambda codes, table, k: codes[k]
    return lambda codes, table, k: table[codes[k]]


@inner
def post(margin, kind):
    """Turn a margin into a score: l_p-hinge exp(−max(0, 1 − margin)^p), sigmoid, or the margin itself."""
    if kind == IDENTITY:
        return margin
    if kind == SIGMOID:
        return np.float32(1.0) / (np.float32(1.0) + np.exp(-margin))
    gap = np.float32(1.0) - margin
    if gap <= 0.0:
        return np.float32(1.0)
    loss = gap
    for _ in range(kind - 1):
        loss *= gap
    return np.exp(-loss)


@inner
def least_margin(score, parent_score, kind):
    """Return a margin below which a child cannot reach ``score``, which avoids most exponentials."""
    if kind == IDENTITY:
        return score
    ratio = score / parent_score if parent_score > 0.0 else np.float32(2.0)
    if ratio > 1.0:
        return np.float32(np.inf)
    if ratio <= 0.0:
        return np.float32(-np.inf)
    if kind == SIGMOID:
        return np.float32(-np.log(1.0 / ratio - 1.0) - 1e-3) if ratio < 1.0 else np.float32(10.0)
    loss = -np.log(ratio)
    if kind == 2:
        loss = np.sqrt(loss)
    elif kind == 3:
        loss = loss ** np.float32(1.0 / 3.0)
    elif kind == 4:
        loss = np.sqrt(np.sqrt(loss))
    return np.float32(1.0) - loss - np.float32(1e-3)


@inner
def offer(score, node, ids, scores, size, capacity):
    """Insert into a descending list of at most ``capacity``, after ties; return the new size."""
    if size == capacity:
        if score <= scores[size - 1]:
            return size
        size -= 1
    at = size
    while at > 0 and scores[at - 1] < score:
        scores[at] = scores[at - 1]
        ids[at] = ids[at - 1]
        at -= 1
    scores[at] = score
    ids[at] = node
    return size + 1


@inner
def _add_whole(indices, values, start, stop, ptr, local, codes, table, acc):
    for q in range(start, stop):
        if q + 2 * _AHEAD < stop:
            prefetch(ptr, indices[q + 2 * _AHEAD])
        if q + _AHEAD < stop:
            prefetch(local, ptr[indices[q + _AHEAD]])
            prefetch(codes, ptr[indices[q + _AHEAD]])
        value = values[q]
        feature = np.uint32(indices[q])
        for k in range(np.uint64(ptr[feature]), np.uint64(ptr[feature + 1])):
            acc[local[k]] += value * weight(codes, table, k)


@inner
def _add_runs(
    indices, values, start, stop, ptr, run_ptr, run_chunk, run_last, local, codes, table, beam_ids, order, n_beam,
    widest, hits, acc,
):  # fmt: skip
    """Add the runs of the beam; ``order`` are its entries by ascending chunk, as the runs of a feature are.

    The runs of several features are found first and then added, so that their postings, which lie anywhere in a large
    model, are fetched at the same time. ``hits`` takes runs: entry of the row, first posting, end, cell of ``acc``.
    """
    for begin in range(start, stop, _FEATURES_AT_ONCE):
        n_hits = np.uint64(0)
        for q in range(begin, min(begin + _FEATURES_AT_ONCE, stop)):
            if q + 2 * _AHEAD < stop:  # first the pointers, then the runs
                coming = indices[q + 2 * _AHEAD]
                prefetch(ptr, coming)
                prefetch(run_ptr, coming)
            if q + _AHEAD < stop:
                coming = indices[q + _AHEAD]
                prefetch(run_chunk, run_ptr[coming])
                prefetch(run_last, run_ptr[coming])
            feature = np.uint32(indices[q])
            at = np.uint64(ptr[feature])
            r, end_r = np.uint64(run_ptr[feature]), np.uint64(run_ptr[feature + 1])
            for i in range(n_beam):
                chunk = np.uint32(beam_ids[order[i]])
                r, at = _skip_runs(run_chunk, run_last, r, end_r, at, chunk)
                if r == end_r:
                    break
                if np.uint32(run_chunk[r]) == chunk:
                    prefetch(local, at)
                    prefetch(codes, at)
                    end = at + np.uint64(run_last[r]) + _UNIT
                    hits[n_hits, 0] = q
                    hits[n_hits, 1] = at
                    hits[n_hits, 2] = end
                    hits[n_hits, 3] = order[i] * widest
                    n_hits += _UNIT
                    at = end
                    r += _UNIT
        for h in range(n_hits):
            value = values[np.uint64(hits[h, 0])]
            base = np.uint64(hits[h, 3])
            for k in range(np.uint64(hits[h, 1]), np.uint64(hits[h, 2])):
                acc[base + np.uint64(local[k])] += value * weight(codes, table, k)


@inner
def _room_for_hits(n_beam):
    """Return an array for the runs of a beam that ``_add_runs`` finds at a time."""
    n = n_beam * _FEATURES_AT_ONCE
    return empty(n * 4, np.int64).reshape((n, 4))


@inner
def _skip_runs(run_chunk, run_last, r, end_r, at, chunk):
    """Skip the runs of chunks before ``chunk``; return the next run, and where its postings start."""
    while r + _SKIPPED <= end_r and np.uint32(run_chunk[r + _SKIPPED - _UNIT]) < chunk:
        n_skipped = np.uint32(0)
        for i in range(r, r + _SKIPPED):
            n_skipped += np.uint32(run_last[i])
        at += np.uint64(n_skipped) + _SKIPPED
        r += _SKIPPED
    while r < end_r and np.uint32(run_chunk[r]) < chunk:
        at += np.uint64(run_last[r]) + _UNIT
        r += _UNIT
    return r, at


@inner
def _by_chunk(beam_ids, first, last, order):
    """Fill ``order`` with the beam entries first..last by ascending chunk; they are few, or sorted already."""
    for j in range(first, last):
        at = j - first
        while at > 0 and beam_ids[order[at - 1]] > beam_ids[j]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = j


@inner
def _add_table(indices, values, start, stop, ptr, offsets, local, codes, table, beam_ids, first, last, widest, acc):
    for q in range(start, stop):
        if q + 2 * _AHEAD < stop:
            prefetch(ptr, indices[q + 2 * _AHEAD])
            prefetch(offsets[indices[q + 2 * _AHEAD]], beam_ids[first])
        if q + _AHEAD < stop:
            coming = indices[q + _AHEAD]
            at = ptr[coming] + offsets[coming, beam_ids[first]]
            prefetch(local, at)
            prefetch(codes, at)
        value = values[q]
        feature = np.uint32(indices[q])
        at = np.uint64(ptr[feature])
        for j in range(first, last):
            parent = np.uint32(beam_ids[j])
            base = np.uint64(j * widest)
            begin, end = np.uint64(offsets[feature, parent]), np.uint64(offsets[feature, parent + np.uint32(1)])
            for k in range(at + begin, at + end):
                acc[base + np.uint64(local[k])] += value * weight(codes, table, k)


@inner
def _margins(
    indices, values, start, stop, spec, children, bias, ptr, run_ptr, run_chunk, run_last, local, codes, table,
    offsets, beam_ids, first, last, order, hits, acc,
):  # fmt: skip
    """Fill ``acc`` with the margins of the children of beam entries first..last.

    They are ordered by node if the level is whole, else by beam entry. ``offsets``, if not empty, is where the run of
    each feature and chunk starts.
    """
    node_at, parent_at, widest = spec[NODE_AT], spec[PARENT_AT], spec[WIDEST]
    if spec[WHOLE] == 1:
        for node in range(spec[NODES]):
            acc[node] = bias[node_at + node]
        _add_whole(indices, values, start, stop, ptr, local, codes, table, acc)
        return
    for j in range(first, last):
        parent = beam_ids[j]
        child = children[parent_at + parent]
        for c in range(children[parent_at + parent + 1] - child):
            acc[j * widest + c] = bias[node_at + child + c]
    if offsets.shape[0] > 0:
        _add_table(indices, values, start, stop, ptr, offsets, local, codes, table, beam_ids, first, last, widest, acc)
        return
    _by_chunk(beam_ids, first, last, order)
    _add_runs(
        indices, values, start, stop, ptr, run_ptr[spec[RUN_ROW]], run_chunk, run_last, local, codes, table, beam_ids,
        order, last - first, widest, hits, acc,
    )  # fmt: skip


@inner
def _top_margins(indices, values, start, stop, bias, top, lanes, n_nodes, acc):
    """Fill ``acc`` with the margins of the first level."""
    for group in range(top.shape[0]):
        for b in range(LANES):
            lanes[b] = 0.0
        dot(top[group], indices, values, start, stop, lanes)
        for b in range(min(LANES, n_nodes - group * LANES)):
            acc[group * LANES + b] = bias[group * LANES + b] + lanes[b]


@inner
def _keep_best(
    spec, children, allowed, kind, beam_ids, beam_scores, first, last, acc, best_ids, best, ids, scores, size, capacity
):  # fmt: skip
    """Insert the children of beam entries first..last into ``ids`` and ``scores``; return their number.

    Siblings are ranked by their margins: the best margins of a parent are collected in ``best_ids`` and ``best``, and
    only these are turned into scores.
    """
    node_at, parent_at = spec[NODE_AT], spec[PARENT_AT]
    for j in range(first, last):
        child = children[parent_at + beam_ids[j]]
        n_children = children[parent_at + beam_ids[j] + 1] - child
        base = child if spec[WHOLE] == 1 else j * spec[WIDEST]
        margins = acc[base : base + n_children]
        cut = least_margin(scores[size - 1], beam_scores[j], kind) if size == capacity else np.float32(-np.inf)
        found = _ZERO
        for c in range(n_children):
            if margins[c] < cut or (len(allowed) > 0 and allowed[node_at + child + c] == 0):
                continue
            found = offer(margins[c], child + c, best_ids, best, found, capacity)
            if found == capacity:
                cut = max(cut, best[capacity - 1])
        for i in range(found):
            score = post(best[i], kind)
            if kind != IDENTITY:
                score *= beam_scores[j]
            size = offer(score, best_ids[i], ids, scores, size, capacity)
    return size


@inner
def _descend(
    indices, values, start, stop, spec, children, bias, ptr, run_ptr, run_chunk, run_last, local, codes, table,
    offsets, kind, allowed, beam_ids, beam_scores, n_beam, order, hits, acc, best_ids, best, ids, scores, capacity,
):  # fmt: skip
    """Search one level for one query; return the number of nodes kept.

    A child never scores more than its parent. With ``offsets``, parents are scored a few at a time, best first, until
    the next one cannot change the result.
    """
    staged = offsets.shape[0] > 0 and spec[WHOLE] == 0 and kind != IDENTITY
    size, first = _ZERO, _ZERO
    while first < n_beam:
        if staged and size == capacity and beam_scores[first] <= scores[size - 1]:
            break
        last = min(first + _STAGE, n_beam) if staged else n_beam
        _margins(
            indices, values, start, stop, spec, children, bias, ptr, run_ptr, run_chunk, run_last, local, codes,
            table, offsets, beam_ids, first, last, order, hits, acc,
        )  # fmt: skip
        size = _keep_best(
            spec, children, allowed, kind, beam_ids, beam_scores, first, last, acc, best_ids, best, ids, scores, size,
            capacity,
        )  # fmt: skip
        first = last
    return size


@inner
def accumulator_size(meta, beams):
    """Return the maximum number of margins of one row."""
    size = 1
    for level in range(len(meta)):
        beam = beams[level - 1] if level else 1
        size = max(size, meta[level, NODES] if meta[level, WHOLE] == 1 else beam * meta[level, WIDEST])
    return size


@jit
def search(
    indptr, indices, values, first, last,
    meta, children, bias, ptr, run_ptr, run_chunk, run_last, local, codes, table,
    offsets, offset_level, top, beams, posts, allowed, labels_out, scores_out,
):  # fmt: skip
    """Beam search for rows first..last; write the best nodes of the last level and their scores.

    ``beams[l]`` nodes of level l are kept, and as many of the last level as the output has columns. ``allowed`` is one
    byte per node of all levels (0: not allowed), or empty. ``offsets`` belongs to level ``offset_level``; ``top``
    (groups, features, LANES), if not empty, is the first level decoded.
    """
    n_levels = len(meta)
    capacity = labels_out.shape[1]
    acc = empty(accumulator_size(meta, beams), np.float32)
    most = max(capacity, _ONE)
    for level in range(n_levels):
        most = max(most, beams[level])
    order = empty(most, np.int64)
    hits = _room_for_hits(most)
    ids, scores = empty(most, np.int32), empty(most, np.float32)
    beam_ids, beam_scores = empty(most, np.int32), empty(most, np.float32)
    best_ids, best = empty(most, np.int32), empty(most, np.float32)
    lanes = empty(LANES, np.float32)
    for row in range(first, last):
        size = _ONE
        ids[0], scores[0] = 0, 1.0
        for level in range(n_levels):
            ids, beam_ids = beam_ids, ids
            scores, beam_scores = beam_scores, scores
            if level == 0 and top.shape[0] > 0:
                _top_margins(indices, values, indptr[row], indptr[row + 1], bias, top, lanes, meta[0, NODES], acc)
                size = _keep_best(
                    meta[0], children, allowed, posts[0], beam_ids, beam_scores, _ZERO, _ONE, acc, best_ids, best,
                    ids, scores, _ZERO, capacity if n_levels == 1 else beams[0],
                )  # fmt: skip
                continue
            size = _descend(
                indices, values, indptr[row], indptr[row + 1], meta[level], children, bias, ptr[level],
                run_ptr, run_chunk, run_last, local, codes, table,
                offsets if level == offset_level else offsets[:0], posts[level], allowed,
                beam_ids, beam_scores, size, order, hits, acc, best_ids, best, ids, scores,
                capacity if level == n_levels - 1 else beams[level],
            )  # fmt: skip
        for j in range(capacity):
            labels_out[row, j] = ids[j] if j < size else -1
            scores_out[row, j] = scores[j] if j < size else 0.0


@jit
def search_level(
    indptr, indices, values, first, last, level,
    meta, children, bias, ptr, run_ptr, run_chunk, run_last, local, codes, table,
    offsets, kind, allowed, beam_in, beam_scores_in, labels_out, scores_out,
):  # fmt: skip
    """Search one level for rows first..last, from ``beam_in`` (rows, b), padded by −1, to the output."""
    capacity, n_in = labels_out.shape[1], beam_in.shape[1]
    spec = meta[level]
    acc = empty(max(spec[NODES] if spec[WHOLE] == 1 else n_in * spec[WIDEST], 1), np.float32)
    order = empty(n_in, np.int64)
    hits = _room_for_hits(n_in)
    best_ids, best = empty(capacity, np.int32), empty(capacity, np.float32)
    for row in range(first, last):
        n_beam = _ZERO
        while n_beam < n_in and beam_in[row, n_beam] >= 0:
            n_beam += 1
        size = _descend(
            indices, values, indptr[row], indptr[row + 1], spec, children, bias, ptr[level],
            run_ptr, run_chunk, run_last, local, codes, table, offsets, kind, allowed,
            beam_in[row], beam_scores_in[row], n_beam, order, hits, acc, best_ids, best,
            labels_out[row], scores_out[row], capacity,
        )  # fmt: skip
        for j in range(size, capacity):
            labels_out[row, j] = -1
            scores_out[row, j] = 0.0


@jit
def score_pairs(
    indptr, indices, values, first, last, level,
    meta, children, bias, ptr, run_ptr, run_chunk, run_last, local, codes, table,
    kind, pair_ptr, pair_nodes, pair_parents, parent_ptr, parent_nodes, parent_scores, out,
):  # fmt: skip
    """Score given nodes of a level: pair p of a row is node ``pair_nodes[p]`` under ``pair_parents[p]``.

    ``parent_*`` are the parents of the pairs of each row, with their scores.
    """
    spec = meta[level]
    most = 1
    for row in range(first, last):
        most = max(most, parent_ptr[row + 1] - parent_ptr[row])
    acc = empty(max(spec[NODES] if spec[WHOLE] == 1 else most * spec[WIDEST], 1), np.float32)
    order = empty(most, np.int64)
    hits = _room_for_hits(most)
    where = np.zeros(max(1, spec[PARENTS]), np.int64)
    for row in range(first, last):
        low, high = parent_ptr[row], parent_ptr[row + 1]
        _margins(
            indices, values, indptr[row], indptr[row + 1], spec, children, bias, ptr[level],
            run_ptr, run_chunk, run_last, local, codes, table, _NO_OFFSETS, parent_nodes[low:high], _ZERO, high - low,
            order, hits, acc,
        )  # fmt: skip
        for j in range(high - low):
            where[parent_nodes[low + j]] = j
        for p in range(pair_ptr[row], pair_ptr[row + 1]):
            node, parent = pair_nodes[p], pair_parents[p]
            j = where[parent]
            at = node if spec[WHOLE] == 1 else j * spec[WIDEST] + node - children[spec[PARENT_AT] + parent]
            out[p] = post(acc[at], kind)
            if kind != IDENTITY:
                out[p] *= parent_scores[low + j]
