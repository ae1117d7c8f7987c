"""The explorer of 64, 512 and 1,024 tokens: making it, its size, opening it in headless Chromium, and answering a click.

Peers make their pages of 64 tokens beside it; at 512 theirs are a hundred times as large.
"""

import statistics
import tempfile
from pathlib import Path

import inspector

from .measuring import Measured, in_turn, missing
from .opening import ARGUMENTS, PATIENCE, browser_path, drawn_ids
from .report import their_pages

TOKENS, PEERS_TOKENS = (64, 512, 1024), 64
CLICKS = 7              # of each kind in one opened page
REST = 400              # milliseconds from pointing to clicking

# Two frames after the explorer says that it has drawn: what it drew is on the screen.
DRAWN = """before => new Promise(done => {
  const look = () => Number(document.getElementById("explorer")?.dataset.ready ?? 0) > before
    ? requestAnimationFrame(() => requestAnimationFrame(done)) : requestAnimationFrame(look);
  look();
})"""
SINCE_NAVIGATION = f"async () => {{ await ({DRAWN})(0); return performance.now() / 1000; }}"
SINCE_CLICK = f"""async selector => {{
  const before = Number(document.getElementById("explorer").dataset.ready), start = performance.now();
  document.querySelector(selector).click();
  await ({DRAWN})(before);
  return (performance.now() - start) / 1000;
}}"""


def clicked(tab, selector):
    """Seconds from a click to its answer. As for a hand, the pointer comes first and rests there a moment."""
    tab.hover(selector)
    tab.wait_for_timeout(REST)
    return tab.evaluate(SINCE_CLICK, selector)


def used(playwright, path, page, tokens, config):
    """One page in a fresh browser: {"picture", "token", "head": seconds; "heap": bytes after all clicks}."""
    browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
    try:
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.set_default_timeout(PATIENCE)
        session = tab.context.new_cdp_session(tab)
        tab.goto(page.resolve().as_uri(), wait_until="commit")
        found = {"picture": tab.evaluate(SINCE_NAVIGATION)}
        places = [(step + 1) * tokens // (CLICKS + 1) for step in range(CLICKS)]
        heads = [f"{step % config.n_layer}.{(5 * step + 2) % config.n_head}" for step in range(CLICKS)]     # none twice
        clicks = {"token": [f".x-text li:nth-child({place + 1}) button" for place in places],
                  "head": [f'button[data-head="{head}"]' for head in heads]}
        for kind, selectors in clicks.items():
            found[kind] = statistics.median(clicked(tab, selector) for selector in selectors)
        session.send("HeapProfiler.collectGarbage")
        heap = session.send("Runtime.getHeapUsage")          # arrays of numbers lie outside the heap proper, and count too
        return {**found, "heap": heap["usedSize"] + heap.get("backingStorageSize", 0)}
    finally:
        browser.close()


def making(model, tokens, repetitions, folder):
    """(the page with all that is stored by default, rows) of one length."""
    ids = drawn_ids(model, tokens)
    traced = inspector.trace(model, ids=ids)
    ways = {"inspector": lambda: inspector.explore(traced),
            "inspector, no q, k, v": lambda: inspector.explore(traced, moves=""),
            "inspector, the trace too": lambda: inspector.explore(inspector.trace(model, ids=ids))}
    pages = {}
    for name, make in (their_pages(traced.pattern, traced.labels) if tokens == PEERS_TOKENS else {}).items():
        if callable(make):
            ways[name] = lambda name=name, make=make: pages.update({name: make()})
        else:
            pages[name] = make
    seconds = in_turn(ways, repetitions)
    ours = {name: make().html for name, make in list(ways.items())[:2]}
    sizes = {**ours, **{name: text for name, text in pages.items() if name in ways}}
    task = f"make the explorer of {len(ids)} tokens from its trace"
    rows = [Measured(task, name, seconds[name], note=f"{len(sizes[name].encode()) / 1e6:.2f} MB" if name in sizes else "")
            for name in ways]
    rows += [Measured(task, name, note=text) for name, text in pages.items() if name not in ways]
    path = Path(folder, f"explorer{len(ids)}.html")
    path.write_text(ours["inspector"], encoding="utf-8")
    return path, rows


def measure(setting):
    """Yield rows: making, and what a user waits for, two frames after it is drawn: 17 to 33 ms of it are frames."""
    model = inspector.load(setting.source)
    path = browser_path()
    with tempfile.TemporaryDirectory(prefix="inspector-benchmark-") as folder:
        for tokens in sorted({min(n, model.config.n_positions) for n in TOKENS}):
            page, rows = making(model, tokens, min(3, setting.repetitions), folder)
            yield from rows
            task = f"explorer of {tokens} tokens: {{}}".format
            absent = missing("playwright") or (None if path else "absent: Chromium")
            if absent:
                yield Measured(task("first picture"), "inspector", note=absent)
                continue
            from playwright.sync_api import sync_playwright
            with sync_playwright() as playwright:
                runs = [used(playwright, path, page, tokens, model.config) for _ in range(setting.repetitions + 1)][1:]
            heap = f"JavaScript heap {max(run['heap'] for run in runs) / 1e6:.0f} MB after {2 * CLICKS} clicks"
            for kind, name, note in (("picture", "first picture", heap), ("token", "a click on a token", ""),
                                     ("head", "a click on a head not yet shown", "")):
                yield Measured(task(name), "inspector", tuple(run[kind] for run in runs), note=note)
