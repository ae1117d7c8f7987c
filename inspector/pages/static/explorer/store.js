// The stored texts, decoded head by head when they are asked for.

import { unpackBytes, unpackFloats, unpackHalves } from "inspector/bytes.js";

const CELLS = 8e6;      // cells of decoded heads that are kept: all heads of a short text, about a layer of 1,024 tokens

/**
 * One head on one text. Row i of the triangle is at i (i + 1) / 2: the keys 0 to i.
 * @typedef {{n: number, s: Float32Array, top: Float32Array, rounding: number}} Head
 *   s: score minus the largest of its row; top: that largest; rounding: the largest relative error of s
 * @typedef {{q: Float32Array, k: Float32Array, v: Float32Array, exact: Float32Array|Float64Array|null}} Moves
 *   exact: the weights, as a triangle, up to 256 tokens
 */

/** Where row i of a triangle begins. @param {number} i */
export const start = i => i * (i + 1) / 2;

const ROWS = 4, KEYS = 2;      // that are multiplied together: each number that is read serves several products

/** Rows of d numbers as float64, with rows of 0 up to a multiple of ROWS. @param {Float32Array} rows @param {number} d */
function padded(rows, d) {
  const found = new Float64Array(Math.ceil(rows.length / d / ROWS) * ROWS * d);
  found.set(rows);
  return found;
}

/** Products of the queries i to i + 3 with the keys 0 to i + 3. @param {Float64Array} q padded
 *  @param {Float64Array} k padded
 *  @param {number} d @param {number} i @param {Float64Array} found [ROWS, wide] */
function products(q, k, d, i, found) {
  const wide = found.length / ROWS, q0 = i * d, q1 = q0 + d, q2 = q1 + d, q3 = q2 + d;
  for (let j = 0; j < i + ROWS; j += KEYS) {
    const k0 = j * d, k1 = k0 + d;
    let a0 = 0, a1 = 0, b0 = 0, b1 = 0, c0 = 0, c1 = 0, d0 = 0, d1 = 0;
    for (let e = 0; e < d; e++) {
      const x = k[k0 + e], y = k[k1 + e], a = q[q0 + e], b = q[q1 + e], c = q[q2 + e], last = q[q3 + e];
      a0 += a * x;
      a1 += a * y;
      b0 += b * x;
      b1 += b * y;
      c0 += c * x;
      c1 += c * y;
      d0 += last * x;
      d1 += last * y;
    }
    found[j] = a0;
    found[j + 1] = a1;
    found[wide + j] = b0;
    found[wide + j + 1] = b1;
    found[2 * wide + j] = c0;
    found[2 * wide + j + 1] = c1;
    found[3 * wide + j] = d0;
    found[3 * wide + j + 1] = d1;
  }
}

/** Scores of a head from its q and k, row by row. @param {Float32Array} q @param {Float32Array} k @param {number} n
 *  @param {number} factor @returns {Head} */
export function headOf(q, k, n, factor) {
  const d = q.length / n, [queries, keys] = [padded(q, d), padded(k, d)], wide = keys.length / d;
  const s = new Float32Array(start(n)), top = new Float32Array(n), found = new Float64Array(ROWS * wide);
  for (let i = 0; i < n; i++) {
    if (i % ROWS === 0) products(queries, keys, d, i, found);
    const row = i % ROWS * wide, at = start(i);
    let most = -Infinity;
    for (let j = 0; j <= i; j++) most = Math.max(most, factor * found[row + j]);
    for (let j = 0; j <= i; j++) s[at + j] = factor * found[row + j] - most;
    top[i] = most;
  }
  return { n, s, top, rounding: 0 };         // its error is that of q and k, which the page states
}

/** Logarithms of weights, row by row, each minus the largest of its row. @param {ArrayLike<number>} weights
 *  @param {number} n */
function logarithms(weights, n) {
  const s = new Float32Array(start(n));
  for (let i = 0; i < n; i++) {
    let most = 0;
    for (let at = start(i); at < start(i + 1); at++) most = Math.max(most, weights[at]);
    for (let at = start(i); at < start(i + 1); at++) s[at] = Math.log(weights[at] / most);
  }
  return s;
}

