"""Every format through the one door, and one vocabulary for all splits."""

import bz2
import csv
import gzip
import io
import json
import lzma
import sys
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.data import Labels, read, read_pair, read_texts, stream_texts
from umpteen.errors import BadInput, MissingExtra
from umpteen.store import Checkpoint

PACK = {"": lambda raw: raw, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


def put(folder, packing="", **files):
    """Write files; ``train_texts__txt`` stands for train_texts.txt."""
    for name, text in files.items():
        path = folder / (name.replace("__", ".") + packing)
        path.write_bytes(PACK[packing](text if isinstance(text, bytes) else text.encode()))
    return folder


def names_of(data):
    return [sorted(data.labels.names(row.indices)) for row in data.Y]


@pytest.mark.parametrize("packing", PACK)
def test_line_aligned_folder(tmp_path, packing):
    put(
        tmp_path,
        packing,
        train_texts__txt="one\ntwo\u2028still two\n\n",
        train_labels__txt="b a\n\nc  b\n",
        test_texts__txt="four\n",
        test_labels__txt="z a\n",
    )
    train, test = read_pair(tmp_path)
    assert train.texts == ["one", "two\u2028still two", ""]
    assert names_of(train) == [["a", "b"], [], ["b", "c"]]
    assert train.labels.names() == test.labels.names() == ["a", "b", "c", "z"]
    assert train.Y.shape == (3, 4)
    assert names_of(test) == [["a", "z"]]
    assert read(tmp_path).labels.names() == ["a", "b", "c"]
    assert names_of(read(tmp_path, "test")) == [["a", "z"]]
    assert read(tmp_path, "test").labels.names()[:3] == ["a", "b", "c"]
    assert list(stream_texts(tmp_path, "test")) == ["four"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_on_any_system(tmp_path, end, monkeypatch):
    put(tmp_path, train_texts__txt=f"one{end}two{end}", train_labels__txt=f"a{end}b c{end}")
    put(tmp_path, table__csv=f"text,labels{end}one,a{end}two,b{end}", rows__svm=f"0 0:1{end}1 1:1{end}")
    assert read(tmp_path).texts == read(tmp_path / "table.csv").texts == read_texts(tmp_path / "train_texts.txt")
    assert names_of(read(tmp_path)) == [["a"], ["b", "c"]]
    assert read(tmp_path / "rows.svm").X.shape == (2, 2)
    (tmp_path / "rows.txt").write_text(f"2 3 4{end}0 0:1{end}1 1:1{end}", newline="")
    assert read(tmp_path / "rows.txt").Y.shape == (2, 4)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"one{end}two{end}".encode())))
    assert read_texts("-") == ["one", "two"]


def test_a_carriage_return_inside_a_text_ends_no_line(tmp_path):
    put(tmp_path, train_texts__txt="one\rstill one\ntwo\n")
    assert read_texts(tmp_path / "train_texts.txt") == ["one\rstill one", "two"]


def test_the_train_split_decides_what_separates_labels(tmp_path):
    put(tmp_path, train__csv="text,labels\none,machine learning; law\ntwo,tax law\n")
    put(tmp_path, test__csv="text,labels\nthree,machine learning\nfour,tax law\n")  # no semicolon here
    train = read(tmp_path)
    assert train.labels.separator == ";"
    for test in (read(tmp_path, "test"), read(tmp_path, "test", labels=train.labels), read_pair(tmp_path)[1]):
        assert names_of(test) == [["machine learning"], ["tax law"]]
        assert test.labels == train.labels
        assert test.labels.separator == ";"
    assert names_of(read(tmp_path / "test.csv", labels=train.labels)) == [["machine learning"], ["tax law"]]
    assert len(read(tmp_path / "test.csv").labels) == 4  # alone it is split at blanks


def test_an_angle_bracket_makes_no_uri(tmp_path):
    put(tmp_path, train__csv="text,labels\none,x < y; z\ntwo,p; q\nthree,<http://e.org/a;b> <http://e.org/c>\n")
    assert names_of(read(tmp_path)) == [["x < y", "z"], ["p", "q"], ["http://e.org/a;b", "http://e.org/c"]]


def test_a_train_split_that_does_not_show_what_separates_labels_leaves_it_to_the_test_split(tmp_path):
    put(tmp_path, train__csv="text,labels\none,law\ntwo,tax\n", test__csv="text,labels\nthree,tax; law\n")
    assert names_of(read(tmp_path, "test")) == [["law", "tax"]]
    put(tmp_path, train__csv="text,labels\none,law tax\n", test__csv="text,labels\nthree,tax law;\n")
    assert names_of(read(tmp_path, "test")) == [["law;", "tax"]]


