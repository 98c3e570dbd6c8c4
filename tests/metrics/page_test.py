#!/usr/bin/env python3
"""page_test.py PROGRAM [DIR]: the pages with plots in a real browser: `zeepo train --dashboard`, `zeepo report --html` and
`zeepo plan --html`. Pictures of them are kept in DIR.

Without a Chromium the test says so and counts as skipped."""
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "support"))
from browser import Browser, find_browser

PROGRAM, PICTURES = sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None
MODEL = TESTS / "data/golden/llama-tiny"
# The titles of the cards that have a plot with something drawn in it.
PLOTS = """[...document.querySelectorAll('#charts .card')].filter(card => card.querySelector('svg path, svg rect, svg circle'))
    .map(card => card.querySelector('h2').textContent)"""


def check(browser, name, plots, text):
    """No script has failed, and what must be there is."""
    drawn = browser.value(PLOTS)
    assert set(plots) <= set(drawn), (name, plots, drawn)
    shown = browser.value("document.body.innerText")
    for part in text:
        assert part in shown, (name, part, shown)
    browser.value("window.dispatchEvent(new Event('resize')); 1")
    if PICTURES:
        browser.screenshot(PICTURES / f"{name}.png")
    assert not browser.faults, (name, browser.faults)


def live_page(browser, log):
    """While the run goes on, and when it is stopped."""
    said = log.with_suffix(".err")
    run = subprocess.Popen(
        [PROGRAM, "train", "--model", MODEL, "--data", MODEL / "tokens.bin", "--seq-len", "16", "--steps", "1000000", "--device",
         "cpu", "--threads", "1", "--memory", "device=64MiB,host=64MiB", "--offload-optimizer", "host", "--dashboard", "0", "--log",
         log], stderr=said.open("w"), stdout=subprocess.DEVNULL)
    try:
        while not (found := re.search(r"dashboard at (http://127\.0\.0\.1:\d+)", said.read_text())):
            assert run.poll() is None, said.read_text()
            time.sleep(0.02)
        browser.open(found[1])
        browser.until("document.getElementById('state')?.textContent === 'running' && "
                      "document.querySelector('#charts svg path') !== null")
        step = "+document.querySelector('.tile .value').textContent.replace(/\\D/g, '')"
        before = browser.value(step)
        browser.until(f"{step} > {before}")  # what is new is asked for
        check(browser, "live", ["Loss", "Throughput", "Memory by tier", "Gradient norm", "Learning rate", "Time of a step"],
              ["of 1", "Peak memory of rank 0", "fp32", "1 rank"])
    finally:
        run.send_signal(signal.SIGTERM)
        code = run.wait(timeout=30)
    assert code == -signal.SIGTERM, (code, said.read_text())
    browser.until("document.getElementById('state').className !== 'state running'")


def written_page(browser, name, page, arguments, plots, text):
    subprocess.run([PROGRAM, *arguments, "--html", page], check=True, stdout=subprocess.DEVNULL)
    browser.open(page.as_uri())
    browser.until("document.readyState === 'complete' && document.querySelector('#charts svg') !== null")
    check(browser, name, plots, text)


def main():
    program = find_browser()
    if not program:
        print("no Chromium here: skipped")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name, Browser(program, height=1600) as browser:
        directory = Path(name)
        live_page(browser, directory / "log.jsonl")
        written_page(browser, "report", directory / "report.html", ["report", directory / "log.jsonl"],
                     ["Loss", "Throughput", "Memory by tier", "Gradient norm"], ["stopped", "Peak memory of rank 0"])
        written_page(browser, "plan", directory / "plan.html",
                     ["plan", "--model", MODEL, "--ranks", "4", "--device", "cpu", "--memory", "device=1MiB,host=1GiB"],
                     ["Bytes of rank 0 by stage and placement", "Device memory by micro-batch"], ["mpirun -n 4 zeepo train", "fits"])


main()
