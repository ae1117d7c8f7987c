// The arithmetic of attention, on plain arrays: pure functions, one query at a time.

/** @typedef {ArrayLike<number>} Numbers */

/** Sum of the products of two arrays. @param {Numbers} a @param {Numbers} b */
export function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/** Root of the sum of squares. @param {Numbers} v */
export const norm = v => Math.sqrt(dot(v, v));

/**
 * softmax(beta * scores): weights that sum to 1. beta 0 makes all alike, a large one leaves the largest alone.
 * A score that is NaN or -Infinity belongs to a masked or excluded key: it gets no weight, which is NaN here.
 * @param {Numbers} scores @param {number} [beta]
 * @returns {Float64Array} NaN throughout where no key is left
 */
export function softmax(scores, beta = 1) {
  const found = new Float64Array(scores.length).fill(NaN);
  let top = -Infinity, sum = 0;
  for (let i = 0; i < scores.length; i++) if (scores[i] > top) top = scores[i];
  if (top === -Infinity) return found;
  for (let i = 0; i < scores.length; i++) {
    if (scores[i] > -Infinity) sum += found[i] = Math.exp(beta * (scores[i] - top));
  }
  for (let i = 0; i < found.length; i++) found[i] /= sum;
  return found;
}

/** Entropy of a row of weights in nats, 0 log 0 being 0. NaN cells are no part of it. @param {Numbers} weights */
export function entropy(weights) {
  let sum = 0;
  for (let i = 0; i < weights.length; i++) if (weights[i] > 0) sum -= weights[i] * Math.log(weights[i]);
  return sum;
}

/** Index of the largest number, the first of equal ones; -1 where there is none. @param {Numbers} values */
export function largest(values) {
  let best = -1;
  for (let i = 0; i < values.length; i++) if (values[i] > (best < 0 ? -Infinity : values[best])) best = i;
  return best;
}

/**
 * One query's way through a head: ask, advertise, score, normalize, blend.
 * @param {Numbers} q the query [d_head]
 * @param {Numbers[]} keys the keys it may see, its own last [key][d_head]
 * @param {Numbers[]} values [key][d_head]
 * @param {number} scale what q.k is multiplied by: 1 / sqrt(d_head) in GPT-2
 * @param {number} [beta] sharpness
 */
export function moves(q, keys, values, scale, beta = 1) {
  const sums = keys.map(k => dot(q, k));
  const scores = sums.map(sum => sum * scale);
  const weights = softmax(scores, beta);
  const z = new Float64Array(values[0].length);
  values.forEach((v, j) => { for (let d = 0; d < z.length; d++) z[d] += weights[j] * v[d]; });
  return { sums, scores, weights, z, shares: values.map((v, j) => weights[j] * norm(v)) };
}

/** What each element of two vectors adds to their product. @param {Numbers} q @param {Numbers} k */
export const products = (q, k) => Float64Array.from(q, (x, d) => x * k[d]);
