"""The page in a browser: it tags, explains, filters, searches, copies and explores the tree, by mouse and keyboard."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import umpteen

pytest.importorskip("fastapi", reason="the page is served by the extra serve: pip install 'umpteen[serve]'")
uvicorn = pytest.importorskip("uvicorn", reason="the page is served by the extra serve: pip install 'umpteen[serve]'")
sync_api = pytest.importorskip(
    "playwright.sync_api", reason="tests of the page need playwright: pip install playwright"
)

CHROMIUM = os.environ.get("UMPTEEN_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="tests of the page need Chromium: apt-get install chromium, or its path in UMPTEEN_CHROMIUM",
)

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
]  # fmt: skip
TEXT = "A graphical chess program for X11. Play chess against the computer, or write games to a file."
SECRET = "open sesame"
MARKUP = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
STRANGE = [MARKUP, "bell\x07 and \u202ereversed", "long " * 400, "unbroken" * 300]
WIDTHS = [375, 1280]


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    data = umpteen.load_demo()
    texts, labels = list(data.texts[:400]), data.Y[:400]
    tree = {"leaf_size": 16, "branching": 8}
    words = umpteen.XRLinear(seed=1, threads=1, tree=tree, store={"examples": 50})
    words.fit(texts, labels, label_names=data.labels).calibrate(list(data.texts[400:700]), data.Y[400:700])
    strange_texts = ["play chess", "write games", "read a file", "a graphical program"] * 3
    flat = umpteen.DiSMEC(seed=1, threads=1).fit(texts[:100], labels[:100], label_names=data.labels)
    return {
        "words": words,
        "flat": flat,
        "strange": umpteen.XRLinear(threads=1, tree={"leaf_size": 2}).fit(
            strange_texts, [[one] for one in STRANGE] * 3
        ),
        "both": umpteen.Ensemble([flat, words]),
    }


def serve(models: dict[str, Any], **options: Any) -> Iterator[str]:
    """Serve models in a thread, on a port that is free."""
    from umpteen.serve.app import create_app

    server = uvicorn.Server(uvicorn.Config(create_app(models, **options), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)


@pytest.fixture(scope="module")
def address(models: dict[str, Any]) -> Iterator[str]:
    yield from serve(models)


@pytest.fixture(scope="module")
def locked(models: dict[str, Any]) -> Iterator[str]:
    from umpteen.config.serving import ServeConfig

    settings = ServeConfig(max_k=3, max_texts=1, max_characters=50)
    yield from serve({"strange": models["strange"]}, settings=settings, api_key=SECRET)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any, address: str) -> Iterator[Open]:
    """Open the page; at the end, nothing was written to the console and nothing was against the policy."""
    contexts, problems = [], []

    def open_page(width: int = 1280, scheme: str = "light", at: str = "", to: str = "/") -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce",
            permissions=["clipboard-read", "clipboard-write"],
        )  # fmt: skip
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        page.add_init_script(
            "window.violations = []; document.addEventListener('securitypolicyviolation', "
            "(event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));"
        )
        page.expected_errors = 0  # failed requests, which the browser writes to its console
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto((at or address) + to)
        return page

    yield open_page
    expected = sum(page.expected_errors for context in contexts for page in context.pages)
    violations = [one for context in contexts for page in context.pages for one in page.evaluate("window.violations")]
    for context in contexts:
        context.close()
    assert violations == []
    failed = [problem for problem in problems if problem.startswith("Failed to load resource")]
    assert len(failed) == expected
    assert [problem for problem in problems if problem not in failed] == []


def tagged(page: Any, text: str = TEXT) -> Any:
    page.wait_for_selector("#columns .column")
    page.fill("#text", text)
    page.click("#run")
    page.wait_for_selector("button.label")
    return page


def explained(page: Any, label: str = "button.label >> nth=0") -> Any:
    page.click(label)
    page.wait_for_selector("#why[aria-busy=false] .path")
    return page


def names(page: Any) -> list[str]:
    return page.locator("button.label .name").all_inner_texts()


def slide(page: Any, value: float) -> None:
    page.locator("#threshold").fill(str(value))


# Tagging


def test_a_text_is_tagged_as_the_api_tags_it(open_page: Open, models: dict[str, Any]) -> None:
    page = tagged(open_page())
    slide(page, 0)
    top = models["words"].topk([TEXT], k=50)
    assert names(page) == top.names[0][:50]
    shares = page.locator("button.label .fill").evaluate_all(
        "bars => bars.map((bar) => bar.getBoundingClientRect().width / bar.parentElement.getBoundingClientRect().width)"
    )
    assert shares == pytest.approx(top.probabilities[0][:50].tolist(), abs=0.02)
    assert re.match(r"words: \d+ labels", page.inner_text("#status"))


def test_an_empty_text_is_not_sent(open_page: Open) -> None:
    page = open_page()
    page.wait_for_selector("#columns .empty")
    page.fill("#text", "  \n")
    page.click("#run")
    assert page.inner_text("#status") == "Type or paste a text first."
    assert page.evaluate("document.activeElement.id") == "text"


def test_control_characters_of_a_text_are_no_error(open_page: Open) -> None:
    page = open_page()
    page.wait_for_selector("#columns .empty")
    page.locator("#text").evaluate(
        "(area) => { area.value = 'chess\\u0001 game \\ud800'; area.dispatchEvent(new Event('input')); }"
    )
    page.click("#run")
    page.wait_for_selector("button.label")


def test_the_threshold_filters_without_a_request(open_page: Open, models: dict[str, Any]) -> None:
    page = tagged(open_page())
    own = models["words"].describe()["threshold"]
    probabilities = models["words"].topk([TEXT], k=50).probabilities[0]
    assert len(names(page)) == int((probabilities >= own).sum())
    assert f"The model’s own: {round(100 * own)} %" in page.inner_text("#threshold-own")
    requests: list[Any] = []
    page.on("request", lambda request: requests.append(request))
    for value in (0.05, 0.4, 0.99):
        slide(page, value)
        assert len(names(page)) == int((probabilities >= value).sum())
    page.click("#threshold-reset")
    assert len(names(page)) == int((probabilities >= own).sum())
    assert requests == []


def test_where_no_label_reaches_the_threshold_the_best_are_offered(open_page: Open, models: dict[str, Any]) -> None:
    page = tagged(open_page())
    slide(page, 1)
    assert names(page) == []
    page.click("text=Show the best ones")
    assert names(page)[:5] == models["words"].topk([TEXT], k=5).names[0]
    assert page.evaluate("document.activeElement.className") == "label"


def test_a_changed_text_loses_its_labels(open_page: Open) -> None:
    page = tagged(open_page())
    page.fill("#text", "something else")
    assert page.locator("button.label").count() == 0


# Explanations


def test_an_explanation_highlights_the_words_of_the_text(open_page: Open, models: dict[str, Any]) -> None:
    text = "\U0001f600 \U0001d4b3 " + TEXT  # characters that are two in JavaScript
    page = explained(tagged(open_page(), text))
    label = names(page)[0]
    found = models["words"].explain(text, label)
    assert page.inner_text("#read") == text
    most = max(abs(word.contribution) for word in found.words)
    strong = [word for word in found.words if abs(word.contribution) >= 0.15 * most]
    assert page.locator("#read mark").all_inner_texts() == [word.word for word in strong]
    kinds = page.locator("#read mark").evaluate_all("marks => marks.map((mark) => mark.className)")
    assert [kind == "against" for kind in kinds] == [word.contribution < 0 for word in strong]
    assert "for5" in kinds
    assert found.reason in page.inner_text("#why .reason")
    assert page.get_attribute("button.label >> nth=0", "aria-pressed") == "true"


def test_an_explanation_shows_the_path_with_names_and_the_examples(open_page: Open, models: dict[str, Any]) -> None:
    from umpteen.models.tree_view import tree_views

    page = explained(tagged(open_page()))
    page.wait_for_selector("#why .path button")
    found = models["words"].explain(TEXT, names(page)[0])
    steps = found.paths[0].steps
    view = tree_views(models["words"])[0]
    expected = [view.node(step.level, step.node).name for step in steps[:-1]]
    assert page.locator("#why .path button").all_inner_texts() == expected
    assert page.locator("#why .step").count() == len(steps)
    assert page.locator("#why .nearest li").count() == len(found.nearest) == 3
    page.click("#why .path button >> nth=0")
    page.wait_for_selector("#tree:not([hidden]) #crumb-here")
    assert page.inner_text("#crumb-here") == expected[0]


def test_the_panel_closes_and_the_focus_returns(open_page: Open) -> None:
    page = explained(tagged(open_page()))
    page.keyboard.press("Escape")
    assert page.locator("#why").is_hidden()
    assert page.locator("#text").is_visible()
    assert page.evaluate("document.activeElement.className") == "label"
    explained(page)
    page.click("button.label >> nth=0")  # again
    assert page.locator("#why").is_hidden()
    explained(page)
    page.click("#edit")
    assert page.evaluate("document.activeElement.id") == "text"


def test_a_label_that_is_not_suggested_is_found_and_explained(open_page: Open, models: dict[str, Any]) -> None:
    page = tagged(open_page())
    page.fill("#search", "scienc")
    page.wait_for_selector("#found li[id]")
    page.press("#search", "ArrowDown")
    chosen = page.inner_text("#found li[aria-selected=true]")
    assert "scienc" in chosen.lower()
    page.press("#search", "Enter")
    page.wait_for_selector("#why[aria-busy=false] .path")
    assert page.inner_text("#why-title") == f"Why not {chosen}?"
    assert models["words"].explain(TEXT, chosen).reason in page.inner_text("#why .reason")


def test_a_search_without_results_says_so(open_page: Open) -> None:
    page = open_page()
    page.wait_for_selector("#columns .empty")
    page.fill("#search", "no label is called that")
    page.wait_for_selector("#found li[aria-disabled]")
    page.press("#search", "Escape")
    assert page.locator("#found").is_hidden()
    assert page.input_value("#search") == ""


# Files, copies, models


def drop(page: Any, files: dict[str, str]) -> None:
    transfer = page.evaluate_handle(
        """(files) => {
          const transfer = new DataTransfer();
          for (const [name, text] of Object.entries(files)) transfer.items.add(new File([text], name));
          return transfer;
        }""",
        files,
    )
    page.dispatch_event("#text-card", "drop", {"dataTransfer": transfer})


def test_dropped_files_are_texts_of_their_own(open_page: Open, models: dict[str, Any]) -> None:
    page = open_page()
    page.wait_for_selector("#columns .empty")
    texts = {"chess.txt": TEXT, "perl.txt": "A Perl module to read configuration files."}
    drop(page, texts)
    for number, (name, text) in enumerate(texts.items()):
        page.click(f"#documents button >> nth={number}")
        page.wait_for_selector("button.label")
        assert page.inner_text(f"#documents button >> nth={number}") == name
        assert page.input_value("#text") == text
        assert names(page)[0] == models["words"].topk([text], k=1).names[0][0]


def test_a_file_that_is_no_text_is_refused(open_page: Open) -> None:
    page = open_page()
    page.wait_for_selector("#columns .empty")
    drop(page, {"picture.png": "\x00\x01\x02"})
    page.wait_for_selector("#text-hint.problem-text")
    assert "No text could be read" in page.inner_text("#text-hint")


def test_files_can_be_opened(open_page: Open, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text(TEXT)
    page = open_page()
    page.wait_for_selector("#columns .empty")
    page.set_input_files("#file", file)
    page.wait_for_selector("button.label")
    assert page.input_value("#text") == TEXT


def test_what_is_shown_is_copied(open_page: Open) -> None:
    page = tagged(open_page())
    shown = names(page)
    page.click("#copy-json")
    page.wait_for_selector("#copy-json[data-copied]")
    (copied,) = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert [label["name"] for label in copied["models"][0]["labels"]] == shown
    page.click("#copy-tsv")
    page.wait_for_selector("#copy-tsv[data-copied]")
    head, *rows = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert head.split("\t") == ["text", "model", "label", "name", "probability", "score"]
    assert [row.split("\t")[3] for row in rows] == shown


def test_models_are_compared_side_by_side(open_page: Open, models: dict[str, Any]) -> None:
    page = tagged(open_page())
    page.check("#model-choices input >> nth=1")
    page.wait_for_selector(".column[data-model=flat] button.label, .column[data-model=flat] .empty")
    slide(page, 0)
    page.wait_for_selector(".column[data-model=flat] button.label")
    best = page.inner_text(".column[data-model=flat] button.label >> nth=0 >> .name")
    assert best == models["flat"].topk([TEXT], k=1).names[0][0]
    boxes = page.locator(".column").evaluate_all("columns => columns.map((one) => one.getBoundingClientRect().left)")
    assert boxes[0] < boxes[1]
    explained(page, ".column[data-model=flat] button.label >> nth=0")
    assert page.inner_text("#why .reason").startswith("flat: ")
    page.uncheck("#model-choices input >> nth=0")
    assert page.locator(".column").count() == 1
    page.locator("#model-choices input >> nth=1").click()  # one model stays
    assert page.is_checked("#model-choices input >> nth=1")


def test_an_ensemble_is_explained_by_each_of_its_models(open_page: Open, models: dict[str, Any]) -> None:
    page = open_page()
    page.wait_for_selector("#columns .empty")
    page.check("#model-choices input >> nth=3")
    page.uncheck("#model-choices input >> nth=0")
    slide(page, 0)
    explained(tagged(page))
    found = models["both"].explain(TEXT, names(page)[0])
    page.wait_for_selector("#why .path button")
    headings = page.locator("#why h3").all_inner_texts()
    paths = [f"Path of the search: model {i}: the tree" for i in (1, 2)]
    assert headings == ["Words", *paths, f"Parts of the {found.scale}"]
    assert page.locator("#why .path >> nth=0 >> .step").count() == 1
    assert page.locator("#why .path >> nth=1 >> .step").count() == len(found.models[1].paths[0].steps)
    page.click("#to-tree")
    page.wait_for_selector("#tree-model:has(option[selected])", state="attached")
    page.select_option("#tree-model", "both")
    page.wait_for_selector("#went-levels li")
    assert page.locator("#tree-part-choice").is_hidden()  # one of the two has a tree


# The tree


def wait_for_depth(page: Any, depth: int) -> None:
    """Wait until the tree shows a node at this depth."""
    page.wait_for_selector(f"#crumbs li:nth-child({depth + 1}):last-child #crumb-here")


def test_the_tree_opens_zooms_and_shows_where_the_text_went(open_page: Open, models: dict[str, Any]) -> None:
    from umpteen.models.tree_view import text_paths, tree_views

    page = tagged(open_page())
    page.click("#to-tree")
    page.wait_for_selector("#went-levels li")
    view = tree_views(models["words"])[0]
    top = view.children(0, 0)
    assert page.locator("#children .node > .name").all_inner_texts() == [child.name for child in top]
    (path,) = text_paths(models["words"], TEXT)
    for number, level in enumerate(path.levels):
        shown = page.locator(f"#went-levels > li >> nth={number}").locator(".went-node .name").all_inner_texts()
        assert shown == [one.node.name for one in level.kept]
    page.click("#children button >> nth=0")
    wait_for_depth(page, 1)
    assert page.inner_text("#crumb-here") == top[0].name
    below = view.children(top[0].level, top[0].node)
    assert page.locator("#children .node > .name").all_inner_texts() == [child.name for child in below]
    widths = page.locator(".lane .cell").evaluate_all("cells => cells.map((one) => one.getBoundingClientRect().width)")
    assert widths == sorted(widths, reverse=True)
    page.click("#crumbs button >> nth=0")
    wait_for_depth(page, 0)


def test_a_label_of_the_tree_is_explained(open_page: Open, models: dict[str, Any]) -> None:
    page = tagged(open_page())
    page.click("#to-tree")
    page.wait_for_selector("#went-levels li")
    label = page.inner_text("#went-levels > li:last-child .went-node .name >> nth=0")
    page.click("#went-levels > li:last-child .went-node >> nth=0")
    page.wait_for_selector("#why[aria-busy=false] .path")
    assert label in page.inner_text("#why-title")


def test_a_model_without_a_tree_says_so(open_page: Open) -> None:
    page = open_page(to="/#tree")
    page.wait_for_selector("#children .node")
    page.select_option("#tree-model", "flat")
    page.wait_for_selector("#tree-note:has-text('has no label tree')")
    assert page.locator("#tree-body").is_hidden()


def test_the_tree_works_with_the_keyboard(open_page: Open) -> None:
    page = open_page(to="/#tree")
    page.wait_for_selector(".lane .cell")
    page.locator(".lane .cell >> nth=0").focus()
    page.keyboard.press("ArrowRight")
    second = page.get_attribute(".lane .cell >> nth=1", "aria-label")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == second
    page.keyboard.press("Enter")
    wait_for_depth(page, 1)
    assert page.evaluate("document.activeElement.className").startswith("cell")
    page.keyboard.press("Escape")
    wait_for_depth(page, 0)
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == second


# Keyboard, colours, widths


def test_all_of_it_works_with_the_keyboard(open_page: Open) -> None:
    page = open_page()
    page.wait_for_selector("#columns .empty")

    def tab_to(selector: str) -> None:
        for _ in range(40):
            if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
                return
            page.keyboard.press("Tab")
        pytest.fail(f"{selector} cannot be reached with the Tab key")

    tab_to("#text")
    page.keyboard.type(TEXT)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("button.label")
    tab_to("#threshold")
    before = page.input_value("#threshold")
    page.keyboard.press("ArrowLeft")
    assert float(page.input_value("#threshold")) < float(before)
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab_to("button.label")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.matches('li:nth-child(2) > button.label')")
    page.keyboard.press("Enter")
    page.wait_for_selector("#why[aria-busy=false] .path")
    page.keyboard.press("Escape")
    assert page.locator("#why").is_hidden()
    assert page.evaluate("document.activeElement.matches('li:nth-child(2) > button.label')")


def test_dark_follows_the_browser_and_the_switch(open_page: Open) -> None:
    page = open_page(scheme="dark")
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(paper)
    assert page.get_attribute("#theme", "aria-pressed") == "true"
    page.click("#theme")
    light = page.evaluate(paper)
    assert light != dark
    page.reload()
    assert page.evaluate(paper) == light
    assert page.get_attribute("#theme", "aria-pressed") == "false"
    assert open_page(scheme="light").evaluate(paper) == light


CONTRASTS = """() => {
  const parse = (color) => {
    const [r, g, b, a = 1] = color.match(/[\\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, under) => {
    const mix = (name) => top[name] * top.a + under[name] * (1 - top.a);
    return { r: mix("r"), g: mix("g"), b: mix("b"), a: 1 };
  };
  const light = ({ r, g, b }) => {
    const part = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const background = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) layers.push(parse(getComputedStyle(one).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), { r: 255, g: 255, b: 255, a: 1 });
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility({ visibilityProperty: true })) continue;
    if (element.closest(".away, noscript, script")) continue;
    const under = background(element);
    const ink = over(parse(getComputedStyle(element).color), under);
    const [low, high] = [light(ink), light(under)].sort((a, b) => a - b);
    found.push([(high + 0.05) / (low + 0.05), walker.currentNode.textContent.trim().slice(0, 40)]);
  }
  const field = document.getElementById("search");
  const hint = parse(getComputedStyle(field, "::placeholder").color);
  const [low, high] = [light(hint), light(background(field))].sort((a, b) => a - b);
  found.push([(high + 0.05) / (low + 0.05), "placeholder"]);
  return found;
}"""

UNNAMED = """() => [...document.querySelectorAll("input, select, textarea, button, a")]
  .filter((one) => {
    const labelled = one.getAttribute("aria-labelledby");
    const label = one.getAttribute("aria-label") || (labelled && document.getElementById(labelled)?.textContent);
    const isField = one.matches("input, select, textarea");
    return !(label || (isField ? one.labels.length : one.textContent.trim()));
  })
  .map((one) => one.outerHTML)"""


def check_basics(page: Any, width: int) -> None:
    """Contrast of all visible texts, a name for every control, nothing wider than the screen."""
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 10
    assert [one for one in contrasts if one[0] < 4.5] == []
    assert page.evaluate(UNNAMED) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_contrast_names_and_width(open_page: Open, width: int, scheme: str) -> None:
    page = open_page(width, scheme)
    page.wait_for_selector("#columns .empty")
    check_basics(page, width)
    explained(tagged(page))
    check_basics(page, width)
    page.check("#model-choices input >> nth=1")
    page.wait_for_selector(".column[data-model=flat] button.label, .column[data-model=flat] .empty")
    check_basics(page, width)
    page.click("#to-tree")
    page.wait_for_selector("#went-levels li")
    check_basics(page, width)
    page.click("#children button >> nth=0")
    wait_for_depth(page, 1)
    check_basics(page, width)


@pytest.mark.parametrize("width", WIDTHS)
def test_markup_and_control_characters_do_nothing(open_page: Open, width: int) -> None:
    page = open_page(width)
    page.wait_for_selector("#columns .empty")
    page.check("#model-choices input >> nth=2")
    page.uncheck("#model-choices input >> nth=0")
    tagged(page, f"{MARKUP} play chess")
    slide(page, 0)
    shown = names(page)
    assert MARKUP in shown
    assert "bell\\x07 and \\u202ereversed" in shown
    check_basics(page, width)
    explained(page, f"button.label:has-text('{MARKUP[:10]}')")
    assert page.inner_text("#read") == f"{MARKUP} play chess"
    check_basics(page, width)
    page.click("#to-tree")
    page.select_option("#tree-model", "strange")
    page.wait_for_selector("#children .node")
    page.click("#children button >> nth=0")
    wait_for_depth(page, 1)
    check_basics(page, width)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script").count() == 0


# When the server does not answer as usual


def test_a_busy_server_is_asked_again(open_page: Open) -> None:
    page = open_page()
    page.wait_for_selector("#columns .empty")
    answers = [429]

    def answer(route: Any) -> None:
        if answers:
            body = json.dumps({"error": {"code": "busy", "message": "the queue is full"}})
            route.fulfill(
                status=answers.pop(), headers={"Retry-After": "1"}, body=body, content_type="application/json"
            )
        else:
            route.continue_()

    page.route("**/v1/predict", answer)
    page.expected_errors = 1
    page.fill("#text", TEXT)
    page.click("#run")
    page.wait_for_selector("text=The server is busy. Trying again in 1 s.")
    page.wait_for_selector("button.label")


def test_an_error_is_shown_and_can_be_tried_again(open_page: Open) -> None:
    page = open_page()
    page.wait_for_selector("#columns .empty")
    body = json.dumps(
        {"error": {"code": "text_too_long", "message": "a text may have 10 characters; <b>shorten</b> it"}}
    )
    page.route("**/v1/predict", lambda route: route.fulfill(status=422, body=body, content_type="application/json"))
    page.expected_errors = 1
    page.fill("#text", TEXT)
    page.click("#run")
    page.wait_for_selector("#columns [role=alert]")
    assert "<b>shorten</b> it" in page.inner_text("#columns [role=alert]")
    check_basics(page, 1280)
    page.unroute("**/v1/predict")
    page.click("#columns [role=alert] button")
    page.wait_for_selector("button.label")


def test_a_server_that_is_gone_is_named(open_page: Open) -> None:
    page = open_page()
    page.wait_for_selector("#columns .empty")
    page.route("**/v1/predict", lambda route: route.abort())
    page.expected_errors = 1
    page.fill("#text", TEXT)
    page.click("#run")
    page.wait_for_selector("#columns [role=alert]")
    assert "cannot be reached" in page.inner_text("#columns [role=alert]")


def test_a_key_is_asked_for_and_kept_for_the_session_only(open_page: Open, locked: str) -> None:
    page = open_page(at=locked)
    page.expected_errors = 2
    page.wait_for_selector("#key-dialog[open]")
    page.fill("#key", "wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=The server did not accept this key.")
    page.fill("#key", SECRET)
    page.keyboard.press("Enter")
    page.wait_for_selector("#columns .empty")
    tagged(page, "play chess")
    assert page.evaluate("Object.values(sessionStorage)") == [SECRET]
    assert SECRET not in page.evaluate("JSON.stringify([{...localStorage}, document.cookie])")
    page.reload()
    page.wait_for_selector("#columns .empty")


def test_limits_of_the_server_are_kept_and_named(open_page: Open, locked: str) -> None:
    """It takes three labels, one text at a time, and 50 characters."""
    page = open_page(at=locked)
    page.expected_errors = 2
    page.wait_for_selector("#key-dialog[open]")
    page.fill("#key", SECRET)
    page.keyboard.press("Enter")
    page.wait_for_selector("#columns .empty")
    drop(page, {"a.txt": "play chess", "b.txt": "write games"})
    for number in (0, 1):
        page.click(f"#documents button >> nth={number}")
        page.wait_for_selector("#columns .column[data-model=strange] button.label")
        slide(page, 0)
        assert len(names(page)) == 3
    page.fill("#text", "x" * 51)
    assert page.inner_text("#size") == "51 characters, the server takes 50"
    page.click("#run")
    page.wait_for_selector("#columns [role=alert]")
