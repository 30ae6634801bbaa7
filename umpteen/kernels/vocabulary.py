"""Count the terms of many texts, find the strings of the kept terms, and compute tf-idf rows.

Counts are sharded by the highest bits of the key, so that shards can be filled independently and fit in the cache. For
the arguments ``text, offsets, lower, kinds, analyzer, shortest, longest`` see :mod:`umpteen.kernels.text`.
"""

import math

import numpy as np

from umpteen.kernels.alloc import empty
from umpteen.kernels.jit import inner, jit
from umpteen.kernels.text import (
    count_units,
    is_padded,
    join_keys,
    least_units,
    longest_text,
    slots_for,
    split_text,
    unit_arrays,
)

SHARD_BITS = 6  # number of highest bits of a key that select its shard
N_SHARDS = 1 << SHARD_BITS
# A 64-bit number has two counts of a term: texts that contain it (28 bits), occurrences (36 bits).
COUNT_BITS = 36
MAX_TEXTS = (1 << (64 - COUNT_BITS)) - 1

_DIGIT = 9  # bits per radix pass: 512 buckets fit in the first-level cache
_ONE_TEXT = np.uint64(1 << COUNT_BITS)


@jit
def partition_terms(keys, counts, n, out_keys, out_counts, indptr):
    """Sort the first ``n`` terms by shard; those of shard ``s`` are ``indptr[s] … indptr[s + 1]``."""
    shift = np.uint64(64 - SHARD_BITS)
    indptr[:] = 0
    for i in range(n):
        indptr[np.int64(keys[i] >> shift) + 1] += 1
    for shard in range(N_SHARDS):
        indptr[shard + 1] += indptr[shard]
    places = indptr[:-1].copy()
    for i in range(n):
        shard = np.int64(keys[i] >> shift)
        out_keys[places[shard]] = keys[i]
        out_counts[places[shard]] = counts[i]
        places[shard] += 1


@inner
def find_slot(key, table, mask):
    """Return the slot of a key in a shard: where it is, or where it belongs."""
    at = np.int64(key & mask)
    while table[2 * at] != key and table[2 * at] != np.uint64(0):
        at = (at + 1) & np.int64(mask)
    return at


@jit
def merge_terms(keys, counts, begin, end, table, used):
    """Add the terms of texts to a shard until it is three quarters full; return the next term and the used slots.

    ``table`` has pairs of a key (0: empty) and ``texts << COUNT_BITS | occurrences``.
    """
    size = table.size // 2
    mask = np.uint64(size - 1)
    for i in range(begin, end):
        if 4 * used >= 3 * size:
            return i, used
        at = find_slot(keys[i], table, mask)
        used += table[2 * at] == np.uint64(0)
        table[2 * at] = keys[i]
        table[2 * at + 1] += _ONE_TEXT + np.uint64(counts[i])
    return end, used


@jit
def merge_counts(keys, numbers, begin, end, table, used):
    """Add terms with their two counts in one number to a shard, as ``merge_terms`` adds the terms of texts."""
    size = table.size // 2
    mask = np.uint64(size - 1)
    for i in range(begin, end):
        if 4 * used >= 3 * size:
            return i, used
        at = find_slot(keys[i], table, mask)
        used += table[2 * at] == np.uint64(0)
        table[2 * at] = keys[i]
        table[2 * at + 1] += numbers[i]
    return end, used