def test_label_names_with_keys(tmp_path):
    put(tmp_path, train_texts__txt="x\ny\n", train_labels__txt="p7\np3 new\n")
    put(tmp_path, label_names__txt="p3\tfish\np7\tship\n")
    data = read(tmp_path)
    assert data.labels.names() == ["fish", "ship", "new"]
    assert data.labels.keys() == ["p3", "p7", "new"]
    assert data.Y.toarray().tolist() == [[0, 1, 0], [1, 0, 1]]


def test_long_digits_are_no_line_numbers(tmp_path):
    put(tmp_path, train_texts__txt="x\n", train_labels__txt="0 000000000000009\n", label_names__txt="0\n1\n")
    assert read(tmp_path).labels.names() == ["0", "1", "000000000000009"]


@pytest.mark.parametrize("tokens", ["1\n0 2\n", "ship\nfish crab\n"])
def test_label_names_by_line(tmp_path, tokens):
    put(tmp_path, train_texts__txt="x\ny\n", train_labels__txt=tokens, label_names__txt="fish\nship\ncrab\n")
    data = read(tmp_path)
    assert names_of(data) == [["ship"], ["crab", "fish"]]
    assert len(data.labels) == 3


def test_label_names_of_other_data(tmp_path):
    put(tmp_path, train_texts__txt="x\n", train_labels__txt="q\n", label_names__txt="p3\tfish\n")
    with pytest.raises(BadInput, match="none of the 1 labels of the texts, such as 'q'"):
        read(tmp_path)


def test_given_vocabulary_is_not_changed(tmp_path):
    put(tmp_path, train_texts__txt="x\n", train_labels__txt="b q\n")
    labels = Labels(["b", "a"])
    data = read(tmp_path, labels=labels)
    assert labels.names() == ["b", "a"]
    assert data.labels.names() == ["b", "a", "q"]


def test_n_rows(tmp_path):
    put(tmp_path, train_texts__txt="x\ny\nz\n", train_labels__txt="a\nb\nc\n")
    assert read(tmp_path, n_rows=2).texts == ["x", "y"]
    assert len(read(tmp_path, n_rows=9)) == 3
    with pytest.raises(BadInput, match="n_rows"):
        read(tmp_path, n_rows=0)


XMC = "3 6 4\n1,3 0:0.5 5:-2e1\n 2:1\n0\n"


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("end", ["", "\r\n\n"])
def test_repository_format(tmp_path, packing, end):
    put(tmp_path, packing, train__txt=XMC.rstrip("\n") + end)
    for path in (tmp_path, tmp_path / f"train.txt{packing}"):
        data = read(path)
        assert data.X.toarray().tolist() == [[0.5, 0, 0, 0, 0, -20], [0, 0, 1, 0, 0, 0], [0] * 6]
        assert data.Y.toarray().tolist() == [[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]]
        assert data.labels.is_numbered
        assert data.texts is None


def test_repository_format_in_blocks(tmp_path, monkeypatch):
    rows = [f"{i % 7},{i % 5} {i % 11}:{i} {11 + i % 3}:1\n" for i in range(200)]
    put(tmp_path, train__txt="200 14 7\n" + "".join(rows))
    whole = read(tmp_path)
    monkeypatch.setattr("umpteen.data.xmc.BLOCK", 50)
    parts = read(tmp_path)
    assert (whole.X != parts.X).nnz == (whole.Y != parts.Y).nnz == 0
    assert whole.Y.data.max() == 1
    first = read(tmp_path, n_rows=10)
    assert first.X.shape == (10, 14)
    assert (whole.X[:10] != first.X).nnz == 0


def test_repository_format_with_names(tmp_path):
    put(tmp_path, train__txt=XMC, label_names__txt="0\tzero\n2\ttwo\n1\tone\n3\tthree\n")
    assert read(tmp_path).labels.names() == ["zero", "one", "two", "three"]
    put(tmp_path, label_names__txt="a\nb\nc\nd\n")
    assert names_of(read(tmp_path)) == [["b", "d"], [], ["a"]]
    put(tmp_path, label_names__txt="a\nb\n")
    with pytest.raises(BadInput, match="4 labels but there are 2 names"):
        read(tmp_path)
    put(tmp_path, train__txt="1 0:1\n")  # svmlight does not say how many labels there are
    put(tmp_path, label_names__txt="a\nb\nc\n")
    assert read(tmp_path).Y.shape == (1, 3)


