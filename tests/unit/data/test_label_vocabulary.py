"""Names of labels by key and language: formats, the order in which languages replace each other, what is refused."""

import gzip
import sys

import pytest

from umpteen.data import Labels, Vocabulary, read
from umpteen.data.skos import refuse_entities
from umpteen.errors import BadInput, MissingExtra

NAMES = {
    "urn:1": {"en": "law", "sv": "juridik", "fi": "oikeus"},
    "urn:2": {"en-GB": "tyre", "sv-FI": "däck"},
    "urn:3": {"fi": "vero", "de": "Steuer"},
    "urn:4": {"": "plain", "en": "english"},
}


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("sv", ["juridik", "däck", "Steuer", "plain"]),
        ("SV", ["juridik", "däck", "Steuer", "plain"]),
        ("sv-SE", ["juridik", "däck", "Steuer", "plain"]),
        ("fi", ["oikeus", "tyre", "vero", "plain"]),
        ("en", ["law", "tyre", "Steuer", "english"]),
        (None, ["law", "tyre", "Steuer", "plain"]),
    ],
)
def test_another_language_is_chosen_by_a_rule(language, expected):
    vocabulary = Vocabulary(NAMES)
    assert [vocabulary.name(key, language) for key in NAMES] == expected
    assert vocabulary.rename(Labels(list(NAMES)), language).names() == expected
    assert vocabulary.name("urn:5", language) is None
    assert vocabulary.languages == ["de", "en", "en-gb", "fi", "sv", "sv-fi"]


def test_coverage():
    labels = Labels(["x", "y", "z", "w", "v"], ["urn:1", "urn:2", "urn:3", "urn:4", "urn:5"])
    found = Vocabulary(NAMES).coverage(labels, "sv")
    assert (found.n_labels, found.n_unknown, found.n_other_language) == (5, 1, 1)
    assert str(found).startswith("Of 5 labels, 1 are not in the vocabulary and keep their names and 1 have no name in")
    assert Vocabulary(NAMES).coverage(labels).n_other_language == 0
    assert "All 1 labels" in str(Vocabulary(NAMES).coverage(Labels(["urn:1"]), "sv"))


def test_unknown_labels_keep_their_names_and_all_keep_their_keys():
    labels = Labels(["old", "other"], ["urn:1", "urn:9"])
    labels.separator = "|"
    renamed = Vocabulary(NAMES).rename(labels, "fi")
    assert (renamed.names(), renamed.keys(), renamed.separator) == (["oikeus", "other"], ["urn:1", "urn:9"], "|")
    assert labels.names() == ["old", "other"]


def test_languages_and_keys_that_are_not_there():
    vocabulary = Vocabulary(NAMES, "v.csv")
    with pytest.raises(BadInput, match=r"v\.csv has no names in 'nl', only in de, en"):
        vocabulary.rename(Labels(["urn:1"]), "nl")
    with pytest.raises(BadInput, match="a tag such as sv or en-GB, but is 'not a tag'"):
        vocabulary.rename(Labels(["urn:1"]), "not a tag")
    with pytest.raises(BadInput, match=r"v\.csv has none of the 1 labels, such as 'unheard of'"):
        vocabulary.rename(Labels(["unheard of"]))


