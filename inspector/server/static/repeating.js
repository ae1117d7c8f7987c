// Induction in one click: the text's tokens twice, or random ones; the loss of each half, with and without the heads found.

import { make, table } from "inspector/dom.js";
import { plural, signed } from "inspector/say.js";
import { fixed } from "live/changes.js";

/** The buttons. @param {(how: string|null) => void} repeat text, random, or null: back to the text */
export function repeatButtons(repeat) {
  const button = (how, label, title = null) =>
    make("button", { type: "button", title, on: { click: () => repeat(how) } }, label);
  const twice = button("text", "Repeat this text", "This text's tokens, twice.");
  const random = button("random", "Repeat random tokens", "Random tokens, twice: only that they repeat can be foretold.");
  const back = button(null, "Back to the text");
  return {
    element: make("span", { class: "l-buttons", role: "group", "aria-label": "Induction in one click" },
      twice, random, back),
    /** @param {string|null} how */
    show(how) {
      twice.setAttribute("aria-pressed", String(how === "text"));
      random.setAttribute("aria-pressed", String(how === "random"));
      if (back === document.activeElement && !how) twice.focus();
      back.hidden = !how;
    },
  };
}

/** What a copy of the block is called. @param {any} row of Intervention.copies @param {number} all how many there are */
const called = (row, all) => all > 2 ? `copy ${row.copy}` : row.copy === 1 ? "first half" : "second half";

/**
 * What is seen on repeated tokens.
 * @param {any[]} copies rows of Intervention.copies @param {string[]} found the induction heads, best first
 * @param {string[]} changed the heads that are changed
 * @param {{open: (head: string) => void, off: () => void, on: () => void}} acts off, on: turn those found off, and on again
 */
export function induction(copies, found, changed, { open, off, on }) {
  const any = changed.length > 0, allOff = found.every(head => changed.includes(head));
  const losses = table("Mean loss, nats a token", ["", any ? "as it is" : "loss", ...any ? ["changed", "change"] : []],
    copies.map(row => [called(row, copies.length), fixed(row.loss_before, 3),
      ...any ? [fixed(row.loss_after, 3), signed(row.change, 3)] : []]));
  const button = (label, click, name) => make("button", { type: "button", class: name, on: { click } }, label);
  const named = found.map(head => button(head, () => open(head), "x-chip"));
  const turn = allOff ? button("Turn them on again", on, "l-turn") : button("Turn them off", off, "l-turn");
  const note = "When tokens come a second time, an induction head looks at what followed them the last time, and that can "
    + "be copied: its grid shows a stripe, the second half has a lower loss, and the loss rises when the heads found are "
    + "off. Turned off, they write their mean instead.";
  const line = !found.length ? ["No induction head was found on repeated random tokens."]
    : [`${plural(found.length, "induction head")} found on repeated random tokens: `, ...named, turn];
  return [make("h2", {}, "Induction"), make("div", { class: "l-columns" }, losses,
    make("div", {}, make("p", { class: "note" }, note), make("p", { class: "l-buttons" }, ...line)))];
}
