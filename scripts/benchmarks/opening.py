"""Opening the pages of a report on 200 tokens: the main thread's time in headless Chromium until all is drawn.

And of peers, on 64 tokens beside ours: at 200 theirs take minutes, or show nothing.
"""

import random
import shutil
import tempfile
from pathlib import Path

import inspector

from .measuring import Measured, missing
from .report import their_pages

TOKENS, PEERS_TOKENS = 200, 64
PATIENCE = 120_000      # milliseconds that one page may take
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--no-first-run"]
# Two frames after the load: layout and painting are done.
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def browser_path():
    """Where Chromium is, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def opened(playwright, path, page):
    """(main-thread seconds, elements) of one page, opened in a fresh browser with a fresh profile."""
    browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
    try:
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.set_default_timeout(PATIENCE)
        tab.route("http*://**", lambda route: route.abort())                                 # a page opens without network
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


def drawn_ids(model, n):
    """n ids, or as many as the model has positions for."""
    drawn = random.Random(0)
    return [drawn.randrange(model.config.vocab_size) for _ in range(min(n, model.config.n_positions))]


def measure(setting):
    """Yield a row a page: `seconds` is the main thread's task time as DevTools counts it (Performance.getMetrics)."""
    path = browser_path()
    absent = missing("playwright") or (None if path else f"absent: Chromium, none of {', '.join(NAMES)} is on the PATH")
    task = "open a page of {} tokens (main-thread time)".format
    if absent:
        yield Measured(task(TOKENS), "inspector", note=absent)
        return
    from playwright.sync_api import Error, sync_playwright
    model = inspector.load(setting.source)
    with tempfile.TemporaryDirectory(prefix="inspector-benchmark-") as folder, sync_playwright() as playwright:

        def row(tokens, name, page, repetitions):
            try:
                found = [opened(playwright, path, page) for _ in range(repetitions)]
            except Error as error:
                return Measured(task(tokens), name, note=f"not opened: {str(error).splitlines()[0]}")
            said = f"{found[0][1]:,} elements, {page.stat().st_size / 1e6:.2f} MB"
            blank = "; nothing is drawn: its scripts come from the network" if found[0][1] < 50 else ""
            return Measured(task(tokens), name, tuple(seconds for seconds, _ in found), note=said + blank)

        for tokens in (TOKENS, PEERS_TOKENS):
            ids = drawn_ids(model, tokens)
            report = inspector.report(model, ids=ids, out=Path(folder, f"report{tokens}"), check=False)
            pages = sorted(report.glob("*.html"))
            opened(playwright, path, pages[0])                                               # warm-up
            for page in pages if tokens == TOKENS else pages[:2]:
                yield row(len(ids), page.name, page, setting.repetitions)
        traced = inspector.trace(model, ids=ids)
        for name, make in their_pages(traced.pattern, traced.labels).items():
            if not callable(make):
                yield Measured(task(len(ids)), name, note=make)
                continue
            page = Path(folder, "theirs.html")
            page.write_text(f'<!doctype html><meta charset="utf-8"><body>{make()}</body>', encoding="utf-8")
            yield row(len(ids), name, page, min(3, setting.repetitions))
