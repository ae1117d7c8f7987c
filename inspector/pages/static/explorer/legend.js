// The colour scale under a grid: what its colours stand for, in numbers.

import { level, partAt } from "inspector/colour.js";
import { make } from "inspector/dom.js";
import { significant } from "inspector/say.js";

// Parts of the largest number that are named.
const PARTS = { sqrt: [0, 0.01, 0.1, 0.25, 0.5, 1], linear: [0, 0.25, 0.5, 0.75, 1], log: [1e-4, 1e-3, 0.01, 0.1, 1], signed: [-1, -0.5, 0, 0.5, 1] };

/** A scale with its numbers. */
export function legend() {
  const canvas = make("canvas", { width: "256", height: "1" }), ticks = make("div", { class: "x-ticks" });
  const element = make("div", { class: "x-legend", role: "img" }, canvas, ticks);
  let drawn = "";
  return {
    element,
    /** @param {import("inspector/drawing.js").Grid} grid @param {import("inspector/colour.js").Colours} colours */
    render({ scale, largest }, colours) {
      const now = [scale, largest, colours.theme].join();
      if (now === drawn) return;
      drawn = now;
      const context = canvas.getContext("2d"), image = context.createImageData(256, 1);
      for (let i = 0; i < 256; i++) image.data.set([...colours.rgb(level(partAt(i / 255, scale), scale), scale), 255], 4 * i);
      context.putImageData(image, 0, 0);
      ticks.replaceChildren(...PARTS[scale].map((part, i) => make("span", { style: { "--at": String(level(part, scale)) } },
        `${scale === "log" && i === 0 ? "≤" : ""}${significant(part * (largest || 1))}`)));
      element.setAttribute("aria-label", `Colour scale, ${scale === "signed" ? "blue below 0, red above" : scale === "sqrt" ? "even in the square root" : scale === "log" ? "even in the logarithm" : "even"}, up to ${significant(largest)}`);
    },
  };
}
