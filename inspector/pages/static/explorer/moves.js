// The five moves of one query, with the model's own numbers: ask, advertise, score, normalize, blend; then what is written.

import { moves as made, norm, products } from "inspector/attention.js";
import { make, table } from "inspector/dom.js";
import { counts, extent } from "inspector/grids.js";
import { bare, number, plural, signed, significant } from "inspector/say.js";

const KEYS = 10;        // of the tables, the largest first

/** A vector as a row of coloured cells, its numbers on hover. @param {ArrayLike<number>} values @param {any} colours @param {string} name */
function strip(values, colours, name) {
  const most = extent(values) || 1;
  return make("div", { class: "x-strip", role: "img", "aria-label": `${name}: ${values.length} numbers, length ${significant(norm(values))}` },
    ...Array.from(values, (value, d) => make("i", { title: `${name}[${d}] = ${significant(value)}`, style: { "--c": colours.tone(value / most, "signed").css } })));
}

/** One of the moves. @param {string} place @param {string} title @param {string} verb @param {(Node|string)[]} children */
const step = (place, title, verb, ...children) => make("li", { class: "x-step" },
  make("h3", {}, make("span", { class: "x-count" }, place), ` ${title} `, make("small", {}, verb)), ...children);

/** @param {any} context */
export function moves({ bundle, update }) {
  const list = make("ol", { class: "x-steps" }), note = make("p", { class: "note" });
  const element = make("section", { class: "x-moves", "aria-label": "The five moves of one query" },
    make("h2", {}, "Five moves of one query, and what it writes"), note, list);

  /** How to get what is not stored. @param {any} view */
  function missing({ state }) {
    const { n, heads } = bundle.texts[state.text], known = Object.keys(heads).filter(head => heads[head].moves);
    const why = n <= bundle.moves_tokens ? "others were asked for"
      : `beyond ${bundle.moves_tokens} tokens (this text has ${n}) those of the heads named, or of the eight that score highest, are`;
    return [`q, k and v of ${state.heads[0]} are not stored here: ${why}. To have them, name the head: `,
      make("code", {}, `--moves "${state.heads[0]}"`), " on the command line, ", make("code", {}, `explore(trace, moves="${state.heads[0]}")`), " in Python. Stored: ",
      ...known.flatMap(head => [make("button", { type: "button", class: "x-chip", on: { click: () => update({ heads: [head] }) } }, head), " "])];
  }

  return {
    element,
    /** @param {any} view */
    render(view) {
      const { state, colours } = view, text = bundle.texts[state.text], head = state.heads[0], from = state.way === "from";
      const query = from || view.key < 0 ? view.query : view.key;        // the other way round, who looks is the query
      if (state.heads.length > 1) {
        note.replaceChildren("Several heads are open; each makes its moves by itself. Open one.");
        return list.replaceChildren();
      }
      const own = view.moves;
      if (!own) {
        note.replaceChildren(...missing(view));
        return list.replaceChildren();
      }
      const d = bundle.d_head, [layer, place] = head.split(".").map(Number), vector = (all, i) => all.subarray(i * d, (i + 1) * d);
      const keys = Array.from({ length: query + 1 }, (_, j) => j).filter(j => counts(query, j, state));
      if (!keys.length) {
        note.replaceChildren("No key is left for this query.");
        return list.replaceChildren();
      }
      const scale = text.factors[layer][place], q = vector(own.q, query);
      const found = made(q, keys.map(j => vector(own.k, j)), keys.map(j => vector(own.v, j)), scale, state.beta);
      const order = keys.map((_, at) => at).sort((a, b) => found.weights[b] - found.weights[a]);
      const wanted = from ? view.key : view.query, key = keys.includes(wanted) ? wanted : keys[order[0]], at = keys.indexOf(key);
      const shown = [...new Set([...order.slice(0, KEYS), at])], each = products(q, vector(own.k, key));
      const name = j => make("span", { class: "token" }, text.labels[j], make("sup", {}, String(j)));
      const label = j => `“${bare(text.labels[j])}”`;
      const total = found.shares.reduce((sum, share) => sum + share, 0), z = found.z;
      const changed = state.beta !== 1 || keys.length !== query + 1;
      note.replaceChildren(`Head ${head}, query ${label(query)} (${query}), key ${label(key)} (${key}): another is chosen in the table “${from ? `What ${label(query)} looks at` : `Who looks at ${label(key)}`}”. In a strip a cell is a number, blue below 0, red above; stored to three digits.`);
      list.replaceChildren(
        step("1", "Ask", `q, what ${label(query)} looks for`, strip(q, colours, "q"), make("p", {}, `${d} numbers, length ${significant(norm(q))}`)),
        step("2", "Advertise", `k, what ${label(key)} offers`, strip(vector(own.k, key), colours, "k"), make("p", {}, `${d} numbers, length ${significant(norm(vector(own.k, key)))}`)),
        step("3", "Score", "q · k, element by element", strip(each, colours, "q×k"),
          make("p", {}, `sum ${signed(found.sums[at])} ${Math.abs(scale * Math.sqrt(d) - 1) < 1e-9 ? `÷ √${d}` : `× ${significant(scale)}`} = score `, make("b", { class: "x-score" }, signed(found.scores[at])))),
        step("4", "Normalize", "mask, then softmax", make("p", {}, `${plural(text.n - 1 - query, "later token")} masked; ${plural(keys.length, "key")} ${keys.length === query + 1 ? "seen" : "left"}${state.beta === 1 ? "" : `; scores × ${significant(state.beta)}`}`),
          table(null, ["key", "score", "e^(score − largest)", "weight"], shown.map(i => [name(keys[i]), signed(found.scores[i]),
            number(Math.exp(state.beta * (found.scores[i] - found.scores[order[0]])), 3), number(found.weights[i], 3)]), shown.indexOf(at))),
        step("5", "Blend", "values by weight", strip(vector(own.v, key), colours, "v"),
          make("p", {}, `v of ${label(key)}, length ${significant(norm(vector(own.v, key)))}`),
          table(null, ["key", "weight", "‖v‖", "‖weight × v‖", "of all"], shown.map(i => [name(keys[i]), number(found.weights[i], 3), significant(norm(vector(own.v, keys[i]))),
            significant(found.shares[i]), total ? `${(100 * found.shares[i] / total).toFixed(0)} %` : "–"]), shown.indexOf(at))),
        step("→", "Write", "z, then W_O", strip(z, colours, "z"), make("p", {}, `The blend z = Σ weight × v, length ${significant(norm(z))}, goes through W_O. `,
          ...changed ? ["As the model runs, without your changes: "] : [], `z W_O, length ${significant(own.writes[query])}, is added to a stream of length ${significant(own.stream[layer * text.n + query])}. The output bias belongs to no head.`)));
      return undefined;
    },
  };
}
