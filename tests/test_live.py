"""The live page in Chromium, by a user's gestures: what it shows is the library's, and typing is never in its way."""

import json
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

import inspector
from inspector import answers
from inspector.findings.interventions import edits_for
from inspector.findings.prompts import draw, longest_period
from inspector.record import to_json
from inspector.server import app as server_app

from . import browser as chromium
from .serving import running

pytestmark = pytest.mark.browser

FIRST = "When Mary and John went to the store, John gave a drink to Mary. When Mary and John"
TEXT = "Ms. Dursley saw a cat. Ms. Dursley sat"
NASTY = "</script><script>window.hit = 1</script> <img src=x onerror=window.hit=1> &lt; {{ 7*7 }} \u202ertl 日本 😀 مرحبا"


# -- a server, a page --------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def loaded():
    return {"demo": inspector.load("demo"), "planted": inspector.load("planted")}


@pytest.fixture(scope="module")
def site(loaded):
    with running(loaded) as found:
        yield found


@contextmanager
def live(browser, site, wait=True, **how):
    """The live page, opened, with its first text shown."""
    with chromium.opened(browser, site.address, **how) as page:
        page.set_default_timeout(20_000)
        if wait:
            done(page)
        yield page


def state(page, name):
    page.wait_for_selector(f"#live[data-state={name}]")


def done(page):
    state(page, "done")


def status(page):
    return page.locator(".l-status").text_content()


def button(page, name):
    return page.get_by_role("button", name=name, exact=True)


def box(page):
    return page.get_by_role("textbox", name="Text", exact=True)


def until(page, expression, seconds=20):
    """Wait for JavaScript to be true. (Playwright's own way is eval, which the page's policy forbids.)"""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(20)


def until_told(page, line):
    """Wait until the status line is this one, which may not stay."""
    until(page, f"document.querySelector('.l-status').textContent === {json.dumps(line)}")


def click(page, name):
    button(page, name).click()
    done(page)


def write(page, text):
    box(page).fill(text)
    done(page)


def open_head(page, head):
    page.locator(f".x-board button[data-head='{head}']").click()
    until(page, f"explorer.view?.state.heads[0] === '{head}'")


def labels(page, text=0):
    return page.evaluate("text => explorer.store.bundle.texts[text].labels", text)


def grid_of(values, n):
    return np.array([np.nan if value is None else value for value in values]).reshape(n, n)


def open_grid(page):
    """The grid on the page, [query, key], NaN where masked."""
    return grid_of(*page.evaluate("(({ values, n }) => [[...values].map(v => isNaN(v) ? null : v), n])(explorer.view.grid)"))


def other_grid(page):
    return grid_of(*page.evaluate(
        "(({ values, n }) => [[...values].map(v => isNaN(v) ? null : v), n])(explorer.view.beside.grid)"))


def stated(page):
    """How far the page says that a weight can be off."""
    return page.evaluate("Math.max(...explorer.store.bundle.texts.map(text => text.error.bound))")


def same_grid(page, grid, pattern):
    below = np.tri(len(grid), dtype=bool)
    assert not np.isnan(grid[below]).any()
    assert np.isnan(grid[~below]).all()
    error = np.abs(grid[below] - pattern.double().numpy()[below]).max()
    assert error < stated(page) + 1e-6
    return error


def as_json(found):
    return json.loads(to_json(answers.of_intervention(found)))


def cells(page, caption):
    """The texts of a table's cells, row by row."""
    return page.get_by_role("table", name=caption).locator("tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))")


def minus(text):
    return float(text.replace("−", "-"))


class Held:
    """A computation that stands still at step 2 of 4, until it is let go or stopped."""

    def __init__(self, monkeypatch):
        self.asked, self.stopped, self.let_go = [], [], threading.Event()
        call = server_app.call

        def held(name, model, arguments, most, progress):
            text = arguments.get("text")
            self.asked.append(text)
            try:
                for step in range(3):
                    self.at(step, progress)
            except BaseException:
                self.stopped.append(text)
                raise
            return call(name, model, arguments, most, progress)

        monkeypatch.setattr(server_app, "call", held)

    def at(self, step, progress):
        """Tell the step; at the last one, again and again."""
        while True:
            for _ in progress([None] * (step + 1), total=4, desc="layers"):
                pass
            if step < 2 or self.let_go.is_set():
                return
            time.sleep(0.01)


