"""The explorer for everyone, in Chromium: any token, any width, light and dark, keyboard alone, print, several on a page."""

import html
import itertools
import json

import pytest
import torch

import inspector
from inspector.pages.explorer.bundle import bundle

from . import browser as chromium
from . import exploring
from .exploring import demo_ids, explorer, numbers, settle, state
from .test_browser import TORTURE, overlaps

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def model():
    return inspector.load("demo")


@pytest.fixture(scope="module")
def pages(model, tmp_path_factory):
    """{name: page} of 1, 5, 54 and 200 tokens and of the torture text, the last two beside another text."""
    out, repeats = tmp_path_factory.mktemp("pages"), inspector.heads(model, n_sequences=4)
    traces = {n: inspector.trace(model, ids=demo_ids(model, n)) for n in (1, 5, 54, 200)}
    traces["torture"] = inspector.trace(model, TORTURE)
    return {name: exploring.save_page(out / f"{name}.html", [trace, *([traces[5]] if name in (200, "torture") else [])],
                                      repeats=repeats) for name, trace in traces.items()}


FIGURES = """() => [...document.querySelectorAll('.x-text, .x-switches, .x-slide, .x-ticks, .x-marks, .x-row, .x-save, '
    + '.x-bar, .x-chart, .x-table')].filter(e => e.checkVisibility()).map(figure =>
  [...figure.querySelectorAll('button, legend, label, .x-ticks span, td, thead th, caption, text, .x-sums, .note')]
    .filter(e => e.checkVisibility() && !e.classList.contains('x-hidden') && !e.querySelector('button, table, label'))
    .map(e => [e, e.getBoundingClientRect()]).filter(([, b]) => b.width > 0 && b.height > 0)
    .map(([e, b]) => ({ text: e.textContent, left: b.left, right: b.right, top: b.top, bottom: b.bottom })))"""
SMALL = """() => { const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) { const e = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || e.closest('script, style, .x-hidden, option')) continue;
    if (!e.checkVisibility()) continue;
    let size = parseFloat(getComputedStyle(e).fontSize);
    const svg = e.closest('svg');
    if (svg) size *= svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    if (size < 9) found.push([e.textContent, size]); }
  return found; }"""
OUTSIDE = """width => [...document.querySelectorAll('.x-explorer *')].filter(e => e.checkVisibility()
    && !e.closest('.x-hidden') && !['OPTION', 'OPTGROUP', 'DATALIST'].includes(e.tagName))
  .map(e => [e.tagName + ' ' + e.className, e.textContent.slice(0, 40), e.getBoundingClientRect()])
  .filter(([, , b]) => b.width > 0 && (b.left < -0.5 || b.right > width + 0.5)).map(([a, t]) => [a, t])"""


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", [1, 5, 54, 200, "torture"])
def test_nothing_overlaps_is_cut_or_too_small(browser, pages, name, width):
    with explorer(browser, pages[name], width=width, scheme="dark" if width == 390 else "light") as page:
        wide = {200: {"other": "t1"}, "torture": {"other": "t1"}}.get(name, {"other": "1.0"})
        for choice in ({"heads": ["1.1"], **wide}, {"shown": "scores", "scale": "log"},
                       {"shown": "values", "scale": "linear"}):
            settle(page, **choice)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(OUTSIDE, width) == []
            assert page.evaluate(SMALL) == []
            for boxes in chromium.much(page, FIGURES):
                assert overlaps(boxes, 1) == []


def test_a_label_of_200_letters_breaks_nothing(browser, model, tmp_path):
    trace = inspector.trace(model, ids=demo_ids(model, 12))
    trace.labels[5] = "x" * 200
    path = exploring.save_page(tmp_path / "long.html", [trace])
    for width in (1280, 390):
        with explorer(browser, path, width=width) as page:
            settle(page, query=5, other="1.0", key=5)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(OUTSIDE, width) == []


def test_no_resizing_loops(browser, pages):
    """Widths from wide to narrow and back: no error of a ResizeObserver, and the grid fits each time."""
    watch = "window.loops = []; addEventListener('error', event => window.loops.push(event.message));"
    with explorer(browser, pages[54], prepare=lambda page: page.add_init_script(watch)) as page:
        for width in (1280, 1001, 999, 701, 699, 390, 320, 1280):
            page.set_viewport_size({"width": width, "height": 700})
            page.wait_for_timeout(60)
            sheet = page.locator(".x-main .x-sheet").bounding_box()
            canvas = page.locator(".x-main .x-sheet canvas").bounding_box()
            assert canvas["width"] == pytest.approx(sheet["width"], abs=1)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("window.loops") == []


