// Heads turned off or sharpened, and what that does: the next token, the loss of each token, where other heads look.

import { make, select, table } from "inspector/dom.js";
import { number, signed, significant } from "inspector/say.js";

/** @typedef {Record<string, string|number>} Edits {"5.1": "zero", "4.11": "mean", "3.0": 2} */

/** An edit in words. @param {string|number} how */
export const said = how => ({ zero: "off", mean: "its mean instead" })[how] ?? `scores × ${significant(Number(how))}`;

const OFF = { zero: ["Turn off", "It writes nothing."],
  mean: ["Replace by its mean", "It writes what it writes on average to this text's tokens in random orders."] };
const MOVED = 12;       // heads listed, those that moved most

/** The buttons that change the open heads, and what is changed so far. @param {(edits: Edits) => void} changed */
export function changeBar(changed) {
  /** @type {Edits} */
  let edits = {}, heads = [];
  const add = (names, how) => set({ ...edits, ...Object.fromEntries(names.map(head => [head, how])) });
  const without = names => Object.fromEntries(Object.entries(edits).filter(([head]) => !names.includes(head)));
  const title = make("b", {}), chips = make("ul", { class: "l-chips", "aria-label": "Changed heads" });
  const button = (label, click, title = null) => make("button", { type: "button", title, on: { click } }, label);
  const offs = Object.entries(OFF).map(([how, [label, hint]]) => button(label, () => add(heads, how), hint));
  const factor = make("input", { type: "number", min: "0", max: "100", step: "any", value: "2", required: true,
    "aria-label": "Factor of the scores", on: { keydown: event => { if (event.key === "Enter") sharpen.click(); } } });
  const sharpen = button("Scores ×", () => { if (factor.reportValidity()) add(heads, factor.valueAsNumber); },
    "Its scores times this, before the softmax: 0 looks everywhere alike.");
  const restore = button("As the model has it", () => set(without(heads)));
  const element = make("section", { class: "l-changes l-own", "aria-label": "Change heads" },
    make("div", { class: "x-switches" }, make("span", { class: "l-heads" }, "Head ", title), ...offs,
      make("span", {}, sharpen, factor), restore), chips);

  function set(next) {
    edits = next;
    show();
    changed(edits);
  }

  /** Undo these; the focus, which was on a button that is now gone, goes to the next one. @param {Edits} next */
  function undo(next) {
    set(next);
    (chips.querySelector("button") ?? offs[0]).focus();
  }

  function show() {
    title.textContent = heads.join(", ");
    restore.disabled = !heads.some(head => head in edits);
    const all = Object.entries(edits).map(([head, how]) => make("button", { type: "button", class: "x-chip",
      "aria-label": `${head} ${said(how)}: undo`, on: { click: () => undo(without([head])) } }, `${head} ${said(how)} ✕`));
    if (all.length > 1) all.push(button("All as they were", () => undo({})));
    chips.replaceChildren(...all.map(button => make("li", {}, button)));
    element.hidden = !heads.length;
  }

  return {
    element,
    get edits() { return edits; },
    /** Change more heads. @param {string[]} names @param {string|number} how */
    add,
    /** Let these be as the model has them. @param {string[]} names */
    remove: names => set(without(names)),
    /** Which heads the buttons are about. @param {string[]} now */
    about(now) {
      heads = now;
      show();
    },
    /** Forget all edits, quietly. */
    reset() {
      edits = {};
      show();
    },
  };
}

/** Mean of the numbers that are there. @param {(number|null)[]} values */
export function mean(values) {
  const known = values.filter(value => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN;
}

/** The mean losses of a token table, before and after. @param {any[]} tokens rows of Intervention.tokens */
export const meanLosses = tokens => [mean(tokens.map(row => row.loss_before)), mean(tokens.map(row => row.loss_after))];

/** A number, a dash where there is none. @param {number} value */
export const fixed = (value, digits = 4) => Number.isNaN(value) ? "–" : value.toFixed(digits);

/** Two bars as long as their parts of the most. @param {number} before @param {number} after @param {number} most */
const bars = (before, after, most) => [["l-bar", before], ["l-bar l-after", after]].map(([kind, value]) =>
  make("i", { class: kind, style: { "--part": String(value / most) } }));

/** Losses before and after as two bars a token. @param {any[]} tokens rows of Intervention.tokens */
function losses(tokens) {
  const most = Math.max(1e-9, ...tokens.flatMap(row => [row.loss_before ?? 0, row.loss_after ?? 0]));
  const item = ({ position, label, loss_before: before, loss_after: after }) => make("li", {},
    make("span", { class: "token", title: `position ${position}` }, label),
    ...before === null ? [make("small", {}, "the first")] : [
      make("small", {}, `${fixed(before, 2)} → `, make("b", {}, fixed(after, 2))), ...bars(before, after, most)]);
  return make("ol", { class: "l-losses", tabindex: "0", "aria-label": "Loss of each token, before and after" },
    ...tokens.map(item));
}

/** The likeliest next tokens. @param {any[]} next rows of Intervention.next */
function nextTokens(next) {
  const most = Math.max(...next.flatMap(row => [row.p_before, row.p_after]));
  const cell = (p, rank) => make("span", {}, number(p, 4), make("small", {}, ` (${rank})`));
  return table("The next token: probability (rank)", ["token", "before", "after", "change", ""], next.map(row => [
    make("span", { class: "token" }, row.label), cell(row.p_before, row.rank_before), cell(row.p_after, row.rank_after),
    signed(row.change, 4), make("div", { class: "l-bars" }, ...bars(row.p_before, row.p_after, most))]));
}

/** The rows of the heads whose patterns changed most.
 *  @param {any[]} patterns rows of Intervention.patterns @param {number} most */
export const mostMoved = (patterns, most) =>
  patterns.filter(row => row.moved > 0).sort((a, b) => b.moved - a.moved).slice(0, most);

/** The heads whose patterns changed most.
 *  @param {any[]} patterns rows of Intervention.patterns @param {(head: string) => void} open */
function movedHeads(patterns, open) {
  const moved = mostMoved(patterns, MOVED);
  if (!moved.length) return make("p", { class: "note" }, "No head looks elsewhere now.");
  return table("Heads that look elsewhere now", ["head", "weight that moved", "largest change"], moved.map(row => {
    const head = `${row.layer}.${row.head}`;
    return [make("button", { type: "button", on: { click: () => open(head) } }, head), number(row.moved, 3),
      number(row.largest, 3)];
  }));
}

/**
 * What the changes did.
 * @param {any} found an Intervention's JSON @param {string[]} labels of the text's tokens
 * @param {{open: (head: string) => void, asked: (position: number) => void}} acts
 *   open: look at a head; asked: the next token after another position is wanted
 */
export function effects({ tokens, next, patterns, position }, labels, { open, asked }) {
  const [before, after] = meanLosses(tokens), place = select("Next token after", value => asked(Number(value)));
  place.set(labels.map((label, i) => [String(i), `${i} ${label}`]), String(position));
  return make("section", { class: "l-effects", "aria-label": "What changes" }, make("h2", {}, "What changes"),
    make("p", {}, "Mean loss ", make("b", {}, fixed(before)), " → ", make("b", {}, fixed(after)),
      ` nats a token (${signed(after - before, 4)}). Later layers are free to react.`),
    make("div", { class: "l-columns" }, make("div", {}, place.element, nextTokens(next)), movedHeads(patterns, open)),
    make("h3", {}, "Loss of each token, in nats"), losses(tokens));
}
