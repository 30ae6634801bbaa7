"""Count the n-grams of texts.

A text is split into *units* (words or characters) with a 64-bit hash each. The key of an n-gram is computed from the
hashes of its units, so no strings are created.

Common arguments: ``text, offsets`` (text ``i`` is ``text[offsets[i]:offsets[i + 1]]``, valid UTF-8, surrogates
allowed), ``lower`` (code point -> lower-case code point; empty: the case is kept), ``kinds`` (code point ->
``IS_WORD | IS_SPACE``).
"""

import numpy as np

from umpteen.kernels.alloc import empty
from umpteen.kernels.jit import inner, jit

# Analyzers. None is a separate type, so the kernel for words is compiled without the code for characters.
WORD, CHAR, CHAR_WB = None, 1, 2
IS_WORD, IS_SPACE = 1, 2  # bits of kinds

_SEED = np.uint64(0x243F6A8885A308D3)  # first digits of pi
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # SplitMix64


@inner
def mix(x):
    """Hash 64 bits; a bijection, so without collisions."""
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


@inner
def join_keys(key, unit):
    """Return the key of an n-gram followed by one more unit."""
    return mix(key * _GOLDEN + unit)


@inner
def decode(text, at):
    """Return the code point at a byte position and its number of bytes."""
    first = np.int64(text[at])
    if first < 0x80:
        return first, 1
    second = np.int64(text[at + 1]) & 0x3F
    if first < 0xE0:
        return (first & 0x1F) << 6 | second, 2
    third = np.int64(text[at + 2]) & 0x3F
    if first < 0xF0:
        return (first & 0x0F) << 12 | second << 6 | third, 3
    return (first & 0x07) << 18 | second << 12 | third << 6 | (np.int64(text[at + 3]) & 0x3F), 4


@inner
def encode(code, out, at):
    """Write a code point as UTF-8 and return the position after it."""
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | code >> 6
        out[at + 1] = 0x80 | code & 0x3F
        return at + 2
    if code < 0x10000:
        out[at] = 0xE0 | code >> 12
        out[at + 1] = 0x80 | code >> 6 & 0x3F
        out[at + 2] = 0x80 | code & 0x3F
        return at + 3
    out[at] = 0xF0 | code >> 18
    out[at + 1] = 0x80 | code >> 12 & 0x3F
    out[at + 2] = 0x80 | code >> 6 & 0x3F
    out[at + 3] = 0x80 | code & 0x3F
    return at + 4


@inner
def lower_text(text, begin, end, lower, out):
    """Copy one text in lower case and return its length, at most 3/2 of the old plus one."""
    if lower.size == 0:
        for i in range(end - begin):
            out[i] = text[begin + i]
        return end - begin
    high = np.uint8(0)
    for i in range(end - begin):  # no branches: this loop is vectorised
        byte = text[begin + i]
        high |= byte
        out[i] = byte + np.uint8(32) * np.uint8(np.uint8(byte - np.uint8(65)) < np.uint8(26))
    if high < 0x80:
        return end - begin
    at, i = 0, begin
    while i < end:
        byte = text[i]
        if byte < 0x80:
            out[at] = byte + np.uint8(32) * np.uint8(np.uint8(byte - np.uint8(65)) < np.uint8(26))
            at += 1
            i += 1
        else:
            code, size = decode(text, i)
            i += size
            at = encode(np.int64(lower[code]) if code < lower.size else code, out, at)
    return at


@inner
def split_words(text, n, kinds, hashes, starts, ends):
    """Find runs of two or more word characters; return their number."""
    n_units, i = 0, 0
    while i < n:
        start, n_chars, n_bytes = i, 0, 0
        key, piece = _SEED, np.uint64(0)
        while i < n:
            byte = text[i]
            size = 1
            if byte < 0x80:
                if kinds[byte] & IS_WORD == 0:
                    break
            else:
                code, size = decode(text, i)
                if kinds[code] & IS_WORD == 0:
                    break
            for _ in range(size):
                piece = piece << np.uint64(8) | np.uint64(text[i])
                i += 1
                n_bytes += 1
                if n_bytes & 7 == 0:
                    key = mix(key ^ piece)
                    piece = np.uint64(0)
            n_chars += 1
        if n_chars > 1:
            hashes[n_units] = mix(key ^ piece)
            starts[n_units] = start
            ends[n_units] = i
            n_units += 1
        if i < n:
            i += 1 if text[i] < 0x80 else decode(text, i)[1]
    return n_units


@inner
def put_char(code, start, end, n_units, hashes, starts, ends):
    """Append one character; ``start == -1`` means a space that is not in the text."""
    hashes[n_units] = mix(_SEED + np.uint64(code))
    starts[n_units] = start
    ends[n_units] = end
    return n_units + 1


@inner
def split_chars(text, n, kinds, hashes, starts, ends):
    """List the characters, runs of two or more white-space characters as one space; return their number."""
    n_units, i = 0, 0
    while i < n:
        start, run, code = i, 0, np.int64(0)
        while i < n:
            following, size = decode(text, i)
            if kinds[following] & IS_SPACE == 0:
                break
            code = following
            run += 1
            i += size
        if run == 1:
            n_units = put_char(code, start, i, n_units, hashes, starts, ends)
        elif run > 1:
            n_units = put_char(32, -1, -1, n_units, hashes, starts, ends)
        if i < n:
            code, size = decode(text, i)
            n_units = put_char(code, i, i + size, n_units, hashes, starts, ends)
            i += size
    return n_units