# -- tokens ------------------------------------------------------------------------------------------------------------

def test_nothing_of_a_token_runs_and_every_label_is_text(browser, model, pages):
    labels = model.tokenizer.labels(model.tokenizer.encode(TORTURE))
    with explorer(browser, pages["torture"], height=2000) as page:
        scripts = page.evaluate("document.scripts.length")
        for choice in ({}, {"way": "to", "query": 0}, {"other": "1.0"}, {"other": "t1", "shown": "values"}):
            settle(page, **choice)
            shown = page.locator(".x-text button").all_text_contents()
            assert [text.replace("\u200e", "") for text in shown] == [label.replace("\u200e", "") for label in labels]
            assert page.locator(".x-explorer :is(script, img, iframe, b b, object)").count() == 0
        if page.locator(".x-more").inner_text() != "Fewer":
            page.locator(".x-more").click()
        assert page.evaluate("document.scripts.length") == scripts
        cells = page.locator(".x-main .x-cells")
        box = cells.bounding_box()
        for i in range(0, 40, 3):
            cells.hover(position={"x": box["width"] * 0.02, "y": box["height"] * (0.03 + i / 42)})


def test_right_to_left_tokens_stand_in_the_order_of_the_text(browser, pages):
    for width in (1280, 390):
        with explorer(browser, pages["torture"], width=width) as page:
            page.add_style_tag(content=".x-text { max-height: none !important }")
            boxes = page.locator(".x-text li").evaluate_all(
                "all => all.map(e => e.getBoundingClientRect()).map(b => [Math.round((b.top + b.bottom) / 2), b.left])")
        for (above, left), (below, right) in itertools.pairwise(boxes):
            assert (below > above + 4) or (abs(below - above) <= 4 and right > left)


# -- colours -----------------------------------------------------------------------------------------------------------

CONTRAST = """() => { const parse = c => c.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => { const f = x => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  window.ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((m, n) => n - m); return (x + 0.05) / (y + 0.05); };
  const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0.99) return c.slice(0, 3); } return [255, 255, 255]; };
  const found = [], walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) { const e = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || e.closest('script, .x-hidden, option, [disabled]')) continue;
    if (!e.checkVisibility()) continue;
    const style = getComputedStyle(e), ink = parse(e.closest('svg') ? style.fill : style.color);
    const r = ratio(ink, behind(e));
    if (r < 4.5) found.push([e.className || e.tagName, e.textContent.slice(0, 30), r]); }
  return found; }"""
SHADES = """async () => { const { Colours } = await import("inspector/colour.js"), found = [];
  const hex = text => [...text.slice(1)].map(digit => 17 * parseInt(digit, 16));
  const theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const colours = new Colours(explorer.store.bundle, theme);
  for (const scale of ["linear", "sqrt", "log", "signed"]) for (let i = 0; i <= 500; i++) {
    const part = scale === "signed" ? i / 250 - 1 : i / 500, { css, over } = colours.tone(part, scale);
    const r = ratio(hex(over), css.match(/[\\d.]+/g).map(Number));
    if (r < 4.5) found.push([scale, part, r]); }
  return found; }"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(browser, pages, scheme):
    """4.5 to 1 (WCAG 2.2, 1.4.3): all text of the page, and a token's label on every shade it can get."""
    with explorer(browser, pages[54], scheme=scheme) as page:
        for choice in ({"other": "1.0"}, {"shown": "scores"}, {"query": 10, "locked": True, "scale": "linear"}):
            settle(page, **choice)
            assert page.evaluate(CONTRAST) == []
        assert page.evaluate(SHADES) == []


def test_print_is_light_without_switches_and_whole(browser, pages):
    with explorer(browser, pages[200], scheme="dark") as page:
        settle(page, heads=["1.1"], query=150)
        page.emulate_media(media="print", color_scheme="dark")
        page.set_viewport_size({"width": 720, "height": 1000})
        page.wait_for_timeout(150)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
        assert page.locator(".x-controls, .x-save, .x-more, .x-select").evaluate_all(
            "all => all.every(e => !e.checkVisibility())")
        assert page.evaluate("explorer.view.colours.theme") == "light"
        assert page.evaluate("document.documentElement.scrollWidth") <= 720
        assert page.evaluate("(t => t.scrollHeight <= t.clientHeight + 1)(document.querySelector('.x-text'))")
        assert page.evaluate(OUTSIDE, 720) == []
        shades = page.locator(".x-text button").evaluate_all("all => all.map(b => getComputedStyle(b).backgroundColor)")
        assert len(set(shades)) > 10
        page.emulate_media(media="screen", color_scheme="dark")
        page.wait_for_function("explorer.view.colours.theme === 'dark'")


