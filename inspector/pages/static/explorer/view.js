// What a state shows: its grids, the open row and what the moves need. Made whole before anything of it is drawn.

import { largest } from "inspector/attention.js";
import { difference, extent, merged, pattern, row, rowError, scores, valueWeighted } from "inspector/grids.js";
import { otherText } from "inspector/state.js";
import { start } from "inspector/store.js";

/** @typedef {import("inspector/state.js").State} State */
/** @typedef {import("inspector/store.js").Store} Store */

const NAMES = { pattern: "pattern", scores: "scores", values: "value-weighted pattern" };

/** What a grid shows, in words. @param {State} state @param {string[]} heads */
const titleOf = (state, heads) => heads.length === 1 ? `${heads[0]} ${NAMES[state.shown]}`
  : `${heads.join(", ")} ${NAMES[state.shown]}, ${state.merge}`;

/** A grid of heads on a text as the state asks for it. @param {Store} store @param {State} state @param {number} text
 *  @param {string[]} heads */
async function gridOf(store, state, text, heads) {
  const { n, labels } = store.bundle.texts[text], signed = state.shown === "scores";
  const [decoded, norms] = await Promise.all([Promise.all(heads.map(head => store.head(text, head))),
    Promise.all(state.shown === "values" ? heads.map(head => store.part(text, "value_norms", head)) : [])]);
  const made = function* () {
    for (const [i, head] of decoded.entries()) {
      yield signed ? scores(head, state)
        : state.shown === "values" ? valueWeighted(pattern(head, state), norms[i]) : pattern(head, state);
    }
  };
  const values = merged(made(), state.merge);
  return { values, n, labels, title: titleOf(state, heads), decoded, scale: signed ? "signed" : state.scale,
    largest: state.shown === "pattern" ? 1 : extent(values) };
}

/** What stands beside the open grid, with the difference; null where nothing does. @param {Store} store @param {State} state
 *  @param {any} shown the open grid */
async function besideOf(store, state, shown) {
  if (!state.other) return null;
  const { texts } = store.bundle, b = otherText(state);
  const beside = await gridOf(store, state, b < 0 ? state.text : b, b < 0 ? [state.other] : state.heads);
  if (b >= 0) beside.title += `, ${texts[b].name ?? `text ${b + 1}`}`;
  const values = difference(shown.values, shown.n, beside.values, beside.n), n = Math.min(shown.n, beside.n);
  const labels = texts[state.text].labels.slice(0, n);
  return { grid: beside, difference: { values, n, labels, scale: "signed", largest: extent(values), title: "Difference" } };
}

/** What the moves of the open head need; null where it is not stored, or several are open. @param {Store} store
 *  @param {State} state */
async function movesOf(store, { text, heads }) {
  if (heads.length > 1) return null;
  const [own, stream, writes] = await Promise.all([store.moves(text, heads[0]), store.floats(text, "stream"),
    store.part(text, "writes", heads[0])]);
  return own && { ...own, stream, writes };
}

/** Row (or column) of a grid: [pos], NaN where masked. @param {any} grid @param {number} place @param {string} way */
const lineOf = ({ values, n }, place, way) => Float32Array.from({ length: n }, (_, at) =>
  way === "from" ? values[place * n + at] : values[at * n + place]);

/** The exact weights of a row or column, NaN where masked. @param {ArrayLike<number>} exact @param {number} n
 *  @param {number} place
 *  @param {string} way */
const exactOf = (exact, n, place, way) => Float64Array.from({ length: n }, (_, at) =>
  way === "from" ? (at <= place ? exact[start(place) + at] : NaN) : (at >= place ? exact[start(at) + place] : NaN));

/** Makes views of a bundle. The grids of the latest are kept: most changes are of the query alone. @param {Store} store */
export function viewer(store) {
  const { bundle } = store;
  let key = "", grids = null;

  /** [the open grid, what stands beside it]. @param {State} state */
  function gridsOf(state) {
    const { text, heads, merge, beta, shown, first, self, other, scale } = state;
    const now = [text, heads, merge, beta, shown, first, self, other, scale].join("|");
    if (now !== key) {
      key = now;
      grids = gridOf(store, state, text, heads).then(async grid => [grid, await besideOf(store, state, grid)]);
    }
    return grids;
  }

  /** All that is shown of a state. @param {State} state @param {number|null} peeked the query that is pointed at, or null */
  return async function view(state, peeked) {
    const query = peeked ?? state.query, b = otherText(state), { text, first, self, way } = state;
    const [[grid, beside], moves, levels, cosines] = await Promise.all([gridsOf(state), movesOf(store, state),
      store.thumbs(text), b < 0 ? null : store.cosines(text, query, b, state.twin)]);
    const values = lineOf(grid, query, way), rows = grid.decoded.map(head => row(head, query, state));
    const isExact = moves?.exact && state.shown === "pattern" && state.beta === 1 && first && self;
    return { state, query, peeked: peeked !== null, values, moves, levels, cosines,
      grid, scale: grid.scale, largest: grid.largest,
      beside: beside && { ...beside, query: b < 0 ? query : state.twin },
      weights: merged(rows.map(each => each.slice()), state.merge),
      error: bundle.texts[text].kind === "log" && !(first && self)
        ? Math.max(...grid.decoded.map((head, i) => rowError(head, query, state, rows[i]))) : null,
      exactRow: isExact ? exactOf(moves.exact, grid.n, query, way) : null,
      key: state.key >= 0 && peeked === null ? state.key : largest(values) };
  };
}