def test_svmlight(tmp_path):
    put(tmp_path, train__txt="# made by hand\n2 1:0.5 6:2 # first\n\n0,2 3:1\n", test__txt="1,5 2:1 9:1\n")
    train, test = read_pair(tmp_path)
    assert train.X.shape == (2, 7)
    assert test.X.toarray().tolist() == [[0, 0, 1, 0, 0, 0, 0]]
    assert train.Y.shape[1] == test.Y.shape[1] == 6
    alone = read(tmp_path, "test")
    assert alone.X.shape == (1, 7)
    assert read(tmp_path / "test.txt").X.shape == (1, 10)
    assert read(tmp_path / "test.txt", n_features=12).X.shape == (1, 12)


def test_npz(tmp_path):
    X, Y = sp.random(6, 5, 0.5, random_state=0), sp.csr_matrix(np.eye(6))
    for part in ("trn", "tst"):
        sp.save_npz(tmp_path / f"X.{part}.npz", X.tocsc())
        sp.save_npz(tmp_path / f"Y.{part}.npz", Y)
    train, test = read_pair(tmp_path)
    np.testing.assert_allclose(train.X.toarray(), X.toarray(), rtol=1e-6)
    assert train.labels == test.labels
    assert len(read(tmp_path, n_rows=4)) == 4
    (tmp_path / "Y.tst.npz").unlink()
    with pytest.raises(BadInput, match="X and Y"):
        read(tmp_path, "test")


def test_npz_never_unpickles(tmp_path):
    np.savez(tmp_path / "X.trn.npz", format=np.array([{"a": 1}], dtype=object))
    sp.save_npz(tmp_path / "Y.trn.npz", sp.csr_matrix(np.eye(2)))
    with pytest.raises(BadInput, match="save_npz"):
        read(tmp_path)


@pytest.mark.parametrize("packing", ["", ".gz"])
def test_annif_tsv(tmp_path, packing):
    text = "Ships\t<http://e.org/a> <http://e.org/b>\n\nNothing\t\nBare\thttp://e.org/b\n"
    put(tmp_path, packing, train__tsv=text)
    data = read(tmp_path)
    assert data.texts == ["Ships", "Nothing", "Bare"]
    assert names_of(data) == [["http://e.org/a", "http://e.org/b"], [], ["http://e.org/b"]]
    assert list(stream_texts(tmp_path / f"train.tsv{packing}")) == data.texts
    put(tmp_path, label_names__tsv="<http://e.org/b>\tboat\n<http://e.org/a>\tark\n")
    assert read(tmp_path).labels.names() == ["boat", "ark"]


def test_annif_documents(tmp_path):
    put(tmp_path, b__txt="line one\nline two\n", b__key="sea voyage\ntrade\n")
    put(tmp_path, a__txt="text", a__tsv="<http://e.org/s>\tshipping\n", note__txt="no labels")
    data = read(tmp_path)
    assert data.texts == ["text", "line one\nline two"]
    assert names_of(data) == [["shipping"], ["sea voyage", "trade"]]
    assert "http://e.org/s" in data.labels
    (tmp_path / "test").mkdir()
    put(tmp_path / "test", c__txt="third", c__key="trade\n")
    assert read(tmp_path, "test").texts == ["third"]


def table(kind, rows, folder, columns=("text", "labels")):
    path = folder / f"train{kind}"
    if kind == ".jsonl":
        path.write_text("\n".join(json.dumps(dict(zip(columns, row, strict=True))) for row in rows) + "\n\n")
    elif kind == ".csv":
        with path.open("w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(columns)
            writer.writerows((text, json.dumps(labels)) for text, labels in rows)
    else:
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        pq.write_table(pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))), path)
    return path


@pytest.mark.parametrize("kind", [".jsonl", ".csv", ".parquet"])
def test_tables(tmp_path, kind):
    rows = [('He said "hi",\nand left', ["b c", "a"]), ("ünï", []), ("x" * 200_000, ["a"])]
    path = table(kind, rows, tmp_path)
    data = read(tmp_path)
    assert data.texts == [text for text, _ in rows]
    assert names_of(data) == [["a", "b c"], [], ["a"]]
    assert read_texts(path) == data.texts
    other = table(kind, rows, tmp_path, columns=("body", "tags"))
    assert read(other, text_column="body", label_column="tags").texts == data.texts
    with pytest.raises(BadInput, match=r"no column 'texts'.*only 'body', 'tags'"):
        read(other, text_column="texts", label_column="tags")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["a b", "c"], [["a", "b"], ["c"]]),
        (["tax law; sea", "new york"], [["sea", "tax law"], ["new york"]]),
        (['["x y", 3]', ""], [["3", "x y"], []]),
        (["<http://e.org/a;b> <http://e.org/c>", "d"], [["http://e.org/a;b", "http://e.org/c"], ["d"]]),
    ],
)
def test_label_cells_of_tables(tmp_path, cells, expected):
    with (tmp_path / "train.csv").open("w", newline="") as out:
        csv.writer(out).writerows([("id", "labels", "text"), *((1, cell, "t") for cell in cells)])
    assert names_of(read(tmp_path)) == expected