def test_forced_colours_leave_the_shading(browser, pages):
    with explorer(browser, pages[54], forced_colors="active") as page:
        settle(page, heads=["1.1"], query=50)
        assert page.evaluate("matchMedia('(forced-colors: active)').matches")
        for selector, least in ((".x-text button", 10), (".x-strip i", 10), (".x-barcell i", 1)):
            shades = page.locator(selector).evaluate_all("all => all.map(e => getComputedStyle(e).backgroundColor)")
            assert len(set(shades) - {"rgba(0, 0, 0, 0)"}) >= least, selector


def test_nothing_moves_by_itself(browser, pages):
    with explorer(browser, pages[5]) as page:
        assert page.evaluate("document.getAnimations().length") == 0
        assert page.evaluate("[...document.querySelectorAll('*')].map(e => getComputedStyle(e)).every(style => "
                             "style.animationName === 'none' && style.transitionDuration === '0s')")


# -- keyboard and screen readers ---------------------------------------------------------------------------------------

NAMES = """() => [...document.querySelectorAll('.x-explorer :is(button, input, select, a, [tabindex], [role=img])')]
  .filter(e => e.checkVisibility()).map(e => [e.tagName, e.getAttribute('aria-label') || (e.labels?.length ? [...e.labels]
    .map(l => l.textContent).join(' ') : e.textContent)]).filter(([, name]) => !name.trim())"""


def test_every_control_has_a_name_and_every_id_is_its_own(browser, pages):
    with explorer(browser, pages["torture"]) as page:
        for choice in ({}, {"other": "t1", "heads": ["1.1", "2.0"]}):
            settle(page, **choice)
            assert page.evaluate(NAMES) == []
            ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
            assert len(ids) == len(set(ids))
            assert page.evaluate("[...document.querySelectorAll('fieldset')].every(f => f.querySelector('legend'))")
        pressed = page.locator(".x-board [aria-pressed=true]").evaluate_all("all => all.map(b => b.dataset.head)")
        assert pressed == ["1.1", "2.0"]


def test_a_whole_session_by_keyboard_alone(browser, pages):
    """Open a head, choose a token, sharpen, switch, compare, save: by Tab, arrows, Space and Enter; the focus is seen."""
    with explorer(browser, pages[54]) as page:
        def to(selector, most=60):
            for _ in range(most):
                page.keyboard.press("Tab")
                if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                    seen = page.evaluate("(s => s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2)"
                                         "(getComputedStyle(document.activeElement))")
                    assert seen, selector
                    return
            pytest.fail(f"Tab never reaches {selector}")

        to(".x-wall select")
        to(".x-board button")
        for key in ("Home", "ArrowDown", "ArrowRight", "Enter"):
            page.keyboard.press(key)
        settle(page)
        assert state(page)["heads"] == ["1.1"]
        to(".x-save button")
        to(".x-text button")
        for key in ("ArrowLeft", "ArrowLeft", "Enter"):
            page.keyboard.press(key)
        settle(page)
        assert (state(page)["query"], state(page)["locked"]) == (51, True)
        to("input[type=radio][value=from]")
        page.keyboard.press("ArrowRight")
        to("input[type=radio][value=pattern]")
        page.keyboard.press("ArrowRight")
        to("input[type=checkbox]")
        page.keyboard.press("Space")
        to("input[type=number]")
        to("input[type=range]")
        page.keyboard.press("PageUp")
        settle(page)
        found = state(page)
        assert (found["way"], found["shown"], found["first"]) == ("to", "scores", False)
        assert found["beta"] > 1
        to(".x-main .x-cells")
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
            page.keyboard.press(key)
        settle(page)
        assert (state(page)["query"], state(page)["key"]) == (1, 3)            # the other way round: who looks at 1
        to(".x-row button")
        to(".x-compare select")
        page.keyboard.type("0.4")
        settle(page)
        assert state(page)["other"] == "0.4"
        for _ in range(60):
            page.keyboard.press("Shift+Tab")
            if page.evaluate("document.activeElement.textContent") == "Grid as CSV":
                break
        with page.expect_download() as download:
            page.keyboard.press("Enter")
        assert download.value.suggested_filename.startswith("L1H1_scores_sharpness_")


# -- several on a page -------------------------------------------------------------------------------------------------

