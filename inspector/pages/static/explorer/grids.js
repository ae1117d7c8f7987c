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
  const scores = Float64Array.from(head.s.subarray(start(i), start(i + 1)), (s, j) => counts(i, j, choice) ? s : NaN);
  return softmax(scores, choice.beta);
}

/** A grid [query, key] from its rows, NaN above the diagonal. @param {number} n @param {(i: number) => ArrayLike<number>} rowOf */
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

/** Several grids as one, cell by cell. @param {Float32Array[]} grids @param {string} how mean or max */
export function merged(grids, how) {
  if (grids.length === 1) return grids[0];
  return grids[0].map((_, at) => how === "max" ? Math.max(...grids.map(grid => grid[at]))
    : grids.reduce((sum, grid) => sum + grid[at], 0) / grids.length);
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