def test_json_labels(tmp_path):
    lines = [
        {"text": "a", "labels": [{"uri": "u:1", "label": "one"}]},
        {"text": "b", "labels": None},
        {"text": "half \ud83d pair", "labels": "u:1 u:2"},
        {"text": "c", "labels": 7},
    ]
    put(tmp_path, train__jsonl="".join(json.dumps(line) + "\n" for line in lines))
    data = read(tmp_path)
    assert names_of(data) == [["one"], [], ["one", "u:2"], ["7"]]
    data.texts[2].encode()


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    put(tmp_path, train__parquet=b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"umpteen\[data\]"):
        read(tmp_path)


def test_texts_for_prediction(tmp_path, monkeypatch):
    put(tmp_path, lines__txt="one\n\ntwo", empty__txt="")
    put(tmp_path, rows__jsonl='{"text": "a"}\n{"text": "b", "x": 1}\n')
    assert read_texts(tmp_path / "lines.txt") == ["one", "", "two"]
    assert read_texts(tmp_path / "rows.jsonl") == ["a", "b"]
    assert read_texts(tmp_path / "empty.txt") == []

    class Typed:
        buffer = io.BytesIO(b'{"text": "a"}\n{"text": "b"}')

    monkeypatch.setattr(sys, "stdin", Typed)
    assert read_texts("-") == ["a", "b"]
    with pytest.raises(BadInput, match=r"rows.txt:2: .*'text'"):
        read_texts(put(tmp_path, rows__txt='{"text": "a"}\n{"txt": "b"}\n') / "rows.txt")


def test_byte_order_mark(tmp_path):
    put(tmp_path, train_texts__txt="\ufeffone\n", train_labels__txt="\ufeffa\n")
    assert read(tmp_path).texts == ["one"]
    assert read(tmp_path).labels.names() == ["a"]
    assert len(read(put(tmp_path, rows__txt="\ufeff" + XMC) / "rows.txt")) == 3


def test_tsv_with_named_columns(tmp_path):
    put(tmp_path, train__tsv='id\ttitle\tsubjects\n1\ta "quoted\ttax law; art\n2\tb\tart\n')
    data = read(tmp_path, text_column="title", label_column="subjects")
    assert data.texts == ['a "quoted', "b"]
    assert names_of(data) == [["art", "tax law"], ["art"]]
    assert list(stream_texts(tmp_path / "train.tsv", text_column="title")) == data.texts
    with pytest.raises(BadInput, match="no column 'labels' but only 'id', 'title', 'subjects'"):
        read(tmp_path, text_column="title")
    put(tmp_path, train__tsv="title\tsubjects\na\tb\tc\n")
    with pytest.raises(BadInput, match=r"train\.tsv:2: 3 columns where the header has 2; take the TABs out"):
        read(tmp_path, text_column="title", label_column="subjects")


@pytest.mark.parametrize("kind", [".csv", ".tsv"])
def test_tables_without_a_header(tmp_path, kind):
    cells = [["one", "a; b", "x"], ["two", "b", "y"]]
    delimiter = {".csv": ",", ".tsv": "\t"}[kind]
    path = tmp_path / f"train{kind}"
    path.write_text("".join(delimiter.join(row) + "\n" for row in cells))
    data = read(path, has_header=False)
    assert data.texts == ["one", "two"]
    assert names_of(data) == [["a", "b"], ["b"]]
    assert read_texts(path, text_column=2, has_header=False) == ["x", "y"]
    assert names_of(read(path, text_column=0, label_column=2, has_header=False)) == [["x"], ["y"]]
    with pytest.raises(BadInput, match="no column '3' but only '0', '1', '2'"):
        read(path, label_column=3, has_header=False)
    with pytest.raises(BadInput, match="a column is a number from 0, but is 'title'"):
        read(path, text_column="title", has_header=False)
    path.write_text("one,a\n" if kind == ".tsv" else "")
    with pytest.raises(BadInput, match="no column '1'" if kind == ".tsv" else "is empty"):
        read(path, has_header=False)


