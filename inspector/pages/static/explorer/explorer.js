// The explorer: puts the parts together, keeps the state, and makes what they show.

import { Colours } from "inspector/colour.js";
import { compare } from "inspector/compare.js";
import { controls } from "inspector/controls.js";
import { make } from "inspector/dom.js";
import { moves } from "inspector/moves.js";
import { plot } from "inspector/plot.js";
import { row } from "inspector/row.js";
import { save } from "inspector/save.js";
import { fromFragment, toFragment, valid } from "inspector/state.js";
import { Store } from "inspector/store.js";
import { viewer } from "inspector/view.js";
import { wall } from "inspector/wall.js";
import { valueWords, words } from "inspector/words.js";

const ADDRESS = 200;    // milliseconds without a change until the address follows: browsers refuse to change it more often
let mounted = 0;        // names of radio buttons differ from explorer to explorer on one page

/**
 * Put an explorer into an element.
 * @param {HTMLElement} root @param {any} bundle see bundle.py
 * @param {{read?: (packed: any) => string|Promise<string>, linked?: boolean, state?: any, changed?: (state: any) => void,
 *  middle?: Element}} [options]
 *   read: what a packed part's name stands for; linked: the page's address holds the state; state: to start with;
 *   changed: is told of every new state; middle: stands below the open head
 */
export function mount(root, bundle, { read, linked = false, state: asked = {}, changed = () => {}, middle = null } = {}) {
  const store = new Store(bundle, read), look = viewer(store), uid = `x${mounted++}`;
  const dark = matchMedia("(prefers-color-scheme: dark)"), printed = matchMedia("print");
  let theme = new Colours(bundle, dark.matches ? "dark" : "light");
  let state = valid({ ...asked, ...linked ? fromFragment(location.hash) : {} }, bundle);
  let peeked = null, turn = 0, settled = 0, drawn = -1, last = null, gone = false, written = 0;

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
  const pick = (i, j) => update({ ...state.way === "from" ? { query: i, key: j } : { query: j, key: i }, locked: true });

  const context = { bundle, store, update, peek, pick, uid, linked };
  const grid = plot("Attention", pick, value => valueWords(last, value));
  const parts = { wall: wall(context), words: words(context), controls: controls(context), row: row(context),
    moves: moves(context), compare: compare(context), save: save(context) };
  const heading = make("h2", { class: "x-head", "aria-live": "polite" });
  const trouble = make("p", { class: "note x-trouble", role: "alert" });
  const texts = make("div", { class: "x-texts", role: "group", "aria-label": "Texts" });
  const paper = (href, name) => make("a", { href, target: "_blank", rel: "noreferrer" }, name);
  const caveat = make("p", { class: "note x-caveat" }, "A grid says where a head drew from, not what it did with it. ",
    paper("https://aclanthology.org/N19-1357/", "Jain and Wallace 2019"), ", ",
    paper("https://aclanthology.org/D19-1002/", "Wiegreffe and Pinter 2019"), ".");
  const open = make("section", { class: "x-main", "aria-label": "One head" },
    make("div", { class: "x-bar" }, heading, parts.save.element), trouble, texts, parts.words.element,
    parts.controls.element, make("div", { class: "x-cols" }, make("div", {}, grid.element, caveat), parts.row.element));
  const element = make("div", { class: "x-explorer" }, make("div", { class: "x-stage" }, parts.wall.element, open),
    ...middle ? [middle] : [], parts.compare.element, parts.moves.element);
  if (bundle.texts.length > 1) {
    texts.append(...bundle.texts.map((text, i) => make("button", { type: "button", "data-text": String(i),
      on: { click: () => update({ text: i }) } }, text.name ?? `text ${i + 1}: ${text.title}`)));
  }

  root.replaceChildren(make("p", { class: "note" }, "Opening …"));

  /** Get all that the state asks for, then show it in one go: what is asked for later is never overwritten. */
  async function render() {
    const mine = ++turn, found = await look(state, peeked).catch(error => {
      if (mine === turn && !gone) failed(error);
      throw error;
    });
    if (mine !== turn || gone) return;
    const view = last = { ...found, colours: theme };
    trouble.textContent = "";
    title(view.state);
    for (const part of [parts.words, parts.controls, parts.row, parts.moves]) part.render(view);
    if (!view.peeked) for (const part of [parts.save, parts.wall]) part.render(view);
    if (!element.parentNode) root.replaceChildren(element);
    // Last, what reads the page's measures: all that was changed is laid out for it, once.
    if (!view.peeked || drawn !== view.query) grid.render(view.grid, theme, view.query);
    if (!view.peeked) parts.compare.render(view);
    parts.words.reveal();
    drawn = view.query;
    settled = mine;
    root.dataset.ready = String(turn);
  }

  /** Say what went wrong, and keep what is shown. @param {Error} error */
  function failed(error) {
    trouble.textContent = `This cannot be shown: ${error.message}`;
    if (!last) return root.replaceChildren(trouble);
    [state, peeked, settled] = [last.state, null, turn];
    return changed(state);
  }

  /** Name what is open. @param {import("inspector/state.js").State} now */
  function title({ heads, text }) {
    heading.textContent = heads.length === 1 ? `Head ${heads[0]}` : `Heads ${heads.join(", ")}`;
    const verdict = heads.length === 1 && bundle.verdicts[heads[0]];
    if (verdict) heading.append(" ", make("span", { class: "tag" }, verdict));
    for (const button of texts.children) button.setAttribute("aria-pressed", String(button.dataset.text === String(text)));
  }

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