/** The stored texts of a bundle. */
export class Store {
  /** @param {any} bundle see bundle.py
   *  @param {(packed: any) => string|Promise<string>} read what a packed part's name stands for */
  constructor(bundle, read = packed => packed) {
    this.bundle = bundle;
    this.read = read;
    /** @type {Map<string, Promise<any>>} */
    this.known = new Map();
    /** @type {Map<string, Promise<Head>>} */
    this.heads = new Map();
  }

  /** What is made once and kept. @template T @param {string} name @param {() => Promise<T>} make @returns {Promise<T>} */
  once(name, make) {
    if (!this.known.has(name)) this.known.set(name, make());
    return this.known.get(name);
  }

  /** A packed float32 array of a text, by its name in the bundle. @param {number} text @param {string} name */
  floats(text, name) {
    return this.once(`${text}/${name}`, async () => unpackFloats(await this.read(this.bundle.texts[text][name])));
  }

  /** @param {number} text */
  thumbs(text) {
    return this.once(`${text}/thumbs`, async () => unpackBytes(await this.read(this.bundle.texts[text].thumbs)));
  }

  /** One head's part of an array with a number for each layer, head and position. @param {number} text @param {string} name
   *  @param {string} head */
  async part(text, name, head) {
    const { n } = this.bundle.texts[text], at = this.index(head);
    return (await this.floats(text, name)).subarray(at * n, (at + 1) * n);
  }

  /** The place of a head, 5.1, among all. @param {string} head */
  index(head) {
    const [layer, number] = head.split(".").map(Number);
    return layer * this.bundle.n_head + number;
  }

  /** The logarithms of one head; the latest asked for are kept. @param {number} text @param {string} head */
  head(text, head) {
    const name = `${text}/${head}`, found = this.heads.get(name) ?? this.decoded(text, head);
    this.heads.delete(name);
    this.heads.set(name, found);
    const most = Math.max(2, Math.floor(CELLS / start(this.bundle.texts[text].n)));
    for (const old of this.heads.keys()) if (this.heads.size > most) this.heads.delete(old);
    return found;
  }

  /** @param {number} text @param {string} head @returns {Promise<Head>} */
  async decoded(text, head) {
    const { n, heads, factors } = this.bundle.texts[text], stored = heads[head];
    const [layer, number] = head.split(".").map(Number), factor = factors[layer][number];
    const top = stored.log || stored.moves?.exact ? await this.part(text, "tops", head) : null;
    if (stored.log) return { n, s: await unpackHalves(await this.read(stored.log)), top, rounding: 2 ** -11 };
    const own = await this.moves(text, head);
    if (own?.exact) return { n, s: logarithms(own.exact, n), top, rounding: 2 ** -23 };
    if (own) return headOf(own.q, own.k, n, factor);
    const both = await unpackHalves(await this.read(stored.qk)), half = both.length / 2, [unitQ, unitK] = stored.units;
    return headOf(both.subarray(0, half), both.subarray(half), n, factor * unitQ * unitK);
  }

  /** q, k, v and the exact weights of a head, or null where these are not stored. @param {number} text @param {string} head
   *  @returns {Promise<Moves|null>} */
  async moves(text, head) {
    const stored = this.bundle.texts[text].heads[head].moves;
    if (!stored) return null;
    return this.once(`${text}/moves/${head}`, async () => {
      const all = await unpackHalves(await this.read(stored.vectors)), size = all.length / 3;
      const [q, k, v] = stored.units.map((unit, i) => all.slice(i * size, (i + 1) * size).map(x => x * unit));
      const Kind = this.bundle.dtype === "float64" ? Float64Array : Float32Array;
      return { q, k, v, exact: stored.exact === undefined ? null : await unpackFloats(await this.read(stored.exact), Kind) };
    });
  }

  /** Cosine of the residual streams of token i of one text and j of another, by layer; null where they are not stored.
   *  @param {number} a @param {number} i @param {number} b @param {number} j */
  async cosines(a, i, b, j) {
    if (a > b) return this.cosines(b, j, a, i);
    const stored = this.bundle.cosines[`${a},${b}`], steps = this.bundle.n_layer + 1;
    if (!stored) return null;
    const all = await this.once(`cosines/${a},${b}`, async () => unpackHalves(await this.read(stored)));
    const at = (i * this.bundle.texts[b].n + j) * steps;
    return all.subarray(at, at + steps);
  }
}
