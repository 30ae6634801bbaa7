"""Convert weights between layouts: as trained (by chunk), by feature, and by chunk for batches."""

import numpy as np

from umpteen.kernels.jit import jit
from umpteen.kernels.lanes import LANES


@jit
def count_by_feature(features, first, counts):
    """Count the entries of each of the features ``first``, ``first + 1`` and so on; others are skipped."""
    for k in range(len(features)):
        f = np.int64(features[k]) - first
        if 0 <= f < len(counts):
            counts[f] += 1


@jit
def sort_by_feature(features, nodes, values, first, fill, out_nodes, out_values):
    """Sort (feature, node, value) entries by feature, stably; only those of a range of features, as above.

    ``fill`` is the first free position of each feature, and is advanced.
    """
    for k in range(len(features)):
        f = np.int64(features[k]) - first
        if 0 <= f < len(fill):
            at = fill[f]
            fill[f] += 1
            out_nodes[at] = nodes[k]
            out_values[at] = values[k]


@jit
def split_runs(ptr, nodes, parent_of, starts, run_ptr, run_chunk, run_last, local):
    """Group the ascending nodes of each feature by parent; return the number of runs.

    With an empty ``run_chunk`` runs are only counted. ``local`` is the position of each node in its chunk.
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
def by_chunk(
    ptr, run_ptr, run_chunk, run_last, local, codes, n_groups, feature_at, entry_at, features, cells_out, codes_out
):
    """Sort weights by chunk and, within a chunk, by group of lanes.

    A chunk has a list of its features; an entry is a code and its cell in a table (features of the chunk, LANES).
    ``feature_at`` and ``entry_at`` are the first free positions and are advanced; with an empty ``features`` nothing
    else is done, which counts from zero.
    """
    first_feature, fill = feature_at.copy(), len(features) > 0
    for f in range(len(ptr) - 1):
        at = ptr[f]
        for r in range(run_ptr[f], run_ptr[f + 1]):
            chunk = np.int64(run_chunk[r])
            row = feature_at[chunk] - first_feature[chunk]
            if fill:
                features[feature_at[chunk]] = f
            feature_at[chunk] += 1
            end = at + run_last[r] + 1
            for k in range(at, end):
                key = chunk * n_groups + local[k] // LANES
                if fill:
                    cells_out[entry_at[key]] = row * LANES + local[k] % LANES
                    codes_out[entry_at[key]] = codes[k]
                entry_at[key] += 1
            at = end


@jit
def run_offsets(ptr, run_ptr, run_chunk, run_last, offsets):
    """Compute ``offsets`` (features, chunks + 1): where the run of each chunk starts in the postings of a feature.

    Return False if a feature has more postings than the type of ``offsets`` can represent.
    """
    n_chunks = offsets.shape[1] - 1
    for f in range(len(ptr) - 1):
        if ptr[f + 1] - ptr[f] > 65535:
            return False
        at = 0
        chunk = 0
        for r in range(run_ptr[f], run_ptr[f + 1]):
            while chunk <= run_chunk[r]:
                offsets[f, chunk] = at
                chunk += 1
            at += run_last[r] + 1
        while chunk <= n_chunks:
            offsets[f, chunk] = at
            chunk += 1
    return True


@jit
def encode_log(values, low, per_step, codes):
    """Encode sign and magnitude: code c < 128 means low · exp(c / per_step), c + 128 its negative."""
    for k in range(len(values)):
        size = max(abs(values[k]), low)
        place = np.int64(np.log(size / low) * per_step + np.float32(0.5))
        codes[k] = min(max(place, 0), 127) + (128 if values[k] < 0.0 else 0)  # rounding may give −1