def test_only_files_with_positions_can_be_without_a_header(tmp_path):
    put(tmp_path, train__jsonl='{"text": "one", "labels": ["a"]}')
    with pytest.raises(BadInput, match="only CSV and TSV files can be without a header"):
        read(tmp_path, has_header=False)


@pytest.mark.parametrize("cell", ["<urn:a> <urn:b>", "<urn:a>; <urn:b>", "<urn:a>,<urn:b>", "<urn:a> | <urn:b>"])
@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_uris_in_brackets_are_labels_whatever_separates_them(tmp_path, cell, kind):
    line = f'text,labels\none,"{cell}"\n' if kind == "csv" else f"one\t{cell}\n"
    put(tmp_path, **{f"train__{kind}": line})
    assert names_of(read(tmp_path)) == [["urn:a", "urn:b"]]


def test_names_in_key_files_are_the_uris_that_tsv_files_name(tmp_path):
    put(tmp_path, a__txt="one", a__key="Law\nArt\n", b__txt="two", b__tsv="<urn:l>\tLaw\n<urn:t>\tTax\n")
    data = read(tmp_path)
    assert data.labels.keys() == ["Art", "urn:l", "urn:t"]
    assert names_of(data) == [["Art", "Law"], ["Law", "Tax"]]
    put(tmp_path, c__txt="three", c__tsv="<urn:x>\tLaw\n")  # a name of two URIs stands for neither
    assert read(tmp_path).labels.keys() == ["Art", "Law", "urn:l", "urn:t", "urn:x"]


def test_a_given_separator(tmp_path):
    put(tmp_path, train__csv="text,labels\none,a; b|c d\ntwo,<urn:a>|<urn:b>\n", test__csv="text,labels\nx,c d\n")
    train = read(tmp_path, label_separator="|")
    assert names_of(train) == [["a; b", "c d"], ["urn:a", "urn:b"]]
    assert train.labels.separator == "|"
    assert names_of(read(tmp_path, "test", labels=train.labels)) == [["c d"]]
    put(tmp_path, lines_texts__txt="one\ntwo\n", lines_labels__txt="tax law | art\nart\n")
    assert names_of(read(tmp_path, "lines", label_separator="|"))[0] == ["art", "tax law"]
    put(tmp_path, rows__jsonl='{"text": "one", "labels": "tax law::art"}')
    assert names_of(read(tmp_path / "rows.jsonl", label_separator="::")) == [["art", "tax law"]]
    for wrong in ("", "\n", "<", "far too long"):
        with pytest.raises(BadInput, match="a label separator is one to 8 characters"):
            read(tmp_path, label_separator=wrong)


def test_a_separator_below_the_rows_that_are_read_is_not_seen(tmp_path):
    rows = "text,labels\na,tax law\nb,law\nc,machine learning; law\n"
    (tmp_path / "train.csv").write_text(rows)
    plain = read(tmp_path, n_rows=2)
    stored = read(tmp_path, n_rows=2, storage=lambda key: Checkpoint(tmp_path / "storage", key))
    assert stored.labels.keys() == plain.labels.keys() == ["law", "tax"]
    assert list(stored.texts) == plain.texts


@pytest.mark.parametrize(
    ("changed", "options"),
    [
        (lambda folder: None, {"text_column": "abstract"}),
        (lambda folder: (folder / "train" / "a.txt").write_text("changed"), {}),
    ],
    ids=["another column", "another document"],
)
def test_texts_in_files_are_read_again_if_others_are_wanted(tmp_path, changed, options):
    if options:
        put(tmp_path, train__csv="text,abstract,labels\none,two,law\n")
    else:
        (tmp_path / "train").mkdir()
        put(tmp_path / "train", a__txt="first", a__key="law")
    storage = partial(Checkpoint, tmp_path / "storage")
    before = list(read(tmp_path, storage=storage).texts)
    changed(tmp_path)
    after = list(read(tmp_path, storage=storage, **options).texts)
    assert after == list(read(tmp_path, **options).texts) != before


def test_messages_name_one_file(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "a", "labels": ["x"]}\n')
    (tmp_path / "label_names.txt").write_text("u\tone\nv\ttwo\n")
    for options in ({}, {"storage": lambda key: Checkpoint(tmp_path / "storage", key)}):
        with pytest.raises(BadInput) as error:
            read(tmp_path, **options)
        assert str(error.value).startswith(f"{tmp_path / 'label_names.txt'} has none of the 1 labels")
