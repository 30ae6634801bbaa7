"""Score many queries for one chunk: decode its weights once into lanes, then compute dense products.

Faster than ``score`` for batches of long queries.
"""

import numpy as np

from umpteen.kernels.alloc import empty
from umpteen.kernels.jit import inner, jit
from umpteen.kernels.lanes import LANES, above, count_bits, dot, lowest_bit, reaching
from umpteen.kernels.score import IDENTITY, least_margin, offer, post, weight

_MOST_PLACES = 2**31 - 1  # largest int32


@inner
def compact(indptr, indices, values, queries, features, before, place, ids, kept, ptr):
    """Restrict the queries to a chunk's features, renumbered: query q is ``ids[ptr[q]:ptr[q + 1]]``.

    ``place`` (features of the model) has values up to ``before`` of other chunks, which are ignored. ``ids`` and
    ``kept`` must have one entry more than the queries.
    """
    for f in range(len(features)):
        place[np.uint32(features[f])] = before + f + 1
    at = 0
    ptr[0] = 0
    for q in range(len(queries)):
        row = queries[q]
        for k in range(indptr[row], indptr[row + 1]):
            slot = place[np.uint32(indices[k])] - before
            ids[at] = slot - 1  # overwritten by the next one unless the chunk has the feature: avoids a branch
            kept[at] = values[k]
            at += slot > 0
        ptr[q + 1] = at


@inner
def rank_lanes(values, candidates, first_node, ids, scores):
    """Write the candidates, a bit mask, to an empty list, best first and ties by lane; return how many fit."""
    rest, capacity = candidates, len(ids)
    while rest:
        b = lowest_bit(rest)
        rest &= rest - 1
        better = above(values, values[b])
        tied = reaching(values, values[b]) & ~better & ((1 << b) - 1)
        rank = count_bits((better | tied) & candidates)
        if rank < capacity:
            ids[rank] = first_node + b
            scores[rank] = values[b]
    return min(count_bits(candidates), capacity)


