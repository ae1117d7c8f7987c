"""Numbers of the live page in Chromium: a run with heads changed, a long text, and what the page says of its rounding."""

import json
import random

import numpy as np
import pytest
import torch

import inspector
from inspector.findings.interventions import edits_for

from . import exploring, models
from .serving import running
from .test_explorer_moves import rows, said
from .test_live import (
    button,
    check_effects,
    click,
    done,
    labels,
    live,
    open_head,
    state,
    status,
    until,
    write,
)

pytestmark = pytest.mark.browser

TEXT = "Ms. Dursley saw a cat. Ms. Dursley sat"
HALF = 2.0 ** -11       # how far half precision is off, of a number's own size


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The demo model, and a random one with a tokenizer and positions for 1,024 tokens."""
    folder = tmp_path_factory.mktemp("long")
    return {"demo": inspector.load("demo"), "long": inspector.load(models.tiny_folder(folder, n_positions=1024))}


@pytest.fixture(scope="module")
def site(loaded):
    with running(loaded) as found:
        yield found


# -- a run with heads changed -------------------------------------------------------------------------------------------

def look_at(page, **patch):
    """The page's view of a state; what it stored of the open head, as plain lists."""
    page.evaluate("patch => explorer.update(patch)", patch)
    return page.evaluate("""() => {
      const { grid, moves: { q, k, v, exact }, cosines } = explorer.view, plain = all => Array.from(all ?? []);
      return { grid: plain(grid.values).map(x => isNaN(x) ? null : x), q: plain(q), k: plain(k), v: plain(v),
        exact: plain(exact), cosines: plain(cosines) };
    }""")


def below(grid, n):
    """The cells of a grid at or below the diagonal; those above must be masked."""
    grid, seen = np.array(grid, dtype=float).reshape(n, n), np.tri(n, dtype=bool)
    assert np.isnan(grid[~seen]).all()
    return grid[seen]


def within_half(found, tensor):
    """Stored in half precision: each number within 2^-11 of itself, those tiny beside the largest apart."""
    true = tensor.double().numpy().ravel()
    assert (np.abs(np.array(found) - true) <= HALF * (np.abs(true) + np.abs(true).max() * 2.0 ** -20)).all()