def test_labels_that_are_names_get_their_keys():
    vocabulary = Vocabulary(NAMES | {"urn:5": {"en": "law-suit", "de": "Steuer"}}, "v.csv")
    labels = vocabulary.rename(Labels(["tyre", "law", "unheard of"]), "en")
    assert labels.keys() == ["urn:2", "urn:1", "unheard of"]
    assert labels.names() == ["tyre", "law", "unheard of"]
    assert str(vocabulary.coverage(labels, "en")).startswith("Of 3 labels, 1 are not in the vocabulary")
    assert vocabulary.rename(Labels(["oikeus", "law", "tyre"])).keys() == ["oikeus", "law", "urn:2"]  # or two were one
    with pytest.raises(BadInput, match="none of the 1 labels"):
        vocabulary.rename(Labels(["Steuer"]), "de")  # of two keys
    with pytest.raises(BadInput, match="none of the 1 labels"):
        vocabulary.rename(Labels(["oikeus"]), "en")  # in another language


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("v.tsv", b"<urn:1>\tlaw\tA.1\n\n<urn:2>\ttax \n"),
        ("v.txt", b"urn:1\tlaw\nurn:2\ttax\n"),
        ("v.tsv.gz", gzip.compress(b"urn:1\tlaw\r\nurn:2\ttax\r\n", mtime=0)),
        ("v.csv", b"uri,notation,label\n<urn:1>,A.1,law\nurn:2,,tax\n"),
        ("v.tsv", b'uri\tlabel_en\tlabel_pt-BR\tnotation\n<urn:1>\tlaw\tdireito\tA.1\nurn:2\ttax "1"\t\t\n'),
        ("v.txt", b"\xef\xbb\xbf\r\nnotation\tURI \tLabel\r\nA.1\turn:1\tlaw\r\n\turn:2\ttax\r\n"),
        ("v.csv", b'uri,label_en,label_pt_br\nurn:1,"law",direito\nurn:2,"tax\nmore",\n'),
    ],
)
def test_files(tmp_path, name, content):
    vocabulary = Vocabulary.read(write(tmp_path / name, content))
    assert len(vocabulary) == 2
    assert vocabulary.name("urn:1", "en") == "law"
    assert vocabulary.name("urn:2").split()[0] == "tax"
    assert "\n" not in vocabulary.name("urn:2")
    assert set(vocabulary.languages) <= {"en", "pt-br"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.tsv", "urn:1\n", r"v\.tsv:1: the line must be key<TAB>name"),
        ("v.tsv", "a\tb\tc\td\n", "but has 4 cells"),
        ("v.tsv", "a\tb\n\na\tc\n", r"v\.tsv:3: 'a' was at .*v\.tsv:1 already"),
        ("v.tsv", " \tb\n", r"v\.tsv:1: the line has no key"),
        ("v.tsv", "", "names no label"),
        ("v.csv", "", "is empty"),
        ("v.csv", "url,label_en\na,b\n", "needs a column 'uri'; did you mean 'url'"),
        ("v.csv", "uri,name\na,b\n", "such as 'label_en'"),
        ("v.csv", "uri,label_en\na,b\na,c\n", r"v\.csv:3: 'a' was at"),
        ("v.csv", "uri,label_en\na,b,c\n", "3 columns where the header has 2"),
        ("v.tsv", "uri\tlabel_en\tlabel_sv\na\tb\n", r"v\.tsv:2: 2 columns where the header has 3; write a"),
        ("v.tsv", "uri\tlabel_en\na\tb\tc\n", "3 columns where the header has 2; take the TABs out"),
        ("v.json", "{}", r"ends in \.txt, \.tsv, \.csv, \.rdf"),
        ("v.tsv", b"a\t\xff\n", "not UTF-8"),
    ],
)
def test_bad_files(tmp_path, name, content, message):
    with pytest.raises(BadInput, match=message):
        Vocabulary.read(write(tmp_path / name, content))


def test_a_tsv_file_with_a_header_has_names_in_several_languages(tmp_path):
    content = "uri\tlabel_en\tlabel_sv\tnotation\n<urn:1>\tlaw\tjuridik\tA.1\n<urn:2>\ttax\t\tA.2\n"
    vocabulary = Vocabulary.read(write(tmp_path / "v.tsv", content))
    assert (len(vocabulary), vocabulary.languages) == (2, ["en", "sv"])
    assert [vocabulary.name(key, "sv") for key in ("urn:1", "urn:2", "uri")] == ["juridik", "tax", None]
    with pytest.raises(BadInput, match=r"no names in 'fi', only in en, sv"):
        vocabulary.rename(Labels(["urn:1"]), "fi")


def test_a_tsv_file_without_a_header_may_have_a_label_called_uri(tmp_path):
    vocabulary = Vocabulary.read(write(tmp_path / "v.tsv", "uri\taddresses\nurl\tlinks\n"))
    assert [vocabulary.name(key) for key in ("uri", "url")] == ["addresses", "links"]


