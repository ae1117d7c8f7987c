"""The five moves of one query in Chromium: the textbooks' examples, and the model's own numbers as the page shows them."""

import math
import re

import pytest
import torch

import inspector

from . import models
from .exploring import cell, demo_ids, explorer, save_page, settle

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """{tokens: (trace, page)} of the demo model."""
    model, out = inspector.load("demo"), tmp_path_factory.mktemp("moves")
    traces = {n: inspector.trace(model, ids=demo_ids(model, n)) for n in (5, 64, 100)}
    return {n: (trace, save_page(out / f"{n}.html", [trace])) for n, trace in traces.items()}


TEXTBOOK = """async () => { const { moves, softmax, entropy } = await import("inspector/attention.js");
  const weights = softmax([2, 1, 0]);
  const blend = (scores, values) => { const made = moves([1], scores.map(s => [s]), values, 1);
    return { weights: Array.from(made.weights), z: Array.from(made.z) }; };
  const deep = scores => [0, 0.25, 1, 30, 100].map(beta => Array.from(softmax(scores, beta)));
  return {
    weights: Array.from(weights), entropy: entropy(weights),
    first: blend([2, 1, 0], [[10, 0], [0, 10], [4, 4]]), second: blend([0, 2, 1], [[1, 0], [0, 1], [1, 1]]),
    uniform: Array.from(softmax([2, 1, 0, -5], 0)), onehot: Array.from(softmax([2, 1, 0], 1000)),
    deep: [...deep([1e4, -1e4, 9999]), ...deep([-1e4, -1e4]), ...deep([-1e4])],
    halved: moves([3, 4], [[1, 2], [5, -6]], [[1], [0]], 0.5), none: Array.from(softmax([NaN, NaN])),
    masked: Array.from(softmax([1, -Infinity, 1])) }; }"""


def test_the_worked_examples_of_the_textbooks(browser, made):
    with explorer(browser, made[5][1]) as page:
        found = page.evaluate(TEXTBOOK)
    e = math.e
    whole = [e ** 2 / (e ** 2 + e + 1), e / (e ** 2 + e + 1), 1 / (e ** 2 + e + 1)]
    assert found["weights"] == pytest.approx(whole, abs=1e-15)
    assert [round(weight, 3) for weight in found["weights"]] == [0.665, 0.245, 0.090]
    assert found["entropy"] == pytest.approx(-sum(p * math.log(p) for p in whole), abs=1e-15)
    assert [round(value, 2) for value in found["first"]["z"]] == [7.01, 2.81]
    assert [round(weight, 3) for weight in found["second"]["weights"]] == [0.090, 0.665, 0.245]
    assert [round(value, 3) for value in found["second"]["z"]] == [0.335, 0.910]
    assert found["uniform"] == [0.25] * 4
    assert found["onehot"] == [1, 0, 0]
    for row in found["deep"]:
        assert sum(row) == pytest.approx(1, abs=1e-15)
    assert found["deep"][0] == pytest.approx([1 / 3] * 3)
    assert found["deep"][4] == pytest.approx([1, 0, 0], abs=1e-40)
    assert found["halved"]["sums"] == [11, -9]                 # 3 x 1 + 4 x 2, 3 x 5 - 4 x 6
    assert found["halved"]["scores"] == [5.5, -4.5]
    assert all(math.isnan(weight) for weight in found["none"])
    assert found["masked"][0] == found["masked"][2] == 0.5
    assert math.isnan(found["masked"][1])


# -- the numbers of a head, as they are shown --------------------------------------------------------------------------

NUMBER = r"[+−-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?"


def said(text, pattern):
    """The number in a text at the place of # in a pattern."""
    found = re.search(re.escape(pattern).replace(r"\#", f"({NUMBER})"), text)
    assert found, (pattern, text)
    return float(found[1].replace("−", "-"))


