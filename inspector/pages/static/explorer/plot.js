// One grid on the screen: reads a cell under the pointer or the arrow keys, a click makes it the query and the key.

import { draw, gutterOf } from "inspector/drawing.js";
import { make } from "inspector/dom.js";
import { legend } from "inspector/legend.js";
import { CanvasPen } from "inspector/pen.js";
import { bare } from "inspector/say.js";

/** The page's own colours, as the style sheet has them. @param {Element} element */
export function inks(element) {
  const style = getComputedStyle(element), read = name => style.getPropertyValue(name).trim();
  return { ink: read("--soft"), hatch: read("--hatch"), line: read("--line"), mark: read("--accent"), strong: read("--ink"),
    paper: read("--paper") };
}

/**
 * @param {string} name what a screen reader calls it
 * @param {(query: number, key: number) => void} pick a cell was chosen
 * @param {(value: number) => string} say a value in words
 */
export function plot(name, pick, say) {
  const canvas = make("canvas", {}), cursor = make("div", { class: "x-cursor", hidden: true });
  const cells = make("div", { class: "x-cells", tabindex: "0", role: "application", "aria-roledescription": "grid" },
    cursor);
  const readout = make("figcaption", { class: "x-readout", "aria-live": "polite" }, "\u00a0");
  const title = make("p", { class: "x-title" });
  const sheet = make("div", { class: "x-sheet" }, canvas, cells);
  const bar = legend(), element = make("figure", { class: "x-plot" }, title, sheet, readout, bar.element);
  let grid = null, colours = null, ink = null, inked = null, row = 0, column = 0, side = 0, drawn = 0, query = -1;

  function show(i, j) {
    row = Math.max(0, Math.min(grid.n - 1, i));
    column = Math.max(0, Math.min(grid.n - 1, j));
    const cell = side / grid.n, size = Math.max(6, cell), from = place => `${place * cell - (size - cell) / 2}px`;
    Object.assign(cursor.style, { left: from(column), top: from(row), width: `${size}px`, height: `${size}px` });
    cursor.hidden = false;
    const value = grid.values[row * grid.n + column];
    readout.replaceChildren(`“${bare(grid.labels[row])}” ${row} → “${bare(grid.labels[column])}” ${column}  `,
      make("b", {}, column > row ? "masked" : Number.isNaN(value) ? "left out" : say(value)));
  }

  function clear() {
    cursor.hidden = true;
    readout.textContent = "\u00a0";
  }

  /** The cell under the pointer. @param {PointerEvent|MouseEvent} event */
  function under(event) {
    const { left, top, width, height } = cells.getBoundingClientRect();
    return [(event.clientY - top) / height, (event.clientX - left) / width].map(part => Math.floor(part * grid.n));
  }

  cells.addEventListener("pointermove", event => show(...under(event)));
  cells.addEventListener("pointerleave", clear);
  cells.addEventListener("blur", clear);
  cells.addEventListener("focus", () => { if (cells.matches(":focus-visible")) show(row, column); });
  cells.addEventListener("click", event => {
    const [i, j] = under(event);
    if (j <= i) pick(i, j);
  });
  cells.addEventListener("keydown", event => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (step) show(row + step[0], column + step[1]);
    else if (event.key === "Enter" && column <= row) pick(row, column);
    else return;
    event.preventDefault();
  });

  /** Draw at the width there is. */
  function redraw() {
    const width = sheet.clientWidth;
    if (!grid || !width) return;
    drawn = width;
    if (inked !== colours) [ink, inked] = [inks(element), colours];     // on the page: elsewhere an element has no colours
    // How many labels there is room for depends on how wide they are: a first guess, and what follows from it.
    const most = width * 0.24, guess = gutterOf(grid.labels, width * 0.8, most);
    const gutter = gutterOf(grid.labels, width - guess - 1, most);
    side = width - gutter - 1;
    const pen = new CanvasPen(canvas, width, side + gutter + 2, window.devicePixelRatio || 1);
    draw(pen, grid, colours, { left: 0, top: 0, side, gutter, query }, ink);
    Object.assign(cells.style, { left: `${gutter}px`, top: `${gutter}px`, width: `${side}px`, height: `${side}px` });
  }

  // In the next frame, and for a new width alone: drawing changes the height, and must not call itself.
  new ResizeObserver(() => requestAnimationFrame(() => { if (sheet.clientWidth !== drawn) redraw(); })).observe(sheet);
  return {
    element,
    /** @param {import("inspector/drawing.js").Grid} next @param {any} theme @param {number} asked the query, -1 for none */
    render(next, theme, asked) {
      [grid, colours, query] = [next, theme, asked];
      title.textContent = grid.title;
      cells.setAttribute("aria-label",
        `${name}: ${grid.title}, ${grid.n} tokens. Arrow keys read a cell, Enter makes it the query and the key.`);
      bar.render(grid, colours);
      clear();
      redraw();
    },
  };
}
