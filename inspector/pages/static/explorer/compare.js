// Side by side: another head, or the same on another text; the difference; and how alike a token's stream is in two texts.

import { make, select } from "inspector/dom.js";
import { plot } from "inspector/plot.js";
import { bare, minus, plural, signed } from "inspector/say.js";
import { otherText } from "inspector/state.js";
import { valueWords } from "inspector/words.js";

const SVG = "http://www.w3.org/2000/svg";

/** @param {string} tag @param {Record<string, any>} attributes @param {string} [text] */
function drawn(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  if (text) element.textContent = text;
  return element;
}

/** Cosines by layer as a line, with their numbers. @param {ArrayLike<number>} values */
function chart(values) {
  const width = 520, height = 190, left = 34, bottom = 46, top = 18, last = values.length - 1;
  const low = Math.min(0, ...values), x = i => left + 24 + (width - left - 48) * (last ? i / last : 0), y = v => top + (height - top - bottom) * (1 - (v - low) / (1 - low));
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, class: "x-chart", role: "img",
    "aria-label": `Cosine by layer: ${Array.from(values, (v, i) => `${i === 0 ? "embedding" : i === last ? "end" : `layer ${i}`} ${signed(v)}`).join(", ")}` });
  for (const tick of low < -0.25 ? [low, 0, 1] : [0, 0.5, 1]) {
    svg.append(drawn("line", { x1: left, x2: width - 24, y1: y(tick), y2: y(tick), class: "x-tick" }), drawn("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, minus(tick.toFixed(1))));
  }
  svg.append(drawn("polyline", { points: Array.from(values, (v, i) => `${x(i)},${y(v)}`).join(" ") }));
  const every = Math.ceil(values.length / 14);
  Array.from(values, (v, i) => {
    svg.append(drawn("circle", { cx: x(i), cy: y(v), r: 3.5 }));
    if (i % every === 0 || i === last) {
      svg.append(drawn("text", { x: x(i), y: y(v) - 8, "text-anchor": "middle", class: "x-number" }, minus(v.toFixed(2))),
        drawn("text", { x: x(i), y: height - 26, "text-anchor": "middle" }, i === 0 ? "emb" : i === last ? "end" : String(i)));
    }
  });
  svg.append(drawn("text", { x: (left + width) / 2, y: height - 5, "text-anchor": "middle" }, "what the layer reads"));
  return svg;
}

/** @param {any} context */
export function compare({ bundle, update, pick }) {
  const other = select("Beside it", value => update({ other: value, twin: -1 }));
  const twin = select("Token there", value => update({ twin: Number(value) }));
  let last = null;
  const chosen = (query, key) => otherText(last.state) < 0 ? pick(query, key) : update({ twin: query });
  const here = plot("The open grid", pick, value => valueWords(last, value));
  const beside = plot("The other grid", chosen, value => valueWords(last, value)), between = plot("The difference", () => {}, value => signed(value, 4));
  const note = make("p", { class: "note" }), line = make("div", { class: "x-cosines" });
  const element = make("section", { class: "x-compare", "aria-label": "Compare" }, make("h2", {}, "Compare"),
    make("div", { class: "x-switches" }, other.element, twin.element), note, make("div", { class: "x-pair" }, here.element, beside.element, between.element), line);

  /** The cosine of the two tokens' streams, layer by layer. @param {any} view */
  function streams({ state, query, cosines }) {
    const b = otherText(state), [mine, theirs] = [bundle.texts[state.text], bundle.texts[b]];
    line.replaceChildren(make("h3", {}, `“${bare(mine.labels[query])}” ${query} here, “${bare(theirs.labels[state.twin])}” ${state.twin} there: cosine of their residual streams`),
      make("p", { class: "note" }, "1: the same direction, as the same token at the same place has before any layer. The lower, the more the texts have made of it."),
      cosines ? chart(cosines) : make("p", { class: "note" }, "Not stored: the two texts are too long together."));
  }

  return {
    element,
    /** @param {any} view */
    render(view) {
      last = view;
      const { state, colours, beside: shown } = view, text = bundle.texts[state.text], b = otherText(state);
      const options = [["", "nothing"], ...bundle.texts.map((each, i) => [`t${i}`, each.name ?? `text ${i + 1}: ${each.title.slice(0, 40)}`, "the same head on another text"])
        .filter(([value]) => value !== `t${state.text}`), ...Object.keys(text.heads).map(head => [head, bundle.verdicts[head] ? `${head} ${bundle.verdicts[head]}` : head, "another head"])];
      other.set(options, state.other);
      twin.element.hidden = b < 0;
      if (b >= 0) twin.set(bundle.texts[b].labels.map((label, i) => [String(i), `${i} ${label}`]), String(state.twin));
      here.element.hidden = beside.element.hidden = between.element.hidden = line.hidden = true;
      note.textContent = shown ? "" : "Another head, or this head on another text, side by side.";
      if (!shown) return;
      here.element.hidden = beside.element.hidden = between.element.hidden = false;
      here.render(view.grid, colours, view.query);
      beside.render(shown.grid, colours, shown.query);
      between.render(shown.difference, colours, -1);
      const shared = shown.difference.n, apart = b < 0 ? shared : text.labels.findIndex((label, i) => label !== bundle.texts[b].labels[i]);
      note.textContent = !shown.difference.largest ? `No difference in any cell.${b < 0 ? "" : " A head that is turned off still looks the same way: it only writes nothing. Open a head of a later layer."}`
        : `The difference, cell by cell: red is more in “${shown.grid.title}”, blue more in “${view.grid.title}”.${
          b < 0 || apart < 0 ? "" : ` By position, over the ${plural(shared, "token")} that both have: from position ${apart} on the tokens differ, and so does what is compared.`}`;
      if (b >= 0) {
        line.hidden = false;
        streams(view);
      }
    },
  };
}
