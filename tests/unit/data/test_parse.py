"""The byte parser against its twin, on lines good and bad."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import reference
from umpteen.kernels.parse import OK, parse_rows

number = st.integers(0, 40).map(str)
value = st.floats(-1e6, 1e6, width=32).map(repr) | st.sampled_from(
    ["1", "-0", "+.5", "3.", "1e3", "2E-4", "1e99", "nan", "inf", "", "-", ".", "1e", "0x1", "1.2.3", "0e999"]
)
feature = st.tuples(number, value).map(":".join)
good_line = st.tuples(st.lists(number, max_size=3).map(",".join), st.lists(feature, max_size=4).map(" ".join)).map(
    " ".join
)
any_line = st.text("0123 ,:.-+e#\t\rx", max_size=20)
text = st.lists(good_line | any_line, max_size=5).map(lambda lines: "".join(line + "\n" for line in lines))


def parse(raw, n_labels, n_features, keep_blank):
    n_lines, n_colons = raw.count(b"\n"), raw.count(b":")
    label_ends, feature_ends = np.zeros(n_lines, np.int64), np.zeros(n_lines, np.int64)
    labels = np.zeros(n_lines + raw.count(b","), np.int32)
    indices, values = np.zeros(n_colons, np.int32), np.zeros(n_colons, np.float32)
    arrays = label_ends, labels, feature_ends, indices, values
    n_rows, status, position = parse_rows(np.frombuffer(raw, np.uint8), n_labels, n_features, keep_blank, *arrays)
    ends = zip(label_ends[:n_rows], feature_ends[:n_rows], strict=True)
    rows, a, b = [], 0, 0
    for label_end, feature_end in ends:
        rows.append((labels[a:label_end], indices[b:feature_end], values[b:feature_end]))
        a, b = label_end, feature_end
    return rows, status, position


@settings(max_examples=400, deadline=None)
@example("1,2 3:4.5\n 6:7\n8\n\n", 30, 30, True)
@example("1:2\n3#x\n", 30, 30, False)
@example("0 1:" + "9" * 30 + "e-20 2:0." + "0" * 60 + "12e50\n", 30, 30, False)
@given(text, st.integers(1, 50), st.integers(1, 50), st.booleans())
def test_parser_equals_its_twin(lines, n_labels, n_features, keep_blank):
    raw = lines.encode()
    expected, all_good = reference.parse_rows(raw, n_labels, n_features, keep_blank)
    rows, status, position = parse(raw, n_labels, n_features, keep_blank)
    assert (status == OK) == all_good
    assert len(rows) == len(expected)
    assert 0 <= position <= len(raw)
    for (labels, indices, values), (their_labels, features) in zip(rows, expected, strict=True):
        assert labels.tolist() == their_labels
        assert indices.tolist() == [index for index, _ in features]
        expected_values = np.array([value for _, value in features], dtype=np.float32)
        np.testing.assert_allclose(values, expected_values, rtol=2e-7, atol=1e-45)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_stay_inside(raw):
    raw = raw + b"\n"
    rows, _, position = parse(raw, 2**31 - 1, 2**31 - 1, True)
    assert len(rows) <= raw.count(b"\n")
    assert position <= len(raw)


def test_decimals_are_float32_exact():
    numbers = np.random.default_rng(0).normal(size=500).astype(np.float32)
    line = " " + " ".join(f"{i}:{float(x)!r}" for i, x in enumerate(numbers)) + "\n"
    (row,), status, _ = parse(line.encode(), 1, 500, True)
    assert status == OK
    np.testing.assert_array_equal(row[2], numbers)
