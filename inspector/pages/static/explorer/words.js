// The text itself: each token is a button, shaded by the weight that links it with the query.

import { make } from "inspector/dom.js";
import { bare, number, signed } from "inspector/say.js";

/** @type {import("inspector/colour.js").Tone} */
const MASKED = { css: "transparent", over: "inherit" };

/** A value as the readouts say it. @param {any} view @param {number} value */
export const valueWords = (view, value) => view.state.shown === "scores" ? signed(value) : number(value, 4);

/** @param {any} context */
export function words({ bundle, update, peek }) {
  const list = make("ol", { class: "x-text",
    "aria-label": "The text. Arrow keys walk; the token with the focus is the query, Enter locks it." });
  const readout = make("p", { class: "x-readout", "aria-live": "polite" });
  let shown = -1, placed = -1, buttons = [], view = null;
  /** The tone of each token, and the tokens that are marked. @type {import("inspector/colour.js").Tone[]} */
  let tones = [];
  /** @type {number[]} */
  let marked = [];

  /** The token under an event. @param {Event} event */
  const at = event => {
    const button = /** @type {Element} */ (event.target).closest?.("button");
    return button ? buttons.indexOf(button) : -1;
  };

  /** The other token's own value, in words. @param {number} place */
  function tell(place) {
    const { labels } = bundle.texts[view.state.text], { query, values, state } = view, value = values[place];
    const [from, to] = state.way === "from" ? [query, place] : [place, query];
    readout.replaceChildren(`“${bare(labels[from])}” ${from} → “${bare(labels[to])}” ${to}  `, make("b", {},
      from < to ? "masked: a later token" : Number.isNaN(value) ? "left out" : valueWords(view, value)));
  }

  /** What pointing and a click do, where nothing is read. */
  function hint() {
    readout.textContent = view.state.locked ? "Point at a token to read its number; click it to look from there."
      : "Point at a token to look from there; click it to stay.";
  }

  /** Shade a token by its value. What stays as it is is not touched: a text may have a thousand. @param {number} place */
  function shade(place) {
    const { values, colours, largest, scale } = view, value = values[place], button = buttons[place];
    const tone = Number.isNaN(value) ? MASKED : colours.tone(largest ? value / largest : 0, scale);
    if (tones[place] === tone) return;
    tones[place] = tone;
    button.style.setProperty("--shade", tone.css);
    button.style.setProperty("--on", tone.over);
    button.classList.toggle("x-masked", tone === MASKED);
  }

  /** Mark a token as the query, the key, the one that is locked, the one that Tab comes to, or unmark it.
   *  @param {number} place */
  function mark(place) {
    const { state, query, key } = view, button = buttons[place];
    button.classList.toggle("x-query", place === query);
    button.classList.toggle("x-key", place === key);
    button.setAttribute("aria-pressed", String(place === state.query && state.locked));
    button.tabIndex = place === state.query ? 0 : -1;
  }

  /** Say what a token is, for those who cannot see its shade. @param {number} place */
  function name(place) {
    const { state, query, values } = view, value = values[place];
    buttons[place].setAttribute("aria-label", `${bare(bundle.texts[state.text].labels[place])}, position ${place}${
      place === query ? ", query" : ""}${
      Number.isNaN(value) ? "" : `, ${state.way === "from" ? "looked at with" : "looks with"} ${valueWords(view, value)}`}`);
  }

  list.addEventListener("pointerover", event => {
    const place = at(event);
    if (place < 0 || event.pointerType === "touch") return;
    if (view.state.locked) tell(place);
    else peek(place);
  });
  list.addEventListener("pointerleave", () => {
    hint();
    if (!view.state.locked) peek(null);
  });
  list.addEventListener("click", event => {
    const place = at(event);
    if (place >= 0) update({ query: place, key: -1, locked: !(view.state.locked && place === view.state.query) });
  });
  list.addEventListener("focusin", event => {
    const place = at(event);
    if (place < 0) return;
    if (view.state.locked) tell(place);
    else if (buttons[place].matches(":focus-visible")) update({ query: place, key: -1 });
  });
  list.addEventListener("keydown", event => {
    const from = at(event);
    if (event.key === "Escape" && view.state.locked) return update({ locked: false });
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, ArrowUp: from - 1, ArrowDown: from + 1, Home: 0,
      End: buttons.length - 1 }[event.key];
    if (from < 0 || to === undefined) return undefined;
    event.preventDefault();
    return buttons[Math.max(0, Math.min(buttons.length - 1, to))].focus();
  });

  return {
    element: make("div", { class: "x-words" }, list, readout),
    /** @param {any} now */
    render(now) {
      view = now;
      const { state, query } = now;
      if (shown !== state.text) {
        shown = state.text;
        placed = -1;
        const { labels } = bundle.texts[state.text];
        buttons = labels.map((label, i) =>
          make("button", { type: "button", tabindex: "-1", "aria-pressed": "false", title: `position ${i}` }, label));
        [tones, marked] = [[], []];
        list.replaceChildren(...buttons.map(button => make("li", {}, button)));
      }
      buttons.forEach((_, place) => shade(place));
      for (const place of new Set([...marked, query, now.key, state.query])) if (place >= 0) mark(place);
      marked = [query, now.key, state.query];
      if (now.peeked) return;
      buttons.forEach((_, place) => name(place));         // for those who do not point at tokens
      if (!list.matches(":hover, :focus-within")) hint();
    },
    /** Bring the query into sight: a long text scrolls in its box. Once it is drawn: it reads the page's measures. */
    reveal() {
      const { state, query } = view;
      if (query !== state.query || query === placed) return;
      placed = query;
      const box = list.getBoundingClientRect(), own = buttons[query].getBoundingClientRect();
      if (own.top < box.top || own.bottom > box.bottom) list.scrollTop += own.top - box.top - box.height / 2;
    },
  };
}
