"""Explorer pages for the tests of the browser: made, opened, waited for and read."""

from contextlib import contextmanager
from dataclasses import dataclass

import torch

import inspector
from inspector.pages.explorer.bundle import bundle
from inspector.pages.explorer.notebook import page_facts
from inspector.pages.explorer.page import explorer_page

from . import browser as chromium
from . import models

SENTENCES = ("When Ms. Dursley saw the cat, the cat saw Ms. Dursley too. The cat sat on the mat, and Ms. Dursley sat "
             "by the river bank. The bank lent her money, and the cat sat on the bank. ")


def demo_ids(model, n):
    """The first n ids of a text that repeats itself."""
    return model.tokenizer.encode(SENTENCES * 6)[:n]


def sharp(folder, times=4.0, **changes):
    """A tiny checkpoint, loaded, whose scores span more than +-60: its q and k are `times` as large as a tiny model's."""
    made = models.tiny_model(**{"n_embd": 96, "n_head": 12, "n_layer": 2, "n_inner": 50, **changes})
    with torch.no_grad():
        for block in made.transformer.h:
            block.attn.c_attn.weight[:, :2 * 96] *= times
    return inspector.load(models.save(made, folder))


def save_page(path, traces, *, repeats=None, **options):
    """Write the page of one or more traces, as a report has it, and return the path."""
    tables = [inspector.heads(trace.model, ids=trace.ids.tolist()) for trace in traces]
    stored = bundle(traces, tables, repeats=repeats, **options)
    path.write_text(explorer_page(stored, page_facts(traces[0])), encoding="utf-8")
    return path


@dataclass(frozen=True)
class TwoTexts:
    """A page of two texts, the second shorter, and what it was made from."""

    model: object
    traces: list
    repeats: object         # the table of heads on repeated random tokens
    path: object


def two_texts(folder):
    """The demo model on two texts of 40 and 18 tokens that begin alike and part at position 8."""
    model = inspector.load("demo")
    ids = demo_ids(model, 40)
    traces = [inspector.trace(model, ids=ids), inspector.trace(model, ids=[*ids[:8], *ids[20:30]])]
    repeats = inspector.heads(model, n_sequences=4)
    return TwoTexts(model, traces, repeats, save_page(folder / "explorer.html", traces, repeats=repeats))


@contextmanager
def explorer(browser, path, **how):
    """An opened page whose explorer is drawn; see `browser.opened`."""
    with chromium.opened(browser, path, **how) as page:
        page.set_default_timeout(10_000)
        page.wait_for_selector("[data-ready]")
        yield page


def settle(page, **patch):
    """Let the page change its state, or only finish what it draws."""
    page.evaluate("patch => explorer.update(patch)", patch)


def wait(page, condition):
    """Wait until a condition in JavaScript holds."""
    page.wait_for_function(condition)


def state(page):
    return page.evaluate("explorer.state")


def numbers(page, expression):
    """An array of the page as a float64 tensor, every bit of it, on its way as one string; NaN stays NaN."""
    found = page.evaluate(f"Array.from({expression}).join()")
    return torch.tensor([float(number) for number in found.split(",")], dtype=torch.float64)


def cell(page, query, key, plot=".x-main .x-cells"):
    """Where a cell lies inside its grid: what `hover` and `click` take as a position."""
    n, box = page.evaluate("explorer.view.grid.n"), page.locator(plot).bounding_box()
    return {"x": (key + 0.5) / n * box["width"], "y": (query + 0.5) / n * box["height"]}


def token(page, place):
    """A token of the text, as a button."""
    return page.locator(".x-text button").nth(place)


def tile(page, head):
    """A head on the wall, as a button."""
    return page.locator(f".x-board [data-head='{head}']")


def taken(page, name):
    """The bytes and the file's name of a download, by the button's name."""
    with page.expect_download() as found:
        page.get_by_role("button", name=name, exact=True).click()
    return found.value.path().read_bytes(), found.value.suggested_filename
