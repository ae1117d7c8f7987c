// Taking it away: the view as PNG and SVG, the row and the grid as CSV, a link that opens the same view.

import { draw, fitted, fontOf, gutterOf, stepOf, cellsOf } from "inspector/drawing.js";
import { make } from "inspector/dom.js";
import { inks } from "inspector/plot.js";
import { exact, significant } from "inspector/say.js";
import { toFragment } from "inspector/state.js";

const SIDE = 900, TITLE = 46;

/** @param {string} name @param {Blob} blob */
function download(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** A cell of CSV: text in quotes, an empty cell for what is no number. @param {string|number} value */
const cell = value => typeof value === "number" ? (Number.isFinite(value) ? String(value) : "") : `"${value.replaceAll("\"", "\"\"")}"`;

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

/** The grids of a view: the open one, and what stands beside it. @param {any} view */
const grids = view => view.beside ? [view.grid, view.beside.grid, view.beside.difference] : [view.grid];

/** The view as a canvas. @param {any} view @param {any} bundle @param {Element} element */
export function picture(view, bundle, element) {
  const ratio = 2, canvas = make("canvas"), context = canvas.getContext("2d"), shown = grids(view), ink = inks(element);
  const gutters = shown.map(grid => gutterOf(context, grid.labels, SIDE)), widths = gutters.map(gutter => gutter + SIDE + 24);
  canvas.width = (widths.reduce((sum, width) => sum + width, 0) + 16) * ratio;
  canvas.height = (TITLE + Math.max(...gutters) + SIDE + 60) * ratio;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = ink.paper;
  context.fillRect(0, 0, canvas.width, canvas.height);
  let left = 8;
  shown.forEach((grid, i) => {
    context.fillStyle = ink.strong;
    context.font = "16px system-ui, \"DejaVu Sans\", sans-serif";
    context.textAlign = "left";
    context.fillText(grid.title, left + 8, 28);
    context.save();
    context.translate(left, TITLE);
    draw(context, grid, view.colours, { side: SIDE, gutter: gutters[i], ratio, query: i === 0 ? view.query : -1, ...ink });
    context.restore();
    left += widths[i];
  });
  context.fillStyle = ink.ink;
  context.font = "13px system-ui, \"DejaVu Sans\", sans-serif";
  context.textAlign = "left";
  context.fillText(fitted(context, caption(view, bundle), canvas.width / ratio - 32), 16, canvas.height / ratio - 18);
  return canvas;
}

/** Text inside markup. @param {string} text */
const escaped = text => text.replace(/[&<>"\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", "\"": "&quot;" })[c] ?? "");

/** The view as SVG: cells as one picture a grid, labels as text. @param {any} view @param {any} bundle @param {Element} element */
export async function svg(view, bundle, element) {
  const context = make("canvas").getContext("2d"), ink = inks(element), parts = [];
  let left = 8, highest = 0;
  for (const [place, grid] of grids(view).entries()) {
    const gutter = gutterOf(context, grid.labels, SIDE), pitch = SIDE / grid.n, step = stepOf(grid.n, SIDE), font = parseInt(fontOf(pitch), 10);
    const blob = await cellsOf(grid, view.colours, 1).convertToBlob({ type: "image/png" });
    const bytes = new Uint8Array(await blob.arrayBuffer());
    let binary = "";
    for (const byte of bytes) binary += String.fromCharCode(byte);
    parts.push(`<text x="${left + 8}" y="28" font-size="16" fill="${ink.strong}">${escaped(grid.title)}</text>`,
      `<image x="${left + gutter}" y="${TITLE + gutter}" width="${SIDE}" height="${SIDE}" style="image-rendering:pixelated" preserveAspectRatio="none" href="data:image/png;base64,${btoa(binary)}"/>`,
      `<rect x="${left + gutter}" y="${TITLE + gutter}" width="${SIDE}" height="${SIDE}" fill="none" stroke="${ink.line}"/>`);
    context.font = fontOf(pitch);
    grid.labels.forEach((label, i) => {
      if (i % step) return;
      const text = escaped(fitted(context, label, gutter - 8)), fill = place === 0 && i === view.query ? ink.mark : ink.ink;
      const x = left + gutter + (i + 0.5) * pitch, y = TITLE + gutter + (i + 0.5) * pitch;
      parts.push(`<text x="${left + gutter - 5}" y="${y.toFixed(1)}" font-size="${font}" text-anchor="end" dominant-baseline="central" fill="${fill}" direction="ltr">${text}</text>`,
        `<text transform="translate(${x.toFixed(1)} ${TITLE + gutter - 5}) rotate(-90)" font-size="${font}" dominant-baseline="central" fill="${fill}" direction="ltr">${text}</text>`);
    });
    left += gutter + SIDE + 24;
    highest = Math.max(highest, gutter);
  }
  const width = left + 8, height = TITLE + highest + SIDE + 60;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="system-ui, 'DejaVu Sans', sans-serif">`
    + `<rect width="100%" height="100%" fill="${ink.paper}"/>${parts.join("")}<text x="16" y="${height - 18}" font-size="13" fill="${ink.ink}">${escaped(caption(view, bundle))}</text></svg>`;
}

/** The cells of the open row or of the whole grid. @param {any} view @param {any} bundle @param {boolean} whole */
export function cells({ state, grid, query, exactRow, values }, bundle, whole) {
  const labels = bundle.texts[state.text].labels.map(label => label.replaceAll("\u200e", ""));       // which only directs the screen
  const n = grid.n, rows = [], from = state.way === "from";
  const name = { pattern: "weight", scores: "score", values: "value_weighted" }[state.shown], one = state.heads.length === 1;
  const [who, whose] = one ? [["layer", "head"], state.heads[0].split(".").map(Number)] : [["heads", "merge"], [state.heads.join(" "), state.merge]];
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
  const heads = state.heads.length > 4 ? `${state.heads.length}_heads` : state.heads.map(head => `L${head.replace(".", "H")}`).join("_");
  return [heads, state.shown, state.beta !== 1 && `sharpness_${significant(state.beta)}`, !state.first && "without_first", !state.self && "without_self"]
    .filter(Boolean).join("_");
}

/** @param {any} context */
export function save({ bundle, linked }) {
  let view = null;
  const status = make("span", { class: "x-said", role: "status" });
  const kinds = {
    PNG: async () => download(`${stem(view.state)}.png`, await new Promise(done => picture(view, bundle, element).toBlob(done))),
    SVG: async () => download(`${stem(view.state)}.svg`, new Blob([await svg(view, bundle, element)], { type: "image/svg+xml" })),
    "Row as CSV": () => download(`${stem(view.state)}_${view.state.way}_${view.query}.csv`, new Blob([cells(view, bundle, false)], { type: "text/csv" })),
    "Grid as CSV": () => download(`${stem(view.state)}.csv`, new Blob([cells(view, bundle, true)], { type: "text/csv" })),
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
    ...Object.entries(kinds).map(([label, act]) => make("button", { type: "button", on: { click: act } }, label)), linked ? link : null, status);
  return {
    element,
    /** @param {any} now */
    render(now) {
      view = now;
      if (linked) link.href = location.href.replace(/#.*/s, "") + toFragment(now.state);
    },
  };
}
