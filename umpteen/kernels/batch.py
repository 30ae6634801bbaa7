"""Score many queries against one chunk: decode its weights once into lanes, then take dense products.

Right for batches of long queries; ``score`` is right for single or very short ones.
"""

from __future__ import annotations

import numpy as np

from umpteen.kernels.jit import jit
from umpteen.kernels.lanes import LANES, dot
from umpteen.kernels.score import IDENTITY, offer, post, weight


@jit
def compact(indptr, indices, values, queries, features, local, ids, kept, ptr):
    """Restrict the queries to a chunk's features, renumbered; returns how many entries were kept.

    ``local`` is one zeroed int32 per feature and is left zeroed. ``ids`` and ``kept`` need room for one entry
    more than the queries have.
    """
    for f in range(len(features)):
        local[features[f]] = f + 1
    at = 0
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
    return at


@jit
def chunk_margins(ptr, ids, kept, entry_ptr, rows, lanes, codes, table, bias, weights, margins):
    """Fill ``margins`` (queries, width) of one chunk, sixteen children at a time.

    Entries of group g, ``entry_ptr[g]`` to ``entry_ptr[g + 1]``, are decoded into ``weights`` (features, LANES),
    zeroed scratch that is left zeroed.
    """
    n_queries, width = margins.shape
    out = np.empty(LANES, np.float32)
    for first in range(0, width, LANES):
        low, high = entry_ptr[first // LANES], entry_ptr[first // LANES + 1]
        n_lanes = min(LANES, width - first)
        for k in range(low, high):
            weights[rows[k], lanes[k]] = weight(codes, table, k)
        for q in range(n_queries):
            for b in range(LANES):
                out[b] = bias[first + b] if b < n_lanes else np.float32(0.0)
            dot(weights, ids, kept, ptr[q], ptr[q + 1], out)
            for b in range(n_lanes):
                margins[q, first + b] = out[b]
        for k in range(low, high):
            weights[rows[k], lanes[k]] = 0.0


@jit
def best_of_chunk(margins, parent_scores, first_node, allowed, allowed_at, kind, ids_out, scores_out):
    """Keep each query's best children of one chunk, −1 where there are fewer.

    Under one parent a smaller margin never has a larger score, so only margins above the worst kept one are
    turned into scores.
    """
    room = ids_out.shape[1]
    kept = np.empty(room, np.float32)
    for q in range(len(margins)):
        size = 0
        for c in range(margins.shape[1]):
            margin = margins[q, c]
            if size == room and margin <= kept[room - 1]:
                continue
            if len(allowed) > 0 and allowed[allowed_at + first_node + c] == 0:
                continue
            score = post(margin, kind)
            if kind != IDENTITY:
                score *= parent_scores[q]
            if size == room:
                if score <= scores_out[q, room - 1]:
                    continue
                size -= 1
            at = size
            while at > 0 and scores_out[q, at - 1] < score:
                scores_out[q, at] = scores_out[q, at - 1]
                ids_out[q, at] = ids_out[q, at - 1]
                kept[at] = kept[at - 1]
                at -= 1
            scores_out[q, at], ids_out[q, at], kept[at] = score, first_node + c, margin
            size += 1
        for j in range(size, room):
            ids_out[q, j] = -1


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
