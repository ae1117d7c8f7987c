// The open row: the query's keys with their weights, the largest first, and what the row is like as a whole.

import { entropy, largest } from "inspector/attention.js";
import { make } from "inspector/dom.js";
import { bare, bound, exact, number } from "inspector/say.js";
import { valueWords } from "inspector/words.js";

const ROWS = 12;        // of the table, until all are asked for

/** The places of a row's values in descending order; what is masked or left out is no part of it.
 *  @param {ArrayLike<number>} values */
export const descending = values => Array.from(values, (_, place) => place).filter(place => !Number.isNaN(values[place]))
  .sort((a, b) => values[b] - values[a]);

/** How long a value's bar is, and of a signed one the colour. @param {any} view @param {number} value */
function barOf({ largest: most, scale, colours }, value) {
  const part = most ? value / most : 0;
  return { "--part": String(Math.abs(part)), ...scale === "signed" ? { background: colours.tone(part, "signed").css } : {} };
}

/** @param {any} context */
export function row({ bundle, update }) {
  const sums = make("p", { class: "x-sums", "aria-live": "polite" });
  const body = make("tbody", {}), head = make("tr", {}), caption = make("caption", {});
  const more = make("button", { type: "button", class: "x-more", on: { click: () => { all = !all; show(); } } });
  const note = make("p", { class: "note" });
  let all = false, view = null;

  function show() {
    const { state, query, values, exactRow } = view, { labels } = bundle.texts[state.text], from = state.way === "from";
    const places = descending(values), listed = all ? places : places.slice(0, ROWS);
    const what = { pattern: "weight", scores: "score", values: "weight × length" }[state.shown];
    const own = `“${bare(labels[query])}” (${query})`, share = make("span", { class: "x-hidden" }, "share");
    caption.textContent = from ? `What ${own} looks at` : `Who looks at ${own}`;
    head.replaceChildren(...[from ? "key" : "query", what, ...exactRow ? ["exact"] : [], share]
      .map(name => make("th", { scope: "col" }, name)));
    body.replaceChildren(...listed.map(place => make("tr", { class: place === view.key ? "x-on" : null },
      make("th", { scope: "row" }, make("button", { type: "button", on: { click: () => update({ key: place }) } },
        make("span", { class: "token" }, labels[place]), make("sup", {}, String(place)))),
      make("td", {}, valueWords(view, values[place])),
      ...exactRow ? [make("td", { class: "x-exact" }, exact(exactRow[place], bundle.dtype))] : [],
      make("td", { class: "x-barcell" }, make("i", { style: barOf(view, values[place]) })))));
    more.hidden = places.length <= ROWS;
    more.textContent = all ? "Fewer" : `All ${places.length}`;
  }

  return {
    element: make("section", { class: "x-row", "aria-label": "The open row" }, sums,
      make("table", { class: "x-table" }, caption, make("thead", {}, head), body), more, note),
    /** @param {any} now */
    render(now) {
      view = now;
      const { state, weights, query } = now, { labels, error, kind } = bundle.texts[state.text];
      const top = largest(weights);
      const counted = descending(weights).length, spread = counted && (state.heads.length === 1 || state.merge === "mean");
      sums.replaceChildren("Row of ", make("b", {}, `“${bare(labels[query])}” ${query}`),
        " · entropy ", make("b", { class: "x-entropy" }, spread ? entropy(weights).toFixed(3) : "–"),
        ` of ${counted ? Math.log(counted).toFixed(3) : "–"} nats (0: one token, the most: all alike)`,
        " · top weight ", make("b", { class: "x-top" }, counted ? number(weights[top], 3) : "–"),
        ...counted ? [` on “${bare(labels[top])}” ${top}`] : []);
      const left = [!state.first && "the first token", !state.self && "the query itself"].filter(Boolean).join(" and ");
      const off = now.error !== null ? `Weights of this row are within ${bound(now.error)}`
        : kind === "log" ? `Weights shown are within ${bound(error.bound)} at any sharpness (the farthest at sharpness 1: ${
          bound(error.measured)})` : `Weights shown are within ${bound(error.measured / 2)} × the sharpness`;
      const file = bundle.table && state.text === 0 ? make("a", { href: bundle.table }, bundle.table) : null;
      const exactly = now.exactRow ? "the exact ones are the model's own"
        : file ? "exact ones stand in" : "exact ones: inspector trace --attention";
      note.replaceChildren(left ? `Without ${left}: the rest is renormalised to sum to 1. ` : "", `${off}; ${exactly}`,
        ...file ? [now.exactRow ? ", as in " : " ", file] : [], ".");
      show();
    },
  };
}
