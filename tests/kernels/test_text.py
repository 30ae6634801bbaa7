"""Text and vocabulary kernels against their plain twins."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from compiled import compiled
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from umpteen.config import TfidfConfig
from umpteen.data.vocabulary import CASE_EXCEPTIONS, Splitter, character_tables, encode, make_slots
from umpteen.kernels import text, vocabulary

LETTERS = "aaabBc_1 9  \n\té ßÀжЯσςΣİ日本のK\u0301\u2003🙂𝔸\x00'-."
lower_text, sort_pairs = compiled(text.lower_text), compiled(vocabulary.sort_pairs)
ANALYZERS = ("word", "char", "char_wb")
characters = st.sampled_from(LETTERS) | st.characters()
texts_made = st.lists(st.text(characters, max_size=40), min_size=1, max_size=6)
lengths = st.tuples(st.integers(1, 4), st.integers(0, 3)).map(lambda pair: (pair[0], sum(pair)))


def splitter_of(analyzer: str, shortest: int, longest: int, lowercase: bool = True) -> Splitter:
    return Splitter.of(TfidfConfig(analyzer=analyzer, ngram_min=shortest, ngram_max=longest, lowercase=lowercase))


def expected_counts(texts: list[str], analyzer: str, shortest: int, longest: int) -> list[Counter]:
    rows = [reference.text_terms(one, analyzer, shortest, longest) for one in texts]
    return [Counter(reference.term_key(term, analyzer) for term in row) for row in rows]


@settings(max_examples=200, deadline=None)
@given(texts_made, st.sampled_from(ANALYZERS), lengths, st.booleans())
def test_count_texts_finds_the_terms_of_the_twin(texts, analyzer, shortest_longest, lowercase):
    splitter = splitter_of(analyzer, *shortest_longest, lowercase)
    block = encode(texts, lowercase)
    most = int(splitter.most_terms(np.diff(block.offsets)).sum())
    keys, counts = np.zeros(most, np.uint64), np.zeros(most, np.int32)
    n = text.count_texts(*block, *splitter, keys, counts)
    folded = [one.lower() if lowercase else one for one in texts]
    expected = expected_counts(folded, analyzer, *shortest_longest)
    assert n == sum(map(len, expected))
    at = 0
    for row in expected:
        here = slice(at, at + len(row))
        assert dict(zip(keys[here].tolist(), counts[here].tolist(), strict=True)) == row
        at += len(row)


def test_lower_text_folds_every_character_as_python_does():
    lower, _ = character_tables()
    everything = "".join(chr(code) for code in range(0x110000) if chr(code) not in CASE_EXCEPTIONS)
    data = np.frombuffer(everything.encode("utf-8", "surrogatepass"), np.uint8)
    out = np.empty(data.size * 3 // 2 + 1, np.uint8)
    n = lower_text(data, 0, data.size, lower, out)
    assert out[:n].tobytes().decode("utf-8", "surrogatepass") == everything.lower()


def test_case_exceptions_are_all_there_are():
    special = [chr(code) for code in range(0x110000) if len(chr(code).lower()) != 1]
    assert set(special) <= set(CASE_EXCEPTIONS)


def test_keys_are_distinct_and_depend_on_the_order():
    words = [f"{a}{b}" for a in "abcdefghij" for b in ("", "x", "xyzwuvt", "xyzwuvts", "xyzwuvtsr" * 3)]
    terms = [(a, b) for a in words for b in words] + [(a,) for a in words if len(a) > 1]
    assert len({reference.term_key(term, "word") for term in terms}) == len(terms)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 2**64 - 1), st.integers(1, 9)), max_size=60))
def test_partition_terms_orders_by_shard(pairs):
    keys = np.array([key for key, _ in pairs], np.uint64)
    counts = np.array([count for _, count in pairs], np.int32)
    out_keys, out_counts = np.zeros_like(keys), np.zeros_like(counts)
    indptr = np.empty(vocabulary.N_SHARDS + 1, np.int64)
    vocabulary.partition_terms(keys, counts, keys.size, out_keys, out_counts, indptr)
    expected_keys, expected, sizes = reference.partition_terms(keys, counts, vocabulary.N_SHARDS)
    np.testing.assert_array_equal(out_keys, expected_keys)
    np.testing.assert_array_equal(out_counts, expected)
    np.testing.assert_array_equal(np.diff(indptr), sizes)


def merged(kernel, keys, numbers):
    """Add terms to a table that grows when it is full; return both counts of each key."""
    table, used, begin = np.zeros(2 * 4, np.uint64), 0, 0
    while begin < keys.size:
        begin, used = kernel(keys, numbers, begin, keys.size, table, used)
        if begin < keys.size:
            larger = np.zeros(2 * table.size, np.uint64)
            vocabulary.move_terms(table, larger)
            table = larger
    taken = [(int(key), int(number)) for key, number in table.reshape(-1, 2) if key]
    assert len(taken) == used
    return {
        key: (number >> vocabulary.COUNT_BITS, number & ((1 << vocabulary.COUNT_BITS) - 1)) for key, number in taken
    }


terms_made = st.lists(st.tuples(st.integers(1, 60) | st.integers(1, 2**64 - 1), st.integers(1, 9)), max_size=80)


@settings(max_examples=100, deadline=None)
@given(terms_made)
def test_merge_and_move_terms_add_up_like_the_twin(pairs):
    keys = np.array([key for key, _ in pairs], np.uint64)
    counts = np.array([count for _, count in pairs], np.int32)
    assert merged(vocabulary.merge_terms, keys, counts) == reference.merge_terms(keys, counts)


@settings(max_examples=100, deadline=None)
@given(terms_made, st.integers(0, 80))
def test_counts_of_two_parts_add_up_to_those_of_the_whole(pairs, at):
    keys = np.array([key for key, _ in pairs], np.uint64)
    counts = np.array([count for _, count in pairs], np.int32)
    found = [merged(vocabulary.merge_terms, keys[part], counts[part]) for part in (slice(at), slice(at, None))]
    parts = [(key, n << vocabulary.COUNT_BITS | times) for part in found for key, (n, times) in part.items()]
    both = (np.array([entry[side] for entry in parts], np.uint64) for side in (0, 1))
    assert merged(vocabulary.merge_counts, *both) == reference.merge_terms(keys, counts)


@settings(max_examples=100, deadline=None)
@given(texts_made, st.sampled_from(ANALYZERS), lengths, st.integers(40, 400))
def test_name_terms_writes_each_string_once(texts, analyzer, shortest_longest, room):
    texts = [one.lower() for one in texts]
    terms = sorted({term for one in texts for term in reference.text_terms(one, analyzer, *shortest_longest)})
    joined = " " if analyzer == "word" else ""
    keys = np.array([reference.term_key(term, analyzer) for term in terms], np.uint64)
    unnamed = np.ones(keys.size, np.uint8)
    columns, ends = np.empty(keys.size, np.int32), np.empty(keys.size, np.int64)
    block, splitter, names, row = encode(texts, True), splitter_of(analyzer, *shortest_longest), {}, 0
    while row < block.n_texts:
        out = np.empty(room, np.uint8)
        row, n = vocabulary.name_terms(*block, row, *splitter, keys, make_slots(keys), unnamed, columns, ends, out)
        begins = [0, *ends[:n]]
        for column, begin, end in zip(columns[:n], begins, ends[:n], strict=False):
            assert column not in names
            names[column] = out[begin:end].tobytes().decode("utf-8", "surrogatepass")
        room += 0 if n else 400
    assert not unnamed.any()
    assert [names[column] for column in range(keys.size)] == [joined.join(term) for term in terms]


@pytest.mark.parametrize("n_columns", [1, 2, 511, 512, 513, 200_000, 2**31 - 1])
@pytest.mark.parametrize("n", [0, 1, 47, 48, 1000])
def test_sort_pairs_sorts_by_column(n, n_columns):
    rng = np.random.default_rng(n)
    columns = (
        rng.choice(n_columns, size=min(n, n_columns), replace=False)
        if n_columns < 10**6
        else (np.unique(rng.integers(0, n_columns, n)))
    )
    pairs = rng.permutation(columns.astype(np.int64)) << 32 | rng.integers(1, 100, columns.size)
    expected = np.sort(pairs)
    sort_pairs(pairs, np.empty_like(pairs), pairs.size, n_columns)
    np.testing.assert_array_equal(pairs, expected)


@settings(max_examples=100, deadline=None)
@given(texts_made, st.sampled_from(ANALYZERS), lengths, st.booleans(), st.integers(1, 3))
def test_weigh_texts_equals_the_twin(texts, analyzer, shortest_longest, sublinear, every):
    texts = [one.lower() for one in texts]
    rows = expected_counts(texts, analyzer, *shortest_longest)
    known = sorted({key for row in rows for key in row})[::every]
    keys = np.array(known, np.uint64)
    idf = np.linspace(1, 2, keys.size, dtype=np.float32)
    block, splitter = encode(texts, True), splitter_of(analyzer, *shortest_longest)
    most = int(splitter.most_terms(np.diff(block.offsets)).sum())
    indptr = np.empty(len(texts) + 1, np.int64)
    indices, data = np.empty(most, np.int32), np.empty(most, np.float32)
    vocabulary.weigh_texts(*block, *splitter, keys, make_slots(keys), idf, sublinear, indptr, indices, data)
    for row, counts in enumerate(rows):
        here = slice(indptr[row], indptr[row + 1])
        columns = {known.index(key): count for key, count in counts.items() if key in known}
        assert indices[here].tolist() == sorted(columns)
        dense = reference.weigh_row(columns, idf, sublinear)
        np.testing.assert_allclose(data[here], dense[sorted(columns)], rtol=1e-6)
