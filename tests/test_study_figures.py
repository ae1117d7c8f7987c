"""The study's figures: what is drawn where, that nothing leaves the page or hides a name, and that captions say how."""

from functools import partial
from itertools import combinations, product
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch, Rectangle
from PIL import Image, ImageChops

from inspector.pages import captions, figures, palette, plots
from inspector.pages.study_curves import loss_by_position
from inspector.pages.study_graphs import MOST_EDGES, MOST_PAIRS, circuit, composition_web
from inspector.pages.study_maps import MOST_NAMES, MOST_ROWS, matching_against_copying, score_maps, threshold_figure
from inspector.pages.study_training import phase_change, places_of

ARGUMENTS = {"protocol": "stripe", "period": 50, "repeats": 2, "n_sequences": 16, "bos": False, "seed": 7, "fill": "mean",
             "heads": "2.1 3.0"}
RUN = {"model": {"source": "/somewhere/my$model$"}, "dtype": "float64", "arguments": ARGUMENTS}
COLUMNS = ["previous_token", "induction", "copying_second", "ov_copying"]


def table_of(n_layer, n_head, previous=(), induction=(), against=(), seed=0):
    """A table of heads as the study makes it; the named heads stand out and have their verdicts."""
    rng = np.random.default_rng(seed)
    n = n_layer * n_head
    table = pd.DataFrame({"layer": np.repeat(np.arange(n_layer), n_head), "head": np.tile(np.arange(n_head), n_layer),
                          "previous_token": rng.beta(1, 8, n), "induction": rng.beta(1, 30, n), "induction_se": 0.004,
                          "induction_uniform": 0.0138, "copying_second": rng.normal(0, 0.15, n),
                          "copying_second_se": 0.05, "ov_copying": rng.uniform(-0.4, 0.4, n)})
    table["verdict"] = [[] for _ in range(n)]
    for heads, words, matching, copying in ((previous, ["previous_token"], 0.02, 0.1),
                                            (induction, ["induction", "copies", "induction_head"], 0.85, 3.0),
                                            (against, ["induction", "suppresses", "anti_induction_head"], 0.45, -2.0)):
        for layer, head in heads:
            row = layer * n_head + head
            table.at[row, "verdict"] = words
            table.loc[row, "induction"] = matching * rng.uniform(0.9, 1.1)
            table.loc[row, "copying_second"] = copying * rng.uniform(0.9, 1.1)
    return table


def thresholds_of(table, at=(0.3, 0.4, 0.5, 0.6, 0.7, 0.8)):
    def names(word, threshold):
        rows = table[np.array([word in verdict for verdict in table["verdict"]]) & (table["induction"] > threshold)]
        return " ".join(f"{row.layer}.{row.head}" for row in rows.itertuples())
    return pd.DataFrame([{"threshold": t, "induction_heads": names("induction_head", t),
                          "anti_induction_heads": names("anti_induction_head", t)} for t in at])


def pairs_of(n_layer, n_head, high=0.02, seed=0):
    rng = np.random.default_rng(seed)
    ends = [(a, b, c, d) for a, c in combinations(range(n_layer), 2) for b in range(n_head) for d in range(n_head)]
    pairs = pd.DataFrame(ends, columns=["layer_from", "head_from", "layer", "head"])
    pairs["k_composition_excess"] = rng.gamma(0.6, 0.01, len(pairs))
    pairs["k_composition_high"] = pairs["k_composition_excess"] > high
    return pairs


def causes_of(pairs, agrees=lambda n: True):
    """A causal table in which the n-th pair's numbers can be told apart."""
    rows = [(*p, *h, 0.9, 0.02, 0.88, 0.11 + 0.01 * n, 0.5, 0.89, 2.0, 1.9, 0.1, agrees(n))
            for n, (p, h) in enumerate(pairs)]
    return pd.DataFrame(rows, columns=["layer_from", "head_from", "layer", "head", "clean", "cut", "q", "k", "direct",
                                       "control_k", "logit", "logit_v", "k_composition_excess", "agrees"])


def loss_table(period=50, copies=2):
    position = np.arange(1, copies * period)
    copy = position // period + 1
    loss = np.where(copy == 1, 7.6, 0.1)
    return pd.DataFrame({"position": position, "copy": copy, "loss": loss, "loss_se": 0.05,
                         "loss_cut": loss + 0.5 * (copy > 1), "loss_cut_se": 0.1})


