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
  const low = Math.min(0, ...values), x = i => left + 24 + (width - left - 48) * (last ? i / last : 0);
  const y = v => top + (height - top - bottom) * (1 - (v - low) / (1 - low));
  const read = i => i === 0 ? "embedding" : i === last ? "end" : `layer ${i}`;
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, class: "x-chart", role: "img",
    "aria-label": `Cosine by layer: ${Array.from(values, (v, i) => `${read(i)} ${signed(v)}`).join(", ")}` });
  for (const tick of low < -0.25 ? [low, 0, 1] : [0, 0.5, 1]) {
    svg.append(drawn("line", { x1: left, x2: width - 24, y1: y(tick), y2: y(tick), class: "x-tick" }),
      drawn("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, minus(tick.toFixed(1))));
  }
  svg.append(drawn("polyline", { points: Array.from(values, (v, i) => `${x(i)},${y(v)}`).join(" ") }));
  const every = Math.ceil(values.length / 14);
  Array.from(values, (v, i) => {
    svg.append(drawn("circle", { cx: x(i), cy: y(v), r: 3.5 }));
    if (i % every === 0 || i === last) {
      svg.append(drawn("text", { x: x(i), y: y(v) - 8, "text-anchor": "middle", class: "x-number" }, minus(v.toFixed(2))),
        drawn("text", { x: x(i), y: height - 26, "text-anchor": "middle" },
          i === 0 ? "emb" : i === last ? "end" : String(i)));
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
  const beside = plot("The other grid", chosen, value => valueWords(last, value));
  const between = plot("The difference", () => {}, value => signed(value, 4)), plots = [here, beside, between];
  const note = make("p", { class: "note" }), line = make("div", { class: "x-cosines" });
  const element = make("section", { class: "x-compare", "aria-label": "Compare" }, make("h2", {}, "Compare"),
    make("div", { class: "x-switches" }, other.element, twin.element), note,
    make("div", { class: "x-pair" }, ...plots.map(each => each.element)), line);

  /** The cosine of the two tokens' streams, layer by layer. @param {any} view */
  function streams({ state, query, cosines }) {
    const b = otherText(state), [mine, theirs] = [bundle.texts[state.text], bundle.texts[b]];
    const named = (text, place) => `“${bare(text.labels[place])}” ${place}`;
    line.replaceChildren(make("h3", {}, `${named(mine, query)} here, ${named(theirs, state.twin)} there: `
        + "cosine of their residual streams"),
      make("p", { class: "note" }, "1: the same direction, as the same token at the same place has before any layer. "
        + "The lower, the more the texts have made of it."),
      cosines ? chart(cosines) : make("p", { class: "note" }, "Not stored: the two texts are too long together."));
  }

  /** What can stand beside the open grid: other texts, and the other heads on this one. @param {number} open the open text
   *  @returns {[string, string, string?][]} */
  function choices(open) {
    const { texts, verdicts } = bundle;
    return [["", "nothing"],
      ...texts.map(({ name, title }, i) =>
        [`t${i}`, name ?? `text ${i + 1}: ${title.slice(0, 40)}`, "the same head on another text"])
        .filter((_, i) => i !== open),
      ...Object.keys(texts[open].heads).map(head =>
        [head, verdicts[head] ? `${head} ${verdicts[head]}` : head, "another head"])];
  }

  /** What the difference is. @param {any} view */
  function told({ state, grid, beside: { grid: shown, difference } }) {
    const b = otherText(state), { labels } = bundle.texts[state.text];
    if (!difference.largest) {
      return "No difference in any cell." + (b < 0 ? "" : " A head that is cut still looks the same way: only what it "
        + "writes is another. Open a head of a later layer.");
    }
    const apart = b < 0 ? -1 : labels.findIndex((label, i) => label !== bundle.texts[b].labels[i]);
    return `The difference, cell by cell: red is more in “${shown.title}”, blue more in “${grid.title}”.`
      + (apart < 0 ? "" : ` By position, over the ${plural(difference.n, "token")} that both have: from position ${apart} `
        + "on the tokens differ, and so does what is compared.");
  }

  return {
    element,
    /** @param {any} view */
    render(view) {
      last = view;
      const { state, colours, beside: shown } = view, b = otherText(state);
      other.set(choices(state.text), state.other);
      twin.element.hidden = b < 0;
      if (b >= 0) twin.set(bundle.texts[b].labels.map((label, i) => [String(i), `${i} ${label}`]), String(state.twin));
      for (const each of plots) each.element.hidden = !shown;
      line.hidden = b < 0;
      note.textContent = shown ? told(view) : "Another head, or this head on another text, side by side.";
      if (!shown) return;
      here.render(view.grid, colours, view.query);
      beside.render(shown.grid, colours, shown.query);
      between.render(shown.difference, colours, -1);
      if (b >= 0) streams(view);
    },
  };
}
