// What is shown of a head: its pattern at a sharpness, its scores, its value-weighted pattern; several heads as one.

import { softmax } from "inspector/attention.js";
import { start } from "inspector/store.js";

/** @typedef {import("inspector/store.js").Head} Head */
/** @typedef {{beta: number, first: boolean, self: boolean}} Choice first, self: whether these keys are included */

/** Whether a key counts for a query. @param {number} i @param {number} j @param {Choice} choice */
export const counts = (i, j, { first, self }) => j <= i && (first || j > 0) && (self || j < i);

/** The weights of one row over the keys that count; NaN elsewhere, and throughout where none is left.
 *  @param {Head} head @param {number} i @param {Choice} choice @returns {Float64Array} [key 0..i] */
export function row(head, i, choice) {
  const scores = new Float64Array(head.s.subarray(start(i), start(i + 1)));
  for (let j = 0; j <= i; j++) if (!counts(i, j, choice)) scores[j] = NaN;
  return softmax(scores, choice.beta);
}

/** How far a weight of a row can be off because s is stored rounded. With every key counted it is the text's own bound;
 *  without the largest, the others keep the rounding of how far they lie behind it.
 *  @param {Head} head @param {number} i @param {Choice} choice @param {ArrayLike<number>} weights the row's, NaN left out */
export function rowError(head, i, choice, weights) {
  const away = j => choice.beta * head.rounding * Math.abs(head.s[start(i) + j]);
  let mean = 0, most = 0;
  for (let j = 0; j <= i; j++) if (weights[j] > 0) mean += weights[j] * away(j);
  for (let j = 0; j <= i; j++) {
    if (weights[j] > 0) most = Math.max(most, weights[j] * Math.expm1(away(j) + mean) * Math.exp(mean));
  }
  return Math.min(1, most);
}

/** A grid [query, key] from its rows, NaN above the diagonal. @param {number} n
 *  @param {(i: number) => ArrayLike<number>} rowOf */
function fromRows(n, rowOf) {
  const grid = new Float32Array(n * n).fill(NaN);
  for (let i = 0; i < n; i++) grid.set(rowOf(i), i * n);
  return grid;
}

/** The pattern. @param {Head} head @param {Choice} choice */
export const pattern = (head, choice) => fromRows(head.n, i => row(head, i, choice));

/** beta times the scores: what goes into the softmax. @param {Head} head @param {Choice} choice */
export function scores(head, choice) {
  return fromRows(head.n, i => Float64Array.from(head.s.subarray(start(i), start(i + 1)), (s, j) =>
    counts(i, j, choice) ? choice.beta * (s + head.top[i]) : NaN));
}

/** The pattern times the norm of what each key brings. @param {Float32Array} grid @param {Float32Array} norms [key] */
export const valueWeighted = (grid, norms) => grid.map((p, at) => p * norms[at % norms.length]);

/** Several grids as one, cell by cell; they are made one after the other. @template {Float32Array|Float64Array} T
 *  @param {Iterable<T>} grids @param {string} how mean or max @returns {T} */
export function merged(grids, how) {
  let all = null, count = 0;
  for (const grid of grids) {
    count++;
    if (!all) all = grid;
    else if (how === "max") for (let at = 0; at < all.length; at++) all[at] = Math.max(all[at], grid[at]);
    else for (let at = 0; at < all.length; at++) all[at] += grid[at];
  }
  if (how === "mean" && count > 1) for (let at = 0; at < all.length; at++) all[at] /= count;
  return all;
}

/** One grid minus another over the positions both have. @param {Float32Array} a @param {number} nA @param {Float32Array} b
 *  @param {number} nB */
export function difference(a, nA, b, nB) {
  const n = Math.min(nA, nB), found = new Float32Array(n * n);
  for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) found[i * n + j] = b[i * nB + j] - a[i * nA + j];
  return found;
}

/** The largest absolute number of a grid; 0 where there is none. @param {ArrayLike<number>} grid */
export function extent(grid) {
  let most = 0;
  for (let at = 0; at < grid.length; at++) if (Math.abs(grid[at]) > most) most = Math.abs(grid[at]);
  return most;
}
