"""The page in a real Chromium: by mouse, by keyboard, on a phone, and with input that means harm."""

from __future__ import annotations

import io
import json
import shutil
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from gpuparse.data.conllu import read_conllu
from gpuparse.data.sentence import Sentence
from tests.serve.serving import TAGGED, WORDS

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium to drive"),
]
OPTIONS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
GIVEN = "".join(
    Sentence.from_words(WORDS, TAGGED, misc=["SpaceAfter=No", *"____"], comments=[f"# sent_id = s{i}"]).text
    for i in (1, 2)
)
HARM = "<img/src=x onerror=window.harm=1><script>window.harm=1</script>'\"&{{1}}javascript:alert(1)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A page that has not been there before; whatever it complains of, and whatever it asks of others, fails."""
    context = browser.new_context(viewport={"width": 1200, "height": 800}, accept_downloads=True)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: request.url.startswith((address, "blob:")) or said.append(request.url))
    page.goto(address)
    yield page
    context.close()
    # What the server refuses, the browser notes by itself.
    assert [line for line in said if "status of 422" not in line] == []


def show(page: Any, text: str, keep: bool = False) -> None:
    page.click("#open")
    page.fill("#pasted", text)
    page.set_checked("#keep", keep)
    page.evaluate("document.getElementById('box').replaceChildren()")
    page.click("#replace")
    page.wait_for_selector("#box svg .a .hit", state="attached")
    settle(page)


def settle(page: Any) -> None:
    until(page, "!document.getElementById('box').classList.contains('busy')")


def until(page: Any, condition: str) -> None:
    """The policy of the page lets no text be run within it, which is how Playwright waits for conditions."""
    for _ in range(1000):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(10)
    raise AssertionError(condition)


def heads(page: Any) -> list[int]:
    found = page.evaluate("[...document.querySelectorAll('#box .a')].map(a => [+a.dataset.m, +a.dataset.h])")
    return [head for _, head in sorted(found)]


def word(number: int) -> str:
    return f"#box .w[data-i='{number}'] text >> nth=0"


def other_head(page: Any, number: int) -> int:
    """A head that the word has not, and that makes no cycle: of a word under the root, which loses it."""
    now = heads(page)
    return next(node for node in range(1, 6) if node not in (number, now[number - 1]))


def test_a_click_on_a_word_and_on_its_head(page):
    show(page, GIVEN)
    before = heads(page)
    assert len(before) == 5 and page.text_content("#place") == "1 of 2"
    head = other_head(page, 2)
    page.click(word(2))
    assert "Now click the head of 2 dog" in page.text_content("#hint")
    page.click(word(head))
    page.wait_for_selector("#box .a.kept")
    after = heads(page)
    assert after[1] == head and page.text_content("#count") == "· 1"
    changed = {i + 1 for i in range(5) if before[i] != after[i]}
    marked = page.evaluate("[...document.querySelectorAll('#box .w.changed')].map(w => +w.dataset.i)")
    assert changed <= set(marked)
    page.click("#undo")
    page.wait_for_selector("#box .a.kept", state="detached")
    assert heads(page) == before
    page.click("#redo")
    page.wait_for_selector("#box .a.kept")
    assert heads(page) == after


def test_forbid_label_and_the_best_trees(page):
    show(page, GIVEN)
    before = heads(page)
    page.click("#box .a[data-m='2'] text", force=True)
    page.click("[data-key=forbid]")
    until(page, "document.querySelectorAll('#decided button').length === 1")
    settle(page)
    assert heads(page)[1] != before[1]
    page.select_option("[data-key=label]", "vocative" if page.query_selector("option[value=vocative]") else "obj")
    page.wait_for_selector("#box .a.named[data-m='2']")
    page.click("#decided button >> nth=0")
    until(page, "document.querySelectorAll('#decided button').length === 1")
    page.wait_for_selector("#best li:nth-child(2) path.other", state="attached")
    page.click("#best li:nth-child(2) button")
    until(page, "document.querySelectorAll('#decided button').length > 1")
    settle(page)
    assert page.query_selector("#box .a.kept") and page.text_content("#best li:nth-child(1) b").endswith("%")


def test_by_keyboard_alone(page):
    show(page, GIVEN)
    page.keyboard.press("n")
    least = page.evaluate("+document.querySelector('#box .w.from').dataset.i")
    assert page.text_content("#panel h2 bdi") == WORDS[least - 1]
    page.keyboard.press("Enter")
    assert "Enter takes it" in page.text_content("#hint")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"#box .a.kept[data-m='{least}'][data-h='0']")
    page.keyboard.press("f")
    page.wait_for_selector(f"#box .a[data-m='{least}']:not([data-h='0'])")
    page.keyboard.press("Delete")
    until(page, "document.querySelector('#decided .none')")
    page.keyboard.press("Control+z")
    until(page, "document.querySelectorAll('#decided button').length === 1")
    page.keyboard.press("j")
    until(page, "document.getElementById('place').textContent === '2 of 2'")
    settle(page)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("a")
    page.wait_for_selector("#box .a.kept[data-m='1']")
    page.keyboard.press("?")
    assert page.is_visible("#keys") and "least certain" in page.text_content("#bindings")
    page.keyboard.press("Escape")
    assert not page.is_visible("#keys")


