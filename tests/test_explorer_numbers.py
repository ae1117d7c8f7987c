"""The explorer's numbers in Chromium: every cell within what the page states, at every sharpness and text length."""

import math

import numpy as np
import pandas
import pytest
import torch

import inspector
from inspector.findings.values import value_weighted

from . import exploring
from .exploring import cell, demo_ids, explorer, numbers, settle

pytestmark = pytest.mark.browser

LENGTHS = {"demo": [1, 2, 5, 64, 200, 256], "mild": [257, 512], "sharp": [2, 64, 256, 257]}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The demo model (trained, up to 256 tokens) and two random ones, whose scores are of size 4 and span more than +-60."""
    return {"demo": inspector.load("demo"),
            "mild": exploring.sharp(tmp_path_factory.mktemp("mild"), times=0.4, n_positions=1024),
            "sharp": exploring.sharp(tmp_path_factory.mktemp("sharp"), times=1.6, n_positions=1024)}


@pytest.fixture(scope="module")
def made(loaded, tmp_path_factory):
    """A function (model, tokens) -> (trace, page), each made once."""
    out, known = tmp_path_factory.mktemp("explorers"), {}

    def make(name, n):
        if (name, n) not in known:
            model = loaded[name]
            ids = demo_ids(model, n) if name == "demo" else torch.randint(
                97, (n,), generator=torch.Generator().manual_seed(n)).tolist()
            trace = inspector.trace(model, ids=ids)
            known[name, n] = trace, exploring.save_page(out / f"{name}{n}.html", [trace])
        return known[name, n]

    return make


def drawn_cells(trace, count=200, seed=0):
    """Random (head, query, key, beta), the head as 5.1: a page has no other name for it."""
    generator, n = torch.Generator().manual_seed(seed), len(trace.labels)
    betas = [0, 0.25, 0.5, 1, math.sqrt(trace.model.config.d_head), 8, 30]

    def pick(most):
        return int(torch.randint(most, (1,), generator=generator))

    found = []
    for _ in range(count):
        query = pick(n)
        found.append((f"{pick(trace.model.config.n_layer)}.{pick(trace.model.config.n_head)}", query, pick(query + 1),
                      betas[pick(len(betas))]))
    return found


def scores_of(trace, head):
    """[query, key], float64, -inf above the diagonal."""
    layer, place = map(int, head.split("."))
    return trace.scores[layer, place].double()


def stored_error(page):
    return page.evaluate("({ kind: explorer.store.bundle.texts[0].kind, ...explorer.store.bundle.texts[0].error })")


def stated(page, beta):
    """How far the page says its weights can be off at a sharpness; the rest is that it shows numbers of single precision."""
    error = stored_error(page)
    return (error["bound"] if error["kind"] == "log" else beta * error["measured"] / 2) + 1e-6


READ = """async cells => { const { row } = await import("inspector/grids.js"), found = [];
  for (const [head, query, key, beta] of cells) {
    found.push(row(await explorer.store.head(0, head), query, { beta, first: true, self: true })[key]);
  }
  return found; }"""
ACT = """async cells => { const found = [];
  for (const [head, query, key, beta] of cells) {
    await explorer.update({ heads: [head], query, key, beta });
    const { values, grid } = explorer.view;
    found.push([values[key], grid.values[query * grid.n + key]]);
  }
  return found; }"""


@pytest.mark.parametrize(("name", "n"), [(name, n) for name, lengths in LENGTHS.items() for n in lengths])
def test_cells_are_the_library_s_at_every_sharpness(browser, made, name, n):
    """200 of them by what the page computes with, each tenth also as the text and the grid show it."""
    trace, path = made(name, n)
    cells = drawn_cells(trace)
    want = [float((beta * scores_of(trace, head)[query, :query + 1]).softmax(-1)[key]) for head, query, key, beta in cells]
    with explorer(browser, path) as page:
        allowed = [stated(page, beta) for *_, beta in cells]
        for drawn, each, found, most in zip(cells, want, page.evaluate(READ, cells), allowed, strict=True):
            assert abs(found - each) <= most, (drawn, found, each)
        for drawn, each, found, most in zip(cells[::10], want[::10], page.evaluate(ACT, cells[::10]), allowed[::10],
                                            strict=True):
            assert found == pytest.approx([each, each], abs=most), drawn


def test_the_stated_error_is_what_half_precision_costs(browser, made):
    """Logarithms: below 1e-3 at any sharpness, about 1e-4 at 1; q and k: below 2e-3 at 1. In words, rounded up."""
    spans = {name: scores_of(made(name, 257)[0], "1.3").nan_to_num(neginf=0).abs().max() for name in ("mild", "sharp")}
    assert spans["mild"] < 15
    assert spans["sharp"] > 60
    with explorer(browser, made("mild", 257)[1]) as page:
        error, note = stored_error(page), page.locator(".x-row .note").text_content()
    assert error["kind"] == "qk"
    assert error["measured"] / 2 < 2e-3
    assert float(note.split("within ")[1].split(" ×")[0]) >= error["measured"] / 2
    with explorer(browser, made("demo", 256)[1]) as page:
        error, note = stored_error(page), page.locator(".x-row .note").text_content()
    assert error["bound"] < 1e-3
    assert error["measured"] < 2e-4
    said = [float(word.strip(":;)")) for word in note.replace("(", " ").split() if "e-" in word]
    assert said[0] == pytest.approx(error["bound"], rel=0.5)
    assert said[0] >= error["bound"]
    assert said[1] >= error["measured"]


@pytest.mark.parametrize("n", [1, 2, 64])
def test_what_is_shown_by_gesture_is_the_library_s(browser, made, n):
    """A click on a head of the wall, a click on a token, the field of the sharpness: then the row's table and the grid."""
    trace, path = made("demo", n)
    with explorer(browser, path, height=1400) as page:
        for head, query, key, beta in drawn_cells(trace, 8, seed=1):
            page.locator(f".x-board [data-head='{head}']").click()
            page.locator(".x-text button").nth(query).click()
            if not exploring.state(page)["locked"]:
                page.locator(".x-text button").nth(query).click()
            page.get_by_label("Sharpness as a number").fill(str(beta))
            page.keyboard.press("Enter")
            settle(page)
            weights = (float(beta) * scores_of(trace, head)[query, :query + 1]).softmax(-1)
            most = stated(page, beta) + 6e-5                       # four decimals
            shown = {int(row.split("\t")[0]): row.split("\t")[1] for row in page.evaluate(
                "[...document.querySelectorAll('.x-row tbody tr')].map(r => r.querySelector('sup').textContent + '\t' + "
                "r.cells[1].textContent)")}
            assert len(shown) == min(query + 1, 12)
            for place, text in shown.items():
                assert float(text.strip("<>")) == pytest.approx(float(weights[place]), abs=most + 4e-5)
            page.locator(".x-main .x-cells").hover(position=cell(page, query, key))
            read = page.locator(".x-main .x-plot .x-readout")
            assert f"” {query} → “" in read.text_content()
            assert float(read.locator("b").text_content().strip("<>")) == pytest.approx(float(weights[key]), abs=most + 4e-5)


