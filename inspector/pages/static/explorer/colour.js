// Numbers to colours: the report's one ramp, and a second for signed numbers.

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

/** A colour for style sheets, and black or white over it. @typedef {{css: string, over: string}} Tone */

/** Black or white, whichever stands out from a colour: at 0.179 both do alike, by 4.58 to 1 (WCAG 2.2, relative luminance).
 *  @param {number} r @param {number} g @param {number} b 0..255 */
function over(r, g, b) {
  const light = c => c <= 10 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4;
  return 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b) > 0.179 ? "#000" : "#fff";
}

/** The 256 colours of a ramp, for pictures and for style sheets. @param {number[][]} stops */
function inks(stops) {
  const all = table(stops), pixels = new Uint32Array(256), tones = [];
  for (let i = 0; i < 256; i++) {
    const [r, g, b] = all.subarray(3 * i, 3 * i + 3);
    pixels[i] = (255 << 24 | b << 16 | g << 8 | r) >>> 0;
    tones.push(Object.freeze({ css: `rgb(${r} ${g} ${b})`, over: over(r, g, b) }));
  }
  return { pixels, tones };
}

/** The colours of a theme. */
export class Colours {
  /** @param {any} bundle @param {string} theme light or dark */
  constructor(bundle, theme) {
    this.theme = theme;
    this.ramp = inks(bundle.ramps[theme]);
    this.signed = inks(bundle.signed[theme]);
  }

  /** The colours of a scale. @param {string} scale */
  inks(scale) {
    return scale === "signed" ? this.signed : this.ramp;
  }

  /** How a number becomes a picture's pixel, 32 bits of it. @param {string} scale
   *  @param {number} largest the number at its head
   *  @returns {(value: number) => number} */
  pixelOf(scale, largest) {
    const { pixels } = this.inks(scale);
    return value => pixels[Math.round(255 * level(value / largest, scale))];
  }

  /** The tone of a number; the same object for the same tone. @param {number} part of the largest @param {string} scale
   *  @returns {Tone} */
  tone(part, scale) {
    return this.inks(scale).tones[Math.round(255 * level(part, scale))];
  }
}
