// A grid on a canvas: cells as pixels, labels of tokens along two sides. The screen and the exported picture share it.

import { level } from "inspector/colour.js";

/** @typedef {import("inspector/colour.js").Colours} Colours */
/** @typedef {{values: Float32Array, n: number, labels: string[], scale: string, largest: number, title: string}} Grid */

export const PITCH = 11;        // pixels from one label to the next, at least
const LONGEST = 130;            // pixels of the longest label

/** How many cells a side one drawn cell stands for: a screen would drop rows without a word. @param {number} n @param {number} pixels */
export const blockOf = (n, pixels) => Math.max(1, Math.ceil(n / Math.max(1, pixels)));

/** The cells as a picture of one pixel each, blocks showing the number farthest from 0; masked ones are transparent.
 *  @param {Grid} grid @param {Colours} colours @param {number} block */
export function cellsOf({ values, n, scale, largest }, colours, block) {
  const side = Math.ceil(n / block), canvas = new OffscreenCanvas(side, side), context = canvas.getContext("2d");
  const image = context.createImageData(side, side), reach = largest || 1;
  for (let row = 0; row < side; row++) {
    for (let column = 0; column <= row; column++) {
      let most = NaN;
      for (let i = row * block; i < Math.min(n, (row + 1) * block); i++) {
        for (let j = column * block; j < Math.min(n, (column + 1) * block); j++) {
          const value = values[i * n + j];
          if (!(Math.abs(most) >= Math.abs(value)) && !Number.isNaN(value)) most = value;
        }
      }
      if (Number.isNaN(most)) continue;
      const at = 4 * (row * side + column), [r, g, b] = colours.rgb(level(most / reach, scale), scale);
      image.data[at] = r;
      image.data[at + 1] = g;
      image.data[at + 2] = b;
      image.data[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** The font of labels that are so far apart. @param {number} pitch */
export const fontOf = pitch => `${Math.max(9, Math.min(13, Math.floor(pitch * 0.8)))}px system-ui, "DejaVu Sans", "Noto Sans CJK SC", "Noto Color Emoji", sans-serif`;

/** Every which label there is room for: 1, 2, 4, ... @param {number} n @param {number} side */
export function stepOf(n, side) {
  let step = 1;
  while (side / n * step < PITCH) step *= 2;
  return step;
}

/** How wide the labels of a grid are, in pixels, cut at a limit. @param {CanvasRenderingContext2D} context @param {string[]} labels
 *  @param {number} side @param {number} most */
export function gutterOf(context, labels, side, most = LONGEST) {
  context.font = fontOf(side / labels.length);
  const step = stepOf(labels.length, side);
  return Math.ceil(Math.min(most, Math.max(...labels.filter((_, i) => i % step === 0).map(label => context.measureText(label).width))) + 8);
}

/** A label that fits, its end cut where it does not. @param {CanvasRenderingContext2D} context @param {string} label @param {number} most */
export function fitted(context, label, most) {
  if (context.measureText(label).width <= most) return label;
  const parts = [...label];
  while (parts.length > 1 && context.measureText(parts.join("") + "…").width > most) parts.pop();
  return parts.join("") + "…";
}

/**
 * A grid with its labels: the cells at (gutter, gutter), `side` pixels wide.
 * @param {CanvasRenderingContext2D} context @param {Grid} grid @param {Colours} colours
 * @param {{side: number, gutter: number, ink: string, hatch: string, line: string, ratio: number, query: number, mark: string}} how
 */
export function draw(context, grid, colours, { side, gutter, ink, hatch, line, ratio, query, mark }) {
  const { n, labels } = grid, pitch = side / n;
  context.save();
  context.strokeStyle = hatch;                        // what is masked is hatched, as on the other pages
  context.beginPath();
  context.rect(gutter, gutter, side, side);
  context.clip();
  context.beginPath();
  for (let at = -side; at < side; at += 5) {
    context.moveTo(gutter + at, gutter);
    context.lineTo(gutter + at + side, gutter + side);
  }
  context.stroke();
  context.imageSmoothingEnabled = false;
  const block = blockOf(n, side * ratio), cells = cellsOf(grid, colours, block), drawn = cells.width * block * pitch;
  context.drawImage(cells, gutter, gutter, drawn, drawn);
  context.restore();
  context.strokeStyle = line;
  context.strokeRect(gutter - 0.5, gutter - 0.5, side + 1, side + 1);
  context.font = fontOf(pitch);
  context.textBaseline = "middle";
  context.direction = "ltr";
  const step = stepOf(n, side);
  for (let i = 0; i < n; i++) {
    const marked = i === query;
    if (i % step && !marked) continue;
    if (query >= 0 && !marked && Math.abs(i - query) * pitch < PITCH) continue;        // the query's own label comes first
    const label = fitted(context, labels[i], gutter - 8);
    context.fillStyle = marked ? mark : ink;
    context.textAlign = "right";
    context.fillText(label, gutter - 5, gutter + (i + 0.5) * pitch);
    context.save();
    context.translate(gutter + (i + 0.5) * pitch, gutter - 5);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(label, 0, 0);
    context.restore();
  }
}
