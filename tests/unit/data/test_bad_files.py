"""Every mistake in a file gets a sentence that names it; arbitrary bytes give data or such a sentence."""

import bz2
import gzip
import lzma
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from umpteen.data import Dataset, read, read_texts
from umpteen.data.lines import open_text
from umpteen.errors import BadInput, UmpteenError


def put(folder, **files):
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


@pytest.mark.parametrize(("packer", "suffix"), [(gzip.compress, "gz"), (lzma.compress, "xz"), (bz2.compress, "bz2")])
def test_damaged_archives(tmp_path, packer, suffix):
    path = tmp_path / f"a.txt.{suffix}"
    whole = packer(b"some text\n" * 5000)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match=f"a.txt.{suffix} is truncated"):
        list(open_text(path))
    path.write_bytes(b"not packed at all, whatever its name says")
    with pytest.raises(BadInput, match=f"not a sound {suffix} file"):
        list(open_text(path))


def test_not_utf8_names_the_line(tmp_path):
    put(tmp_path, a__txt=b"good\n" * 7 + b"caf\xe9\n")
    with pytest.raises(BadInput, match=r"a\.txt:8: this line is not UTF-8"):
        read_texts(tmp_path / "a.txt")


def test_missing_things(tmp_path):
    with pytest.raises(BadInput, match=r"nowhere does not exist; .* is empty"):
        read(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=r"does not exist; nor does the folder"):
        read(tmp_path / "no" / "where")
    put(tmp_path, readme__md="hello")
    with pytest.raises(BadInput, match=r"no train split.*train_texts.txt.*X.trn.npz.*holds readme.md"):
        read(tmp_path)
    with pytest.raises(BadInput, match=r"readme.md is of no known kind.*\.jsonl"):
        read(tmp_path / "readme.md")
    put(tmp_path, train_texts__txt="a\n")
    with pytest.raises(BadInput, match=r"no train_labels.txt.*readme.md"):
        read(tmp_path)
    with pytest.raises(BadInput, match=r"lines\.txt does not exist"):
        read_texts(tmp_path / "lines.txt")
    with pytest.raises(BadInput, match="cannot be read"):
        list(open_text(tmp_path))


@pytest.mark.parametrize(("texts", "labels"), [("a\nb\nc\n", "x\n"), ("a\n", "x\ny\nz\n")])
def test_rows_that_disagree(tmp_path, texts, labels):
    put(tmp_path, train_texts__txt=texts, train_labels__txt=labels)
    with pytest.raises(BadInput, match=r"has 3 lines but .* has 1; write one label line per text"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2 3 4\n0 0:1\n", "train.txt:1: the header promises 2 rows but the file has 1"),
        ("1 3 4\n0 0:1\n1 0:1\n", "the header promises 1 rows but the file has 2"),
        ("1 3 4\n4 0:1\n", r"train.txt:2: a label must be smaller .*'4 0:1'"),
        ("1 3 4\n0 3:1\n", "train.txt:2: a feature must be smaller"),
        ("2 3 4\n0 1:1\n0 0:x\n", "train.txt:3: a feature's value must be a number, but here is 'x'"),
        ("0 1:1\n\n# note\n0 0:nan\n", "train.txt:4: a feature's value"),
        ("0 0:1e50\n", "float32"),
        ("0 0\n", "train.txt:1: features must be written index:value"),
        ("-1 0:1\n", "train.txt:1: features must be written"),
        ("1,x 0:1\n", "train.txt:1: labels must be whole numbers"),
        ("99999999999999999999 0:1\n", "a label must be smaller"),
        ("1 99999999999 4\n", "at most 2147483647"),
        ("Just a text.\n", "train.txt:1: .* if the file holds texts, put it into a folder as train_texts.txt beside"),
    ],
)
def test_bad_feature_rows(tmp_path, text, message):
    with pytest.raises(BadInput, match=message):
        read(put(tmp_path, train__txt=text))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("train__tsv", "a\tb\nno tab here\n", "train.tsv:2: the line has no TAB"),
        ("train__jsonl", '{"text": "a", "labels": []}\n{oops\n', "train.jsonl:2: not valid JSON"),
        ("train__jsonl", "[1]\n", "train.jsonl:1: each line must be a JSON object"),
        ("train__jsonl", '{"text": "a", "label": []}\n', "no column 'labels'.*did you mean 'label'"),
        ("train__jsonl", '{"text": 3, "labels": []}\n', "train.jsonl:1: the text must be a string, but is 3"),
        ("train__jsonl", '{"text": "a", "labels": [null]}\n', "train.jsonl:1: a label must be"),
        ("train__jsonl", "[" * 100_000, "train.jsonl:1"),
        ("train__csv", "", "train.csv is empty"),
        ("train__csv", "text;labels\na;b\n", "columns are separated by commas .* but the header has one column"),
        ("train__csv", "txt,labels\na,b\n", "train.csv:1: there is no column 'text'.*did you mean 'txt'"),
        ("train__csv", "text,labels\na,b\nc\n", "train.csv:3: 1 columns where the header has 2"),
        ("train__csv", "text,labels\na,b\nboil, stir,c\n", "train.csv:3: 3 columns where the header has 2; put a cell"),
        ("train__csv", "text,labels,more\na,b\n", "train.csv:2: 2 columns where the header has 3"),
        ("train__csv", "text,labels,text\na,b,c\n", "train.csv:1: there are 2 columns 'text'; rename all but one"),
        ("train__tsv", "a\tb\nboil\tstir\tc\n", "train.tsv:2: a line must be text, TAB, labels .* but has 3 cells"),
        (
            "train__tsv",
            "text\tlabels\na\tx\n",
            "train.tsv:1: the line is a header, but a .tsv file has none",
        ),
        ("train__tsv", "a\tx\nb\ty\rz\n", "train.tsv:2: the labels hold a carriage return"),
        ("train__csv", 'text,labels\na,"[1"\n', "train.csv:2: labels begin like a JSON list"),
    ],
)
def test_bad_lines(tmp_path, name, text, message):
    with pytest.raises(BadInput, match=message):
        read(put(tmp_path, **{name: text}))