@inner
def best_children(
    ptr, ids, kept, entry_ptr, cells, codes, table, bias, weights, first_node, allowed, allowed_at, kind,
    pair_rows, pair_beams, parent_scores, worst, cuts, sizes, ids_out, scores_out,
):  # fmt: skip
    """Write the best children of one chunk for each query to ``ids_out`` and ``scores_out``, padded by −1.

    Children are computed sixteen at a time: entries of group g, ``entry_ptr[g]`` to ``entry_ptr[g + 1]``, are decoded
    into ``weights`` (features, LANES), which is zero before and after. Siblings are ranked by their margins, so only
    the kept ones are turned into scores; margins below ``cuts`` cannot exceed the worst score of the query so far.
    """
    capacity, n_queries, width = ids_out.shape[1], len(pair_rows), len(bias)
    out, origin, flat = empty(LANES, np.float32), empty(LANES, np.float32), weights.ravel()
    for q in range(n_queries):
        floor, sizes[q] = worst[pair_rows[q]], 0
        cuts[q] = floor  # minus infinity: no restriction
        if floor > -np.inf:
            cuts[q] = least_margin(floor, parent_scores[pair_rows[q], pair_beams[q]], kind)
    for first in range(0, width, LANES):
        low, high = entry_ptr[first // LANES], entry_ptr[first // LANES + 1]
        n_lanes = min(LANES, width - first)
        exists = (1 << n_lanes) - 1
        for b in range(LANES):
            origin[b] = bias[first + b] if b < n_lanes else np.float32(0.0)
        for k in range(low, high):
            flat[np.uint32(cells[k])] = weight(codes, table, k)
        for q in range(n_queries):
            for b in range(LANES):
                out[b] = origin[b]
            dot(weights, ids, kept, ptr[q], ptr[q + 1], out)
            candidates = reaching(out, cuts[q]) & exists
            if len(allowed) > 0:
                for b in range(n_lanes):
                    candidates &= ~((allowed[allowed_at + first_node + first + b] == 0) << b)
            if candidates == 0:
                continue
            if sizes[q] == 0:
                sizes[q] = rank_lanes(out, candidates, first_node + first, ids_out[q], scores_out[q])
            else:
                while candidates:
                    b = lowest_bit(candidates)
                    candidates &= candidates - 1
                    sizes[q] = offer(out[b], first_node + first + b, ids_out[q], scores_out[q], sizes[q], capacity)
            if sizes[q] == capacity:
                cuts[q] = max(cuts[q], scores_out[q, capacity - 1])
        for k in range(low, high):
            flat[np.uint32(cells[k])] = 0.0
    for q in range(n_queries):
        parent_score = parent_scores[pair_rows[q], pair_beams[q]]
        for j in range(sizes[q]):
            score = post(scores_out[q, j], kind)
            scores_out[q, j] = score if kind == IDENTITY else score * parent_score
        for j in range(sizes[q], capacity):
            ids_out[q, j] = -1


@jit
def score_chunks(
    indptr, indices, values, first, last, chunk_ptr, pair_rows, pair_beams, parent_scores, worst,
    n_features, feature_ptr, features, entry_ptr, cells, codes, table, starts, bias, node_at, allowed, kind,
    weights, ids_out, scores_out,
):  # fmt: skip
    """Score pairs first..last of (query, chunk), which are ordered by chunk; write the best children of each.

    ``worst`` (queries) is the score to exceed, minus infinity if the query has too few children so far.
    """
    most_entries, most_pairs = np.int64(0), np.int64(0)
    for chunk in range(len(chunk_ptr) - 1):
        entries = np.int64(0)
        begin, end = max(first, chunk_ptr[chunk]), min(last, chunk_ptr[chunk + 1])
        for pair in range(begin, end):
            entries += indptr[pair_rows[pair] + 1] - indptr[pair_rows[pair]]
        most_entries, most_pairs = max(most_entries, entries), max(most_pairs, end - begin)
    ids, kept = empty(most_entries + 1, np.int32), empty(most_entries + 1, np.float32)
    place, before = np.zeros(n_features, np.int32), np.int32(0)
    ptr, cuts, sizes = empty(most_pairs + 1, np.int64), empty(most_pairs, np.float32), empty(most_pairs, np.int64)
    for chunk in range(len(chunk_ptr) - 1):
        begin, end = max(first, chunk_ptr[chunk]), min(last, chunk_ptr[chunk + 1])
        if begin >= end:
            continue
        queries, node = pair_rows[begin:end], np.int64(starts[chunk])
        mine = features[feature_ptr[chunk] : feature_ptr[chunk + 1]]
        if before > _MOST_PLACES - len(mine):
            place[:] = 0
            before = np.int32(0)
        compact(indptr, indices, values, queries, mine, before, place, ids, kept, ptr)
        before += np.int32(len(mine))
        best_children(
            ptr, ids, kept, entry_ptr[chunk], cells, codes, table,
            bias[node_at + node : node_at + starts[chunk + 1]], weights, node, allowed, node_at, kind,
            queries, pair_beams[begin:end], parent_scores, worst, cuts, sizes,
            ids_out[begin:end], scores_out[begin:end],
        )  # fmt: skip


@jit
def pairs_by_chunk(beam, chunk_ptr, pair_rows, pair_beams):
    """Invert a beam (rows, b) padded by −1: list for each chunk the rows that contain it and the positions."""
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
    """Merge the best children of the chunks of a row into its list so far, which is padded by −1.

    ``place`` (rows, b) is the pair of each chunk.
    """
    capacity = ids_out.shape[1]
    for row in range(first, last):
        size = 0
        while size < capacity and ids_out[row, size] >= 0:
            size += 1
        for j in range(beam.shape[1]):
            if beam[row, j] < 0:
                break
            p = place[row, j]
            for c in range(pair_ids.shape[1]):
                if pair_ids[p, c] < 0:
                    break
                size = offer(pair_scores[p, c], pair_ids[p, c], ids_out[row], scores_out[row], size, capacity)