def check_run(page, before, after, head, query):
    """Everything that the page shows of one head in the changed run, worked out anew from what `trace` kept."""
    layer, place = map(int, head.split("."))
    model, n, tri = after.model, len(after.labels), torch.ones(len(after.labels), len(after.labels)).tril().bool()
    q, k, v, pattern, scores, z = (getattr(after, name)[layer, place].double()
                                   for name in ("q", "k", "v", "pattern", "scores", "z"))
    W_O = model.weights.blocks[layer].W_O[place].double()
    shown = look_at(page, text=1, heads=[head], query=query, key=query // 2, shown="pattern", other="t0", twin=query)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        within_half(shown[name], tensor)
    assert np.array_equal(np.array(shown["exact"]), pattern[tri].numpy())                    # not rounded at all
    error = page.evaluate("explorer.store.bundle.texts[1].error.bound") + 1e-6
    assert np.abs(below(shown["grid"], n) - pattern[tri].numpy()).max() <= error
    reach = float((scores.amax(-1, keepdim=True) - scores)[tri].max())
    assert np.abs(below(look_at(page, shown="scores")["grid"], n) - scores[tri].numpy()).max() <= HALF * reach + 1e-4
    brought = (pattern[:, :, None] * (v @ W_O)[None]).norm(dim=-1)                           # each key's part, made whole
    found = below(look_at(page, shown="values")["grid"], n)
    assert np.abs(found - brought[tri].numpy()).max() <= error * float((v @ W_O).norm(dim=-1).max())
    streams = [torch.cat([run.resid_pre[:, query], run.resid_post[-1:, query]]).double() for run in (after, before)]
    alike = torch.nn.functional.cosine_similarity(*streams, dim=-1)                          # [layer + 1]
    assert shown["cosines"] == pytest.approx(alike.tolist(), abs=HALF)
    look_at(page, shown="pattern")
    steps, key = page.locator(".x-step").all_inner_texts(), query // 2
    factor = float((scores[query, key] / (q[query] @ k[key])).abs())
    slack = 2 * HALF * factor * float((q[query] * k[key]).abs().sum()) + 0.006
    assert said(steps[2], "score #") == pytest.approx(float(scores[query, key]), abs=slack)
    for at, (score, _, weight) in rows(page, 3).items():
        assert score == pytest.approx(float(scores[query, at]), abs=4 * slack)
        assert weight == pytest.approx(float(pattern[query, at]), abs=5e-3)
    for at, (_, length, share, _) in rows(page, 4).items():
        assert length == pytest.approx(float(v[at].norm()), rel=6e-3)
        assert share == pytest.approx(float(pattern[query, at] * v[at].norm()), rel=2e-2, abs=1e-3)
    own, wrote = (pattern @ v)[query], float((z[query] @ W_O).norm())
    assert said(steps[5], "× v, length #") == pytest.approx(float(own.norm()), rel=6e-3)
    if own.allclose(z[query], atol=1e-4):                                                    # it writes its own z
        assert said(steps[5], "z W_O, length #") == pytest.approx(wrote, rel=6e-3)
    else:
        assert "goes no further, for the head is cut" in steps[5]
        assert "z W_O" not in steps[5]
        assert said(steps[5], "stands for it, length #") == pytest.approx(wrote, rel=6e-3) if wrote else (
            "nothing is added" in steps[5])
    stream = after.resid_pre[layer, query].double()
    assert said(steps[5], "stream of length #") == pytest.approx(float(stream.norm()), rel=6e-3)
    return steps[2]


@pytest.mark.parametrize(("press", "edit"), [("Turn off", "zero"), ("Replace by its mean", "mean"), ("Scores ×", 2.5)])
def test_the_changed_run_s_numbers_are_those_of_a_trace_with_these_edits(browser, site, loaded, press, edit):
    model = loaded["demo"]
    before = inspector.trace(model, TEXT)
    after = inspector.trace(model, ids=before.ids.tolist(), edits=edits_for(model, before.ids.tolist(), {"0.3": edit}))
    n, scale, root = len(before.labels), model.config.scale(0), model.config.d_head ** 0.5
    assert scale == pytest.approx(1 / root)
    with live(browser, site) as page:
        write(page, TEXT)
        open_head(page, "0.3")
        if edit == 2.5:
            page.get_by_label("Factor of the scores").fill("2.5")
        click(page, press)
        for head, query in (("0.3", n - 1), ("0.3", 4), ("1.1", n - 1), ("3.5", n - 2)):
            product = check_run(page, before, after, head, query)
            if head == "0.3" and edit == 2.5:
                assert said(product, "× #") == pytest.approx(2.5 * scale, rel=5e-3)
            else:
                assert said(product, "÷ √#") == model.config.d_head
        assert (after.pattern[1, 1] - before.pattern[1, 1]).abs().max() > 0.05               # or the first run would do too
        factors = page.evaluate("explorer.store.bundle.texts.map(text => text.factors)")
        assert factors[0] == [[scale] * 6] * 4
        factors[1][0][3] /= edit if edit == 2.5 else 1
        assert factors[1] == factors[0]


# -- what is said of the rounding ---------------------------------------------------------------------------------------

def note(page):
    return page.locator(".x-row .note").text_content()


def test_the_page_says_how_far_its_weights_are_rounded_as_a_report_s_page_does(browser, site, loaded, tmp_path):
    run = inspector.trace(loaded["demo"], TEXT)
    with exploring.explorer(browser, exploring.save_page(tmp_path / "page.html", [run])) as page:
        exploring.settle(page, heads=["1.1"], query=3)
        from_disk = note(page)
    with live(browser, site) as page:
        write(page, TEXT)
        look_at(page, heads=["1.1"], query=3)
        assert note(page) == from_disk
        error = page.evaluate("explorer.store.bundle.texts[0].error")
        assert from_disk.startswith("Weights shown are within ")
        assert error["bound"] <= float(from_disk.split("within ")[1].split()[0]) < 1e-3
        click(page, "Turn off")
        look_at(page, heads=["1.1"], query=3, text=1)
        assert note(page).startswith("Weights shown are within ")                            # of the changed run too


# -- as long as may be --------------------------------------------------------------------------------------------------

def words(n, seed=0):
    """A text of n tokens: words that are one each."""
    return "The" + "".join(random.Random(seed).choices([" cat", " sat", " on", " a", " the", " c", " s", " t"], k=n - 1))


def test_a_text_of_1024_tokens_is_answered_and_one_more_is_refused(site, loaded):
    model, text = loaded["long"], words(1024)
    run = inspector.trace(model, text)
    assert len(run.labels) == 1024
    body = {"model": "long", "text": text, "edits": {"1.1": "mean"}, "position": 1023}
    found = site.post("explore", body).json
    assert [each["n"] for each in found["texts"]] == [1024, 1024]
    assert found["texts"][0]["labels"][-3:] == run.labels[-3:]
    assert found["effect"] == site.post("intervene", body).json
    assert len(found["effect"]["tokens"]) == 1024
    longer = site.post("explore", {**body, "text": text + " a"})
    assert (longer.status, longer.error) == (422, "the text has 1,025 tokens; this server takes at most 1,024")


def test_a_text_of_1024_tokens_on_the_page(browser, site, loaded):
    model, text = loaded["long"], words(1024)
    run = inspector.trace(model, text)
    with live(browser, site) as page:
        page.get_by_label("Model").select_option("long")
        done(page)
        write(page, text)
        assert status(page) == "1,024 tokens."
        assert labels(page) == run.labels
        assert page.locator(".x-text button").count() == 1024
        for head in ("1.2", "2.3"):
            open_head(page, head)
            true = run.pattern[tuple(map(int, head.split(".")))].double().numpy()
            off = page.evaluate("explorer.store.bundle.texts[0].error.measured") / 2
            for query in (0, 1, 300, 1023):
                row = page.evaluate("i => Array.from(explorer.view.grid.values.subarray(i * 1024, i * 1024 + i + 1))", query)
                assert np.abs(row - true[query, :query + 1]).max() <= off + 1e-6
            assert off <= float(note(page).split("within ")[1].split(" ×")[0]) < 0.02
        click(page, "Turn off")
        check_effects(page, model, {"2.3": "zero"}, text=text)
        page.get_by_role("textbox", name="Text", exact=True).fill(text + " a")
        state(page, "refused")
        assert status(page) == "the text has 1,025 tokens; this server takes at most 1,024"
        write(page, "A cat")
        assert len(labels(page)) == len(inspector.trace(model, "A cat").labels)


# -- one question an edit -----------------------------------------------------------------------------------------------

def test_an_edit_is_one_question_and_another_position_is_one_too(browser, site):
    with live(browser, site) as page:
        asked = []
        page.on("request", lambda request: asked.append((request.url.rsplit("/", 1)[1], json.loads(request.post_data))))
        open_head(page, "1.3")
        for press in ("Turn off", "Replace by its mean", "Scores ×"):
            click(page, press)
        assert [name for name, _ in asked] == ["explore"] * 3
        assert [body["position"] for _, body in asked] == [-1] * 3
        page.get_by_label("Next token after").select_option("7")
        done(page)
        click(page, "Turn off")
        assert [(name, body["position"]) for name, body in asked[3:]] == [("intervene", 7), ("explore", 7)]
        click(page, "As the model has it")
        assert asked[-1][1]["position"] is None                      # nothing is changed: nothing to compare
        del asked[:]
        click(page, "Repeat this text")
        click(page, "Turn them off")
        assert [name for name, _ in asked] == ["ids", "explore", "heads", "ids", "explore"]
        until(page, "!document.querySelector('.l-effects').hidden")
        assert button(page, "Turn them on again").is_visible()
