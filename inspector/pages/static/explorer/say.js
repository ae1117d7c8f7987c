// Numbers and tokens in words, as on the report's other pages (see words.py).

/** A true minus sign. @param {string} text */
export const minus = text => text.replace("-", "−");

/** A number 0..1; 0 and 1 are said of no other: else <0.01 and >0.99. A dash where there is none.
 *  @param {number} value @param {number} [digits] */
export function number(value, digits = 2) {
  if (!Number.isFinite(value)) return "–";
  const step = 10 ** -digits, text = value.toFixed(digits);
  if (Number(text) === 0 && value !== 0) return value > 0 ? `<${step.toFixed(digits)}` : `>−${step.toFixed(digits)}`;
  return Number(text) === 1 && value < 1 ? `>${(1 - step).toFixed(digits)}` : minus(text);
}

/** Three significant digits; a power of ten for what is below 1e-4. @param {number} value */
export const significant = value => !Number.isFinite(value) ? "–"
  : minus(value !== 0 && Math.abs(value) < 1e-4 ? value.toExponential(2) : String(Number(value.toPrecision(3))));

/** A number with its sign. @param {number} value @param {number} [digits] */
export const signed = (value, digits = 2) =>
  !Number.isFinite(value) ? "–" : (value > 0 ? "+" : "") + minus(value.toFixed(digits));

/** The shortest decimals that read back as the same number, the number that stands in attention.csv. @param {number} value
 *  @param {string} dtype the model's: its weights are float64 if it is, else float32 */
export function exact(value, dtype) {
  if (dtype === "float64") return String(value);
  for (let digits = 1; digits < 9; digits++) {
    const text = value.toPrecision(digits);
    if (Math.fround(Number(text)) === value) return String(Number(text));
  }
  return String(Number(value.toPrecision(9)));
}

/** An error bound, rounded up to one digit: 2e-4, 0.03, 4. @param {number} value */
export function bound(value) {
  if (value === 0) return "0";
  const text = value.toExponential(0), half = 0.5 * 10 ** Math.floor(Math.log10(value));
  const up = Number(text) < value ? (value + half).toExponential(0) : text;
  return value < 0.01 ? up : String(Number(up));
}

/** A label without the mark of its leading space, where anything else is left. @param {string} label */
export const bare = label => label.length > 1 && label.startsWith("·") ? label.slice(1) : label;

/** 1,024 tokens, 1 token. @param {number} n @param {string} word */
export const plural = (n, word) => `${String(n).replace(/\B(?=(\d{3})+$)/g, ",")} ${word}${n === 1 ? "" : "s"}`;
