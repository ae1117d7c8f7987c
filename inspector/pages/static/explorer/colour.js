// Numbers to colours: the report's one ramp, and a second for signed numbers.

/** @typedef {(value: number) => [number, number, number]} Ink */

/** A ramp of stops as 256 colours. @param {number[][]} stops */
function table(stops) {
  const found = new Uint8ClampedArray(256 * 3);
  for (let i = 0; i < 256; i++) {
    const place = i / 255 * (stops.length - 1), at = Math.min(Math.floor(place), stops.length - 2);
    for (let c = 0; c < 3; c++) found[3 * i + c] = stops[at][c] + (stops[at + 1][c] - stops[at][c]) * (place - at);
  }
  return found;
}

const LOWEST = 1e-4;        // the weight at the foot of the log scale

/** How far up its ramp a number stands, 0..1. @param {number} part of the largest, 0..1, or -1..1 where signed
 *  @param {string} scale sqrt, linear, log or signed */
export function level(part, scale) {
  if (scale === "signed") return (Math.max(-1, Math.min(1, part)) + 1) / 2;
  const cut = Math.max(0, Math.min(1, part));
  return scale === "sqrt" ? Math.sqrt(cut) : scale === "log" ? Math.max(0, 1 - Math.log(cut) / Math.log(LOWEST)) : cut;
}

/** The number at a level, the other way round. @param {number} at @param {string} scale */
export const partAt = (at, scale) =>
  scale === "signed" ? 2 * at - 1 : scale === "sqrt" ? at * at : scale === "log" ? LOWEST ** (1 - at) : at;

/** The colours of a theme. */
export class Colours {
  /** @param {any} bundle @param {string} theme light or dark */
  constructor(bundle, theme) {
    this.theme = theme;
    this.ramp = table(bundle.ramps[theme]);
    this.signed = table(bundle.signed[theme]);
  }

  /** Red, green, blue at a level. @param {number} at 0..1 @param {string} scale @returns {[number, number, number]} */
  rgb(at, scale) {
    const ramp = scale === "signed" ? this.signed : this.ramp, i = 3 * Math.round(255 * at);
    return [ramp[i], ramp[i + 1], ramp[i + 2]];
  }

  /** A colour for style sheets. @param {number} part @param {string} scale */
  css(part, scale) {
    return `rgb(${this.rgb(level(part, scale), scale).join(" ")})`;
  }

  /** Black or white, whichever stands out from a colour: at 0.179 both do alike, by 4.58 to 1 (WCAG 2.2, relative luminance).
   *  @param {number} part @param {string} scale */
  over(part, scale) {
    const [r, g, b] = this.rgb(level(part, scale), scale).map(c => c <= 10 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
  }
}
