// Heads turned off or sharpened, and what that does: the next token, the loss of each token, where other heads look.

import { make, select } from "inspector/dom.js";
import { number, signed, significant } from "inspector/say.js";

/** @typedef {Record<string, string|number>} Edits {"5.1": "zero", "4.11": "mean", "3.0": 2} */

/** An edit in words. @param {string|number} how */
export const said = how => how === "zero" ? "off" : how === "mean" ? "off, its mean instead" : `scores × ${significant(Number(how))}`;

const MOVED = 12;       // heads listed, those that moved most

/** Mean of the numbers that are there. @param {(number|null)[]} values */
function mean(values) {
  const known = values.filter(value => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN;
}

/** A table. @param {string} caption @param {string[]} heads @param {(string|Node)[][]} rows */
const table = (caption, heads, rows) => make("table", { class: "x-table" }, make("caption", {}, caption),
  make("thead", {}, make("tr", {}, ...heads.map(head => make("th", { scope: "col" }, head)))),
  make("tbody", {}, ...rows.map(cells => make("tr", {}, ...cells.map((cell, i) => i ? make("td", {}, cell) : make("th", { scope: "row" }, cell))))));

/** A bar as long as its part. @param {number} part @param {string} [kind] */
const bar = (part, kind = "") => make("i", { class: `l-bar ${kind}`, style: { "--part": String(Math.max(0, Math.min(1, part))) } });

/** Losses before and after as two bars a token. @param {any[]} tokens rows of Intervention.tokens */
function losses(tokens) {
  const most = Math.max(1e-9, ...tokens.flatMap(row => [row.loss_before ?? 0, row.loss_after ?? 0]));
  return make("ol", { class: "l-losses", tabindex: "0", "aria-label": "Loss of each token, before and after" }, ...tokens.map(row => make("li", {},
    make("span", { class: "token", title: `position ${row.position}` }, row.label),
    row.loss_before === null ? make("small", {}, "first") : make("small", {}, `${row.loss_before.toFixed(2)} → `, make("b", {}, row.loss_after.toFixed(2))),
    bar((row.loss_before ?? 0) / most), bar((row.loss_after ?? 0) / most, "l-after"))));
}

/**
 * @param {{changed: (edits: Edits) => void, open: (head: string) => void, asked: (position: number) => void}} acts
 *   changed: other edits are wanted; open: look at a head; asked: the next token after another position
 */
export function changes({ changed, open, asked }) {
  /** @type {Edits} */
  let edits = {};
  let heads = [];
  const set = next => { edits = next; show(); changed(edits); };
  const put = how => set({ ...edits, ...Object.fromEntries(heads.map(head => [head, how])) });
  const title = make("b", {}), chips = make("ul", { class: "l-chips", "aria-label": "Changed heads" });
  const factor = make("input", { type: "number", min: "0", max: "100", step: "any", value: "2", "aria-label": "Sharpness" });
  const without = names => Object.fromEntries(Object.entries(edits).filter(([head]) => !names.includes(head)));
  const buttons = [["Turn off", "zero", "zero: it writes nothing"], ["Turn off, mean", "mean", "mean: it writes what it writes on average to this text's tokens in random orders"]].map(([label, how, hint]) =>
    make("button", { type: "button", title: hint, on: { click: () => put(how) } }, label));
  const sharpen = make("button", { type: "button", on: { click: () => { if (factor.value !== "" && factor.valueAsNumber >= 0) put(factor.valueAsNumber); } } }, "Scores ×");
  const restore = make("button", { type: "button", on: { click: () => set(without(heads)) } }, "As the model has it");
  const clear = make("button", { type: "button", on: { click: () => set({}) } }, "All as they were");
  const place = select("Next token after", value => asked(Number(value)));
  const results = make("div", { class: "l-results", "aria-live": "polite" });
  const element = make("section", { class: "l-changes", "aria-label": "Change heads" }, make("h2", {}, "Change heads"),
    make("p", { class: "note" }, "Turn the open head off, or multiply its scores, and see what the model does without it: later layers are free to react."),
    make("div", { class: "x-switches" }, make("span", {}, "Head ", title), ...buttons, make("span", { class: "l-factor" }, sharpen, factor), restore), chips, results);

  function show() {
    title.textContent = heads.join(", ");
    restore.disabled = !heads.some(head => head in edits);
    chips.replaceChildren(...Object.entries(edits).map(([head, how]) => make("li", {}, make("button", { type: "button", class: "x-chip", "aria-label": `${head} ${said(how)}: undo`,
      on: { click: () => set(without([head])) } }, `${head} ${said(how)} ×`))), ...Object.keys(edits).length > 1 ? [make("li", {}, clear)] : []);
  }

  return {
    element,
    get edits() { return edits; },
    /** Other edits, wanted from elsewhere. @param {Edits} next */
    set,
    /** Which heads the buttons are about. @param {string[]} now */
    about(now) {
      heads = now;
      show();
    },
    /** Forget all edits, quietly. */
    reset() {
      edits = {};
      results.replaceChildren();
      show();
    },
    /** What the edits did, or null. @param {any} found an Intervention's JSON @param {string[]} labels */
    render(found, labels) {
      if (!found) return results.replaceChildren();
      const { tokens, next, patterns } = found, before = mean(tokens.map(row => row.loss_before)), after = mean(tokens.map(row => row.loss_after));
      place.set(labels.map((label, i) => [String(i), `${i} ${label}`]), String(found.position));
      const moved = patterns.filter(row => row.moved !== null && row.moved > 0).sort((a, b) => b.moved - a.moved).slice(0, MOVED);
      const most = Math.max(...next.flatMap(row => [row.p_before, row.p_after]));
      results.replaceChildren(
        make("p", { class: "l-sum" }, "Mean loss ", make("b", { class: "l-before-loss" }, Number.isNaN(before) ? "–" : before.toFixed(4)), " → ", make("b", { class: "l-after-loss" }, Number.isNaN(after) ? "–" : after.toFixed(4)),
          ` nats a token (${signed(after - before, 4)}).`),
        make("div", { class: "l-columns" },
          make("div", {}, place.element, table("The next token, before and after", ["token", "before", "after", "", ""], next.map(row => [make("span", { class: "token" }, row.label),
            `${number(row.p_before, 4)} (${row.rank_before})`, `${number(row.p_after, 4)} (${row.rank_after})`, signed(row.change, 4), make("div", { class: "l-bars" }, bar(row.p_before / most), bar(row.p_after / most, "l-after"))]))),
          make("div", {}, table("Heads that look elsewhere now", ["head", "weight that moved", "largest change"], moved.map(row => { const head = `${row.layer}.${row.head}`; return [
            make("button", { type: "button", on: { click: () => open(head) } }, head), number(row.moved, 3), number(row.largest, 3)]; })),
            moved.length ? "" : make("p", { class: "note" }, "None: no other pattern has changed."))),
        make("h3", {}, "Loss of each token"), losses(tokens));
      return undefined;
    },
  };
}
