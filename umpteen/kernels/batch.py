"""Score many queries against one chunk: decode its weights once into lanes, then take dense products.

Right for batches of long queries; ``score`` is right for single or very short ones.
"""

from __future__ import annotations

import numpy as np

from umpteen.kernels.jit import jit
from umpteen.kernels.lanes import LANES, dot
from umpteen.kernels.score import IDENTITY, least_margin, offer, post, weight


@jit
def compact(indptr, indices, values, queries, features, local, ids, kept, ptr):
    """Restrict the queries to a chunk's features, renumbered; returns how many entries were kept.

    ``local`` is one zeroed int32 per feature and is left zeroed.
    """
    for f in range(len(features)):
        local[features[f]] = f + 1
    at = 0
    for q in range(len(queries)):
        row = queries[q]
        for k in range(indptr[row], indptr[row + 1]):
            slot = local[indices[k]]
            if slot > 0:
                ids[at] = slot - 1
                kept[at] = values[k]
                at += 1
        ptr[q + 1] = at
    for f in range(len(features)):
        local[features[f]] = 0
    return at


@jit
def chunk_margins(ptr, ids, kept, first_entry, ends, lanes, codes, table, bias, lane_weights, margins):
    """Fill ``margins`` (queries, width) of one chunk, sixteen children at a time.

    ``lane_weights`` is scratch of at least (features of the chunk, LANES).
    """
    n_queries, width = margins.shape
    n_features = len(ends)
    out = np.empty(LANES, np.float32)
    for group in range(0, width, LANES):
        lane_weights[:n_features] = 0.0
        k = first_entry
        for f in range(n_features):
            while k < ends[f]:
                lane = np.int64(lanes[k]) - group
                if 0 <= lane < LANES:
                    lane_weights[f, lane] = weight(codes, table, k)
                k += 1
        n_lanes = min(LANES, width - group)
        for q in range(n_queries):
            for b in range(LANES):
                out[b] = bias[group + b] if b < n_lanes else np.float32(0.0)
            dot(lane_weights, ids, kept, ptr[q], ptr[q + 1], out)
            for b in range(n_lanes):
                margins[q, group + b] = out[b]


@jit
def best_of_chunk(margins, parent_scores, first_node, allowed, allowed_at, kind, ids_out, scores_out):
    """Keep each query's best children of one chunk, −1 where there are fewer."""
    room = ids_out.shape[1]
    for q in range(len(margins)):
        size = 0
        cut = np.float32(-np.inf)
        for c in range(margins.shape[1]):
            if margins[q, c] < cut:
                continue
            if len(allowed) > 0 and allowed[allowed_at + first_node + c] == 0:
                continue
            score = post(margins[q, c], kind)
            if kind != IDENTITY:
                score *= parent_scores[q]
            size = offer(score, first_node + c, ids_out[q], scores_out[q], size, room)
            if size == room:
                cut = least_margin(scores_out[q, size - 1], parent_scores[q], kind)
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
    """Merge the best children of a row's chunks; ``place`` (rows, b) says where each chunk wrote them."""
    room = ids_out.shape[1]
    for row in range(first, last):
        size = 0
        for j in range(beam.shape[1]):
            if beam[row, j] < 0:
                break
            p = place[row, j]
            for c in range(pair_ids.shape[1]):
                if pair_ids[p, c] < 0:
                    break
                size = offer(pair_scores[p, c], pair_ids[p, c], ids_out[row], scores_out[row], size, room)
        for j in range(size, room):
            ids_out[row, j] = -1
            scores_out[row, j] = 0.0