STEPS = (0, 8, 100, 800, 1000, 2400)


def training(runs=("4 layers", "1 layer"), copying=True):
    """(steps, heads) of made-up runs: in runs of more than one layer, head 1.1 rises above 0.4 at step 1,000."""
    steps, heads = [], []
    for run in runs:
        deep = run != "1 layer"
        for step in STEPS:
            late = deep and step >= 1000
            steps.append({"run": run, "step": step, "first_copy_loss": 7.7, "second_copy_loss": 0.2 if late else 7.6,
                          "held_out_loss": 7.6 - step / 600, "in_context": -0.4 if late else 0.1, "in_context_se": 0.05})
            for layer, head in product(range(2 if deep else 1), range(3)):
                rises = late and (layer, head) == (1, 1)
                heads.append({"run": run, "step": step, "layer": layer, "head": head, "induction_control": 0.012,
                              "previous_token": 0.05 + 0.9 * (late and (layer, head) == (0, 2)),
                              "induction": 0.81 if rises else 0.01 + 0.001 * head,
                              "copying_second": np.nan if not copying else 2.5 if rises else -0.1})
    return pd.DataFrame(steps), pd.DataFrame(heads)


DEMO = table_of(4, 6, [(0, 3)], [(1, 1), (2, 0), (2, 4)])
GPT2 = table_of(12, 12, [(4, 11), (3, 7), (2, 2)], [(5, 1), (5, 5), (6, 9), (7, 2), (7, 10)], [(10, 7), (11, 10)])
NONE = table_of(4, 6)
ONE_LAYER = table_of(1, 6, [(0, 2)])
ALL = table_of(12, 12, induction=[(a, b) for a in range(12) for b in range(12)])
XL = table_of(48, 25, [(20, 3)], [(21, 20), (24, 5)])
EMPTY = GPT2.assign(**dict.fromkeys(COLUMNS, np.nan))
TABLES = {"demo": DEMO, "gpt2": GPT2, "none": NONE, "one layer": ONE_LAYER, "all": ALL, "xl": XL, "empty": EMPTY}
PREVIOUS, MATCHING = [(4, 11), (3, 7), (2, 2)], [(5, 1), (5, 5), (6, 9), (7, 2), (7, 10), (11, 10)]
EVERY_PAIR = [(p, h) for p in PREVIOUS for h in MATCHING]

DRAWN = {f"maps, {name}": partial(score_maps, table, COLUMNS, RUN) for name, table in TABLES.items() if name != "all"}
DRAWN |= {f"points, {name}": partial(matching_against_copying, table, RUN) for name, table in TABLES.items()}
DRAWN |= {f"thresholds, {name}": partial(threshold_figure, table, thresholds_of(table), RUN)
          for name, table in TABLES.items()}
DRAWN |= {f"web, {name}": partial(composition_web, pairs_of(*size), TABLES[name], RUN)
          for name, size in (("demo", (4, 6)), ("gpt2", (12, 12)), ("none", (4, 6)), ("one layer", (1, 6)))}
DRAWN |= {"web, nothing high": partial(composition_web, pairs_of(4, 6, high=9), DEMO, RUN),
          "circuit": partial(circuit, causes_of(EVERY_PAIR), GPT2, RUN),
          "circuit, one": partial(circuit, causes_of([((0, 3), (1, 1))]), DEMO, RUN),
          "circuit, none agrees": partial(circuit, causes_of(EVERY_PAIR, agrees=lambda n: False), GPT2, RUN),
          "circuit, no pair": partial(circuit, causes_of([]), NONE, RUN),
          "loss": partial(loss_by_position, loss_table(), RUN, vocab_size=2048),
          "loss, three copies": partial(loss_by_position, loss_table(copies=4), RUN, vocab_size=50257),
          "loss, clean": partial(loss_by_position, loss_table().drop(columns=["loss_cut", "loss_cut_se"]), RUN,
                                 vocab_size=2048),
          "phase change": partial(phase_change, *training()),
          "phase change, three runs": partial(phase_change, *training(("4 layers", "1 layer", "4 layers, text alone"))),
          "phase change, one run": partial(phase_change, *training(("1 layer",), copying=False))}


