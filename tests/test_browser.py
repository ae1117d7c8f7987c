"""The pages in Chromium: nothing fetched, nothing run, no label on another, colours as the ramp says, keys that work."""

import dataclasses
import io
import itertools
import math

import numpy as np
import pytest
import torch
from PIL import Image

import inspector
from inspector.findings.in_text import from_trace
from inspector.pages import html, palette, report, tables

from . import browser as chromium
from . import models

pytestmark = pytest.mark.browser

TORTURE = ("a\n\tb   c\r\n \u00a0 日本語 😀 👩‍👩‍👧 مرحبا بالعالم שלום e\u0301 \u202ertl \u200b\x00\x07 "
           "</script><script>alert(1)</script> <b>bold</b> <img src=x onerror=alert(2)> &lt;&amp; $$ $x_1$ <!-- "
           "{{ 7*7 }} \\u003c ' \" internationalization")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Two layers of 12 heads with GPT-2's own tokenizer."""
    tiny = models.tiny_model(vocab_size=50257, n_positions=210, n_embd=24, n_head=12, n_layer=2, bos_token_id=50256)
    return inspector.load(models.true_tokenizer(models.save(tiny, tmp_path_factory.mktemp("model"))))


def ids_of(model, n):
    """n ids with the longest of GPT-2's plain tokens among them, at even and odd places."""
    longest = ["rawdownloadcloneembedreportprint", " externalToEVAOnly", " RandomRedditorWithNo", " unconstitutional"]
    words = [*longest, "The", " cat", " sat", " on", " the", " mat", ",", " telecommunications", " misunderstanding", "\n"]
    ids = [model.tokenizer.encode(word)[0] for word in words]
    return [ids[(5 * i + i // 7) % len(ids)] for i in range(n)]


def write_only_pages(model, ids, repeats, folder, pattern=None, proof=None):
    """The pages of a report without its tables and figures, which no test here opens; returns the folder.

    pattern: what stands in for the model's own; proof: the table of `check`, or None where it is left out.
    """
    traced = inspector.trace(model, ids=ids)
    if pattern is not None:
        traced = dataclasses.replace(traced, pattern=pattern)
    table = tables.token_table(traced.ids, traced.labels, traced.texts, traced.logits, str)
    weights = [report.layer_weights(block) for block in model.weights.blocks]
    in_text = from_trace(model, traced, [(0, 3), (1, 5)])
    folder.mkdir()
    report.write_pages(folder, traced, table, repeats, inspector.heads(model, ids=ids), in_text, proof, weights,
                       report.made_once(traced, weights), report.facts(model, traced, None, table), None)
    return folder


@pytest.fixture(scope="module")
def reports(model, tmp_path_factory):
    """{name: folder}: pages on 5, 30 and 200 tokens and on the torture text; the one on 30 is a whole report."""
    out = tmp_path_factory.mktemp("reports")
    repeats = inspector.heads(model, n_sequences=4)
    texts = {5: ids_of(model, 5), 200: ids_of(model, 200), "torture": model.tokenizer.encode(TORTURE)}
    proofs = {5: inspector.check(model, ids=texts[5])}
    made = {name: write_only_pages(model, ids, repeats, out / str(name), proof=proofs.get(name))
            for name, ids in texts.items()}
    return {**made, 30: inspector.report(model, ids=ids_of(model, 30), out=out / "30", check=False)}


def pages(folder):
    return [folder / "index.html", folder / "layer_00.html", folder / "layer_01.html"]


# Boxes of what is to be read, by figure: axis labels, numbers in cells, ticks of the colour bar, the parts of a token.
BOXES = """() => [...document.querySelectorAll('.plot, .bar, .tokens > li, .links, .arcs, .top')].map(figure =>
  [...figure.querySelectorAll(
      '.label, .value, .bar span, .tokens .token, .loss span, .tokens small, .links :is(th, td), .top :is(a, label, p), '
      + '.arcs > li > :is(.token, .guess, .given, .between)')]
    .filter(e => e.checkVisibility({visibilityProperty: true}))
    .map(e => [e, e.getBoundingClientRect()]).filter(([e, b]) => b.width > 0 && b.height > 0)
    .map(([e, b]) => ({text: e.textContent, left: b.left, right: b.right, top: b.top, bottom: b.bottom,
                       size: parseFloat(getComputedStyle(e).fontSize), kind: e.className || e.tagName})))"""


def overlaps(boxes, least=0.6):
    """Pairs of boxes that share more than `least` pixels both ways."""
    return [(a["text"], b["text"]) for a, b in itertools.combinations(boxes, 2)
            if min(a["right"], b["right"]) - max(a["left"], b["left"]) > least
            and min(a["bottom"], b["bottom"]) - max(a["top"], b["top"]) > least]


# How far axis labels reach out of their figure, in pixels: the first and last may by half a line, none by more.
OVERHANG = """() => [...document.querySelectorAll('.plot .label')].filter(e => e.checkVisibility()).map(e => {
  const a = e.getBoundingClientRect(), b = e.closest('.plot').getBoundingClientRect();
  return Math.max(b.left - a.left, a.right - b.right, b.top - a.top, a.bottom - b.bottom); })"""


def check_layout(page, width):
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert max(chromium.much(page, OVERHANG)) <= 6
    figures = chromium.much(page, BOXES)
    assert sum(map(len, figures)) > 20
    for boxes in figures:
        assert overlaps(boxes) == []
        assert all(box["size"] >= 9 for box in boxes)


def test_the_overlap_test_sees_an_overlap(browser, reports):
    with chromium.opened(browser, reports[5] / "layer_00.html") as page:
        check_layout(page, 1280)
        page.add_style_tag(content=".queries > .label { top: 50% !important }")
        with pytest.raises(AssertionError):
            check_layout(page, 1280)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", [5, 30, 200, "torture"])
def test_no_label_lies_on_another(browser, reports, name, width):
    for path in pages(reports[name])[:2]:
        with chromium.opened(browser, path, width=width, scheme="light" if path.stem == "index" else "dark") as page:
            check_layout(page, width)


@pytest.mark.parametrize(("name", "width"), [(30, 1280), (200, 1280), (200, 700), (30, 390)])
def test_an_enlarged_head_has_no_overlap_and_more_labels(browser, reports, name, width):
    seen = ".map(e => e.querySelectorAll('.label').values().filter(l => l.checkVisibility()).toArray().length)"
    with chromium.opened(browser, reports[name] / "layer_00.html", width=width, fragment="#L0H7") as page:
        check_layout(page, width)
        counts = page.evaluate(f"[...document.querySelectorAll('.plot')]{seen}")
        assert counts[7] >= counts[6]
        if width == 1280:
            assert counts[7] > counts[6]
        page.locator("#L0H7 .close").click() if width > 900 else None


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", [5, 30, 200])
def test_labels_are_thinned_no_more_than_needed(browser, reports, name, width):
    """Every axis names its first token, and as many as fit at one label in PITCH pixels and powers of two."""
    with chromium.opened(browser, reports[name] / "layer_00.html", width=width) as page:
        side, shown = page.evaluate("""() => { const plot = document.querySelector('.plot');
          return [plot.querySelector('.cells').getBoundingClientRect().width,
                  [...plot.querySelectorAll('.keys .label')].filter(e => e.checkVisibility()).length]; }""")
    step = next(2 ** k for k in range(12) if side / name * 2 ** k >= html.PITCH)
    assert shown == math.ceil(name / step)
    assert side >= 220


def test_labels_stand_outside_the_grid_and_beside_their_row(browser, reports):
    with chromium.opened(browser, reports[30] / "layer_00.html") as page:
        found = page.evaluate("""() => { const box = e => {
            const b = e.getBoundingClientRect(); return [b.left, b.right, b.top, b.bottom]; };
          const plot = document.querySelector('.plot');
          return [box(plot.querySelector('.cells')), [...plot.querySelectorAll('.queries .label')].map(box),
                  [...plot.querySelectorAll('.keys .label')].map(box)]; }""")
    (left, right, top, bottom), queries, keys = found
    assert len(queries) == len(keys) == 30
    for i, (a, b) in enumerate(zip(queries, keys, strict=True)):
        if i % 2 == 0:                   # odd ones are left out at this size
            assert (a[2] + a[3]) / 2 == pytest.approx(top + (i + 0.5) / 30 * (bottom - top), abs=0.6)
            assert (b[0] + b[1]) / 2 == pytest.approx(left + (i + 0.5) / 30 * (right - left), abs=0.6)
            assert a[1] <= left
            assert b[3] <= top


def test_nothing_of_a_token_runs_or_becomes_markup(browser, reports, model):
    """The labels arrive as text; the only scripts and images are the page's own."""
    labels = model.tokenizer.labels(model.tokenizer.encode(TORTURE))
    for path in pages(reports["torture"]):
        with chromium.opened(browser, path) as page:
            assert page.evaluate("[...document.scripts].length") == 2
            assert page.evaluate("[...document.images].filter(i => !i.src.startsWith('data:')).length") == 0
            assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
            assert page.evaluate("JSON.parse(document.getElementById('page-data').textContent).labels") == labels
            if path.stem == "index":
                shown = page.evaluate("[...document.querySelectorAll('.tokens header .token')].map(e => e.textContent)")
                assert [text.replace("\u200e", "") for text in shown] == labels
                assert "</script><script>alert(1)</script>" in page.locator("h1").text_content()


def test_right_to_left_tokens_stand_in_the_order_of_the_text(browser, reports):
    with chromium.opened(browser, reports["torture"] / "index.html") as page:
        tops = page.evaluate("""() => [...document.querySelectorAll('.tokens > li')].map(e =>
          { const b = e.getBoundingClientRect(); return [Math.round(b.top), b.left]; })""")
    assert tops == sorted(tops)
    with chromium.opened(browser, reports["torture"] / "layer_00.html") as page:
        # A part mark stays right of an Arabic letter: the letter's own box lies left of the mark's.
        order = page.evaluate("""() => { const label = [...document.querySelectorAll('.queries .label')].find(e =>
            /^[\\u0600-\\u06ff]/.test(e.textContent) && e.textContent.includes('['));
          label.style.display = 'block'; label.style.maxWidth = 'none';
          const at = (from, to) => { const r = document.createRange(); r.setStart(label.firstChild, from);
            r.setEnd(label.firstChild, to); return r.getBoundingClientRect().left; };
          const mark = label.textContent.indexOf('[');
          return [at(0, 1), at(mark, mark + 1), label.textContent]; }""")
    assert order[0] < order[1], order


def trace_pattern(model, n):
    return inspector.trace(model, ids=ids_of(model, n)).pattern


def test_choosing_a_scale_leaves_the_page_where_it_is(browser, reports):
    """By its word and by its circle: the bar is always in sight, so nothing has to scroll to it."""
    with chromium.opened(browser, reports[30] / "layer_01.html") as page:
        for target in ("label:has(#scale-linear)", "#scale-sqrt", "label:has(#scale-linear)"):
            page.evaluate("window.scrollTo(0, 600)")
            page.click(target, position=None if target.startswith("#") else {"x": 30, "y": 8})
            page.wait_for_timeout(50)
            assert page.evaluate("window.scrollY") == 600
        assert page.is_checked("#scale-linear")


def test_pointer_and_keys_read_a_cell(browser, reports, model):
    pattern = trace_pattern(model, 30)
    with chromium.opened(browser, reports[30] / "layer_01.html") as page:
        cells, readout = page.locator("#grid-L1H3 .cells"), page.locator("#L1H3 .readout")
        box = cells.bounding_box()
        for query, key in ((29, 0), (17, 16), (8, 3)):
            cells.hover(position={"x": (key + 0.5) / 30 * box["width"], "y": (query + 0.5) / 30 * box["height"]})
            shown = readout.text_content()
            assert f"” {query} → “" in shown
            assert float(shown.split("≈")[1]) == pytest.approx(float(pattern[1, 3, query, key]), abs=0.0091)
        cells.hover(position={"x": box["width"] - 2, "y": 2})
        assert "masked" in readout.text_content()

        cells.focus()
        for key in ["ArrowLeft"] * 27 + ["ArrowUp"] + ["ArrowDown"] * 6:
            page.keyboard.press(key)
        shown = readout.text_content()
    labels = [label.removeprefix("·") for label in model.tokenizer.labels(ids_of(model, 30))]
    assert shown.startswith(f"“{labels[6]}” 6 → “{labels[2]}” 2")
    assert float(shown.split("≈")[1]) == pytest.approx(float(pattern[1, 3, 6, 2]), abs=0.0091)


def test_score_maps_read_exact_numbers(browser, reports, model):
    table = inspector.heads(model, ids=ids_of(model, 30))
    with chromium.opened(browser, reports[30] / "index.html") as page:
        cells = page.locator("#text-first_token .cells")
        box = cells.bounding_box()
        cells.hover(position={"x": 4.5 / 12 * box["width"], "y": 1.5 / 2 * box["height"]})
        shown = page.locator("figure:has(#text-first_token) .readout").text_content().split()
    want = table[(table["layer"] == 1) & (table["head"] == 4)]["first_token"].item()
    assert shown[0] == "1.4"
    assert float(shown[1]) == pytest.approx(want, abs=0.00051)


def test_what_is_read_is_not_rounded_to_none_or_to_all(browser, model, tmp_path):
    """In cells, links, under the pointer and in the maps."""
    pattern = torch.eye(4).repeat(2, 12, 1, 1)
    pattern[0, 0] = torch.tensor([[1, 0, 0, 0], [0.004, 0.996, 0, 0], [0.002, 0.996, 0.002, 0], [0.9, 0, 0.05, 0.05]])
    repeats = inspector.heads(model, n_sequences=2)
    repeats.loc[[0, 1, 2, 3], "induction"] = [0.99998, 0.00002, 1.0, 0.0]
    folder = write_only_pages(model, ids_of(model, 4), repeats, tmp_path / "pages", pattern)
    with chromium.opened(browser, folder / "layer_00.html") as page:
        assert page.locator("#grid-L0H0 .value.for-weights").all_text_contents() == [
            "1", "<.01", ">.99", "<.01", ">.99", "<.01", ".90", "0", ".05", ".05"]
        assert page.locator("#L0H0 .links.for-weights td.by").all_text_contents() == [">0.99", "0.05"]
        cells, read = page.locator("#grid-L0H0 .cells"), []
        side = cells.bounding_box()["width"] / 4
        for row, column in ((1, 0), (3, 1), (3, 2)):
            cells.hover(position={"x": (column + 0.5) * side, "y": (row + 0.5) * side})
            read.append(page.locator("#L0H0 .readout b").text_content())
        assert read == ["<0.01", "≈ 0.00", "≈ 0.05"]
    with chromium.opened(browser, folder / "index.html") as page:
        cells, read = page.locator("#repeats-induction .cells"), []
        box = cells.bounding_box()
        for head in range(4):
            cells.hover(position={"x": (head + 0.5) / 12 * box["width"], "y": box["height"] / 4})
            read.append(page.locator("figure:has(#repeats-induction) .readout b").text_content())
    assert read == [">0.999", "<0.001", "1.000", "0.000"]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", [30, "torture"])
def test_links_are_shown_whole(browser, reports, name, width):
    """Both labels of every link, their positions and the numbers: nothing cut off, nothing behind the weight."""
    for path in pages(reports[name])[1:]:
        with chromium.opened(browser, path, width=width) as page:
            cut, behind, n = page.evaluate("""() => { const rows = [...document.querySelectorAll('.links tbody tr')];
              const links = rows.filter(e => e.checkVisibility());
              const parts = links.flatMap(e => [e, ...e.querySelectorAll('*')]);
              const box = e => e.getBoundingClientRect();
              const outside = link => [...link.querySelectorAll('.pair *')].some(
                e => box(e).left < box(link).left || box(e).right > box(link.querySelector('td')).left);
              return [parts.filter(e => e.scrollWidth > e.clientWidth && getComputedStyle(e).display !== 'inline'
                                        || e.scrollHeight > e.clientHeight && getComputedStyle(e).overflowY !== 'visible')
                           .map(e => e.textContent),
                      links.filter(outside).map(e => e.textContent), links.length]; }""")
            assert (cut, behind) == ([], [])
            assert n > 100


@pytest.mark.parametrize("width", [1280, 390])
def test_the_proof_is_in_sight_without_scrolling(browser, reports, width):
    """Both parts, every column to the verdict; also with the longest of verdicts and differences."""
    with chromium.opened(browser, reports[5] / "index.html", width=width) as page:
        page.evaluate("""() => { for (const row of document.querySelectorAll('.proofs tbody tr')) {
          ['99,999', '1.0e-100', '1.0e-10', '>99 %'].forEach((text, i) => row.cells[i + 1].textContent = text); } }""")
        assert page.locator(".proofs caption").all_text_contents() == ["formula", "rounding"]
        cells = page.evaluate("""() => [...document.querySelectorAll('.proofs :is(td, th)')].map(e => {
          const range = document.createRange(), b = (range.selectNodeContents(e), range.getBoundingClientRect());
          return {text: e.textContent, left: b.left, right: b.right, top: b.top, bottom: b.bottom}; })""")
        verdicts = page.locator(".proofs td:last-child").all_text_contents()
        assert page.evaluate("[...document.querySelectorAll('#proof *')].every(e => e.scrollWidth <= e.clientWidth "
                             "|| getComputedStyle(e).display === 'inline')")
    assert verdicts == ["passed"] * 20
    assert len(cells) == 2 * 6 * 11
    assert all(0 <= cell["left"] < cell["right"] <= width for cell in cells)
    assert overlaps(cells) == []


# -- value-weighted --------------------------------------------------------------------------------------------------

IN_SIGHT = """() => Object.fromEntries(['weights', 'values'].map(kind =>
  [kind, [...document.querySelectorAll('.for-' + kind)].filter(e => e.checkVisibility()).length]))"""


def weighted_pattern(model, n, layer):
    """Value-weighted cells of one layer, [head, query, key], with the vector of every key kept: another route."""
    traced = inspector.trace(model, ids=ids_of(model, n))
    vectors = torch.einsum("hjd,hdm->hjm", traced.v[layer].double(), model.weights.blocks[layer].W_O.double())
    return traced.pattern[layer].double() * vectors.norm(dim=-1)[:, None, :]


@pytest.mark.parametrize("javascript", [True, False])
@pytest.mark.parametrize("name", ["index.html", "layer_00.html"])
def test_the_switch_works_by_keyboard_for_every_grid_of_a_page(browser, reports, name, javascript):
    """At first the pattern stands; an arrow key turns all grids, their lists and the bar over, and back."""
    with chromium.opened(browser, reports[5] / name, java_script_enabled=javascript) as page:
        first = page.evaluate(IN_SIGHT)
        assert first["weights"] > 2
        assert first["values"] == 0
        page.focus("#shown-weights")
        page.keyboard.press("ArrowRight")
        second = page.evaluate(IN_SIGHT)
        assert second["weights"] == 0
        assert second["values"] >= first["weights"]
        images = page.evaluate("[...document.querySelectorAll('.cells, .strips a')].map(e => "
                               "[...e.querySelectorAll('img')].filter(i => i.checkVisibility()).length)")
        assert set(images) == {1}
        page.keyboard.press("ArrowLeft")
        assert page.evaluate(IN_SIGHT) == first


@pytest.mark.parametrize(("name", "width"), [(5, 1280), (30, 390), (200, 1280), ("torture", 390)])
def test_value_weighted_pages_have_no_overlap(browser, reports, name, width):
    for path in pages(reports[name])[:2]:
        with chromium.opened(browser, path, width=width) as page:
            height = page.locator(".top").bounding_box()["height"]
            page.check("#shown-values")
            check_layout(page, width)
            assert page.locator(".top").bounding_box()["height"] == height          # nothing below the bar moves


def test_a_value_weighted_cell_is_read_in_its_own_measure(browser, reports, model):
    weighted = weighted_pattern(model, 30, 1)
    largest = float(weighted.max())
    with chromium.opened(browser, reports[30] / "layer_01.html") as page:
        page.check("#shown-values")
        for head in (3, 7):
            cells, readout = page.locator(f"#grid-L1H{head} .cells"), page.locator(f"#L1H{head} .readout b")
            box = cells.bounding_box()
            for query, key in (divmod(int(i), 30) for i in weighted[head].flatten().topk(3).indices):
                cells.hover(position={"x": (key + 0.5) / 30 * box["width"], "y": (query + 0.5) / 30 * box["height"]})
                want, shown = float(weighted[head, query, key]), readout.text_content()
                allowed = (want * largest) ** 0.5 / 255 + 0.006 * largest
                assert want > 1.5
                assert float(shown.removeprefix("≈ ")) == pytest.approx(want, abs=allowed)
        page.check("#shown-weights")
        cells.hover(position={"x": 0.5 / 30 * box["width"], "y": 0.5 / 30 * box["height"]})
        assert readout.text_content() == "≈ 1.00"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_value_weighted_colours_are_those_of_the_ramp(browser, reports, model, scheme):
    weighted = weighted_pattern(model, 30, 0)
    parts = weighted[2] / weighted.max()
    picked = [divmod(int(i), 30) for i in parts.flatten().sort(descending=True).indices[[0, 3, 30, 80]]]
    with chromium.opened(browser, reports[30] / "layer_00.html", scheme=scheme, height=2400) as page:
        page.check("#shown-values")
        for row, column in picked:
            want = palette.colour(scheme, float(parts[row, column]) ** 0.5)
            assert pixel(page, "#grid-L0H2 .cells", row, column, 30, 30) == pytest.approx(np.array(want), abs=0.025)


def test_what_is_shown_is_printed(browser, reports):
    with chromium.opened(browser, reports[5] / "layer_00.html", scheme="dark") as page:
        page.check("#shown-values")
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate(IN_SIGHT)["weights"] == 0
        assert page.locator(".bar.sqrt.for-values").is_visible()
        assert "the layer's largest" in page.locator(".bar-note").inner_text()


# -- induction in this text ------------------------------------------------------------------------------------------

ARCS = """() => [...document.querySelectorAll('.arc:not(.self)')].map(arc => { const b = arc.getBoundingClientRect();
  const middle = line => { const t = document.querySelector(`[data-line="${line}"] > .token`).getBoundingClientRect();
    return (t.top + t.bottom) / 2; };
  return {top: b.top - middle(arc.dataset.to), bottom: b.bottom - middle(arc.parentElement.dataset.line), left: b.left,
          right: b.right, edge: document.querySelector('.arcs li:not(.head) > .token').getBoundingClientRect().left,
          opacity: Number(getComputedStyle(arc).opacity), strength: Number(arc.style.getPropertyValue('--strength'))}; })"""


@pytest.mark.parametrize(("name", "width", "least"), [(200, 1280, 20), (200, 390, 20), ("torture", 390, 1)])
def test_arcs_end_at_their_tokens(browser, reports, name, width, least):
    """The upper end at what followed, the lower at the token, beside its words and inside the page; also without script."""
    with chromium.opened(browser, reports[name] / "index.html", width=width, java_script_enabled=False) as page:
        arcs = chromium.much(page, ARCS)
    assert len(arcs) >= least
    for arc in arcs:
        assert abs(arc["top"]) <= 2
        assert abs(arc["bottom"]) <= 2
        assert 0 <= arc["left"] < arc["right"] <= arc["edge"]
        assert arc["opacity"] == pytest.approx(0.12 + 0.88 * arc["strength"], abs=0.01)


def lit(page):
    """[(line, line it leads to)] of the arcs that are not faint."""
    return page.evaluate("""() => [...document.querySelectorAll('.arc')].filter(a => getComputedStyle(a).opacity > 0.07)
      .map(a => [Number(a.parentElement.dataset.line), Number(a.dataset.to)])""")


@pytest.mark.parametrize("way", ["hover", "focus", "without script"])
def test_a_token_lights_its_arcs(browser, reports, way):
    """Pointed at or focused: those that leave it and those that reach it, no other; without script those that leave it."""
    with chromium.opened(browser, reports[200] / "index.html", java_script_enabled=way != "without script") as page:
        every = lit(page)
        line = next(to for line, to in every if any(other == to for other, _ in every))
        token = page.locator(f'[data-line="{line}"] > .token')
        token.focus() if way == "focus" else token.hover()
        own = [ends for ends in every if (ends[0] == line if way == "without script" else line in ends)]
        assert 0 < len(own) < len(every)
        assert lit(page) == own
        if way == "hover":
            page.hover("h1")
            assert lit(page) == every


def test_a_token_leads_to_its_row_also_in_the_fold(browser, reports):
    with chromium.opened(browser, reports[200] / "index.html") as page:
        folded = page.locator("details .places tr").last.get_attribute("id")
        inside = page.evaluate("[...document.querySelectorAll('.arcs a')].map(a => a.hash.slice(1)).filter(id => "
                               "document.querySelector('details').contains(document.getElementById(id)))")
        assert not page.locator(f"#{folded}").is_visible()
        page.locator(f".arcs a[href='#{inside[0]}']").click()
        assert page.locator(f"#{inside[0]}").is_visible()


@pytest.mark.parametrize("scale", ["sqrt", "linear"])
def test_the_ticks_of_the_colour_bar_stand_apart(browser, reports, scale):
    with chromium.opened(browser, reports[5] / "layer_00.html", width=390) as page:
        page.locator(f"#scale-{scale}").check()
        edges = page.evaluate(f"""() => [...document.querySelectorAll('.bar.{scale} span')]
          .filter(e => e.checkVisibility()).map(e => e.getBoundingClientRect()).map(b => [b.left, b.right])""")
    assert min(right[0] - left[1] for left, right in itertools.pairwise(edges)) >= 4


def pixel(page, selector, row, column, rows, columns):
    """The colour in the middle of a cell as the screen shows it, 0..1."""
    box = page.locator(selector).bounding_box()
    png = page.screenshot(clip={"x": box["x"] + (column + 0.5) / columns * box["width"],
                                "y": box["y"] + (row + 0.5) / rows * box["height"], "width": 1, "height": 1})
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))[0, 0] / 255


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_are_those_of_the_ramp(browser, reports, model, scheme):
    """The same picture in light and dark, on a square-root and a linear scale."""
    pattern = trace_pattern(model, 30)[0, 2].clone()
    picked = [divmod(int(i), 30) for i in pattern.flatten().sort(descending=True).indices[[0, 3, 30, 80, 200]]]
    with chromium.opened(browser, reports[30] / "layer_00.html", scheme=scheme, height=2400) as page:
        for scale in ("sqrt", "linear"):
            page.locator(f"#scale-{scale}").check()
            for row, column in picked:
                weight = float(pattern[row, column])
                want = palette.colour(scheme, weight ** 0.5 if scale == "sqrt" else weight)
                assert pixel(page, "#grid-L0H2 .cells", row, column, 30, 30) == pytest.approx(np.array(want), abs=0.025)


def test_print_is_light_whatever_the_screen(browser, reports, model):
    pattern = trace_pattern(model, 30)[0, 0]
    with chromium.opened(browser, reports[30] / "layer_00.html", scheme="dark", height=2400) as page:
        page.emulate_media(media="print", color_scheme="dark")
        want = palette.colour("light", float(pattern[0, 0]) ** 0.5)
        assert pixel(page, "#grid-L0H0 .cells", 0, 0, 30, 30) == pytest.approx(np.array(want), abs=0.025)
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_masked_cells_are_marked(browser, reports):
    """Above the diagonal the hatching shows: more than one colour inside one masked cell, unlike any other cell."""
    with chromium.opened(browser, reports[5] / "layer_00.html", height=2400) as page:
        box = page.locator("#grid-L0H0 .cells").bounding_box()
        side = box["width"] / 5

        def colours(row, column):
            png = page.screenshot(clip={"x": box["x"] + column * side + 6, "y": box["y"] + row * side + 4,
                                        "width": side - 12, "height": 8})
            return len(Image.open(io.BytesIO(png)).convert("RGB").getcolors())

        page.add_style_tag(content=".value { display: none !important }")
        assert colours(0, 4) > 1
        assert colours(0, 1) > 1
        assert colours(4, 0) == colours(2, 2) == 1


def test_pages_work_without_script(browser, reports):
    with chromium.opened(browser, reports[30] / "layer_00.html", java_script_enabled=False) as page:
        assert page.locator(".plot").count() == 12
        assert page.locator("#grid-L0H0 .cells img.for-weights").bounding_box()["width"] > 200


def test_every_link_leads_somewhere(browser, reports):
    """Every address in every page is a file of the report or a place in a page, and every page is reached."""
    folder, reached = reports[30], set()
    for path in pages(folder):
        with chromium.opened(browser, path) as page:
            for href in page.evaluate("[...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href'))"):
                file, _, place = href.partition("#")
                reached.add(file)
                assert not file or (folder / file).is_file(), href
                if place and not file:
                    assert page.locator(f"[id='{place}']").count() == 1, href
    written = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert written - reached == set()


def test_headings_and_names_for_those_who_cannot_see(browser, reports):
    for path in pages(reports[5]):
        with chromium.opened(browser, path) as page:
            assert page.locator("h1").count() == 1
            names = page.evaluate("[...document.querySelectorAll('[role=img]')].map(e => e.getAttribute('aria-label'))")
            assert all(len(name) > 5 for name in names)
            assert page.evaluate("[...document.images].every(i => i.hasAttribute('alt'))")
            ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
            assert len(ids) == len(set(ids))
            assert page.evaluate("document.documentElement.lang") == "en"


def test_a_dense_pattern_of_200_tokens_stays_light(reports):
    sizes = {path.name: path.stat().st_size for path in pages(reports[200])}
    assert max(sizes.values()) < 1_000_000, sizes
