"""Score many queries against one chunk: decode its weights once into lanes, then take dense products.

Right for batches of long queries; ``score`` is right for single or very short ones.
"""

from __future__ import annotations

import numpy as np

from umpteen.kernels.alloc import empty
from umpteen.kernels.jit import inner, jit
from umpteen.kernels.lanes import LANES, any_reaches, dot
from umpteen.kernels.score import IDENTITY, least_margin, offer, post, weight


@inner
def compact(indptr, indices, values, queries, features, local, ids, kept, ptr):
    """Restrict the queries to a chunk's features, renumbered: query q is ``ids[ptr[q]:ptr[q + 1]]``.

    ``local`` is one zeroed int32 per feature and is left zeroed. ``ids`` and ``kept`` need room for one entry
    more than the queries have.
    """
    for f in range(len(features)):
        local[features[f]] = f + 1
    at = 0
    ptr[0] = 0
    for q in range(len(queries)):
        row = queries[q]
        for k in range(indptr[row], indptr[row + 1]):
            slot = local[indices[k]]
            ids[at] = slot - 1  # written in any case, kept only if the chunk knows the feature: no branch to miss
            kept[at] = values[k]
            at += slot > 0
        ptr[q + 1] = at
    for f in range(len(features)):
        local[features[f]] = 0


@inner
def best_children(
    ptr, ids, kept, entry_ptr, rows, lanes, codes, table, bias, weights, first_node, allowed, allowed_at, kind,
    pair_rows, pair_beams, parent_scores, worst, cuts, sizes, ids_out, scores_out,
):  # fmt: skip
    """Keep each query's best children of one chunk in ``ids_out`` and ``scores_out``, −1 where there are fewer.

    Sixteen children at a time: entries of group g, ``entry_ptr[g]`` to ``entry_ptr[g + 1]``, are decoded into
    ``weights`` (features, LANES), zeroed scratch that is left zeroed. A child that cannot beat the query's worst score
    so far is passed over by its margin.
    """
    room, n_queries, width = ids_out.shape[1], len(pair_rows), len(bias)
    out = empty(LANES, np.float32)
    for q in range(n_queries):
        floor, sizes[q] = worst[pair_rows[q]], 0
        cuts[q] = floor  # minus infinity: everything is welcome
        if floor > -np.inf:
            cuts[q] = least_margin(floor, parent_scores[pair_rows[q], pair_beams[q]], kind)
    for first in range(0, width, LANES):
        low, high = entry_ptr[first // LANES], entry_ptr[first // LANES + 1]
        n_lanes = LANES if first + LANES <= width else width - first
        for k in range(low, high):
            weights[rows[k], lanes[k]] = weight(codes, table, k)
        for q in range(n_queries):
            for b in range(LANES):
                out[b] = bias[first + b] if b < n_lanes else np.float32(-np.inf)
            dot(weights, ids, kept, ptr[q], ptr[q + 1], out)
            if not any_reaches(out, cuts[q]):
                continue
            parent_score = parent_scores[pair_rows[q], pair_beams[q]]
            for b in range(n_lanes):
                if out[b] < cuts[q] or (len(allowed) > 0 and allowed[allowed_at + first_node + first + b] == 0):
                    continue
                score = post(out[b], kind)
                if kind != IDENTITY:
                    score *= parent_score
                sizes[q] = offer(score, first_node + first + b, ids_out[q], scores_out[q], sizes[q], room)
                if sizes[q] == room:
                    cuts[q] = max(cuts[q], least_margin(scores_out[q, room - 1], parent_score, kind))
        for k in range(low, high):
            weights[rows[k], lanes[k]] = 0.0
    for q in range(n_queries):
        for j in range(sizes[q], room):
            ids_out[q, j] = -1


@jit
def score_chunks(
    indptr, indices, values, first, last, chunk_ptr, pair_rows, pair_beams, parent_scores, worst,
    feature_ptr, features, entry_ptr, rows, lanes, codes, table, starts, bias, node_at, allowed, kind,
    local, weights, ids_out, scores_out,
):  # fmt: skip
    """Score pairs first..last of (query, chunk), which lie chunk by chunk; write the best children of each.

    ``worst`` (queries) is the score to beat, minus infinity where a query needs more children in any case.
    """
    most_entries, most_pairs = np.int64(0), np.int64(0)
    for chunk in range(len(chunk_ptr) - 1):
        entries = np.int64(0)
        begin, end = max(first, chunk_ptr[chunk]), min(last, chunk_ptr[chunk + 1])
        for pair in range(begin, end):
            entries += indptr[pair_rows[pair] + 1] - indptr[pair_rows[pair]]
        most_entries, most_pairs = max(most_entries, entries), max(most_pairs, end - begin)
    ids, kept = empty(most_entries + 1, np.int32), empty(most_entries + 1, np.float32)
    ptr, cuts, sizes = empty(most_pairs + 1, np.int64), empty(most_pairs, np.float32), empty(most_pairs, np.int64)
    for chunk in range(len(chunk_ptr) - 1):
        begin, end = max(first, chunk_ptr[chunk]), min(last, chunk_ptr[chunk + 1])
        if begin >= end:
            continue
        queries, node = pair_rows[begin:end], np.int64(starts[chunk])
        compact(
            indptr,
            indices,
            values,
            queries,
            features[feature_ptr[chunk] : feature_ptr[chunk + 1]],
            local,
            ids,
            kept,
            ptr,
        )
        best_children(
            ptr, ids, kept, entry_ptr[chunk], rows, lanes, codes, table,
            bias[node_at + node : node_at + starts[chunk + 1]], weights, node, allowed, node_at, kind,
            queries, pair_beams[begin:end], parent_scores, worst, cuts, sizes,
            ids_out[begin:end], scores_out[begin:end],
        )  # fmt: skip


@jit
def pairs_by_chunk(beam, chunk_ptr, pair_rows, pair_beams):
    """Invert a beam (rows, b) padded by −1: list, chunk by chunk, the rows that hold it and at which place."""
    n, b = beam.shape
    for row in range(n):
        for j in range(b):
            if beam[row, j] >= 0:
                chunk_ptr[beam[row, j] + 1] += 1
    for c in range(len(chunk_ptr) - 1):
        chunk_ptr[c + 1] += chunk_ptr[c]
    fill = chunk_ptr[:-1].copy()
    for row in range(n):
        for j in range(b):
            c = beam[row, j]
            if c >= 0:
                pair_rows[fill[c]] = row
                pair_beams[fill[c]] = j
                fill[c] += 1


@jit
def merge_pairs(beam, place, pair_ids, pair_scores, first, last, ids_out, scores_out):
    """Merge the best children of a row's chunks into its list so far, which is padded by −1.

    ``place`` (rows, b) says where each chunk wrote them.
    """
    room = ids_out.shape[1]
    for row in range(first, last):
        size = 0
        while size < room and ids_out[row, size] >= 0:
            size += 1
        for j in range(beam.shape[1]):
            if beam[row, j] < 0:
                break
            p = place[row, j]
            for c in range(pair_ids.shape[1]):
                if pair_ids[p, c] < 0:
                    break
                size = offer(pair_scores[p, c], pair_ids[p, c], ids_out[row], scores_out[row], size, room)