def texts_of(figure):
    """Every text that a reader sees: [(words, box in pixels)]."""
    canvas = FigureCanvasAgg(figure)
    renderer = canvas.get_renderer()
    figure.draw(renderer)
    seen = [*figure.texts]
    for axes in figure.axes:
        seen += axes.texts + ([axes.title, axes._left_title] + (axes.get_legend().get_texts() if axes.get_legend() else []))
        for axis, (low, high) in ((axes.xaxis, sorted(axes.get_xlim())), (axes.yaxis, sorted(axes.get_ylim()))):
            if axes.axison:
                seen += [axis.label] + [t.label1 for t in axis.get_major_ticks() if low <= t.get_loc() <= high
                                        and t.label1.get_visible()]
    return [(text.get_text().strip(), text.get_window_extent(renderer)) for text in seen if text.get_text()]


def words_of(figure):
    return [words for words, _ in texts_of(figure)]


# -- every figure ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", DRAWN)
def test_nothing_leaves_the_page_and_the_caption_says_how_it_was_measured(name):
    with figures.style():
        figure = DRAWN[name]()
        page, seen = figure.bbox, texts_of(figure)
    out = [(words, box) for words, box in seen if not (
        page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1)]
    assert out == []
    caption = " ".join(words for words, _ in seen)
    how = ["16 sequences", "50 distinct ids twice", "no BOS"]
    for part in how + (["seed 0", "float32"] if "phase" in name else ["my$model$", "float64", "seed 7"]):
        assert part in caption, part
    assert "/somewhere" not in caption


@pytest.mark.parametrize("name", ["points, demo", "circuit, one", "phase change, one run"])
def test_the_same_bytes_whatever_was_set_before(name):
    first = figures.files(DRAWN[name])
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 9, "axes.facecolor": "red"}):
        second = figures.files(DRAWN[name])
    assert first == second


def test_no_caption_line_is_longer_than_the_page():
    with figures.style():
        for text in ("word " * 80, "W" * 250, "汉字" * 90, "a\nb " + "x" * 200, ""):
            lines = plots.wrapped(text, 6.7)
            assert "".join("".join(lines).split()) == "".join(text.split())
            figure = plots.sheet("t", text, 1.0)[0]
            boxes = [box for _, box in texts_of(figure)]
            assert all(box.x1 <= figure.bbox.x1 for box in boxes)
            assert not text.startswith("word") or max(box.x1 for box in boxes) > 0.85 * figure.bbox.x1      # lines are full


def test_figures_need_no_global_state():
    """pyplot, which keeps figures alive and picks a backend, is imported nowhere."""
    for path in Path(plots.__file__).parent.glob("*.py"):
        assert "pyplot" not in path.read_text(encoding="utf-8").partition('"""')[2].partition('"""')[2], path.name


def test_kinds_are_told_apart_by_shape_alone_and_by_colour_alone():
    kinds = (*plots.KINDS, plots.OTHER)
    assert len({kind.marker for kind in plots.KINDS}) == len(plots.KINDS)
    assert len({kind.colour for kind in kinds}) == len(kinds)
    assert plots.kind_of(["previous_token", "induction", "copies", "induction_head"]).verdict == "induction_head"
    assert plots.kind_of(["induction", "suppresses", "anti_induction_head"]).verdict == "anti_induction_head"
    assert plots.kind_of(["duplicate_token"]) is plots.OTHER


def test_the_signed_ramp_is_paper_in_the_middle_and_as_dark_at_both_ends():
    ramp = palette.diverging()
    light = [np.dot(np.array(ramp(n)[:3]) ** 2.2, [0.2126, 0.7152, 0.0722]) ** (1 / 2.2) for n in range(256)]
    assert min(light[127:129]) > 0.95
    assert (np.diff(light[:128]) > 0).all()
    assert (np.diff(light[128:]) < 0).all()
    assert abs(light[0] - light[-1]) < 0.05
    assert ramp(0.05)[2] > ramp(0.05)[0]            # blue below
    assert ramp(0.95)[0] > ramp(0.95)[2]            # red above
    assert ramp(np.nan)[3] == 0


# -- maps ------------------------------------------------------------------------------------------------------------