@inner
def split_padded(text, n, kinds, hashes, starts, ends, stops):
    """List the characters of each word with a space before and after it; return their number."""
    n_units, i = 0, 0
    while i < n:
        first = n_units
        while i < n:
            code, size = decode(text, i)
            if kinds[code] & IS_SPACE != 0:
                break
            if n_units == first:
                n_units = put_char(32, -1, -1, n_units, hashes, starts, ends)
            n_units = put_char(code, i, i + size, n_units, hashes, starts, ends)
            i += size
        if n_units > first:
            n_units = put_char(32, -1, -1, n_units, hashes, starts, ends)
            for unit in range(first, n_units):
                stops[unit] = n_units
        if i < n:
            i += decode(text, i)[1]
    return n_units


@inner
def split_text(text, begin, end, lower, kinds, analyzer, folded, hashes, starts, ends, stops):
    """Copy one text in lower case to ``folded`` and split it; n-grams of unit ``i`` end before ``stops[i]``."""
    n = lower_text(text, begin, end, lower, folded)
    if analyzer is None:
        n_units = split_words(folded, n, kinds, hashes, starts, ends)
    elif analyzer == CHAR:
        n_units = split_chars(folded, n, kinds, hashes, starts, ends)
    else:
        return split_padded(folded, n, kinds, hashes, starts, ends, stops)
    for unit in range(n_units):
        stops[unit] = n_units
    return n_units


@inner
def is_padded(analyzer):
    """Return whether n-grams are those of padded words."""
    if analyzer is None:
        return False
    return analyzer == CHAR_WB


@inner
def most_units(n_bytes, analyzer):
    """Return an upper bound of the number of units of a text."""
    if analyzer is None:
        return n_bytes // 3 + 1
    return n_bytes if analyzer == CHAR else 2 * n_bytes + 1


@inner
def unit_arrays(most, analyzer):
    """Allocate arrays for a text of at most ``most`` bytes: folded, hashes, starts, ends, stops."""
    n = most_units(most, analyzer)
    folded = empty(most + most // 2 + 1, np.uint8)
    return folded, empty(n, np.uint64), empty(n, np.int64), empty(n, np.int64), empty(n, np.int64)


@inner
def slots_for(n):
    """Return the size of a hash table for ``n`` entries: a power of two, at most half full."""
    size = 16
    while size < 2 * n:
        size *= 2
    return size


@inner
def count_key(key, n_terms, slots, mask, keys, counts):
    """Count one occurrence in the hash table of a text; return the number of distinct terms."""
    if key == np.uint64(0):  # 0 marks an empty place in the tables of merge_terms
        key = np.uint64(1)
    at = key & mask
    while True:
        term = slots[at]
        if term < 0:
            slots[at] = n_terms
            keys[n_terms] = key
            counts[n_terms] = 1
            return n_terms + 1
        if keys[term] == key:
            counts[term] += 1
            return n_terms
        at = (at + np.uint64(1)) & mask


@inner
def least_units(i, stops, shortest, padded):
    """Return the length of the shortest n-gram at unit ``i``; a padded word that is shorter counts once."""
    if padded and stops[i] - i < shortest and (i == 0 or stops[i - 1] == i):
        return stops[i] - i
    return shortest


@inner
def count_units(hashes, stops, n_units, shortest, longest, padded, slots, keys, counts):
    """Count the n-grams of one text in ``keys`` and ``counts``; return the number of distinct ones."""
    size = slots_for(n_units * min(longest - shortest + 1, n_units))
    for slot in range(size):
        slots[slot] = -1
    mask = np.uint64(size - 1)
    n_terms = 0
    for i in range(n_units):
        key = hashes[i]
        least = least_units(i, stops, shortest, padded)
        for j in range(i, min(stops[i], i + longest)):
            if j > i:
                key = join_keys(key, hashes[j])
            if j - i + 1 >= least:
                n_terms = count_key(key, n_terms, slots, mask, keys, counts)
    return n_terms


@inner
def longest_text(offsets):
    """Return the number of bytes of the longest text."""
    most = 0
    for row in range(offsets.size - 1):
        most = max(most, offsets[row + 1] - offsets[row])
    return most


@jit
def count_texts(text, offsets, lower, kinds, analyzer, shortest, longest, keys, counts):
    """List the distinct n-grams of each text, text by text; return the total number."""
    most = longest_text(offsets)
    folded, hashes, starts, ends, stops = unit_arrays(most, analyzer)
    slots = empty(slots_for(hashes.size * min(longest - shortest + 1, hashes.size)), np.int32)
    n = 0
    for row in range(offsets.size - 1):
        n_units = split_text(
            text, offsets[row], offsets[row + 1], lower, kinds, analyzer, folded, hashes, starts, ends, stops
        )
        n += count_units(hashes, stops, n_units, shortest, longest, is_padded(analyzer), slots, keys[n:], counts[n:])
    return n