def rows(page, step):
    """{position: numbers of its row} of the table of a move."""
    read = page.locator(".x-step").nth(step).locator("tbody tr").evaluate_all(
        "rows => rows.map(r => [r.querySelector('sup').textContent, ...[...r.cells].slice(1).map(c => c.textContent)])")
    return {int(place): [float(re.sub("[<>%]", "", text).replace("−", "-")) for text in texts] for place, *texts in read}


@pytest.mark.parametrize(("head", "query"), [("1.1", 63), ("0.3", 40), ("3.5", 1), ("2.0", 0)])
def test_the_moves_show_the_model_s_own_numbers(browser, made, head, query):
    trace, path = made[64]
    layer, place = map(int, head.split("."))
    q, k, v = (tensor[layer, place].double() for tensor in (trace.q, trace.k, trace.v))
    scale, W_O = trace.model.config.scale(layer), trace.model.weights.blocks[layer].W_O[place].double()
    weights, scores = trace.pattern[layer, place, query].double(), trace.scores[layer, place, query].double()
    with explorer(browser, path) as page:
        for key in {0, query // 2, query}:
            settle(page, heads=[head], query=query, key=key)
            steps = page.locator(".x-step").all_inner_texts()
            close = {"rel": 6e-3}                                          # three digits
            assert said(steps[0], "numbers, length #") == pytest.approx(float(q[query].norm()), **close)
            assert said(steps[1], "numbers, length #") == pytest.approx(float(k[key].norm()), **close)
            dot = float(q[query] @ k[key])
            slack = 2 ** -10 * float((q[query] * k[key]).abs().sum()) + 0.006
            assert said(steps[2], "sum #") == pytest.approx(dot, abs=slack)
            assert said(steps[2], "÷ √#") == pytest.approx(scale ** -2)          # the scale is 1 over the root of d_head
            assert said(steps[2], "score #") == pytest.approx(float(scores[key]), abs=slack)
            assert said(steps[2], "sum #") * scale == pytest.approx(said(steps[2], "score #"), abs=0.01)
            assert f"{63 - query} later token" in steps[3]
            assert f"{query + 1} key" in steps[3]
            norms, total = v.norm(dim=-1), float((weights * v.norm(dim=-1)).sum())
            normalized, blended = rows(page, 3), rows(page, 4)
            assert set(normalized) == set(blended) == {*weights[:query + 1].topk(min(10, query + 1)).indices.tolist(), key}
            for j, (score, power, weight) in normalized.items():
                assert score == pytest.approx(float(scores[j]), abs=slack)
                assert power == pytest.approx(math.exp(float(scores[j] - scores.max())), abs=4e-3)
                assert weight == pytest.approx(float(weights[j]), abs=3e-3)
            for j, (weight, length, share, part) in blended.items():
                assert weight == normalized[j][2]
                assert length == pytest.approx(float(norms[j]), **close)
                assert share == pytest.approx(float(weights[j] * norms[j]), rel=1e-2, abs=1e-4 * float(norms[j]))
                assert part == pytest.approx(100 * float(weights[j] * norms[j]) / total, abs=0.7)
            z = trace.z[layer, place, query].double()
            assert said(steps[5], "× v, length #") == pytest.approx(float(z.norm()), **close)
            assert said(steps[5], "z W_O, length #") == pytest.approx(float((z @ W_O).norm()), **close)
            assert said(steps[5], "stream of length #") == pytest.approx(
                float(trace.resid_pre[layer, query].double().norm()), **close)


def test_moves_at_another_sharpness_blend_anew_and_say_what_the_model_writes(browser, made):
    trace, path = made[64]
    with explorer(browser, path) as page:
        settle(page, heads=["1.1"], query=50, beta=3, first=False)
        text, normalized = page.locator(".x-steps").inner_text(), rows(page, 3)
        weights = (3 * trace.scores[1, 1, 50, 1:51].double()).softmax(-1)
        z = weights @ trace.v[1, 1, 1:51].double()
        assert "scores × 3" in text
        assert "50 keys left" in text
        assert said(text, "× v, length #") == pytest.approx(float(z.norm()), rel=1e-2)
        for j, (*_, weight) in normalized.items():
            assert weight == pytest.approx(float(weights[j - 1]), abs=4e-3)
        assert "As the model runs, without your changes: z W_O" in text
        wrote = trace.z[1, 1, 50].double() @ trace.model.weights.blocks[1].W_O[1].double()
        assert said(text, "z W_O, length #") == pytest.approx(float(wrote.norm()), rel=6e-3)


def test_beyond_64_tokens_the_eight_highest_heads_have_moves_and_the_others_say_how_to_get_them(browser, made):
    trace, path = made[100]
    table = inspector.heads(trace.model, ids=trace.ids.tolist())
    best = table[["previous_token", "duplicate_token", "induction"]].max(axis=1).sort_values(ascending=False).index[:8]
    want = {f"{table.loc[i, 'layer']}.{table.loc[i, 'head']}" for i in best}
    with explorer(browser, path) as page:
        assert set(page.evaluate("Object.entries(explorer.store.bundle.texts[0].heads).filter(([, e]) => e.moves)"
                                 ".map(([head]) => head)")) == want
        without = next(f"{layer}.{head}" for layer in range(4) for head in range(6) if f"{layer}.{head}" not in want)
        page.locator(f".x-board [data-head='{without}']").click()
        settle(page)
        text = page.locator(".x-moves").inner_text()
        assert f'--moves "{without}"' in text
        assert f'explore(trace, moves="{without}")' in text
        assert page.locator(".x-step").count() == 0
        chips = page.locator(".x-moves .x-chip")
        assert set(chips.all_inner_texts()) == want
        chips.first.click()
        settle(page)
        assert page.locator(".x-step").count() == 6
        page.locator(f".x-board [data-head='{without}']").click(modifiers=["Shift"])
        settle(page)
        assert "Several heads are open" in page.locator(".x-moves").inner_text()


def test_a_head_whose_values_are_zero_has_no_shares(browser, tmp_path):
    """No share of nothing: a dash, and no NaN."""
    made = models.tiny_model()
    with torch.no_grad():
        made.transformer.h[1].attn.c_attn.weight[:, 48:54] = 0                 # the values of head 0
        made.transformer.h[1].attn.c_attn.bias[48:54] = 0
    trace = inspector.trace(inspector.load(models.save(made, tmp_path / "model")), ids=[1, 2, 3, 4])
    assert trace.v[1, 0].abs().max() == 0
    with explorer(browser, save_page(tmp_path / "page.html", [trace])) as page:
        settle(page, heads=["1.0"])
        assert page.locator(".x-step").nth(4).locator("td:last-child").all_inner_texts() == ["–"] * 4
        for shown in ("values", "pattern", "scores"):
            settle(page, shown=shown)
            assert "NaN" not in page.locator(".x-explorer").inner_text()


def test_a_query_without_any_key_left_is_said_so_and_shows_no_number(browser, made):
    """The first token and the query itself left out: queries 0 and 1 see none, and nothing reads NaN or Infinity."""
    _, path = made[64]
    with explorer(browser, path, height=1400) as page:
        for query in (0, 1):
            for shown in ("pattern", "scores", "values"):
                settle(page, query=query, first=False, self=False, shown=shown)
                assert page.locator(".x-row tbody tr").count() == 0
                assert "entropy – of – nats" in page.locator(".x-sums").text_content()
                assert "No key is left" in page.locator(".x-moves").text_content()
                page.locator(".x-main .x-cells").hover(position=cell(page, 1, 0))
                assert page.locator(".x-main .x-plot .x-readout b").text_content() == "left out"
                page.locator(".x-text button").first.hover()
                text = page.locator(".x-explorer").inner_text()
                assert not any(word in text for word in ("NaN", "Infinity", "undefined", "null"))
