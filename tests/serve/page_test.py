#!/usr/bin/env python3
"""page_test.py PROGRAM [PICTURE.png]: the page of `zeepo serve` in a real browser: chat, text to continue, stop, the tiers.

Without a Chromium the test says so and counts as skipped."""
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from browser import Browser, find_browser
from server import SLOW, Server, make_model, until

PROGRAM, PICTURE = sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None
SAID = "[...document.querySelectorAll('.said.%s')].map(box => box.firstChild ? box.firstChild.textContent : '')"
DONE = "document.querySelectorAll('.said .more').length"


def ask(browser, text, tokens):
    before = browser.value(DONE)
    browser.value(f"$('temperature').value = 0; $('tokens').value = {tokens}; $('text').focus(); 1")
    browser.type(text)
    browser.press("Enter", 13)
    browser.until(f"{DONE} > {before}")
    return browser.value(SAID % "assistant")[-1]


def try_page(browser, server):
    browser.open(f"http://127.0.0.1:{server.port}/")
    browser.until("document.readyState === 'complete' && $('state').textContent === 'serving'")
    assert browser.value("$('title').textContent") == "tiny-chat"
    tiers = browser.until("[...document.querySelectorAll('.tier .name')].map(line => line.textContent)")
    assert [name for name in ("Device", "Host memory", "Files") if any(line.startswith(name) for line in tiers)] == \
        ["Device", "Host memory", "Files"], tiers
    assert any("the model's own" in line for line in tiers), tiers
    # What the page shows is what the interface gives; the second message has the first in it.
    body = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 12}
    first = server.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
    assert ask(browser, "hello", 12) == first
    body["messages"] += [{"role": "assistant", "content": first}, {"role": "user", "content": "<b>and?</b>"}]
    second = server.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
    assert ask(browser, "<b>and?</b>", 12) == second
    assert browser.value(SAID % "user") == ["hello", "<b>and?</b>"]
    assert "tokens/s" in browser.value("document.querySelector('.said .more').textContent")
    browser.until("$('numbers').textContent.includes('tokens made')")
    browser.until(f"+[...document.querySelectorAll('#numbers tr')].find(row => row.textContent.startsWith('tokens made')).lastChild.textContent >= {12}")
    if PICTURE:
        browser.screenshot(PICTURE)
    # Text to continue, after the talk is cleared.
    browser.value("$('clear').click(); $('mode').value = 'text'; 1")
    assert browser.value("document.querySelectorAll('.said').length") == 0
    assert ask(browser, "once upon", 9) == server.complete("once upon", 9).json()["choices"][0]["text"]
    # A fault is shown as such.
    ask(browser, "once upon", 100000)
    assert "max_tokens" in browser.value("document.querySelector('.said.fault').textContent")
    assert not browser.faults, browser.faults


def try_stop(browser, server):
    """A text that is being written when Stop is pressed ends there, and frees its place."""
    browser.open(f"http://127.0.0.1:{server.port}/")
    browser.until("document.readyState === 'complete' && $('state').textContent === 'serving'")
    browser.value("$('temperature').value = 0; $('tokens').value = 200; $('text').focus(); 1")
    browser.type("hello")
    browser.press("Enter", 13)
    browser.until("$('send').textContent === 'Stop' && document.querySelector('.said.assistant').textContent !== ''")
    assert server.stats()["running"] == 1
    browser.click("#send")
    browser.until(f"{DONE} === 1 && $('send').textContent === 'Send'")
    assert browser.value("document.querySelectorAll('.said.fault').length") == 0
    until(lambda: server.stats()["running"] == 0, "its place is free")
    stats = server.stats()
    assert stats["abandoned"] == 1 and stats["generated_tokens"] < 200, stats
    assert not browser.faults, browser.faults


def main():
    program = find_browser()
    if not program:
        print("no Chromium here: skipped")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        model = make_model(PROGRAM, directory)
        with Server(PROGRAM, model, "--offload-param", "host=0.3,nvme=0.4", "--nvme-path", directory) as server, \
                Browser(program) as browser:
            try_page(browser, server)
        with Server(PROGRAM, model, *SLOW) as server, Browser(program) as browser:
            try_stop(browser, server)


main()
