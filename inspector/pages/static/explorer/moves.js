// The five moves of one query, with the model's own numbers: ask, advertise, score, normalize, blend; then what is written.

import { moves as made, norm, products } from "inspector/attention.js";
import { make, table } from "inspector/dom.js";
import { counts, extent } from "inspector/grids.js";
import { bare, number, plural, signed, significant } from "inspector/say.js";

const KEYS = 10;        // of the tables, the largest first

/** A vector as a row of coloured cells, its numbers on hover. @param {ArrayLike<number>} values @param {any} colours
 *  @param {string} name */
function strip(values, colours, name) {
  const most = extent(values) || 1, label = `${name}: ${values.length} numbers, length ${significant(norm(values))}`;
  const cell = (value, d) => make("i", { title: `${name}[${d}] = ${significant(value)}`,
    style: { "--c": colours.tone(value / most, "signed").css } });
  return make("div", { class: "x-strip", role: "img", "aria-label": label }, ...Array.from(values, cell));
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
    const [head] = state.heads, why = n <= bundle.moves_tokens ? "others were asked for"
      : `beyond ${bundle.moves_tokens} tokens (this text has ${n}) those of the heads named, or of the eight that score `
        + "highest, are";
    const chip = head => make("button", { type: "button", class: "x-chip",
      on: { click: () => update({ heads: [head] }) } }, head);
    return [`q, k and v of ${head} are not stored here: ${why}. To have them, name the head: `,
      make("code", {}, `--moves "${head}"`), " on the command line, ", make("code", {}, `explore(trace, moves="${head}")`),
      " in Python. Stored: ", ...known.flatMap(head => [chip(head), " "])];
  }

  /** Why there are no moves to show, or null. @param {any} view @param {number[]} keys */
  function absent(view, keys) {
    if (view.state.heads.length > 1) return ["Several heads are open, and the moves are of one at a time: open one."];
    if (!view.moves) return missing(view);
    return keys.length ? null : ["No key is left for this query."];
  }

  return {
    element,
    /** @param {any} view */
    render(view) {
      const { state, colours, moves: own } = view, text = bundle.texts[state.text], from = state.way === "from";
      const query = from || view.key < 0 ? view.query : view.key;        // the other way round, who looks is the query
      const keys = Array.from({ length: query + 1 }, (_, j) => j).filter(j => counts(query, j, state));
      const why = absent(view, keys);
      if (why) {
        note.replaceChildren(...why);
        return list.replaceChildren();
      }
      const d = bundle.d_head, [head] = state.heads, [layer, place] = head.split(".").map(Number);
      const vector = (all, i) => all.subarray(i * d, (i + 1) * d), length = v => significant(norm(v));
      const scale = text.factors[layer][place], q = vector(own.q, query);
      const found = made(q, keys.map(j => vector(own.k, j)), keys.map(j => vector(own.v, j)), scale, state.beta);
      const order = keys.map((_, at) => at).sort((a, b) => found.weights[b] - found.weights[a]);
      const wanted = from ? view.key : view.query, key = keys.includes(wanted) ? wanted : keys[order[0]];
      const at = keys.indexOf(key), [k, v] = [vector(own.k, key), vector(own.v, key)];
      const shown = [...new Set([...order.slice(0, KEYS), at])], on = shown.indexOf(at);
      const name = i => make("span", { class: "token" }, text.labels[keys[i]], make("sup", {}, String(keys[i])));
      const label = j => `“${bare(text.labels[j])}”`, line = (...children) => make("p", {}, ...children);
      const chosen = from ? `What ${label(query)} looks at` : `Who looks at ${label(key)}`;
      note.replaceChildren(`Head ${head}, query ${label(query)} (${query}), key ${label(key)} (${key}): another is chosen `
        + `in the table “${chosen}”. In a strip a cell is a number, blue below 0, red above; stored to three digits.`);

      const usual = Math.abs(scale * Math.sqrt(d) - 1) < 1e-9;
      const score = line(`sum ${signed(found.sums[at])} ${usual ? `÷ √${d}` : `× ${significant(scale)}`} = score `,
        make("b", { class: "x-score" }, signed(found.scores[at])));
      const whole = keys.length === query + 1, seen = `${plural(keys.length, "key")} ${whole ? "seen" : "left"}`;
      const masked = `${plural(text.n - 1 - query, "later token")} masked; ${seen}`;
      const sharper = state.beta === 1 ? "" : `; scores × ${significant(state.beta)}`;
      const behind = i => Math.exp(state.beta * (found.scores[i] - found.scores[order[0]]));
      const weights = table(null, ["key", "score", "e^(score − largest)", "weight"], shown.map(i =>
        [name(i), signed(found.scores[i]), number(behind(i), 3), number(found.weights[i], 3)]), on);
      const total = found.shares.reduce((sum, share) => sum + share, 0);
      const percent = share => total ? `${(100 * share / total).toFixed(0)} %` : "–";
      const values = table(null, ["key", "weight", "‖v‖", "‖weight × v‖", "of all"], shown.map(i => [name(i),
        number(found.weights[i], 3), length(vector(own.v, keys[i])), significant(found.shares[i]),
        percent(found.shares[i])]), on);
      const stream = own.stream[layer * text.n + query], changed = state.beta !== 1 || !whole;
      const cut = text.cut.includes(head), added = own.writes[query];
      const wrote = cut && !added ? "nothing is"
        : `${cut ? "what stands for it" : "z W_O"}, length ${significant(added)}, is`;
      const written = `The blend z = Σ weight × v, length ${length(found.z)}, `
        + (cut ? "goes no further, for the head is cut: " : "goes through W_O")
        + (cut ? "" : changed ? ". As the model runs, without your changes: " : "; the result ")
        + `${wrote} added to a stream of length ${significant(stream)}. The output bias belongs to no head.`;
      const strips = { q, k, "q×k": products(q, k), v, z: found.z }, drawn = name => strip(strips[name], colours, name);
      return list.replaceChildren(
        step("1", "Ask", `q, what ${label(query)} looks for`, drawn("q"), line(`${d} numbers, length ${length(q)}`)),
        step("2", "Advertise", `k, what ${label(key)} offers`, drawn("k"), line(`${d} numbers, length ${length(k)}`)),
        step("3", "Score", "q · k, element by element", drawn("q×k"), score),
        step("4", "Normalize", "mask, then softmax", line(masked + sharper), weights),
        step("5", "Blend", "values by weight", drawn("v"), line(`v of ${label(key)}, length ${length(v)}`), values),
        step("→", "Write", "z, then W_O", drawn("z"), line(written)));
    },
  };
}