def test_constraints_and_why_they_conflict(page):
    page.wait_for_selector("#constraints input", state="attached")
    rows = [line.split("\t") for line in GIVEN.split("\n\n")[0].split("\n")[1:]]
    rows[1][6:8], rows[4][6:8] = ["3", "obj"], ["3", "obj"]
    show(page, "\n".join(map("\t".join, rows)) + "\n\n", keep=True)
    assert heads(page)[1] == heads(page)[4] == 3 and page.is_hidden("#reason")
    page.check("#constraints label:has-text('Universal') input")
    page.wait_for_selector("#reason:not([hidden])")
    assert "infeasible" in page.text_content("#reason")
    page.keyboard.press("u")
    page.wait_for_selector("#reason", state="hidden")


def test_what_cannot_be_is_said(page):
    show(page, GIVEN)
    for number, head in ((1, 2), (2, 1)):
        page.click(word(number))
        page.click(word(head))
        settle(page)
    page.wait_for_selector("#reason:not([hidden])")
    assert "words 1 and 2 make a cycle" in page.text_content("#reason")
    page.click("#undo")
    page.wait_for_selector("#reason", state="hidden")


def test_work_is_kept_and_exported(page):
    show(page, GIVEN)
    page.click(word(2))
    page.keyboard.press("a")
    page.wait_for_selector("#box .a.kept")
    until(page, "(localStorage.getItem('gpuparse.page') ?? '').includes('\"required\":{\"2\":')")
    tree = heads(page)
    page.reload()
    page.wait_for_selector("#box .a.kept")
    assert heads(page) == tree
    saved = {}
    for kind in ("conllu", "svg", "png"):
        page.keyboard.press("e")
        with page.expect_download() as download:
            page.click(f"[data-export={kind}]")
        saved[kind] = download.value.path().read_bytes()
    first, second = read_conllu(io.BytesIO(saved["conllu"]))
    assert first.heads == tree and first.words == second.words == WORDS
    assert second.sent_id == "s2" and first.misc[0].startswith("SpaceAfter=No|")
    assert saved["svg"].startswith(b"<svg") and saved["png"][:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">I", saved["png"][16:20])[0] > 300


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone(browser, address, scheme):
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme, has_touch=True)
    page = context.new_page()
    page.goto(address)
    show(page, GIVEN)
    page.tap(word(2))
    page.tap(word(other_head(page, 2)))
    page.wait_for_selector("#box .a.kept")
    page.tap("#least")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    context.close()


def test_input_that_means_harm(page):
    fields = ["1", HARM, HARM, HARM, "_", HARM, "0", HARM, "_", f"Gloss={HARM}"]
    harm = f"# sent_id = {HARM}\n# text = {HARM}\n" + "\t".join(fields) + "\n" + "2\tb\t_\t_\t_\t_\t1\tx\t_\t_\n\n"
    show(page, harm * 2, keep=True)
    assert page.text_content("#sent-id") == HARM and page.text_content("#text") == HARM
    page.click(word(1))
    assert page.text_content("#panel h2 bdi") == HARM and HARM in page.text_content("#panel")
    assert HARM in page.text_content("#decided") and HARM in page.text_content("#list")
    page.keyboard.press("f")
    settle(page)
    page.reload()
    page.wait_for_selector("#box svg", state="attached")
    page.click("#open")
    page.fill("#pasted", HARM)
    page.click("#replace")
    settle(page)
    assert page.evaluate("window.harm") is None
    assert page.evaluate("document.querySelectorAll('main script, main img, main iframe').length") == 0


@pytest.mark.parametrize("kept", ["{", "[]", '{"sentences": [1]}', json.dumps({"sentences": [{"conllu": HARM}]})])
def test_what_others_left_in_the_browser(page, kept):
    page.evaluate("kept => localStorage.setItem('gpuparse.page', kept)", kept)
    page.reload()
    page.wait_for_selector("#empty:not([hidden])")
    page.click("#example")
    page.wait_for_selector("#box svg .hit", state="attached")
    assert len(heads(page)) == 11 and page.is_hidden("#notice")
    show(page, "No tags here.")
    assert "reads tags" in page.text_content("#notice")
