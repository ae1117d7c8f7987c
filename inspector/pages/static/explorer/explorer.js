// The explorer: puts the parts together, keeps the state, and makes what they show.

import { largest } from "inspector/attention.js";
import { Colours } from "inspector/colour.js";
import { compare } from "inspector/compare.js";
import { controls } from "inspector/controls.js";
import { make } from "inspector/dom.js";
import { difference, extent, merged, pattern, row as rowOf, rowError, scores, valueWeighted } from "inspector/grids.js";
import { moves } from "inspector/moves.js";
import { plot } from "inspector/plot.js";
import { row } from "inspector/row.js";
import { save } from "inspector/save.js";
import { fromFragment, otherText, toFragment, valid } from "inspector/state.js";
import { start, Store } from "inspector/store.js";
import { valueWords, words } from "inspector/words.js";
import { wall } from "inspector/wall.js";

const ADDRESS = 200;    // milliseconds without a change until the address follows: browsers refuse to change it more often
let mounted = 0;        // names of radio buttons differ from explorer to explorer on one page

/** What a grid shows, in words. @param {any} state @param {string[]} heads */
function titleOf(state, heads) {
  const what = { pattern: "pattern", scores: "scores", values: "value-weighted pattern" }[state.shown];
  return heads.length === 1 ? `${heads[0]} ${what}` : `${heads.join(", ")} ${what}, ${state.merge}`;
}

/** A grid of heads on a text as the state asks for it. @param {Store} store @param {any} state @param {number} text @param {string[]} heads */
async function gridOf(store, state, text, heads) {
  const stored = store.bundle.texts[text], decoded = await Promise.all(heads.map(head => store.head(text, head)));
  const norms = state.shown === "values" ? await Promise.all(heads.map(head => store.part(text, "value_norms", head))) : [];
  const made = function* () {
    for (const [i, head] of decoded.entries()) {
      yield state.shown === "scores" ? scores(head, state)
        : state.shown === "values" ? valueWeighted(pattern(head, state), norms[i]) : pattern(head, state);
    }
  };
  const values = merged(made(), state.merge), signed = state.shown === "scores";
  return { values, n: stored.n, labels: stored.labels, scale: signed ? "signed" : state.scale,
    largest: state.shown === "pattern" ? 1 : extent(values), title: titleOf(state, heads), decoded };
}

/** Row (or column) of a grid: [pos], NaN where masked. @param {any} grid @param {number} place @param {string} way */
const lineOf = ({ values, n }, place, way) => Float32Array.from({ length: n }, (_, at) =>
  way === "from" ? values[place * n + at] : values[at * n + place]);

/** The exact weights of a row or column, NaN where masked. @param {ArrayLike<number>} exact @param {number} n @param {number} place @param {string} way */
const exactOf = (exact, n, place, way) => Float64Array.from({ length: n }, (_, at) =>
  way === "from" ? (at <= place ? exact[start(place) + at] : NaN) : (at >= place ? exact[start(at) + place] : NaN));

/**
 * Put an explorer into an element.
 * @param {HTMLElement} root @param {any} bundle see bundle.py
 * @param {{read?: (packed: string) => string, linked?: boolean, state?: any, changed?: (state: any) => void, middle?: Element}} [options]
 *   read: what a packed part's name stands for; linked: the page's address holds the state; state: to start with;
 *   changed: is told of every new state; middle: stands below the open head
 */
