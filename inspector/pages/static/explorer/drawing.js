// A grid: cells as pixels, labels of tokens along two sides. Drawn with a pen: screen and exported pictures share it.

import { make } from "inspector/dom.js";
import { fitted, widthOf } from "inspector/pen.js";

/** @typedef {import("inspector/colour.js").Colours} Colours */
/** @typedef {import("inspector/pen.js").CanvasPen | import("inspector/pen.js").SvgPen} Pen */
/** @typedef {{values: Float32Array, n: number, labels: string[], scale: string, largest: number, title: string}} Grid */

const PITCH = 11;        // pixels from one label to the next, at least
const LONGEST = 130;            // pixels of the longest label
const HATCH = 5;                // pixels from one line of the hatching to the next

/** How many cells a side one drawn cell stands for: a screen would drop rows without a word. @param {number} n
 *  @param {number} pixels */
const blockOf = (n, pixels) => Math.max(1, Math.ceil(n / Math.max(1, pixels)));

/** The latest picture of a grid's cells: the same grid is drawn again for every query.
 *  @type {WeakMap<Float32Array, {key: string, canvas: HTMLCanvasElement}>} */
const painted = new WeakMap();

/** The cells as a picture of one pixel each, blocks showing the number farthest from 0; masked ones are transparent.
 *  @param {Grid} grid @param {Colours} colours @param {number} block */
export function cellsOf({ values, n, scale, largest }, colours, block) {
  const key = [scale, largest, colours.theme, block].join(), found = painted.get(values);
  if (found?.key === key) return found.canvas;
  const side = Math.ceil(n / block), canvas = make("canvas", { width: side, height: side });
  const context = canvas.getContext("2d"), image = context.createImageData(side, side);
  const pixels = new Uint32Array(image.data.buffer), colour = colours.pixelOf(scale, largest || 1);
  for (let row = 0; row < side; row++) {
    for (let column = 0; column <= row; column++) {
      let most = block === 1 ? values[row * n + column] : NaN;
      for (let i = row * block; block > 1 && i < Math.min(n, (row + 1) * block); i++) {
        for (let j = column * block; j < Math.min(n, (column + 1) * block); j++) {
          const value = values[i * n + j];
          if (!(Math.abs(most) >= Math.abs(value)) && value === value) most = value;
        }
      }
      if (most === most) pixels[row * side + column] = colour(most);        // NaN is not itself
    }
  }
  context.putImageData(image, 0, 0);
  painted.set(values, { key, canvas });
  return canvas;
}

/** The size of labels that are so far apart. @param {number} pitch */
const sizeOf = pitch => Math.max(9, Math.min(13, Math.floor(pitch * 0.8)));

/** Every which label there is room for: 1, 2, 4, ... @param {number} n @param {number} side */
function stepOf(n, side) {
  let step = 1;
  while (side / n * step < PITCH) step *= 2;
  return step;
}

/** How wide the labels of a grid are, in pixels, cut at a limit. @param {string[]} labels @param {number} side
 *  @param {number} most */
export function gutterOf(labels, side, most = LONGEST) {
  const size = sizeOf(side / labels.length), step = stepOf(labels.length, side);
  const widths = labels.filter((_, i) => i % step === 0).map(label => widthOf(label, size));
  return Math.ceil(Math.min(most, Math.max(...widths)) + 8);
}

/** Slanted lines over a square. @param {number} x @param {number} y @param {number} side */
const hatching = (x, y, side) => Array.from({ length: Math.ceil(2 * side / HATCH) }, (_, i) => HATCH * i - side).map(at =>
  [x + Math.max(0, at), y + Math.max(0, -at), x + Math.min(side, at + side), y + Math.min(side, side - at)]);

/**
 * A grid with its labels: the cells at (left + gutter, top + gutter), `side` pixels wide.
 * @param {Pen} pen @param {Grid} grid @param {Colours} colours
 * @param {{left: number, top: number, side: number, gutter: number, query: number}} where
 * @param {{ink: string, hatch: string, line: string, mark: string}} inks
 */
export function draw(pen, grid, colours, { left, top, side, gutter, query }, { ink, hatch, line, mark }) {
  const { n, labels } = grid, pitch = side / n, x = left + gutter, y = top + gutter;
  pen.lines(hatching(x, y, side), hatch);                   // what is masked is hatched, as on the other pages
  const block = blockOf(n, side * pen.ratio);
  pen.image(cellsOf(grid, colours, block), x, y, side, side, n / block);
  pen.box(x - 0.5, y - 0.5, side + 1, side + 1, { stroke: line });
  const step = stepOf(n, side), size = sizeOf(pitch);
  for (let i = 0; i < n; i++) {
    const marked = i === query;
    if (i % step && !marked) continue;
    if (query >= 0 && !marked && Math.abs(i - query) * pitch < PITCH) continue;        // the query's own label comes first
    const label = fitted(labels[i], size, gutter - 8), fill = marked ? mark : ink;
    pen.text(label, x - 5, y + (i + 0.5) * pitch, { size, fill, anchor: "end" });
    pen.text(label, x + (i + 0.5) * pitch, y - 5, { size, fill, turned: true });
  }
}