def test_entropy_and_top_weight_are_those_of_the_row(browser, made):
    """Entropy as far as rounding lets it: its derivative with respect to each score times that score's rounding."""
    trace, path = made("demo", 64)
    with explorer(browser, path) as page:
        for head, query, _, beta in drawn_cells(trace, 12, seed=2):
            settle(page, heads=[head], query=query, beta=beta)
            scores = beta * scores_of(trace, head)[query, :query + 1]
            p = scores.softmax(-1)
            entropy = float(-torch.xlogy(p, p).sum())
            slack = float((p * (p.clamp_min(1e-300).log() + entropy) * (scores - scores.max())).abs().sum()) * 2 ** -11
            assert float(page.locator(".x-entropy").text_content()) == pytest.approx(entropy, abs=6e-4 + slack)
            assert float(page.locator(".x-top").text_content().strip("<>")) == pytest.approx(
                float(p.max()), abs=2e-3 + stated(page, beta))


HEADS = [(0, 3), (1, 2), (2, 5)]


def expected(trace, heads, *, shown="pattern", merge="mean", beta=1.0, first=True, self=True):
    """The grid of heads as the library has it: [query, key], float64, NaN where masked or left out."""
    n = len(trace.labels)
    out = torch.ones(n, n).triu(1).bool()
    out[:, 0] |= not first
    out |= torch.eye(n).bool() & (not self)
    grids = []
    for layer, head in heads:
        scores = (beta * trace.scores[layer, head].double()).masked_fill(out, -math.inf)
        grid = scores if shown == "scores" else scores.softmax(-1)
        if shown == "values":
            W_O = trace.model.weights.blocks[layer].W_O[head].double()
            grid = value_weighted(grid[None], trace.v[layer, head, None].double(), W_O[None])[0]
        grids.append(grid.masked_fill(out, math.nan))
    grids = torch.stack(grids)
    return grids.amax(0) if merge == "max" else grids.mean(0)


CHOICES = [{}, {"shown": "scores"}, {"shown": "values"}, {"first": False}, {"self": False}, {"first": False, "self": False},
           {"beta": 2.5, "first": False, "shown": "values"}, {"shown": "scores", "beta": 0.5, "self": False},
           {"merge": "max"}, {"merge": "max", "shown": "values"}, {"merge": "mean", "shown": "scores"}]