@jit
def move_terms(table, out):
    """Copy the terms of a shard to a larger, empty one."""
    mask = out.size // 2 - 1
    for i in range(table.size // 2):
        if table[2 * i] != np.uint64(0):
            at = np.int64(table[2 * i] & np.uint64(mask))
            while out[2 * at] != np.uint64(0):
                at = (at + 1) & mask
            out[2 * at] = table[2 * i]
            out[2 * at + 1] = table[2 * i + 1]


@jit
def fill_slots(keys, slots):
    """Fill the hash table ``slots`` with column numbers; its size is a power of two, and all entries are -1."""
    mask = np.uint64(slots.size - 1)
    for column in range(keys.size):
        at = keys[column] & mask
        while slots[at] >= 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = column


@inner
def find_column(key, keys, slots):
    """Return the column of a key, or -1."""
    mask = np.uint64(slots.size - 1)
    if key == np.uint64(0):
        key = np.uint64(1)
    at = key & mask
    while slots[at] >= 0:
        if keys[slots[at]] == key:
            return slots[at]
        at = (at + np.uint64(1)) & mask
    return np.int32(-1)


@inner
def write_term(folded, starts, ends, first, last, spaced, out, at):
    """Write the units ``first … last`` and return the position after them, or -1 if ``out`` is too short."""
    for unit in range(first, last + 1):
        start, end = starts[unit], ends[unit]
        if at + 2 + end - start > out.size:
            return -1
        if start < 0 or (spaced and unit > first):
            out[at] = 32
            at += 1
        for i in range(max(start, 0), end):
            out[at] = folded[i]
            at += 1
    return at


@jit
def name_terms(
    text, offsets, first_row, lower, kinds, analyzer, shortest, longest, keys, slots, unnamed, columns, ends_at, out
):
    """Write the strings of the terms that are marked in ``unnamed``, and unmark them.

    The i-th string is that of column ``columns[i]`` and ends at ``ends_at[i]`` of ``out``. Return the next row,
    which is not the end if ``out`` was too short, and the number of strings.
    """
    most = longest_text(offsets)
    folded, hashes, starts, ends, stops = unit_arrays(most, analyzer)
    n, at = 0, 0
    for row in range(first_row, offsets.size - 1):
        n_units = split_text(
            text, offsets[row], offsets[row + 1], lower, kinds, analyzer, folded, hashes, starts, ends, stops
        )
        for i in range(n_units):
            key = hashes[i]
            least = least_units(i, stops, shortest, is_padded(analyzer))
            for j in range(i, min(stops[i], i + longest)):
                if j > i:
                    key = join_keys(key, hashes[j])
                if j - i + 1 < least:
                    continue
                column = find_column(key, keys, slots)
                if column < 0 or not unnamed[column]:
                    continue
                after = write_term(folded, starts, ends, i, j, analyzer is None, out, at)
                if after < 0:
                    return row, n
                at = after
                unnamed[column] = 0
                columns[n] = column
                ends_at[n] = at
                n += 1
    return offsets.size - 1, n


@inner
def sort_pairs(pairs, spare, n, n_columns):
    """Sort ``pairs`` of ``column << 32 | count`` by column."""
    if n < 48:
        for i in range(1, n):
            pair, j = pairs[i], i - 1
            while j >= 0 and pairs[j] > pair:
                pairs[j + 1] = pairs[j]
                j -= 1
            pairs[j + 1] = pair
        return
    ends = empty(1 << _DIGIT, np.int64)
    source, target = pairs, spare
    shift = 32
    while (n_columns - 1) >> (shift - 32) > 0:
        for digit in range(1 << _DIGIT):
            ends[digit] = 0
        for i in range(n):
            ends[source[i] >> shift & ((1 << _DIGIT) - 1)] += 1
        for digit in range(1, 1 << _DIGIT):
            ends[digit] += ends[digit - 1]
        for i in range(n - 1, -1, -1):
            digit = source[i] >> shift & ((1 << _DIGIT) - 1)
            ends[digit] -= 1
            target[ends[digit]] = source[i]
        source, target = target, source
        shift += _DIGIT
    if (shift - 32) // _DIGIT % 2 == 1:
        for i in range(n):
            pairs[i] = spare[i]


@inner
def weigh_row(pairs, n, idf, sublinear, values, indices, data):
    """Compute one row of unit length from sorted pairs."""
    total = 0.0
    for i in range(n):
        value = np.float64(pairs[i] & 0xFFFFFFFF)
        if sublinear:
            value = 1.0 + math.log(value) if value > 1.0 else 1.0
        value *= np.float64(idf[pairs[i] >> 32])
        values[i] = value
        total += value * value
    scale = 1.0 / math.sqrt(total) if n > 0 else 0.0
    for i in range(n):
        indices[i] = pairs[i] >> 32
        data[i] = values[i] * scale


@jit
def weigh_texts(
    text, offsets, lower, kinds, analyzer, shortest, longest, keys, slots, idf, sublinear, indptr, indices, data
):
    """Compute a row of tf-idf weights for each text, sorted by column and of unit length."""
    most = longest_text(offsets)
    folded, hashes, starts, ends, stops = unit_arrays(most, analyzer)
    most_terms = hashes.size * min(longest - shortest + 1, hashes.size)
    own_slots = empty(slots_for(most_terms), np.int32)
    own_keys, own_counts = empty(most_terms, np.uint64), empty(most_terms, np.int32)
    pairs, spare = empty(most_terms, np.int64), empty(most_terms, np.int64)
    values = empty(most_terms, np.float64)
    indptr[0] = 0
    for row in range(offsets.size - 1):
        n_units = split_text(
            text, offsets[row], offsets[row + 1], lower, kinds, analyzer, folded, hashes, starts, ends, stops
        )
        n_terms = count_units(
            hashes, stops, n_units, shortest, longest, is_padded(analyzer), own_slots, own_keys, own_counts
        )
        n = np.int64(0)  # with a literal the functions below would be compiled a second time
        for i in range(n_terms):
            column = find_column(own_keys[i], keys, slots)
            if column >= 0:
                pairs[n] = np.int64(column) << 32 | np.int64(own_counts[i])
                n += 1
        sort_pairs(pairs, spare, n, keys.size)
        begin = indptr[row]
        weigh_row(pairs, n, idf, sublinear, values, indices[begin:], data[begin:])
        indptr[row + 1] = begin + n