export function mount(root, bundle, { read, linked = false, state: asked = {}, changed = () => {}, middle = null } = {}) {
  const store = new Store(bundle, read), uid = `x${mounted++}`;
  const dark = matchMedia("(prefers-color-scheme: dark)"), printed = matchMedia("print");
  let theme = new Colours(bundle, dark.matches ? "dark" : "light");
  let state = valid({ ...asked, ...linked ? fromFragment(location.hash) : {} }, bundle), peeked = null, turn = 0, settled = 0, last = null, gone = false, written = 0;

  function update(patch) {
    const wanted = typeof patch === "function" ? patch(state) : patch;
    if ("text" in wanted && !("other" in wanted) && state.other.startsWith("t")) wanted.other = "";
    state = valid({ ...state, ...wanted }, bundle);
    clearTimeout(written);
    if (linked) written = setTimeout(() => history.replaceState(null, "", toFragment(state)), ADDRESS);
    peeked = null;
    changed(state);
    return render();
  }

  function peek(place) {
    if (peeked === place || (place !== null && settled !== turn)) return;      // another view is on its way
    peeked = place;
    render();
  }

  /** A cell was chosen. @param {number} i its query @param {number} j its key */
  const pick = (i, j) => update(state.way === "from" ? { query: i, key: j, locked: true } : { query: j, key: i, locked: true });

  const context = { bundle, store, update, peek, pick, uid, linked };
  const grid = plot("Attention", pick, value => valueWords(last, value));
  const parts = { wall: wall(context), words: words(context), controls: controls(context), row: row(context), moves: moves(context),
    compare: compare(context), save: save(context) };
  const heading = make("h2", { class: "x-head", "aria-live": "polite" });
  const texts = make("div", { class: "x-texts", role: "group", "aria-label": "Texts" });
  const caveat = make("p", { class: "note x-caveat" }, "A grid says where a head drew from, not what it did with it. ",
    make("a", { href: "https://aclanthology.org/N19-1357/", target: "_blank", rel: "noreferrer" }, "Jain and Wallace 2019"), ", ", make("a", { href: "https://aclanthology.org/D19-1002/", target: "_blank", rel: "noreferrer" }, "Wiegreffe and Pinter 2019"), ".");
  const open = make("section", { class: "x-main", "aria-label": "One head" },
    make("div", { class: "x-bar" }, heading, parts.save.element), texts, parts.words.element,
    parts.controls.element, make("div", { class: "x-cols" }, make("div", {}, grid.element, caveat), parts.row.element));
  const element = make("div", { class: "x-explorer" }, make("div", { class: "x-stage" }, parts.wall.element, open),
    ...middle ? [middle] : [], parts.compare.element, parts.moves.element);
  element.inert = true;         // until there is something to act on
  root.replaceChildren(element);
  if (bundle.texts.length > 1) {
    texts.append(...bundle.texts.map((text, i) => make("button", { type: "button", "data-text": String(i), on: { click: () => update({ text: i }) } }, text.name ?? `text ${i + 1}: ${text.title}`)));
  }

  /** What is beside the open grid, or null. */
  async function besideOf(shown) {
    if (!state.other) return null;
    const b = otherText(state), beside = await gridOf(store, state, b < 0 ? state.text : b, b < 0 ? [state.other] : state.heads);
    if (b >= 0) beside.title += `, ${bundle.texts[b].name ?? `text ${b + 1}`}`;
    const values = difference(shown.values, shown.n, beside.values, beside.n), n = Math.min(shown.n, beside.n);
    const { labels } = bundle.texts[state.text];
    return { grid: beside, difference: { values, n, labels: labels.slice(0, n), scale: "signed", largest: extent(values), title: "Difference" } };
  }

  /** What the moves of one head need, or null where it is not stored. @param {number} text @param {string} head */
  async function ownOf(text, head) {
    const own = await store.moves(text, head);
    return own && { ...own, stream: await store.floats(text, "stream"), writes: await store.part(text, "writes", head) };
  }

  let keyOfGrid = "", shown = null, beside = null;

  /** Get all that the state asks for, then show it in one go: what is asked for later is never overwritten. */
  async function render() {
    const mine = ++turn, query = peeked ?? state.query;
    const wanted = [state.text, state.heads, state.merge, state.beta, state.shown, state.first, state.self, state.other, state.scale].join("|");
    if (wanted !== keyOfGrid) {
      const now = await gridOf(store, state, state.text, state.heads), next = await besideOf(now);
      if (mine !== turn || gone) return;
      [shown, beside, keyOfGrid] = [now, next, wanted];
    }
    const own = state.heads.length === 1 ? await ownOf(state.text, state.heads[0]) : null;
    const levels = await store.thumbs(state.text), b = otherText(state);
    const cosines = b < 0 ? null : await store.cosines(state.text, query, b, state.twin);
    if (mine !== turn || gone) return;
    const values = lineOf(shown, query, state.way);
    const rows = shown.decoded.map(head => rowOf(head, query, state)), weights = merged(rows.map(row => row.slice()), state.merge);
    const isExact = own?.exact && state.shown === "pattern" && state.beta === 1 && state.first && state.self;
    const view = { state, query, colours: theme, grid: shown, beside, values, weights, scale: shown.scale, largest: shown.largest, moves: own, levels, cosines,
      error: bundle.texts[state.text].kind === "log" && !(state.first && state.self)
        ? Math.max(...shown.decoded.map((head, i) => rowError(head, query, state, rows[i]))) : null,
      exactRow: isExact ? exactOf(own.exact, shown.n, query, state.way) : null,
      key: state.key >= 0 && peeked === null ? state.key : largest(values) };
    last = view;
    heading.textContent = state.heads.length === 1 ? `Head ${state.heads[0]}` : `Heads ${state.heads.join(", ")}`;
    const verdict = state.heads.length === 1 && bundle.verdicts[state.heads[0]];
    if (verdict) heading.append(" ", make("span", { class: "tag" }, verdict));
    for (const button of texts.children) button.setAttribute("aria-pressed", String(button.dataset.text === String(state.text)));
    parts.words.render(view);
    parts.controls.render(view);
    parts.row.render(view);
    if (peeked === null || drawnQuery !== query) grid.render(shown, theme, query);
    drawnQuery = query;
    if (peeked === null) {
      parts.save.render(view);
      parts.compare.render(view);
      parts.wall.render(view);
    }
    parts.moves.render(view);
    element.inert = false;
    settled = mine;
    root.dataset.ready = String(turn);
  }
  let drawnQuery = -1;

  const themed = () => {
    theme = new Colours(bundle, dark.matches && !printed.matches ? "dark" : "light");
    peeked = null;
    render();
  };
  const jumped = () => {
    clearTimeout(written);
    [state, peeked] = [valid(fromFragment(location.hash), bundle), null];
    render();
  };
  dark.addEventListener("change", themed);
  printed.addEventListener("change", themed);
  if (linked) addEventListener("hashchange", jumped);

  return {
    element, store, update, get state() { return state; }, get view() { return last; },
    /** Done when the first picture is drawn. */
    drawn: render(),
    /** Take it out again. */
    remove() {
      gone = true;
      clearTimeout(written);
      dark.removeEventListener("change", themed);
      printed.removeEventListener("change", themed);
      removeEventListener("hashchange", jumped);
      root.replaceChildren();
    },
  };
}
