// Taking it away: the view as PNG and SVG, the row and the grid as CSV, a link that opens the same view.

import { draw, gutterOf } from "inspector/drawing.js";
import { make } from "inspector/dom.js";
import { drawScale } from "inspector/legend.js";
import { CanvasPen, fitted, SvgPen } from "inspector/pen.js";
import { inks } from "inspector/plot.js";
import { exact, significant } from "inspector/say.js";
import { toFragment } from "inspector/state.js";

const SIDE = 900, TITLE = 46, SCALE = 44, CAPTION = 44, GAP = 24;     // pixels of a picture

/** @param {string} name @param {Blob} blob */
function download(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** A cell of CSV: text in quotes, an empty cell for what is no number. @param {string|number} value */
const cell = value => typeof value !== "number" ? `"${value.replaceAll("\"", "\"\"")}"`
  : Number.isFinite(value) ? String(value) : "";

/** @param {(string|number)[][]} rows */
export const csv = rows => rows.map(row => row.map(cell).join(",") + "\r\n").join("");

/** What a picture says of itself. @param {any} view @param {any} bundle */
export function caption({ state, grid, beside }, bundle) {
  const parts = [bundle.model, grid.title, ...beside ? [`beside ${beside.grid.title}`] : []];
  if (state.beta !== 1) parts.push(`sharpness ${significant(state.beta)}`);
  if (!state.first) parts.push("without the first token");
  if (!state.self) parts.push("without the query itself");
  return [...parts, bundle.texts[state.text].title].join(" · ");
}

/** The grids of a view with their queries: the open one, and what stands beside it. @param {any} view */
const grids = ({ grid, query, beside }) => [{ grid, query },
  ...beside ? [{ grid: beside.grid, query: beside.query }, { grid: beside.difference, query: -1 }] : []];

/** The view as a picture: titles, grids with their colour scales, and what it says of itself.
 *  @template {import("inspector/drawing.js").Pen} P
 *  @param {any} view @param {any} bundle @param {Element} element whose colours are the page's
 *  @param {(width: number, height: number) => P} penOf @returns {P} the pen, when all is drawn */
export function drawn(view, bundle, element, penOf) {
  const shown = grids(view).map(each => ({ ...each, gutter: gutterOf(each.grid.labels, SIDE) })), ink = inks(element);
  const width = shown.reduce((sum, { gutter }) => sum + gutter + SIDE + GAP, GAP);
  const height = TITLE + Math.max(...shown.map(({ gutter }) => gutter)) + SIDE + SCALE + CAPTION;
  const pen = penOf(width, height);
  pen.box(0, 0, width, height, { fill: ink.paper });
  let left = GAP / 2;
  for (const { grid, query, gutter } of shown) {
    pen.text(grid.title, left + gutter, 24, { size: 16, fill: ink.strong });
    draw(pen, grid, view.colours, { left, top: TITLE, side: SIDE, gutter, query }, ink);
    drawScale(pen, grid, view.colours, { left: left + gutter, top: TITLE + gutter + SIDE + 14, width: SIDE }, ink);
    left += gutter + SIDE + GAP;
  }
  pen.text(fitted(caption(view, bundle), 13, width - 2 * GAP), GAP, height - 20, { size: 13, fill: ink.ink });
  return pen;
}

/** The view as a canvas, two pixels to one. @param {any} view @param {any} bundle @param {Element} element */
export function picture(view, bundle, element) {
  const canvas = make("canvas");
  drawn(view, bundle, element, (width, height) => new CanvasPen(canvas, width, height, 2));
  return canvas;
}

/** The view as SVG: cells as one picture a grid, labels as text. @param {any} view @param {any} bundle
 *  @param {Element} element */
export const svg = (view, bundle, element) =>
  String(drawn(view, bundle, element, (width, height) => new SvgPen(width, height)));

/** The cells of the open row or of the whole grid. @param {any} view @param {any} bundle @param {boolean} whole */
export function cells({ state, grid, query, exactRow, values }, bundle, whole) {
  // Without the mark that only directs the screen.
  const labels = bundle.texts[state.text].labels.map(label => label.replaceAll("\u200e", ""));
  const n = grid.n, rows = [], from = state.way === "from";
  const name = { pattern: "weight", scores: "score", values: "value_weighted" }[state.shown];
  const [who, whose] = state.heads.length === 1 ? [["layer", "head"], state.heads[0].split(".").map(Number)]
    : [["heads", "merge"], [state.heads.join(" "), state.merge]];
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      if (!whole && (from ? i : j) !== query) continue;
      const value = !whole && exactRow ? exact(exactRow[from ? j : i], bundle.dtype) : grid.values[i * n + j].toPrecision(9);
      rows.push([...whose, i, j, labels[i], labels[j], Number(value)]);
    }
  }
  return csv([[...who, "query", "key", "query_token", "key_token", name], ...rows]);
}

/** A file's name for a view, without its end: L1H5_pattern, and what is not as the model runs. @param {any} state */
export function stem(state) {
  const { heads, shown, beta, first, self } = state;
  const names = heads.length > 4 ? `${heads.length}_heads` : heads.map(head => `L${head.replace(".", "H")}`).join("_");
  return [names, shown, beta !== 1 && `sharpness_${significant(beta)}`, !first && "without_first", !self && "without_self"]
    .filter(Boolean).join("_");
}

/** @param {any} context */
export function save({ bundle, linked }) {
  let view = null;
  const status = make("span", { class: "x-said", role: "status" });
  const table = (name, whole) => download(name, new Blob([cells(view, bundle, whole)], { type: "text/csv" }));
  const kinds = {
    PNG: () => picture(view, bundle, element).toBlob(blob => download(`${stem(view.state)}.png`, blob)),
    SVG: () => download(`${stem(view.state)}.svg`, new Blob([svg(view, bundle, element)], { type: "image/svg+xml" })),
    "Row as CSV": () => table(`${stem(view.state)}_${view.state.way}_${view.query}.csv`, false),
    "Grid as CSV": () => table(`${stem(view.state)}.csv`, true),
  };
  const link = make("a", { class: "x-link" }, "Link to this view");
  link.addEventListener("click", async event => {
    event.preventDefault();
    try {
      await navigator.clipboard.writeText(link.href);
      status.textContent = "Copied.";
    } catch {
      status.textContent = "The address bar holds it.";
    }
    setTimeout(() => { status.textContent = ""; }, 3000);
  });
  const element = make("div", { class: "x-save", role: "group", "aria-label": "Take it away" },
    ...Object.entries(kinds).map(([label, act]) => make("button", { type: "button", on: { click: act } }, label)),
    linked ? link : null, status);
  return {
    element,
    /** @param {any} now */
    render(now) {
      view = now;
      if (linked) link.href = location.href.replace(/#.*/s, "") + toFragment(now.state);
    },
  };
}
