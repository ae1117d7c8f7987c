// What is looked at and how: plain data, which a link's fragment holds and gives back.

/**
 * @typedef {object} State
 * @property {number} text which text
 * @property {string[]} heads the heads looked at, 5.1
 * @property {string} merge how several become one: mean or max
 * @property {number|null} query the token looked from (or at); null = the last one
 * @property {number} key the token on the other side, -1 = the one of the largest weight
 * @property {boolean} locked whether the query stays when the pointer moves over the text
 * @property {string} way from: what the query looks at; to: who looks at it
 * @property {number} beta sharpness
 * @property {string} shown pattern, scores or values
 * @property {string} scale sqrt, linear or log
 * @property {boolean} first whether the first token counts
 * @property {boolean} self whether the query itself counts
 * @property {string} order of the wall: layer, text:induction, repeats:induction, ...
 * @property {string} other what stands beside: "", a head 4.11, or a text's number t1
 * @property {number} twin the token of the other text; -1 = the first that is equal to the query
 */

/** @type {State} */
export const START = { text: 0, heads: [], merge: "mean", query: null, key: -1, locked: false, way: "from", beta: 1,
  shown: "pattern", scale: "sqrt", first: true, self: true, order: "layer", other: "", twin: 0 };

const CHOICES = { merge: ["mean", "max"], way: ["from", "to"], shown: ["pattern", "scores", "values"],
  scale: ["sqrt", "linear", "log"] };
export const MOST_BETA = 100;
const MOST_CELLS = 8e6;         // of the heads shown together, the latest chosen: more would freeze the page

/** A whole number within bounds. @param {any} value @param {number} low @param {number} high */
const within = (value, low, high) =>
  Math.max(low, Math.min(high, Number.isFinite(Number(value)) ? Math.round(Number(value)) : low));

/** A state that the bundle can show, whatever was asked for. @param {Partial<State>} asked @param {any} bundle
 *  @returns {State} */
export function valid(asked, bundle) {
  const state = { ...START, ...asked };
  state.text = within(state.text, 0, bundle.texts.length - 1);
  const text = bundle.texts[state.text];
  if (state.query === null) state.query = text.n - 1;
  state.heads = [...new Set(state.heads)].filter(head => Object.hasOwn(text.heads, head));
  if (!state.heads.length) state.heads = [bundle.opening];
  state.heads = state.heads.slice(-Math.max(8, Math.floor(MOST_CELLS / text.n ** 2)));
  state.query = within(state.query, 0, text.n - 1);
  const low = state.way === "from" ? 0 : state.query, high = state.way === "from" ? state.query : text.n - 1;
  state.key = state.key >= low && state.key <= high ? within(state.key, low, high) : -1;
  for (const [name, known] of Object.entries(CHOICES)) if (!known.includes(state[name])) state[name] = START[name];
  const beta = Number(state.beta);
  state.beta = Number.isFinite(beta) ? Math.max(0, Math.min(MOST_BETA, beta)) : 1;
  for (const name of ["locked", "first", "self"]) state[name] = Boolean(state[name]);
  const [on, column] = String(state.order).split(":");
  const known = column && bundle.names.some(name => name.column === column)
    && (on === "text" || on === "repeats" && bundle.repeats);
  if (!known) state.order = "layer";
  if (!Object.hasOwn(text.heads, state.other) && !(/^t\d+$/.test(state.other) && otherText(state) !== state.text
      && otherText(state) < bundle.texts.length)) state.other = "";
  if (otherText(state) >= 0) state.other = `t${otherText(state)}`;        // t01 is t1
  const beside = otherText(state) >= 0 ? bundle.texts[otherText(state)] : text;
  // -1: the same token there, where it is; else the same place.
  const twin = state.twin === -1 ? beside.labels.indexOf(text.labels[state.query]) : state.twin;
  state.twin = within(twin === -1 ? state.query : twin, 0, beside.n - 1);
  return state;
}

/** The number of the text that stands beside, or -1. @param {State} state */
export const otherText = state => state.other.startsWith("t") ? Number(state.other.slice(1)) : -1;

/** A state as a link's fragment: the heads and the query, and what is not as at the start. @param {State} state */
export function toFragment(state) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    const text = name === "heads" ? value.join(" ") : typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
    if (name === "heads" || name === "query" || value !== START[name]) found.set(name, text);
  }
  return "#" + found.toString();
}

/** What a fragment asks for; names that it does not know, and a yes or no said otherwise, are left out.
 *  @param {string} fragment @returns {Partial<State>} */
export function fromFragment(fragment) {
  const found = {};
  for (const [name, value] of new URLSearchParams(fragment.replace(/^#/, ""))) {
    if (!Object.hasOwn(START, name)) continue;
    const kind = name === "query" ? "number" : typeof START[name];
    if (kind === "boolean" && !["yes", "no"].includes(value)) continue;
    found[name] = name === "heads" ? value.split(/[ +,]+/).filter(Boolean)
      : kind === "number" ? Number(value) : kind === "boolean" ? value === "yes" : value;
  }
  return found;
}
