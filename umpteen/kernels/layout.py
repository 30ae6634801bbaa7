"""Move weights between layouts: as trained (chunk by chunk), by feature, and by chunk for batches."""

from __future__ import annotations

import numpy as np

from umpteen.kernels.jit import jit


@jit
def sort_by_feature(features, nodes, values, n_features):
    """Stable counting sort of (feature, node, value) entries; returns (pointer, nodes, values)."""
    ptr = np.zeros(n_features + 1, np.int64)
    for k in range(len(features)):
        ptr[features[k] + 1] += 1
    for f in range(n_features):
        ptr[f + 1] += ptr[f]
    fill = ptr[:-1].copy()
    out_nodes = np.empty(len(nodes), nodes.dtype)
    out_values = np.empty(len(values), values.dtype)
    for k in range(len(features)):
        at = fill[features[k]]
        fill[features[k]] += 1
        out_nodes[at] = nodes[k]
        out_values[at] = values[k]
    return ptr, out_nodes, out_values


@jit
def split_runs(ptr, nodes, parent_of, starts, run_ptr, run_chunk, run_last, local):
    """Group each feature's ascending nodes by parent; returns the number of runs.

    Called with empty ``run_chunk`` it only counts. ``local`` receives the place of each node in its chunk.
    """
    count = 0
    fill = len(run_chunk) > 0
    for f in range(len(ptr) - 1):
        run_ptr[f] = count
        before = -1
        for k in range(ptr[f], ptr[f + 1]):
            chunk = parent_of[nodes[k]]
            if chunk != before:
                if fill:
                    run_chunk[count] = chunk
                    run_last[count] = 0
                count += 1
                before = chunk
            elif fill:
                run_last[count - 1] += 1
            if fill:
                local[k] = nodes[k] - starts[chunk]
    run_ptr[len(ptr) - 1] = count
    return count


@jit
def count_by_chunk(run_ptr, run_chunk, run_last, n_features_out, n_entries_out):
    """Count features and entries of every chunk."""
    for r in range(run_ptr[0], run_ptr[len(run_ptr) - 1]):
        n_features_out[run_chunk[r]] += 1
        n_entries_out[run_chunk[r]] += run_last[r] + 1


@jit
def by_chunk(ptr, run_ptr, run_chunk, run_last, local, codes, feature_at, entry_at, features, ends, lanes, out):
    """Reorder runs chunk by chunk: each chunk's features, where each feature's entries end, and the entries.

    ``feature_at`` and ``entry_at`` hold each chunk's first slots and are advanced.
    """
    for f in range(len(ptr) - 1):
        at = ptr[f]
        for r in range(run_ptr[f], run_ptr[f + 1]):
            chunk = run_chunk[r]
            to = entry_at[chunk]
            for k in range(run_last[r] + 1):
                lanes[to + k] = local[at + k]
                out[to + k] = codes[at + k]
            at += run_last[r] + 1
            entry_at[chunk] = to + run_last[r] + 1
            features[feature_at[chunk]] = f
            ends[feature_at[chunk]] = entry_at[chunk]
            feature_at[chunk] += 1