def test_names_for_a_dataset(tmp_path):
    write(tmp_path / "train.tsv", "boil it\t<urn:1> <urn:9>\n")
    vocab = write(tmp_path / "v.csv", "uri,label_en,label_sv\nurn:1,law,juridik\n")
    data = read(tmp_path, vocab=vocab, language="sv")
    assert (data.labels.names(), data.labels.keys()) == (["juridik", "urn:9"], ["urn:1", "urn:9"])
    again = read(tmp_path, labels=data.labels, vocab=Vocabulary.read(vocab), language="en")
    assert again.labels.names() == ["law", "urn:9"]
    with pytest.raises(BadInput, match="name its file as well"):
        read(tmp_path, language="sv")


TURTLE = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
<urn:1> a skos:Concept ; skos:prefLabel "law"@en, "juridik"@sv, "a law"@en ; skos:altLabel "right"@en .
<urn:2> skos:prefLabel \"\"\"tax
more\"\"\" .
[] skos:prefLabel "nobody"@en .
"""
XML = """<?xml version="1.0"?>{doctype}
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">
<skos:Concept rdf:about="urn:1"><skos:prefLabel xml:lang="en">a law</skos:prefLabel>
<skos:prefLabel xml:lang="sv">juridik</skos:prefLabel></skos:Concept>
<rdf:Description rdf:about="urn:2"><skos:prefLabel>tax{entity}</skos:prefLabel></rdf:Description>
</rdf:RDF>"""


@pytest.mark.parametrize(
    ("name", "content"),
    [("v.ttl", TURTLE), ("v.rdf", XML.format(doctype="", entity=" more")), ("v.xml", XML.format(
        doctype="<!DOCTYPE rdf:RDF>", entity=" more"))],
)  # fmt: skip
def test_skos(tmp_path, name, content):
    pytest.importorskip("rdflib")
    vocabulary = Vocabulary.read(write(tmp_path / name, content))
    assert len(vocabulary) == 2
    assert vocabulary.languages == ["en", "sv"]
    assert [vocabulary.name("urn:1", tag) for tag in ("en", "sv")] == ["a law", "juridik"]
    assert vocabulary.name("urn:2", "sv") == "tax more"


@pytest.mark.parametrize("name", ["v.ttl", "v.rdf", "v.nt"])
def test_damaged_skos(tmp_path, name):
    pytest.importorskip("rdflib")
    with pytest.raises(BadInput, match=rf"{name} is not valid"):
        Vocabulary.read(write(tmp_path / name, "<urn:1> nonsense"))


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE r [<!ENTITY e "x">]>',
        '<!DOCTYPE r [<!ENTITY e SYSTEM "file:///etc/hostname">]>',
        '<!DOCTYPE r [<!ENTITY % p SYSTEM "http://localhost:9/x.dtd"> %p;]>',
        '<!DOCTYPE r SYSTEM "http://localhost:9/x.dtd">',
        '<!DOCTYPE r PUBLIC "-//x//y" "http://localhost:9/x.dtd">',
    ],
)
def test_xml_entities_are_refused(tmp_path, doctype):
    content = XML.format(doctype=doctype, entity="")
    for encoded in (content.encode(), content.encode("utf-16")):
        with pytest.raises(BadInput, match="declares XML entities or a DTD"):
            refuse_entities(encoded, tmp_path / "v.rdf")


def test_nothing_is_fetched(tmp_path, monkeypatch):
    pytest.importorskip("rdflib")
    import socket

    def refuse(*_, **__):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    content = XML.format(doctype="", entity="").replace("<rdf:RDF ", '<rdf:RDF xml:base="http://localhost:9/" ')
    imports = '<owl:Ontology xmlns:owl="http://www.w3.org/2002/07/owl#" rdf:about=""><owl:imports rdf:resource="x"/>'
    content = content.replace("</rdf:RDF>", f"{imports}</owl:Ontology></rdf:RDF>")
    assert len(Vocabulary.read(write(tmp_path / "v.rdf", content))) == 2


def test_skos_without_rdflib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rdflib", None)
    with pytest.raises(MissingExtra, match=r"umpteen\[skos\]"):
        Vocabulary.read(write(tmp_path / "v.ttl", TURTLE))