def test_two_explorers_on_one_page_know_nothing_of_each_other(browser, model, pages, tmp_path):
    """Mounted twice, from two bundles: states, radio buttons and ids apart, and both numbers right."""
    traces = [inspector.trace(model, ids=demo_ids(model, n)) for n in (9, 20)]
    stored = [bundle([trace], [inspector.heads(model, ids=trace.ids.tolist())]) for trace in traces]
    with explorer(browser, pages[5]) as page:
        page.evaluate("""async bundles => { const { mount } = await import("inspector/explorer.js");
          explorer.remove();
          const main = document.querySelector("main");
          window.both = bundles.map(bundle => { const root = document.createElement("div");
            main.append(root);
            return mount(root, bundle); });
          for (const each of both) await each.update({}); }""", json.loads(json.dumps(stored)))
        one, two = page.locator(".x-explorer").nth(0), page.locator(".x-explorer").nth(1)
        one.locator("[data-head='1.1']").click()
        two.locator("[data-head='3.2']").click()
        one.get_by_role("radio", name="scores", exact=True).check()
        two.get_by_role("radio", name="who looks at it").check()
        one.locator(".x-text button").nth(4).click()
        page.evaluate("async () => { for (const each of both) await each.update({}); }")
        states = page.evaluate("both.map(({ state }) => [state.heads[0], state.shown, state.way, state.query])")
        assert states == [
            ["1.1", "scores", "from", 4], ["3.2", "pattern", "to", 19]]
        assert one.get_by_role("radio", name="scores", exact=True).is_checked()
        assert one.get_by_role("radio", name="what it looks at").is_checked()
        assert two.get_by_role("radio", name="pattern", exact=True).is_checked()
        assert two.get_by_role("radio", name="who looks at it").is_checked()
        for at, want in ((0, traces[0].scores[1, 1, 4, :5]), (1, traces[1].pattern[3, 2, 19:, 19])):
            found = numbers(page, f"both[{at}].view.values")
            torch.testing.assert_close(found[~found.isnan()], want.double(), rtol=2 ** -10, atol=5e-3)
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))
        assert page.evaluate("location.hash") == ""


def test_a_notebook_shows_several(browser, model, tmp_path):
    """Two frames as Jupyter shows them in one file: both alive, each its own text, and no link that leads nowhere."""
    shown = [inspector.explore(inspector.trace(model, ids=demo_ids(model, n))) for n in (7, 12)]
    path = tmp_path / "notebook.html"
    path.write_text("<!doctype html><meta charset=utf-8>" + "".join(each._repr_html_() for each in shown), encoding="utf-8")
    assert html.escape("<script") in path.read_text(encoding="utf-8")
    with chromium.opened(browser, path, height=2000) as page:
        frames = [page.frame_locator("iframe").nth(at) for at in (0, 1)]
        for frame, n in zip(frames, (7, 12), strict=True):
            frame.locator("[data-ready]").wait_for()
            assert frame.locator(".x-text button").count() == n
            assert frame.get_by_text("Link to this view").count() == 0
        before = frames[1].locator("h2.x-head").inner_text()
        frames[0].locator("[data-head='3.4']").click()
        frames[0].locator("h2.x-head", has_text="Head 3.4").wait_for()
        assert frames[1].locator("h2.x-head").inner_text() == before != "Head 3.4"


# -- long texts --------------------------------------------------------------------------------------------------------

def test_1024_tokens_open_and_keep_about_a_layer_of_heads(browser, tmp_path):
    """Heads are made one at a time and let go again; the numbers are the library's; the heap stays bounded."""
    model = exploring.sharp(tmp_path / "model", times=1, n_positions=1024)
    ids = torch.randint(97, (1024,), generator=torch.Generator().manual_seed(5)).tolist()
    trace = inspector.trace(model, ids=ids)
    path = exploring.save_page(tmp_path / "page.html", [trace])
    assert path.stat().st_size < 60e6
    with explorer(browser, path, height=1400) as page:
        page.evaluate("document.querySelectorAll('.x-board [data-head]').forEach(head => head.click())")
        settle(page)
        assert page.locator(".x-board [data-head]").count() == 24
        assert state(page)["heads"] == ["1.11"]
        page.locator(".x-text button").nth(700).click()
        settle(page)
        found = numbers(page, "explorer.view.values")[:701]
        error = page.evaluate("explorer.store.bundle.texts[0].error.measured")
        want = trace.scores[1, 11, 700, :701].double().softmax(-1)
        assert float((found - want).abs().max()) <= error / 2 + 1e-6
        for layer, head in itertools.product(range(2), range(12)):
            settle(page, heads=[f"{layer}.{head}"])
        assert 1 <= page.evaluate("explorer.store.heads.size") <= 15
        session = page.context.new_cdp_session(page)
        session.send("HeapProfiler.collectGarbage")
        used = session.send("Runtime.getHeapUsage")
        assert used["usedSize"] + used.get("backingStorageSize", 0) < 250e6
