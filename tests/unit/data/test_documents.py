"""Texts that are whole files: which are found, in which order, and what is refused."""

import bz2
import gzip
import io
import lzma
import os
import sys

import pytest

from umpteen.data import documents, read, stream_documents
from umpteen.data.readers import document_folder
from umpteen.errors import BadInput


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def test_documents_of_a_folder(tmp_path):
    write(tmp_path / "c.txt", "last\r\nline\r\n")
    write(tmp_path / "b" / "z.txt.gz", gzip.compress(b"packed"))
    write(tmp_path / "b" / "a" / "deep.txt.xz", lzma.compress(b"deep"))
    write(tmp_path / "a.TXT", b"\xef\xbb\xbffirst")
    write(tmp_path / "b" / "y.txt.bz2", bz2.compress(b"older"))
    write(tmp_path / "readme.md", "not a document")
    write(tmp_path / ".hidden" / "x.txt", "hidden")
    write(tmp_path / "._a.txt", b"\x00\xff")
    assert list(stream_documents(tmp_path)) == [
        ("a.TXT", "first"),
        ("b/a/deep.txt.xz", "deep"),
        ("b/y.txt.bz2", "older"),
        ("b/z.txt.gz", "packed"),
        ("c.txt", "last\nline"),
    ]


def test_links_to_folders_are_not_followed(tmp_path):
    write(tmp_path / "in" / "a.txt", "a")
    write(tmp_path / "elsewhere.txt", "b")
    os.symlink(tmp_path / "in", tmp_path / "in" / "loop")
    os.symlink(tmp_path / "in", tmp_path / "in" / "folder.txt")
    os.symlink(tmp_path / "elsewhere.txt", tmp_path / "in" / "link.txt")
    assert list(stream_documents(tmp_path / "in")) == [("a.txt", "a"), ("link.txt", "b")]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_pipes_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    write(tmp_path / "a.txt", "a")
    assert list(stream_documents(tmp_path)) == [("a.txt", "a")]


def test_a_file_and_standard_input_are_one_document(tmp_path, monkeypatch):
    write(tmp_path / "a.md", "two\nlines\n")
    assert list(stream_documents(tmp_path / "a.md")) == [(str(tmp_path / "a.md"), "two\nlines")]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"three\nmore\nlines\n")))
    assert list(stream_documents("-")) == [("-", "three\nmore\nlines")]
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(BadInput, match="closed"):
        list(stream_documents("-"))


def test_bad_documents(tmp_path, monkeypatch):
    with pytest.raises(BadInput, match=r"has no documents; put \.txt files"):
        list(stream_documents(tmp_path))
    with pytest.raises(BadInput, match="does not exist"):
        list(stream_documents(tmp_path / "none.txt"))
    write(tmp_path / "bad.txt", b"fine\nM\xfcnchen\n")
    with pytest.raises(BadInput, match=r"bad\.txt:2: this line is not UTF-8"):
        list(stream_documents(tmp_path))
    write(tmp_path / "bad.txt", "12345678")
    monkeypatch.setattr(documents, "MAX_BYTES", 8)
    assert list(stream_documents(tmp_path)) == [("bad.txt", "12345678")]
    write(tmp_path / "bad.txt.gz", gzip.compress(b"123456789"))
    with pytest.raises(BadInput, match=r"bad\.txt\.gz is larger than .* too large for one document; split it"):
        list(stream_documents(tmp_path))
    os.symlink(tmp_path / "nowhere", tmp_path / "a.txt")
    with pytest.raises(BadInput, match=r"a\.txt does not exist"):
        list(stream_documents(tmp_path))


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions do not apply")
def test_unreadable_documents(tmp_path):
    write(tmp_path / "in" / "a.txt", "a")
    (tmp_path / "in" / "a.txt").chmod(0)
    with pytest.raises(BadInput, match=r"a\.txt cannot be read: Permission denied"):
        list(stream_documents(tmp_path))
    (tmp_path / "in").chmod(0)
    try:
        with pytest.raises(BadInput, match="in cannot be listed: Permission denied"):
            list(stream_documents(tmp_path))
    finally:
        (tmp_path / "in").chmod(0o700)


def test_a_dataset_is_no_folder_of_documents(tmp_path):
    write(tmp_path / "lines" / "train_texts.txt", "a")
    write(tmp_path / "named" / "label_names.txt", "a")
    write(tmp_path / "split" / "test.jsonl", '{"text": "a"}')
    write(tmp_path / "split" / "note.txt", "a")
    write(tmp_path / "empty" / "note.md", "a")
    for name in ("lines", "named", "split", "empty", "split/note.txt"):
        assert document_folder(tmp_path / name) is None
    write(tmp_path / "labelled" / "a.txt", "a")
    write(tmp_path / "labelled" / "a.key", "x")
    assert document_folder(tmp_path / "labelled") == tmp_path / "labelled"
    write(tmp_path / "parts" / "test" / "a.txt", "a")
    write(tmp_path / "parts" / "test" / "a.key", "x")
    write(tmp_path / "parts" / "train" / "b.txt", "b")
    assert document_folder(tmp_path / "parts") == tmp_path / "parts" / "test"
    write(tmp_path / "plain" / "sub" / "a.txt", "a")
    assert document_folder(tmp_path / "plain") == tmp_path / "plain"


def test_labelled_documents_may_be_compressed(tmp_path):
    write(tmp_path / "b.txt.gz", gzip.compress(b"two\nlines"))
    write(tmp_path / "b.tsv.xz", lzma.compress(b"<http://e.org/s>\tshipping\n"))
    write(tmp_path / "a.txt", "one")
    write(tmp_path / "a.key.bz2", bz2.compress(b"trade\n"))
    data = read(tmp_path)
    assert data.texts == ["one", "two\nlines"]
    assert data.labels.names() == ["shipping", "trade"]