def test_maps_hold_the_table_and_frame_the_found_heads():
    table = DEMO.drop(index=[5]).sample(frac=1, random_state=0)             # head 0.5 is absent; the order does not matter
    with figures.style():
        figure = score_maps(table, COLUMNS, RUN)
    maps = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in maps] == [captions.measure(column).title for column in COLUMNS]
    for axes, column in zip(maps, COLUMNS, strict=True):
        image = axes.images[0]
        expected = DEMO[column].to_numpy().reshape(4, 6).copy()
        expected[0, 5] = np.nan
        np.testing.assert_array_equal(np.ma.filled(image.get_array().astype(float), np.nan), expected)
        frames = {(round(p.get_x() + 0.5), round(p.get_y() + 0.5)): to_hex(p.get_edgecolor()).upper()
                  for p in axes.patches if isinstance(p, Rectangle) and p.get_width() == p.get_height() == 1}
        assert frames == {(3, 0): "#009E73", (1, 1): "#D55E00", (0, 2): "#D55E00", (4, 2): "#D55E00"}
    assert maps[0].images[0].get_clim() == (0, 1)
    low, high = maps[2].images[0].get_clim()
    assert -low == high == DEMO["copying_second"].abs().max()
    assert maps[3].images[0].get_clim() == (-1, 1)                          # a ratio: nothing larger than 1 in it


def test_numbers_stand_in_the_cells_where_they_fit():
    with figures.style():
        table = DEMO.assign(copying_second=[-2.44, 0.04, -0.04, 12.3] + [1.0] * 20)
        axes = [axes for axes in score_maps(table, COLUMNS, RUN).axes if axes.get_title(loc="left")]
        cells = {t.get_position(): t.get_text() for t in axes[2].texts}
        assert [cells[head, 0] for head in range(5)] == ["−2.4", "0", "0", "12", "1.0"]
        assert len(axes[0].texts) == 24
        assert len(score_maps(GPT2, COLUMNS, RUN).axes[0].texts) == 144
        assert len(score_maps(XL, COLUMNS, RUN).axes[0].texts) == 0


# -- matching against copying ----------------------------------------------------------------------------------------

def names_in(axes, table):
    known = set(plots.names_of(table))
    return [text for text in axes.texts if text.get_text() in known]


@pytest.mark.parametrize("table", [GPT2, ALL, table_of(12, 12, induction=[(5, n) for n in range(12)], seed=3)])
def test_names_hide_neither_each_other_nor_points(table):
    with figures.style():
        figure = matching_against_copying(table, RUN)
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        axes = figure.axes[0]
        boxes = [text.get_window_extent(renderer) for text in names_in(axes, table)]
        assert len(boxes) == min(MOST_NAMES, sum(bool(v) for v in table["verdict"]))
        for one, other in combinations(boxes, 2):
            assert not one.overlaps(other)
        found = table[[bool(v) for v in table["verdict"]]]
        points = axes.transData.transform(found[["induction", "copying_second"]].to_numpy())
        hidden = sum(box.contains(*point) for box in boxes for point in points)
        assert hidden == 0
        frame = axes.get_window_extent(renderer)
        assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 + 1 for box in boxes)