@pytest.mark.parametrize("heads", [HEADS[:1], HEADS], ids=["one", "three"])
def test_grids_and_their_rows_and_columns_are_the_library_s(browser, made, heads):
    """What is shown, what is left out (the rest renormalised), mean and max, and the direction: whole grids."""
    trace, path = made("demo", 64)
    norms = max(float((trace.v[layer, head] @ trace.model.weights.blocks[layer].W_O[head]).norm(dim=-1).max())
                for layer, head in heads)
    reach = max(float((scores.amax(-1, keepdim=True) - scores).masked_fill(scores.isinf(), 0).max())
                for scores in (trace.scores[layer, head] for layer, head in heads))
    with explorer(browser, path) as page:
        error = stated(page, 1)
        for choice in CHOICES:
            settle(page, heads=[f"{layer}.{head}" for layer, head in heads], query=40, way="from",
                   **{"shown": "pattern", "merge": "mean", "beta": 1, "first": True, "self": True, **choice})
            want = expected(trace, heads, **choice)
            grid = numbers(page, "explorer.view.grid.values").view(64, 64)
            allowed = {"pattern": error, "values": error * norms, "scores": 2 ** -11 * reach}[choice.get("shown", "pattern")]
            torch.testing.assert_close(grid, want, rtol=1e-6, atol=allowed, equal_nan=True)
            torch.testing.assert_close(numbers(page, "explorer.view.values"), grid[40], rtol=0, atol=0, equal_nan=True)
            settle(page, way="to")
            torch.testing.assert_close(numbers(page, "explorer.view.values"), grid[:, 40], rtol=0, atol=0, equal_nan=True)


def test_the_library_itself_renormalises_as_here():
    """By hand: weights 1/2, 1/4, 1/4 without the first are 1/2 and 1/2; without the query itself 2/3 and 1/3."""
    scores = torch.tensor([[0.0, -math.inf, -math.inf], [0, 0, -math.inf], [math.log(2), 0, 0]])[None, None]

    class Model:
        weights = None

    class Trace:
        labels, model = ["a", "b", "c"], Model
    Trace.scores = scores
    without_first = expected(Trace, [(0, 0)], first=False)[2]
    without_self = expected(Trace, [(0, 0)], self=False)[2]
    torch.testing.assert_close(without_first[1:], torch.tensor([0.5, 0.5], dtype=torch.float64))
    torch.testing.assert_close(without_self[:2], torch.tensor([2 / 3, 1 / 3], dtype=torch.float64))


def test_the_exact_weights_are_those_of_attention_csv(browser, loaded, tmp_path):
    """A whole report's file and its explorer: the same float32 for every cell of a row and of a column."""
    model = loaded["demo"]
    folder = inspector.report(model, ids=demo_ids(model, 30), out=tmp_path / "report", check=False)
    table = pandas.read_csv(folder / "tables" / "attention.csv")
    with explorer(browser, folder / "explorer.html") as page:
        for head, query, way in (("1.2", 29, "from"), ("3.5", 17, "from"), ("0.0", 4, "to"), ("2.1", 0, "to")):
            settle(page, heads=[head], query=query, way=way)
            if page.locator(".x-more").is_visible() and page.locator(".x-more").text_content() != "Fewer":
                page.locator(".x-more").click()
            shown = {int(place): np.float32(text) for place, text in page.evaluate(
                "[...document.querySelectorAll('.x-row tbody tr')].map(r => [r.querySelector('sup').textContent, "
                "r.querySelector('.x-exact').textContent])")}
            layer, place = map(int, head.split("."))
            own = table[(table["layer"] == layer) & (table["head"] == place)
                        & (table["query" if way == "from" else "key"] == query)]
            want = own.set_index("key" if way == "from" else "query")["weight"].astype(np.float32).to_dict()
            assert shown == want
            assert len(shown) == (query + 1 if way == "from" else 30 - query)
        settle(page, beta=2)
        assert page.locator(".x-exact").count() == 0           # an exact number of the model's, not of ours


SCORES = """async () => {
  const { headOf, start } = await import("inspector/store.js");
  let seed = 1, worst = 0;
  const next = () => (seed = seed * 16807 % 2147483647) / 2147483647 - 0.5;
  for (const n of [1, 2, 3, 4, 5, 6, 7, 8, 9, 31]) for (const d of [1, 3, 8]) {
    const [q, k] = [0, 1].map(() => Float32Array.from({ length: n * d }, next)), { s, top } = headOf(q, k, n, 0.7);
    for (let i = 0; i < n; i++) {
      let most = -Infinity;
      for (let j = 0; j <= i; j++) {
        let score = 0;
        for (let e = 0; e < d; e++) score += 0.7 * q[i * d + e] * k[j * d + e];
        worst = Math.max(worst, Math.abs(s[start(i) + j] + top[i] - score));
        most = Math.max(most, score);
      }
      worst = Math.max(worst, Math.abs(top[i] - most));
    }
  }
  return worst;
}"""


def test_scores_made_four_rows_at_once_are_the_products(browser, tmp_path):
    """For every rest of a length by four: each score, and the largest among the keys that its query sees."""
    trace = inspector.trace(inspector.load("demo"), ids=[1, 2, 3])
    with explorer(browser, exploring.save_page(tmp_path / "page.html", [trace])) as page:
        assert page.evaluate(SCORES) < 1e-6
