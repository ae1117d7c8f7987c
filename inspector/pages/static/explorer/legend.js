// The colour scale of a grid: what its colours stand for, in numbers. On the page, and in a picture that is taken away.

import { level, partAt } from "inspector/colour.js";
import { make } from "inspector/dom.js";
import { significant } from "inspector/say.js";

/** @typedef {import("inspector/colour.js").Colours} Colours */
/** @typedef {import("inspector/drawing.js").Grid} Grid */

// Parts of the largest number that are named.
const PARTS = { sqrt: [0, 0.01, 0.1, 0.25, 0.5, 1], linear: [0, 0.25, 0.5, 0.75, 1], log: [1e-4, 1e-3, 0.01, 0.1, 1],
  signed: [-1, -0.5, 0, 0.5, 1] };
const EVEN = { sqrt: "even in the square root", linear: "even", log: "even in the logarithm",
  signed: "blue below 0, red above" };

/** The colours from the foot of a scale to its head: a picture of 256 pixels. @param {string} scale
 *  @param {Colours} colours */
function strip(scale, colours) {
  const canvas = make("canvas", { width: 256, height: 1 }), context = canvas.getContext("2d");
  const image = context.createImageData(256, 1), colour = colours.pixelOf(scale, 1);
  new Uint32Array(image.data.buffer).set(Array.from({ length: 256 }, (_, i) => colour(partAt(i / 255, scale))));
  context.putImageData(image, 0, 0);
  return canvas;
}

/** Where numbers stand on a scale, 0..1, and how they are said. @param {Grid} grid */
const ticks = ({ scale, largest }) => PARTS[scale].map((part, i) => ({ at: level(part, scale),
  text: `${scale === "log" && i === 0 ? "≤" : ""}${significant(part * (largest || 1))}` }));

/** A scale on the page. */
export function legend() {
  const element = make("div", { class: "x-legend", role: "img" });
  let drawn = "";
  return {
    element,
    /** @param {Grid} grid @param {Colours} colours */
    render(grid, colours) {
      const { scale, largest } = grid, now = [scale, largest, colours.theme].join();
      if (now === drawn) return;
      drawn = now;
      element.replaceChildren(strip(scale, colours), make("div", { class: "x-ticks" },
        ...ticks(grid).map(({ at, text }) => make("span", { style: { "--at": String(at) } }, text))));
      element.setAttribute("aria-label", `Colour scale, ${EVEN[scale]}, up to ${significant(largest || 1)}`);
    },
  };
}

/** A scale drawn with a pen, 28 pixels high. @param {import("inspector/drawing.js").Pen} pen @param {Grid} grid
 *  @param {Colours} colours
 *  @param {{left: number, top: number, width: number}} where @param {{ink: string, line: string}} inks */
export function drawScale(pen, grid, colours, { left, top, width }, { ink, line }) {
  pen.image(strip(grid.scale, colours), left, top, width, 10);
  pen.box(left - 0.5, top - 0.5, width + 1, 11, { stroke: line });
  for (const { at, text } of ticks(grid)) {
    const anchor = at < 0.02 ? "start" : at > 0.98 ? "end" : "middle";
    pen.text(text, left + at * width, top + 21, { size: 12, fill: ink, anchor });
  }
}
