"""Opening the pages of a report on 200 tokens: the main thread's time in headless Chromium until all is drawn."""

import random
import shutil
import tempfile
from pathlib import Path

import inspector

from .measuring import Measured, missing

TOKENS = 200
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--no-first-run"]
# Two frames after the load: layout and painting are done.
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def opened(playwright, path, page):
    """(main-thread seconds, elements) of one page, opened in a fresh browser with a fresh profile."""
    browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
    try:
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        session = tab.context.new_cdp_session(tab)
        session.send("Performance.enable")

        def task():
            return {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}["TaskDuration"]

        before = task()
        tab.goto(page.resolve().as_uri())
        tab.evaluate(DRAWN)
        return task() - before, tab.evaluate("document.querySelectorAll('*').length")
    finally:
        browser.close()


def measure(setting):
    """Yield a row a page: `seconds` is the main thread's task time as DevTools counts it (Performance.getMetrics)."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    absent = missing("playwright") or (None if path else f"absent: Chromium, none of {', '.join(NAMES)} is on the PATH")
    task = f"open a page of {TOKENS} tokens (main-thread time)"
    if absent:
        yield Measured(task, "inspector", note=absent)
        return
    from playwright.sync_api import sync_playwright
    model = inspector.load(setting.source)
    drawn = random.Random(0)
    ids = [drawn.randrange(model.config.vocab_size) for _ in range(min(TOKENS, model.config.n_positions))]
    with tempfile.TemporaryDirectory(prefix="inspector-benchmark-") as folder, sync_playwright() as playwright:
        report = inspector.report(model, ids=ids, out=Path(folder, "report"), check=False)
        pages = sorted(report.glob("*.html"))
        opened(playwright, path, pages[0])                                                   # warm-up
        for page in pages:
            found = [opened(playwright, path, page) for _ in range(setting.repetitions)]
            yield Measured(task, page.name, tuple(seconds for seconds, _ in found),
                           note=f"{found[0][1]:,} elements, {page.stat().st_size / 1e6:.2f} MB")
