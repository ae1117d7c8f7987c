"""Where the explorer comes to its limits: rounding with keys left out, many heads, a view overtaken by the pointer."""

import itertools
import json

import pytest
import torch

import inspector

from . import exploring
from .exploring import demo_ids, explorer, settle, state

pytestmark = pytest.mark.browser

# The largest error of a row's weights over all rows of a head, held against what the page states of that very row.
WORST = """async ([head, beta, first, self, scores]) => {
  scores = JSON.parse(scores);
  const { viewer } = await import("inspector/view.js"), look = viewer(explorer.store);      // what the page shows, undrawn
  let worst = 0, off = 0;
  for (let query = 1; query < scores.length; query++) {
    const { values, error } = await look({ ...explorer.state, heads: [head], beta, first, self, query }, null);
    const kept = [...values.keys()].filter(j => !Number.isNaN(values[j]));
    if (!kept.length) continue;
    const top = Math.max(...kept.map(j => scores[query][j]));
    const parts = kept.map(j => Math.exp(beta * (scores[query][j] - top)));
    const sum = parts.reduce((a, b) => a + b, 0);
    kept.forEach((j, i) => {
      const away = Math.abs(values[j] - parts[i] / sum);
      off = Math.max(off, away);
      worst = Math.max(worst, (away - 1e-6) / error);
    });
  }
  return [worst, off];
}"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The demo's trace of 100 tokens, and its page without any moves: every weight is stored as a half."""
    model = inspector.load("demo")
    trace = inspector.trace(model, ids=demo_ids(model, 100))
    return trace, exploring.save_page(tmp_path_factory.mktemp("limits") / "explorer.html", [trace], moves=[])


def test_a_row_with_keys_left_out_is_within_the_error_stated_for_it(browser, made):
    """Without the largest key the others keep the rounding of how far they lie behind it: far more than the usual bound."""
    trace, path = made
    farthest = 0
    with explorer(browser, path) as page:
        for head, beta, (first, self) in itertools.product((1, 3), (1, 30), ((False, True), (False, False), (True, False))):
            scores = torch.nan_to_num(trace.scores[1, head].double(), neginf=0).tolist()
            worst, off = page.evaluate(WORST, [f"1.{head}", beta, first, self, json.dumps(scores)])
            assert worst <= 1, (head, beta, first, self)
            farthest = max(farthest, off)
        assert farthest > page.evaluate("explorer.store.bundle.texts[0].error.bound")        # or the usual bound would do
        settle(page, first=False, self=True, query=50)
        assert "Weights of this row are within" in page.locator(".x-row .note").text_content()


def test_the_maximum_of_heads_has_no_entropy(browser, made):
    with explorer(browser, made[1]) as page:
        for merge, known in (("max", False), ("mean", True)):
            settle(page, heads=["1.1", "2.3", "3.0"], merge=merge, query=77, beta=0.3)
            assert (page.locator(".x-entropy").text_content() == "–") is not known


def test_heads_together_are_as_many_as_a_page_can_show(browser, made):
    trace, path = made
    every = [f"{layer}.{head}" for layer in range(4) for head in range(6)]
    with explorer(browser, path) as page:
        settle(page, heads=every, merge="max")
        assert state(page)["heads"] == every
        found = exploring.numbers(page, "explorer.view.grid.values").view(100, 100)
        below = torch.ones(100, 100).tril().bool()
        want = trace.pattern.flatten(0, 1).amax(0).double()
        torch.testing.assert_close(found[below], want[below], rtol=0, atol=1e-3)
        most = page.evaluate("""async () => { const { valid } = await import("inspector/state.js");
          const names = Array.from({ length: 144 }, (_, i) => `${Math.floor(i / 12)}.${i % 12}`);
          const bundle = { texts: [{ n: 1024, heads: Object.fromEntries(names.map(name => [name, {}])) }], names: [] };
          return valid({ heads: names }, bundle).heads; }""")
        assert most == [f"11.{head}" for head in range(4, 12)]


@pytest.mark.parametrize("place", [40, 99])
def test_a_pointer_over_the_text_does_not_overtake_a_view_on_its_way(browser, made, place):
    """The open head's grid, name, link and files are one head's, whatever the pointer does while it is decoded."""
    with explorer(browser, made[1]) as page:
        settle(page, heads=["1.1"], query=99, locked=False)
        page.evaluate("""place => {
          explorer.update({ heads: ["3.5"] });
          const token = document.querySelectorAll(".x-text button")[place];
          token.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
        }""", place)
        page.wait_for_function("explorer.view.state.heads[0] === '3.5'")
        assert page.locator(".x-main .x-title").text_content() == "3.5 pattern"
        assert page.locator(".x-head").text_content().startswith("Head 3.5")
        assert "heads=3.5" in page.locator(".x-link").get_attribute("href")
        assert page.locator(".x-board [aria-pressed=true]").get_attribute("data-head") == "3.5"