def test_labels_of_several_rows_are_not_one_label(tmp_path):
    put(tmp_path, train_texts__txt="a\rb\nc\n", train_labels__txt="x\ry\nz\n")
    with pytest.raises(BadInput, match=r"train_labels.txt:1: the labels hold a carriage return that ends no line"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nb\na\n", "names.txt:3: 'a' was on line 1"),
        ("a\n\n", "names.txt:2"),
        ("a\tA\nb\tB\tbee\n", "names.txt:2: the line must be key<TAB>name, but has more cells"),
        ("k1\ta\nk2\ta\n", "'a' is the name of several labels; use their keys"),
    ],
)
def test_bad_label_names(tmp_path, text, message):
    put(tmp_path, train_texts__txt="x\n", train_labels__txt="a\n", label_names__txt=text)
    with pytest.raises(BadInput, match=message):
        read(tmp_path)


def test_damaged_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    with pytest.raises(BadInput, match="not a readable Parquet file"):
        read(put(tmp_path, train__parquet=b"PAR1 not really PAR1"))


def check(path, **options):
    """Read, and demand a sound dataset or an error of ours."""
    try:
        data = read(path, **options)
    except UmpteenError:
        return
    assert isinstance(data, Dataset)
    assert data.Y.shape == (len(data), len(data.labels))
    assert data.Y.indices.max(initial=-1) < len(data.labels)


FILES = ["train.txt", "train.tsv", "train.jsonl", "train.csv", "train.txt.gz", "train.tsv.xz", "X.trn.npz"]
lines = st.lists(
    st.text(max_size=12)
    | st.text("0123456789,: .-e#\t<>", max_size=20)
    | st.sampled_from(["2 5 5", "text,labels", "text\tlabels", 'a,"b;c"', '{"text": "a", "labels": ["b"]}', '"', "[]"]),
    max_size=5,
).map(lambda rows: "\n".join(rows).encode("utf-8", "surrogatepass"))
fuzz = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@fuzz
@example("train.csv", b"text,labels\r\n\x00,\xc2\x85\r\n")
@given(st.sampled_from(FILES), st.binary(max_size=80) | lines)
def test_any_file(name, content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / name).write_bytes(content)
        if name == "X.trn.npz":
            (path / "Y.trn.npz").write_bytes(content)
        check(path)
        check(path / name, n_rows=2)


@fuzz
@given(lines, lines, st.none() | lines, st.binary(max_size=10))
def test_any_aligned_files(texts, labels, names, tail):
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder), train_texts__txt=texts, train_labels__txt=labels)
        put(path, test_texts__txt=labels + tail, test_labels__txt=texts)
        if names is not None:
            put(path, label_names__txt=names)
        check(path)
        check(path, split="test")


@fuzz
@given(st.binary(max_size=60) | lines)
def test_any_texts(content):
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder), a__txt=content) / "a.txt"
        try:
            texts = read_texts(path)
        except UmpteenError:
            return
        assert all(isinstance(text, str) for text in texts)
