// Induction in one click: the text's tokens twice, or random ones; the loss of the second half, with and without the heads found.

import { make } from "inspector/dom.js";
import { plural, signed } from "inspector/say.js";

/**
 * @param {{repeat: (how: string) => void, undo: () => void, cut: (heads: string[]) => void, open: (head: string) => void}} acts
 */
export function repeating({ repeat, undo, cut, open }) {
  const twice = make("button", { type: "button", on: { click: () => repeat("text") } }, "Repeat this text");
  const random = make("button", { type: "button", on: { click: () => repeat("random") } }, "Repeat random tokens");
  const back = make("button", { type: "button", hidden: true, on: { click: undo } }, "Back to the text");
  const results = make("div", { class: "l-results", "aria-live": "polite" });
  const element = make("section", { class: "l-repeat", "aria-label": "Induction" }, make("h2", {}, "Induction"),
    make("p", { class: "note" }, "Tokens that come a second time can be foretold by an induction head: it looks for what followed the last time. Its grid shows a stripe, the second half costs less, and without the heads found it costs more again. “Repeat this text”, above, shows it in one click."), results);
  return {
    element,
    buttons: make("span", { class: "l-buttons", role: "group", "aria-label": "Induction in one click" }, twice, random, back),
    /** Whether ids stand in for the text. @param {boolean} repeated */
    mode(repeated) {
      back.hidden = !repeated;
      if (!repeated) results.replaceChildren();
    },
    /** @param {any[]} copies rows of Intervention.copies @param {string[]} found the induction heads, best first @param {string[]} off those turned off */
    render(copies, found, off) {
      const changed = off.length > 0, rows = copies.map(row => make("tr", {}, make("th", { scope: "row" }, row.copy === 1 ? "first half" : copies.length === 2 ? "second half" : `copy ${row.copy}`),
        make("td", { class: "l-copy-before" }, row.loss_before.toFixed(3)), ...changed ? [make("td", { class: "l-copy-after" }, row.loss_after.toFixed(3)), make("td", {}, signed(row.change, 3))] : []));
      const names = found.map(head => make("button", { type: "button", class: "x-chip", on: { click: () => open(head) } }, head));
      const all = found.length > 0 && found.every(head => off.includes(head));
      results.replaceChildren(
        make("table", { class: "x-table l-copies" }, make("caption", {}, "Mean loss, nats a token"), make("thead", {}, make("tr", {}, ...["", changed ? "as it is" : "loss", ...changed ? ["changed", "change"] : []].map(head => make("th", { scope: "col" }, head)))),
          make("tbody", {}, ...rows)),
        make("p", {}, found.length ? `${plural(found.length, "induction head")} found on repeated random tokens: ` : "No induction head was found on repeated random tokens.", ...names.flatMap(name => [name, " "])),
        ...found.length ? [make("button", { type: "button", class: "l-cut", disabled: all, on: { click: () => cut(found) } }, all ? "They are off" : "Turn them off")] : []);
    },
  };
}
