"""Read the preferred labels of SKOS concepts from RDF/XML, Turtle or N-Triples, without fetching anything."""

from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from umpteen.data.lines import open_bytes
from umpteen.errors import BadInput, MissingExtra

SKOS = {".rdf": "xml", ".xml": "xml", ".owl": "xml", ".ttl": "turtle", ".nt": "nt"}
MAX_BYTES = 1 << 31  # decompressed: a file that unpacks without end must not fill the memory
_PREFERRED = "http://www.w3.org/2004/02/skos/core#prefLabel"


def read_skos(path: Path, kind: str) -> Iterator[tuple[str, str, str]]:
    """Yield URI, language (or ``""``) and name for every ``skos:prefLabel``.

    The file is parsed from memory, in formats that refer to no other files. Entities of XML, which could, are refused.
    """
    try:
        import rdflib  # pyrefly: ignore[missing-import]
    except ImportError as error:
        raise MissingExtra("rdflib", "skos", "reading SKOS") from error
    content = _read(path)
    if SKOS[kind] == "xml":
        refuse_entities(content, path)
    graph = rdflib.Graph()
    try:
        graph.parse(data=content, format=SKOS[kind], publicID="urn:vocabulary:")
    except Exception as error:  # rdflib, expat and urllib raise different ones for damaged files
        reason = " ".join(str(error).split())[:200]
        raise BadInput(f"{path} is not valid {'RDF/XML' if SKOS[kind] == 'xml' else 'Turtle'}: {reason}") from error
    for concept, name in graph.subject_objects(rdflib.URIRef(_PREFERRED)):
        if isinstance(concept, rdflib.URIRef) and isinstance(name, rdflib.Literal):
            yield str(concept), name.language or "", str(name)


def refuse_entities(content: bytes, path: Path) -> None:
    """Refuse XML that declares entities or refers to a DTD: they can be expanded without end or read other files."""
    parser = expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise BadInput(f"{path} declares XML entities or a DTD, which are not read; save it without, or as Turtle")

    def on_doctype(name: str, system_id: str | None, public_id: str | None, has_subset: int) -> None:
        if system_id or public_id:
            refuse()

    def stop(*_: object) -> None:
        raise _RootReached

    parser.StartDoctypeDeclHandler = on_doctype
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = stop  # declarations come before the first element
    try:
        parser.Parse(content, True)
    except _RootReached:
        return
    except expat.ExpatError as error:
        raise BadInput(f"{path} is not valid RDF/XML: {error}") from error


class _RootReached(Exception):
    """Ends the parsing of declarations."""


def _read(path: Path) -> bytes:
    with open_bytes(path) as stream:
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise BadInput(f"{path} is larger than {MAX_BYTES >> 20} MiB; write its names as CSV or TSV")
    return content