def soon(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# -- typing ------------------------------------------------------------------------------------------------------------

def test_a_text_that_is_typed_is_shown(browser, site, loaded):
    with live(browser, site) as page:
        assert labels(page) == inspector.trace(loaded["demo"], FIRST).labels
        box(page).fill("")
        box(page).press_sequentially(TEXT)
        done(page)
        run = inspector.trace(loaded["demo"], TEXT)
        assert labels(page) == run.labels
        for head in ("0.3", "1.1", "3.5"):
            open_head(page, head)
            same_grid(page, open_grid(page), run.pattern[tuple(map(int, head.split(".")))])
        assert status(page) == f"{len(run.labels)} tokens."
        button(page, "Turn off").wait_for()


def test_twenty_quick_edits_are_one_question_and_the_last_text_wins(browser, site, loaded):
    with live(browser, site) as page:
        asked = []
        page.on("request", lambda request: asked.append(json.loads(request.post_data)["text"]) if "explore" in request.url
                else None)
        box(page).focus()
        page.keyboard.press("Control+End")
        page.evaluate("""async () => {
          const text = document.querySelector("textarea");
          for (let i = 0; i < 20; i++) {
            document.execCommand("insertText", false, " a");
            await new Promise(done => setTimeout(done, 20));
          }
        }""")
        done(page)
        assert asked == [FIRST + " a" * 20]
        assert labels(page) == inspector.trace(loaded["demo"], FIRST + " a" * 20).labels


def test_typing_on_ends_the_computation_under_way_and_no_older_text_is_shown(browser, loaded, monkeypatch):
    held = Held(monkeypatch)
    with running(loaded) as site, live(browser, site, wait=False) as page:
        soon(lambda: held.asked == [FIRST])
        for text in ("A cat", "A cat sat"):
            box(page).fill(text)
            soon(lambda text=text: held.asked[-1] == text)                                   # so the worker was free for it
        assert held.stopped == [FIRST, "A cat"]
        held.let_go.set()
        done(page)
        assert labels(page) == inspector.trace(loaded["demo"], "A cat sat").labels
        page.wait_for_timeout(300)
        assert labels(page) == inspector.trace(loaded["demo"], "A cat sat").labels


def test_typing_is_never_interrupted(browser, site):
    with live(browser, site) as page:
        box(page).focus()
        page.keyboard.press("Control+Home")
        for _ in range(5):
            page.keyboard.press("ArrowRight")
        for letter in "very ":
            page.keyboard.type(letter)
            done(page)                                                                       # an update after every letter
        assert box(page).input_value() == FIRST[:5] + "very " + FIRST[5:]
        assert box(page).evaluate("box => box === document.activeElement")
        assert box(page).evaluate("box => [box.selectionStart, box.selectionEnd]") == [10, 10]


def test_pasting_is_typing(browser, site, loaded):
    with live(browser, site) as page:
        box(page).focus()
        for keys in ("Control+A", "Control+X", "Control+V", "Control+V"):
            page.keyboard.press(keys)
        done(page)
        assert labels(page) == inspector.trace(loaded["demo"], FIRST * 2).labels


def test_no_text_shows_nothing_and_the_next_text_recovers(browser, site):
    with live(browser, site) as page:
        box(page).fill("")
        state(page, "empty")
        assert status(page) == "Type or paste a text."
        assert page.locator(".x-explorer").count() == 0
        assert not button(page, "Turn off").is_visible()
        write(page, "A cat")
        assert page.locator(".x-explorer").count() == 1
        assert button(page, "Turn off").is_visible()


def test_a_text_that_is_too_long_is_refused_in_words_and_the_next_one_recovers(browser, site, loaded):
    with live(browser, site) as page:
        box(page).fill(" cat" * 300)
        state(page, "refused")
        with pytest.raises(inspector.InspectorError) as told:
            inspector.trace(loaded["demo"], " cat" * 300)
        assert status(page) == " ".join(str(told.value).split())
        write(page, TEXT)
        assert labels(page) == inspector.trace(loaded["demo"], TEXT).labels


def test_a_paste_beyond_what_a_request_may_hold_is_refused_in_words(browser, loaded):
    with running(loaded, max_body=20_000) as site, live(browser, site, known=["status of 413"]) as page:
        box(page).fill("cat " * 10_000)
        state(page, "refused")
        assert status(page) == "the body is too long; expected at most 20,000 bytes"
        assert len(box(page).input_value()) == 40_000                                        # nothing was cut off
        write(page, TEXT)


def test_markup_in_a_text_is_text(browser, site, loaded):
    with live(browser, site) as page:
        write(page, NASTY)
        run = inspector.trace(loaded["demo"], NASTY)
        assert len(labels(page)) == len(run.labels)
        click(page, "Turn off")
        shown = page.locator(".l-losses .token").all_text_contents()
        assert shown == run.labels
        assert page.evaluate("window.hit") is None
        assert page.locator("#live :is(img, script)").count() == 0
        write(page, TEXT)


# -- progress, cancel, failure -----------------------------------------------------------------------------------------

def test_progress_is_shown_and_cancel_stops(browser, loaded, monkeypatch):
    held = Held(monkeypatch)
    with running(loaded) as site, live(browser, site, wait=False) as page:
        until(page, "document.querySelector('progress')?.value === 0.5")
        assert page.get_by_role("progressbar", name="Progress").is_visible()
        until_told(page, "layers 2 of 4 …")
        button(page, "Cancel").click()
        state(page, "cancelled")
        assert status(page) == "Cancelled."
        assert not page.get_by_role("progressbar").is_visible()
        soon(lambda: held.stopped == [FIRST])
        held.let_go.set()
        click(page, "Try again")
        assert labels(page) == inspector.trace(loaded["demo"], FIRST).labels
        assert not button(page, "Try again").is_visible()


BROKEN = [(200, '{"progress": [1, 4, "layers"]}\n{"resu', "The server broke off. Is it still running?"),
          (200, '{"progress": [1, 4, "layers"]}\n', "The server broke off."),
          (200, "", "The server broke off."),
          (200, '{"error": "no <b>way</b>", "status": 422}\n', "no <b>way</b>"),
          (500, "<h1>oh</h1>", "The server answered 500 and nothing more.")]


@pytest.mark.parametrize(("code", "body", "line"), BROKEN)
def test_an_answer_that_is_none_is_told_and_can_be_tried_again(browser, site, code, body, line):
    with live(browser, site, known=["status of 500"]) as page:
        page.route("**/api/explore", lambda route: route.fulfill(status=code, body=body))
        box(page).fill(TEXT)
        state(page, "refused")
        assert status(page) == line
        page.unroute("**/api/explore")
        click(page, "Try again")


def test_a_server_that_is_gone_is_told_and_found_again(browser, loaded):
    with running(loaded) as site, live(browser, site, known=["ERR_CONNECTION_REFUSED", "failed: "]) as page:
        site.stop()
        box(page).fill(TEXT)
        state(page, "refused")
        assert status(page) == "The server does not answer. Is it still running?"
        with running(loaded, port=site.port):
            click(page, "Try again")
            assert labels(page) == inspector.trace(loaded["demo"], TEXT).labels


@contextmanager
def occupied(site):
    """Meanwhile the worker is busy with something else."""
    free = threading.Event()
    site.worker.submit(lambda progress: free.wait())
    try:
        yield
    finally:
        free.set()


def test_a_busy_server_is_waited_for(browser, loaded):
    with running(loaded, queue=0) as site, live(browser, site, known=["status of 503"]) as page:
        with occupied(site):
            box(page).fill(TEXT)
            until_told(page, "The server is busy with other requests; waiting …")
        done(page)
        assert labels(page) == inspector.trace(loaded["demo"], TEXT).labels


def test_a_server_that_stays_busy_is_told(browser, loaded):
    with running(loaded, queue=0) as site, live(browser, site, known=["status of 503"]) as page:
        with occupied(site):
            box(page).fill(TEXT)
            state(page, "refused")
            assert status(page) == "busy: one request computes and 0 wait, as many as may; try again"
        click(page, "Try again")


# -- model and BOS -----------------------------------------------------------------------------------------------------

def test_another_model_is_shown_whole_and_asked_once(browser, site, loaded):
    with live(browser, site) as page:
        open_head(page, "1.4")
        click(page, "Turn off")
        asked = []
        page.on("request", lambda request: asked.append(request.url.rsplit("/", 1)[1]))
        page.get_by_label("Model").select_option("planted")
        done(page)
        assert asked == ["explore"]                                                          # no edits: nothing to compare
        run = inspector.trace(loaded["planted"], FIRST)
        assert labels(page) == run.labels
        assert page.locator(".x-board button").count() == 8
        assert page.locator(".l-chips li").count() == 0
        open_head(page, "2.0")
        same_grid(page, open_grid(page), run.pattern[2, 0])
        page.get_by_label("Model").select_option("demo")
        done(page)
        assert page.locator(".x-board button").count() == 24


def test_bos_stands_first_where_it_is_asked_for(browser, site, loaded):
    with live(browser, site) as page:
        page.get_by_label("BOS first").check()
        done(page)
        run = inspector.trace(loaded["demo"], FIRST, bos=True)
        assert labels(page) == run.labels
        open_head(page, "1.1")
        same_grid(page, open_grid(page), run.pattern[1, 1])
        page.get_by_label("BOS first").uncheck()
        done(page)
        assert labels(page) == inspector.trace(loaded["demo"], FIRST).labels


# -- heads changed -----------------------------------------------------------------------------------------------------

def check_effects(page, model, edits, position=-1, **subject):
    """Every number under 'What changes' is `intervene`'s."""
    found = as_json(inspector.intervene(model, edits, position=position, **(subject or {"text": FIRST})))
    before, after = ([row[f"loss_{when}"] for row in found["tokens"] if row["loss_before"] is not None]
                     for when in ("before", "after"))
    line = page.locator(".l-effects p").first.text_content()
    assert line.startswith(f"Mean loss {np.mean(before):.4f} → {np.mean(after):.4f} nats a token")
    assert minus(line.split("(")[1].split(")")[0]) == pytest.approx(np.mean(after) - np.mean(before), abs=6e-5)
    shown = cells(page, "The next token: probability (rank)")
    assert [row[0] for row in shown] == [row["label"] for row in found["next"]]
    for row, true in zip(shown, found["next"], strict=True):
        for cell, when in zip(row[1:3], ("before", "after"), strict=True):
            p, rank = cell.split(" ")
            assert float(p.removeprefix("<")) == pytest.approx(true[f"p_{when}"], abs=1e-4 if "<" in p else 5.01e-5)
            assert rank == f"({true[f'rank_{when}']})"
        assert minus(row[3]) == pytest.approx(true["change"], abs=5.01e-5)
    losses = page.locator(".l-losses li").evaluate_all(
        "items => items.map(item => [...item.children].map(each => each.textContent))")
    assert len(losses) == len(found["tokens"])
    assert losses[0][1] == "the first"
    for item, true in zip(losses, found["tokens"], strict=True):
        assert item[0] == true["label"]
        if true["loss_before"] is not None:
            assert item[1] == f"{true['loss_before']:.2f} → {true['loss_after']:.2f}"
    moved = sorted((row for row in found["patterns"] if row["moved"]), key=lambda row: -row["moved"])[:12]
    listed = cells(page, "Heads that look elsewhere now")
    assert [row[0] for row in listed] == [f"{row['layer']}.{row['head']}" for row in moved]
    for row, true in zip(listed, moved, strict=True):
        assert float(row[1].removeprefix("<")) == pytest.approx(true["moved"], abs=1e-3 if "<" in row[1] else 5.01e-4)
        assert float(row[2].removeprefix("<")) == pytest.approx(true["largest"], abs=1e-3 if "<" in row[2] else 5.01e-4)
    return found


def test_a_head_that_is_turned_off_changes_what_intervene_says(browser, site, loaded):
    with live(browser, site) as page:
        open_head(page, "1.3")
        click(page, "Turn off")
        found = check_effects(page, loaded["demo"], {"1.3": "zero"})
        after = [row["loss_after"] for row in found["tokens"][1:]]
        moved = sorted(found["patterns"], key=lambda row: -(row["moved"] or 0))[:3]
        named = ", ".join(f"{row['layer']}.{row['head']}" for row in moved)
        assert status(page).endswith(f"→ {np.mean(after):.4f}. Changed most: {named}.")
        click(page, "Replace by its mean")
        check_effects(page, loaded["demo"], {"1.3": "mean"})
        page.get_by_label("Factor of the scores").fill("0.5")
        page.keyboard.press("Enter")
        done(page)
        check_effects(page, loaded["demo"], {"1.3": 0.5})
        click(page, "As the model has it")
        assert page.locator(".l-effects").count() == 0
        assert button(page, "As the model has it").is_disabled()


def test_several_heads_are_changed_and_undone_one_by_one_and_all(browser, site, loaded):
    with live(browser, site) as page:
        open_head(page, "1.3")
        page.locator(".x-board button[data-head='1.1']").click(modifiers=["Shift"])
        click(page, "Turn off")                                                              # both at once
        open_head(page, "0.4")
        page.get_by_label("Factor of the scores").fill("3")
        click(page, "Scores ×")
        check_effects(page, loaded["demo"], {"1.3": "zero", "1.1": "zero", "0.4": 3})
        chips = page.locator(".l-chips button").all_text_contents()
        assert chips == ["1.3 off ✕", "1.1 off ✕", "0.4 scores × 3 ✕", "All as they were"]
        click(page, "1.1 off: undo")
        check_effects(page, loaded["demo"], {"1.3": "zero", "0.4": 3})
        click(page, "All as they were")
        assert page.locator(".l-chips li, .l-effects").count() == 0
        assert page.evaluate("explorer.store.bundle.texts.length") == 1


def test_a_factor_that_is_none_is_not_sent(browser, site):
    with live(browser, site) as page:
        for wrong in ("", "-1", "101"):
            page.get_by_label("Factor of the scores").fill(wrong)
            button(page, "Scores ×").click()
            assert page.locator(".l-chips li").count() == 0
            assert page.evaluate("document.getElementById('live').dataset.state") == "done"
        page.get_by_label("Factor of the scores").fill("0")
        click(page, "Scores ×")
        assert page.locator(".l-chips li").all_text_contents() == ["1.3 scores × 0 ✕"]


def test_beside_the_run_stands_the_changed_one(browser, site, loaded):
    with live(browser, site) as page:
        open_head(page, "1.3")
        click(page, "Turn off")
        open_head(page, "3.4")
        until(page, "explorer.view.beside?.grid.title.startsWith('3.4')")
        model = loaded["demo"]
        before = inspector.trace(model, FIRST)
        after = inspector.trace(model, FIRST, edits=edits_for(model, before.ids.tolist(), {"1.3": "zero"}))
        same_grid(page, open_grid(page), before.pattern[3, 4])
        same_grid(page, other_grid(page), after.pattern[3, 4])
        assert (after.pattern[3, 4] - before.pattern[3, 4]).abs().max() > 0.1                # so neither is the other
        button(page, "after: 1.3 off").click()
        until(page, "explorer.view.state.text === 1")
        same_grid(page, open_grid(page), after.pattern[3, 4])


def test_a_second_text_stands_beside_the_first(browser, site, loaded):
    with live(browser, site) as page:
        open_head(page, "1.3")
        second = page.locator(".l-form input[type=text]")
        second.fill(TEXT)
        done(page)
        run = inspector.trace(loaded["demo"], TEXT)
        assert (labels(page), labels(page, 1)) == (inspector.trace(loaded["demo"], FIRST).labels, run.labels)
        same_grid(page, open_grid(page), inspector.trace(loaded["demo"], FIRST).pattern[1, 3])
        same_grid(page, other_grid(page), run.pattern[1, 3])
        second.fill("")
        done(page)
        assert page.evaluate("explorer.store.bundle.texts.length") == 1


def test_the_token_beside_a_query_is_the_same_one(browser, site):
    with live(browser, site) as page:
        click(page, "Turn off")
        page.locator(".x-text button").nth(5).click()
        until(page, "explorer.view.state.query === 5 && explorer.view.state.twin === 5")
        assert page.get_by_label("Token there").input_value() == "5"


def test_the_next_token_after_another_position(browser, site, loaded):
    with live(browser, site) as page:
        open_head(page, "1.3")
        click(page, "Turn off")
        check_effects(page, loaded["demo"], {"1.3": "zero"})
        place = page.get_by_label("Next token after")
        place.focus()
        place.select_option("7")
        done(page)
        check_effects(page, loaded["demo"], {"1.3": "zero"}, position=7)
        assert place.evaluate("list => list === document.activeElement")
        click(page, "Replace by its mean")                                                        # it stays for another edit
        check_effects(page, loaded["demo"], {"1.3": "mean"}, position=7)
        write(page, "A cat")                                                                 # a text that has no position 7
        check_effects(page, loaded["demo"], {"1.3": "mean"}, text="A cat")


def test_a_head_that_looks_elsewhere_opens(browser, site):
    with live(browser, site) as page:
        click(page, "Turn off")
        first = cells(page, "Heads that look elsewhere now")[0][0]
        page.get_by_role("table", name="Heads that look elsewhere now").get_by_role("button", name=first, exact=True).click()
        until(page, f"explorer.view.state.heads[0] === '{first}'")
        assert page.locator(".l-heads").text_content() == f"Head {first}"


def test_what_is_looked_at_survives_a_change_of_heads_and_a_new_text_starts_at_its_end(browser, site):
    with live(browser, site) as page:
        open_head(page, "0.4")
        page.locator(".x-board button[data-head='1.1']").click(modifiers=["Shift"])
        page.locator(".x-text button").nth(9).click()
        page.get_by_label("Sharpness as a number").fill("2")
        page.keyboard.press("Tab")
        page.get_by_label("Order").select_option("text:induction")
        kept = "(({ heads, query, locked, beta, order }) => ({ heads, query, locked, beta, order }))(explorer.view.state)"
        wanted = {"heads": ["0.4", "1.1"], "query": 9, "locked": True, "beta": 2, "order": "text:induction"}
        until(page, f"JSON.stringify({kept}) === '{json.dumps(wanted, separators=(',', ':'))}'")
        click(page, "Turn off")
        assert page.evaluate(kept) == wanted
        write(page, TEXT)
        assert page.evaluate(kept) == wanted | {"query": len(labels(page)) - 1, "locked": False}


def test_an_explorer_that_is_replaced_lets_go(browser, site):
    """No listener of an explorer before the present one is left: with it all its texts would stay."""
    count = """(() => { const own = MediaQueryList.prototype; window.listening = 0;
      for (const [name, step] of [["addEventListener", 1], ["removeEventListener", -1]]) {
        const before = own[name];
        own[name] = function (...how) { window.listening += step; return before.apply(this, how); };
      } })()"""
    with live(browser, site, prepare=lambda page: page.add_init_script(count)) as page:
        once = page.evaluate("listening")
        assert once > 0
        for text in ("A cat", "A dog"):
            write(page, text)
        assert page.evaluate("listening") == once


# -- induction in one click --------------------------------------------------------------------------------------------

def found_heads(model):
    table = inspector.heads(model)
    rows = [row for row in table.sort_values("induction", ascending=False).itertuples() if "induction" in row.verdict]
    return [f"{row.layer}.{row.head}" for row in rows]


def check_halves(page, model, ids, edits):
    copies = inspector.intervene(model, edits, ids=ids).copies
    shown = cells(page, "Mean loss, nats a token")
    assert [row[0] for row in shown] == ["first half", "second half"]
    for row, true in zip(shown, copies.itertuples(), strict=True):
        assert [minus(cell) for cell in row[1:]] == pytest.approx(
            [true.loss_before, *([true.loss_after, true.change] if edits else [])], abs=5.01e-4)
    return [[minus(cell) for cell in row[1:]] for row in shown]


@pytest.mark.parametrize("how", ["text", "random"])
def test_induction_in_one_click(browser, site, loaded, how):
    model = loaded["demo"]
    once = inspector.trace(model, FIRST).ids.tolist()
    ids = once * 2 if how == "text" else draw(model, period=longest_period(model, False), n_sequences=1, bos=False,
                                              seed=0).ids[0].tolist()
    with live(browser, site) as page:
        click(page, "Repeat this text" if how == "text" else "Repeat random tokens")
        run = inspector.trace(model, ids=ids)
        assert labels(page) == run.labels
        heads = found_heads(model)
        assert heads
        assert page.locator(".l-repeat .x-chip").all_text_contents() == heads
        assert page.evaluate("explorer.view.state.heads") == heads[:1]
        layer, head = map(int, heads[0].split("."))
        grid = open_grid(page)
        same_grid(page, grid, run.pattern[layer, head])
        period = len(ids) // 2
        stripe = np.mean([grid[i, i - period + 1] for i in range(period, len(ids))])
        assert stripe > 0.3
        first, second = check_halves(page, model, ids, {})
        assert second[0] < first[0] - 1
        click(page, "Turn them off")
        off = dict.fromkeys(heads, "mean")
        _, changed = check_halves(page, model, ids, off)
        assert changed[1] > changed[0] + 1
        check_effects(page, model, off, ids=ids)
        click(page, "Turn them on again")
        assert check_halves(page, model, ids, {}) == [first, second]
        click(page, "Turn them off")
        click(page, "Back to the text")
        assert labels(page) == inspector.trace(model, FIRST).labels
        assert page.locator(".l-chips li, .l-effects").count() == 0
        assert not page.get_by_role("region", name="Induction").is_visible()
        assert not button(page, "Back to the text").is_visible()


def test_random_tokens_are_others_at_every_click(browser, site):
    with live(browser, site) as page:
        click(page, "Repeat random tokens")
        first = labels(page)
        click(page, "Repeat random tokens")
        assert labels(page) != first
        click(page, "Repeat this text")
        half = labels(page)[:len(labels(page)) // 2]
        assert labels(page) == half * 2


def test_repeated_tokens_follow_the_model_and_bos(browser, site, loaded):
    with live(browser, site) as page:
        write(page, TEXT)
        click(page, "Repeat this text")
        click(page, "Turn them off")
        page.get_by_label("Model").select_option("planted")
        done(page)
        ids = inspector.trace(loaded["planted"], TEXT).ids.tolist() * 2
        assert labels(page) == inspector.trace(loaded["planted"], ids=ids).labels
        check_halves(page, loaded["planted"], ids, {})
        assert page.locator(".l-repeat .x-chip").all_text_contents() == found_heads(loaded["planted"])
        assert page.locator(".l-chips li").count() == 0
        page.get_by_label("Model").select_option("demo")
        page.get_by_label("BOS first").check()
        done(page)
        once = inspector.trace(loaded["demo"], TEXT, bos=True).ids.tolist()
        assert labels(page) == inspector.trace(loaded["demo"], ids=once + once[1:]).labels
        check_halves(page, loaded["demo"], once + once[1:], {})


def test_a_text_typed_over_repeated_tokens_is_the_text_again(browser, site, loaded):
    with live(browser, site) as page:
        click(page, "Repeat random tokens")
        click(page, "Turn them off")
        write(page, TEXT)
        assert labels(page) == inspector.trace(loaded["demo"], TEXT).labels
        assert page.locator(".l-chips li, .l-effects").count() == 0
        assert not page.get_by_role("region", name="Induction").is_visible()


def test_back_to_the_text_while_it_computes(browser, loaded, monkeypatch):
    with running(loaded) as site, live(browser, site) as page:
        held = Held(monkeypatch)
        button(page, "Repeat random tokens").click()
        soon(lambda: len(held.asked) == 1)
        button(page, "Back to the text").click()
        soon(lambda: held.asked[1:] == [FIRST])
        held.let_go.set()
        done(page)
        assert labels(page) == inspector.trace(loaded["demo"], FIRST).labels


# -- for everyone, and safe --------------------------------------------------------------------------------------------

def test_an_injected_script_does_not_run_and_no_other_site_is_reached(browser, site):
    with live(browser, site, known=["Content Security Policy", "http://127.0.0.1:9/"]) as page:
        outcome = page.evaluate("""async () => {
          const script = document.createElement("script");
          script.textContent = "window.hit = 1";
          document.body.append(script);
          document.body.insertAdjacentHTML("beforeend", "<b onclick='window.hit = 2'>x</b>");
          document.body.lastElementChild.click();
          const fetched = await fetch("http://127.0.0.1:9/").then(() => "reached", () => "stopped");
          await new Promise(done => setTimeout(done, 100));
          return [window.hit ?? null, fetched];
        }""")
        assert outcome == [None, "stopped"]


def focused(page):
    return page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent")


def tab_to(page, name):
    for _ in range(60):
        if focused(page) == name:
            return
        page.keyboard.press("Tab")
    pytest.fail(f"Tab does not reach {name!r}")


def test_by_keyboard_alone(browser, site, loaded):
    with live(browser, site) as page:
        page.evaluate("document.body.focus()")
        tab_to(page, "Text")
        page.keyboard.press("Control+A")
        page.keyboard.type(TEXT)
        done(page)
        head = page.evaluate("explorer.view.state.heads[0]")
        tab_to(page, "Turn off")
        page.keyboard.press("Enter")
        done(page)
        check_effects(page, loaded["demo"], {head: "zero"}, text=TEXT)
        assert focused(page) == "Turn off"                                                   # the focus is where it was
        tab_to(page, f"{head} off: undo")
        page.keyboard.press("Enter")
        done(page)
        assert page.locator(".l-chips li").count() == 0
        assert focused(page) == "Turn off"                                                   # and never lost
        page.keyboard.press("Shift+Tab")
        assert focused(page) == "Repeat random tokens"
        page.keyboard.press("Space")
        done(page)
        tab_to(page, "Turn them off")
        page.keyboard.press("Enter")
        done(page)
        assert page.locator(".l-chips li").count() > 1
        assert focused(page) == "Turn them on again"


NAMELESS = """() => [...document.querySelectorAll("#live :is(button, input, select, textarea, progress, [tabindex])")]
  .filter(e => e.checkVisibility() && !(e.getAttribute("aria-label") ?? "").trim() && !e.textContent.trim()
    && ![...e.labels ?? []].some(label => label.textContent.trim())).map(e => e.outerHTML)"""


def test_every_control_has_a_name(browser, site):
    with live(browser, site) as page:
        assert page.evaluate(NAMELESS) == []
        click(page, "Repeat this text")
        click(page, "Turn them off")
        assert page.evaluate(NAMELESS) == []
        page.get_by_label("Text", exact=True).evaluate("box => box.removeAttribute('aria-label')")
        box_, = page.evaluate(NAMELESS)
        assert box_.startswith("<textarea")


# Boxes of what is to be read or pressed in the page's own parts; what holds one of the others is left out.
BOXES = """() => [...document.querySelectorAll(":is(.l-form, .l-repeat, .l-changes, .l-effects) :is(textarea, select, "
    + "button, input, td, th, caption, h2, h3, .note, .token, small)")]
  .filter(e => e.checkVisibility() && !e.querySelector(":scope :is(button, small, .token)") && !e.closest(".l-losses"))
  .map(e => { const { left, right, top, bottom } = e.getBoundingClientRect();
              return { text: e.textContent || e.tagName, left, right, top, bottom }; })
  .filter(b => b.right > b.left)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_lies_on_anything_and_nothing_scrolls_sideways(browser, site, width, scheme):
    with live(browser, site, width=width, scheme=scheme) as page:
        for gesture in (None, "Turn off", "Repeat this text", "Turn them off"):
            if gesture:
                click(page, gesture)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            boxes = chromium.much(page, BOXES)
            assert len(boxes) > 8
            assert [box for box in boxes if box["left"] < 0 or box["right"] > width] == []
            assert [(a["text"], b["text"]) for n, a in enumerate(boxes) for b in boxes[:n]
                    if min(a["right"], b["right"]) - max(a["left"], b["left"]) > 0.6
                    and min(a["bottom"], b["bottom"]) - max(a["top"], b["top"]) > 0.6] == []
        for y in (600, 1200, 2000):
            page.evaluate("y => scrollTo(0, y)", y)
            wall, below = (page.locator(name).bounding_box() for name in (".x-wall", ".l-effects"))
            assert wall["y"] + wall["height"] <= below["y"]


def test_a_change_of_heads_moves_nothing_on_the_screen(browser, site):
    with live(browser, site, height=700) as page:
        open_head(page, "1.3")
        click(page, "Turn off")
        place = page.get_by_label("Next token after")
        place.scroll_into_view_if_needed()
        before = page.evaluate("scrollY"), place.bounding_box()["y"]
        assert before[0] > 300
        page.evaluate("""() => {
          window.seen = [];
          const look = () => {
            seen.push([scrollY, [...document.querySelectorAll(".x-head")].map(head => head.textContent)]);
            requestAnimationFrame(look);
          };
          look();
        }""")
        place.select_option("3")
        done(page)
        assert page.evaluate("new Set(seen.map(String)).size") == 1
        assert (page.evaluate("scrollY"), place.bounding_box()["y"]) == before
        button(page, "As the model has it").evaluate("button => button.click()")
        done(page)
        assert page.evaluate("seen.every(([, heads]) => String(heads) === 'Head 1.3')")      # never an empty page between