def test_each_name_stands_nearest_to_its_own_point():
    with figures.style():
        figure = matching_against_copying(GPT2, RUN)
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        axes = figure.axes[0]
        found = GPT2[[("induction" in v) for v in GPT2["verdict"]]]
        points = axes.transData.transform(found[["induction", "copying_second"]].to_numpy())
        names = plots.names_of(found)
        for text in axes.texts:
            if text.get_text() in names:
                box = text.get_window_extent(renderer)
                centre = [(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2]
                assert names[int(np.hypot(*(points - centre).T).argmin())] == text.get_text()


def test_points_stand_where_the_table_says_by_kind():
    with figures.style():
        figure = matching_against_copying(GPT2, RUN, threshold=0.35)
    axes = figure.axes[0]
    drawn = {}
    for line in axes.lines:
        if line.get_linestyle() == "None" and len(line.get_xdata()):
            drawn.setdefault((to_hex(line.get_color()).upper(), line.get_marker()), []).extend(
                zip(line.get_xdata(), line.get_ydata(), strict=True))
    for kind in (*plots.KINDS, plots.OTHER):
        mine = GPT2[[plots.kind_of(verdict) is kind for verdict in GPT2["verdict"]]]
        expected = sorted(zip(mine["induction"], mine["copying_second"], strict=True))
        assert sorted(drawn.get((kind.colour.upper(), kind.marker), [])) == expected, kind.verdict
    upright = {float(line.get_xdata()[0]) for line in axes.lines if list(line.get_ydata()) == [0, 1]}
    assert upright == {0.35, 0.0138}


def test_other_measures_by_argument_and_their_levels():
    table = GPT2.assign(prefix_matching=GPT2["induction"] / 2, copying_ratio=-0.9, copying_ratio_level=-0.92)
    with figures.style():
        axes = matching_against_copying(table, RUN, x="prefix_matching", y="copying_ratio").axes[0]
    assert axes.get_xlabel() == "prefix matching"
    assert -0.92 in {float(line.get_ydata()[0]) for line in axes.lines if list(line.get_xdata()) == [0, 1]}


def test_heads_without_a_value_are_counted_and_not_drawn():
    table = GPT2.copy()
    table.loc[[3, 77], "copying_second"] = np.nan
    table.loc[[5], "induction"] = np.inf
    with figures.style():
        words = " ".join(words_of(matching_against_copying(table, RUN)))
    assert "3 heads without a value not drawn" in words
    assert "not named" not in words
    with figures.style():
        assert f"{144 - MOST_NAMES} heads with a verdict not named" in " ".join(words_of(matching_against_copying(ALL, RUN)))


# -- thresholds ------------------------------------------------------------------------------------------------------

def test_the_threshold_figure_counts_and_ranks():
    table = table_of(4, 6, [], [(1, 1), (2, 0), (2, 4)], [(3, 3)])
    for row, value in ((7, 0.95), (12, 0.55), (16, 0.33), (21, 0.62)):
        table.loc[row, "induction"] = value
    with figures.style():
        axes = threshold_figure(table, thresholds_of(table), RUN).axes[0]
    assert [t.get_text() for t in axes.texts] == ["> 0.3: 3", "> 0.4: 2", "> 0.5: 2", "> 0.6: 1", "> 0.7: 1", "> 0.8: 1"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["1.1", "3.3", "2.0", "2.4"]
    points = {line.get_marker(): list(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in axes.lines
              if line.get_marker() in "ov"}
    assert points == {"o": [(0.95, 0), (0.55, 2), (0.33, 3)], "v": [(0.62, 1)]}


def test_no_head_at_any_threshold_is_said_and_many_are_cut_short():
    with figures.style():
        assert "no head matches and copies" in words_of(threshold_figure(NONE, thresholds_of(NONE), RUN))
        words = " ".join(words_of(threshold_figure(ALL, thresholds_of(ALL), RUN)))
    assert f"The strongest {MOST_ROWS} of 144 are drawn" in words
    assert "> 0.3: 144" in words


# -- composition -----------------------------------------------------------------------------------------------------

def edges_of(figure):
    return [patch for patch in figure.axes[0].patches if isinstance(patch, PathPatch)]


def test_the_web_draws_the_strongest_pairs_and_says_how_many():
    pairs = pairs_of(12, 12)
    high = int(pairs["k_composition_high"].sum())
    assert high > MOST_EDGES
    with figures.style():
        figure = composition_web(pairs, GPT2, RUN)
        words = " ".join(words_of(figure))
    assert len(edges_of(figure)) == MOST_EDGES
    assert f"{high} of 9,504 pairs" in words
    assert f"the strongest {MOST_EDGES} are drawn" in words
    strongest = np.sort(pairs.loc[pairs["k_composition_high"], "k_composition_excess"])[-MOST_EDGES:]
    widths = sorted(edge.get_linewidth() for edge in edges_of(figure))
    np.testing.assert_allclose(widths, 0.3 + 2.7 * strongest / strongest.max())


def test_the_web_runs_between_the_right_heads_and_colours_named_pairs():
    pairs = pairs_of(4, 6).assign(k_composition_excess=0.001, k_composition_high=False)
    for ends, value in (((0, 3, 1, 1), 0.2), ((1, 5, 3, 2), 0.1), ((0, 3, 3, 0), 0.05)):
        row = (pairs[["layer_from", "head_from", "layer", "head"]] == list(ends)).all(axis=1)
        pairs.loc[row, ["k_composition_excess", "k_composition_high"]] = value, True
    with figures.style():
        figure = composition_web(pairs, DEMO, RUN)
        axes = figure.axes[0]
    spots = {tuple(np.round(line.get_xydata()[0], 9)) for line in axes.lines}
    across, down = sorted({x for x, _ in spots}), sorted({y for _, y in spots})
    assert (len(across), len(down)) == (4, 6)                               # layers from left to right, heads down
    drawn = {}
    for edge in edges_of(figure):
        (x0, y0), *_, (x1, y1) = np.round(edge.get_path().vertices, 9)
        drawn[across.index(x0), down.index(y0), across.index(x1), down.index(y1)] = to_hex(edge.get_edgecolor()).upper()
    assert drawn == {(0, 3, 1, 1): "#D55E00", (1, 5, 3, 2): plots.GREY.upper(), (0, 3, 3, 0): plots.GREY.upper()}
    assert {t.get_text() for t in axes.texts} >= {"0.3", "1.1", "2.0", "2.4"}


def test_a_web_without_pairs_says_so():
    with figures.style():
        assert "a single layer: no pair" in words_of(DRAWN["web, one layer"]())
        assert "no pair above the baseline" in words_of(DRAWN["web, nothing high"]())
        pairs = pairs_of(4, 6).rename(columns=lambda name: name.replace("k_", "v_"))
        assert "V-composition between heads" in words_of(composition_web(pairs, DEMO, RUN, which="v"))


# -- the circuit -----------------------------------------------------------------------------------------------------

def test_the_circuit_shows_the_pairs_that_agree_with_their_numbers():
    causes = causes_of(EVERY_PAIR, agrees=lambda n: n % 4 == 1)              # 5 of 18
    with figures.style():
        figure = circuit(causes, GPT2, RUN)
        words = words_of(figure)
    assert "5 of 18 pairs tested agree" in words
    for number in ("0.90", "0.88", "0.50", "0.89", "0.95", "0.100"):
        assert words.count(number) == 5, number
    assert sorted(w for w in words if w in plots.names_of(GPT2)) == sorted(
        {f"{a}.{b}" for n, pair in enumerate(EVERY_PAIR) if n % 4 == 1 for a, b in pair})
    agreed = {(p, h): 0.11 + 0.01 * n for n, (p, h) in enumerate(EVERY_PAIR) if n % 4 == 1}
    for value in agreed.values():
        assert f"{value:.2f}" in words


def test_each_edge_of_the_circuit_leads_from_its_head_to_its_head_past_its_own_numbers():
    pairs = [((2, 2), (5, 1)), ((4, 11), (5, 1)), ((4, 11), (6, 9))]
    causes = causes_of(pairs).assign(k=[0.11, 0.22, 0.33])
    with figures.style():
        axes = circuit(causes, GPT2, RUN).axes[0]
    rows = {t.get_text(): t.get_position()[1] for t in axes.texts if t.get_text() in ("0.11", "0.22", "0.33")}
    names = {t.get_text(): t.get_position()[1] for t in axes.texts if t.get_text() in plots.names_of(GPT2)}
    curves = [edge.get_path().vertices[[0, -1]] for edge in axes.patches if isinstance(edge, PathPatch)]
    left, right = min(c[0][0] for c in curves), max(c[1][0] for c in curves)
    starts = {(c[0][1], c[1][1]) for c in curves if c[0][0] == left}
    ends = {(c[0][1], c[1][1]) for c in curves if c[1][0] == right}
    for (p, h), k in zip(pairs, ("0.11", "0.22", "0.33"), strict=True):
        assert (names[f"{p[0]}.{p[1]}"], rows[k]) in starts
        assert (rows[k], names[f"{h[0]}.{h[1]}"]) in ends


def test_a_circuit_without_agreement_says_so():
    with figures.style():
        words = words_of(DRAWN["circuit, none agrees"]())
        assert "None of 18 pairs agrees; the nearest:" in words
        assert words.count("0.88") == 3
        assert any("No pair to test" in w for w in words_of(DRAWN["circuit, no pair"]()))
        many = causes_of([(p, (7, n)) for p in PREVIOUS for n in range(12)])
        assert f"36 of 36 pairs tested agree; the {MOST_PAIRS} with the largest fall are drawn" in words_of(
            circuit(many, GPT2, RUN))


# -- loss by position ------------------------------------------------------------------------------------------------

def test_loss_lines_bands_copies_and_level():
    table = loss_table(copies=3)
    with figures.style():
        figure = loss_by_position(table, RUN, vocab_size=2048)
        axes = figure.axes[0]
        words = " ".join(words_of(figure))
    lines = [line for line in axes.lines if len(line.get_xdata()) == len(table)]
    for line, column in zip(lines, ("loss", "loss_cut"), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), table["position"])
        np.testing.assert_array_equal(line.get_ydata(), table[column])
    band = axes.collections[1].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(7.7)
    assert {float(line.get_xdata()[0]) for line in axes.lines if list(line.get_ydata()) == [0, 1]} == {50, 100}
    assert "ln 2,048\n= 7.62" in words
    assert "without 2.1, 3.0" in words
    assert "with 2.1 and 3.0 cut" in words
    with figures.style():
        assert "cut" not in DRAWN["loss, clean"]().axes[0].get_legend_handles_labels()[1]


# -- the phase change ------------------------------------------------------------------------------------------------

def test_places_of_steps_are_powers_of_ten_with_0_apart():
    places = places_of([0, 8, 80, 800], 8)
    np.testing.assert_allclose(np.diff(places[1:]), 1)
    assert places[0] < places[1]
    assert places_of(1000, 8) == pytest.approx(3)


def test_the_phase_change_shows_each_run_on_one_scale_with_step_0_apart():
    steps, heads = training()
    with figures.style():
        figure = phase_change(steps, heads)
        words = words_of(figure)
    deep, flat = figure.axes[:4], figure.axes[4:]
    for one, other in zip(deep, flat, strict=True):
        assert one.get_ylim() == other.get_ylim()
        assert one.get_xlim() == other.get_xlim()
    bold = [line for line in deep[0].lines if line.get_linewidth() == 1.6 and not line.get_label().startswith("_")]
    assert [line.get_label() for line in bold] == ["previous token 0.2: 0.95", "induction 1.1: 0.81"]
    np.testing.assert_allclose(bold[1].get_xdata(), np.log10(STEPS[1:]))    # no line leads to step 0
    np.testing.assert_allclose(bold[1].get_ydata(), [0.011, 0.011, 0.011, 0.81, 0.81])
    dots = [line for line in deep[0].lines if line.get_marker() == "o" and len(line.get_xdata())]
    assert {float(line.get_xdata()[0]) for line in dots} == {float(places_of(0, 8))}
    assert len(dots) == 6 + 6 + 1                                           # each head twice, and the control
    assert "0.4 passed at step 1,000" in words
    assert sum("passed at" in w for w in words) == 1                        # the one-layer run never passes
    assert words.count("0") >= 2
    assert any("says nothing about natural text" in w for w in words) or "natural text" in " ".join(words)


def test_the_phase_change_without_copying_has_no_such_panel():
    with figures.style():
        assert len(phase_change(*training(copying=False)).axes) == 6
        assert len(phase_change(*training()).axes) == 8


def test_the_caption_of_the_phase_change_warns_where_repeats_were_trained_on():
    how = {"n_sequences": 16, "period": 50, "seed": 3, "windows": 64}
    planted = captions.phase_caption([("4 layers", 0.25), ("4 layers, text alone", 0.0)], **how)
    assert "4 layers: 25 % of the rows repeat" in planted
    assert "text alone: no planted repeats" in planted
    assert captions.REPEATS in planted
    assert "seed 3; losses of the copies on another draw, seed 4" in planted
    assert captions.REPEATS not in captions.phase_caption([("text", 0.0)], **how)
    assert captions.REPEATS in captions.phase_caption([("unknown", None)], **how)


def test_a_figure_as_png_is_the_figure_as_drawn():
    """The picture is not blank and not one flat colour: ink on paper."""
    import io
    image = Image.open(io.BytesIO(figures.files(DRAWN["circuit"])["png"])).convert("L")
    assert image.getpixel((2, 2)) == 255
    assert ImageChops.invert(image).getbbox()[2] > image.width / 2
