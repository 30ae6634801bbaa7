"""The documentation holds together: links lead somewhere, generated pages are up to date, presets are those in use.

The examples on the pages are run by tests/test_house.py, the commands by tests/doors/test_cli.py on small data.
"""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.doors.manual import documented_commands, is_part, run_documented, shown_outputs
from umpteen.models import RECIPES

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
GENERATED = {ROOT / "docs" / "benchmarks.json"}  # `make bench` writes it

_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_JSON = re.compile(r"^```json\n(.*?)^```", re.DOTALL | re.MULTILINE)
_MACHINE = re.compile(r"(?<![\w.])/(?:work|home|root|tmp|mnt|data)/")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def links(path: Path) -> list[str]:
    """Return the links of a page that lead inside the repository."""
    found = _LINK.findall(_CODE.sub("", path.read_text(encoding="utf-8")))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def anchors(path: Path) -> set[str]:
    """Return the anchors GitHub gives the headings of a page."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    found: set[str] = set()
    for heading in _HEADING.findall(text):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        n_before = sum(1 for other in found if re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", other))
        found.add(f"{anchor}-{n_before}" if n_before else anchor)
    return found


def settings_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_settings_page", ROOT / "scripts" / "make_settings_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", [path for path in PAGES if links(path)], ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    for link in links(path):
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists() or target in GENERATED, f"{name(path)}: {link} leads nowhere"
        if anchor:
            assert anchor in anchors(target), f"{name(path)}: {link} names no heading of {name(target)}"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_no_page_names_a_place_on_one_machine(path: Path) -> None:
    assert not _MACHINE.search(path.read_text(encoding="utf-8"))


def test_every_page_can_be_found_from_the_index() -> None:
    docs = ROOT / "docs"
    found, waiting = {docs / "index.md"}, [docs / "index.md"]
    while waiting:
        page = waiting.pop()
        for link in links(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists() and target not in found:
                found.add(target)
                waiting.append(target)
    assert set(docs.rglob("*.md")) <= found


def test_the_settings_page_is_up_to_date() -> None:
    script = settings_script()
    written = script.PAGE.read_text(encoding="utf-8")
    assert written == script.page(), "run: python scripts/make_settings_page.py"


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_page_of_a_recipe_shows_its_preset(recipe: str) -> None:
    page = (ROOT / "docs" / "recipes" / f"{recipe}.md").read_text(encoding="utf-8")
    shown = [json.loads(block) for block in _JSON.findall(page)]
    assert shown == [json.loads(json.dumps(dict(RECIPES[recipe].preset)))]
    assert f"umpteen.{RECIPES[recipe].__name__}()" in page


def test_the_page_on_containers_shows_the_dockerfile() -> None:
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "containers.md").read_text(encoding="utf-8")
    assert f"```dockerfile\n{dockerfile}```" in page
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile, re.MULTILINE)
    assert copied
    assert all((ROOT / source).exists() for line in copied for source in line.split())
    stages = re.findall(r"^FROM \S+ AS ([\w-]+)$", dockerfile, re.MULTILINE)
    assert stages[-1] == "predict"
    assert set(re.findall(r"--(?:from|target)[= ]([\w-]+)", dockerfile + page)) <= set(stages)
    assert set(re.findall(r"`(installed|unprivileged)`", page)) <= set(stages)


CHESS = 'echo "play chess against the computer" | umpteen predict tags '


def test_the_manual_shows_what_commands_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands, outputs = documented_commands("cli.md"), shown_outputs("cli.md")
    for line in [
        "umpteen train demo -o tags",
        *(line for line in commands if re.search(r"^mkdir|> (letters/|words\.tsv)", line)),
        f"{CHESS}-k 3", f"{CHESS}-k 1 --json", f"{CHESS}-k 1 --vocab words.tsv", "umpteen predict tags letters -k 1",
        "umpteen evaluate tags demo --per-text rows.tsv", "umpteen info tags --tree",
    ]:  # fmt: skip
        assert line in commands
        result = run_documented(line)
        if result is not None and not line.startswith("umpteen train"):
            written = Path("rows.tsv").read_text(encoding="utf-8") if line.endswith("rows.tsv") else ""
            printed = (result.stdout + written).splitlines()
            assert any(is_part(output, printed) for output in outputs), f"docs/cli.md does not show what {line} prints"


def test_settings_named_in_the_docs_exist() -> None:
    """A backquoted ``tree.branching`` on any page is a setting; other words with a dot are not looked at."""
    from umpteen.config import describe_all

    known = {key for key, *_ in describe_all()}
    nouns = {key.partition(".")[0] for key in known if "." in key}
    n_found = 0
    for path in PAGES:
        for noun, rest in re.findall(r"`(\w+)\.(\w+)`", path.read_text(encoding="utf-8")):
            if noun in nouns and f"{noun}.{rest}" != "tree.relevance":  # a function
                assert f"{noun}.{rest}" in known, f"{name(path)}: there is no setting {noun}.{rest}"
                n_found += 1
    assert n_found > len(known)  # a page lists them all, and others name some
