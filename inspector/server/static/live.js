// The live page: a text and a model in, the explorer out; what is typed on cancels what is under way.

import { make, select } from "inspector/dom.js";
import { mount } from "inspector/explorer.js";
import { plural } from "inspector/say.js";
import { changeBar, effects, fixed, meanLosses, mostMoved } from "live/changes.js";
import { induction, repeatButtons } from "live/repeating.js";
import { runner } from "live/running.js";

const PAUSE = 350;      // milliseconds without a key before a text is computed
const FIRST = "When Mary and John went to the store, John gave a drink to Mary. When Mary and John";

/** Heads as 1.4. @param {any[]} rows with layer and head */
const names = rows => rows.map(({ layer, head }) => `${layer}.${head}`);

/** What the changes did, in a line. @param {any} effect an Intervention's JSON */
function inShort({ tokens, patterns }) {
  const [before, after] = meanLosses(tokens), moved = names(mostMoved(patterns, 3));
  return `Mean loss ${fixed(before)} → ${fixed(after)}. `
    + (moved.length ? `Changed most: ${moved.join(", ")}.` : "No other head looks elsewhere.");
}

/** Fill the page. @param {HTMLElement} root @param {any} facts of GET /api/models */
export function live(root, { models }) {
  const text = make("textarea", { rows: "3", "aria-label": "Text", spellcheck: "false", on: { input: typed } });
  const second = make("input", { type: "text", placeholder: "Another one, to compare with", "aria-label": "To compare with",
    spellcheck: "false", on: { input: typed } });
  const model = select("Model", () => { edited.reset(); compute(); });
  const bos = make("input", { type: "checkbox", on: { change: compute } });
  const work = runner(root, compute), edited = changeBar(compute), repeats = repeatButtons(repeat);
  const repeated = make("section", { class: "l-repeat l-own", "aria-label": "Induction", hidden: true });
  let home = make("div", { class: "l-home" });
  root.replaceChildren(make("form", { class: "l-form l-own", on: { submit: event => event.preventDefault() } }, text, second,
    make("div", { class: "x-switches" }, model.element, make("label", { class: "x-check" }, bos, "BOS first"),
      repeats.element, ...work.elements)), repeated, edited.element, home);

  /** The explorer on the page, and what it is about. */
  let explorer = null, shown = "", timer = 0;
  /** How tokens are repeated: text, random or null; and which random ones. */
  let how = null, seed = -1;
  /** The position after which the next token is asked, and of what it is one: of another text it means nothing. */
  let position = { about: "", at: -1 };
  /** What is said once of changes that a new text took back. */
  let undone = "";
  /** The induction heads of the models asked so far. @type {Map<string, string[]>} */
  const known = new Map();
  /** Open a head, and bring it into sight. @param {string} head */
  async function open(head) {
    await explorer.update({ heads: [head] });
    explorer.element.scrollIntoView({ block: "start" });
  }

  function typed() {
    if (how) edited.reset();        // they were changes of the repeated tokens' run
    how = null;
    work.stop("pausing", "…");
    clearTimeout(timer);
    timer = setTimeout(compute, PAUSE);
  }

  /** @param {string|null} way text, random, or null: the text itself */
  function repeat(way) {
    how = way;
    if (way === "random") seed++;
    undone = Object.keys(edited.edits).length ? " Your changes were taken back." : "";
    edited.reset();
    return compute();
  }

  /** What the page is about: a text, or ids in its place. */
  async function subjectOf(ask) {
    const all = { model: model.list.value, bos: bos.checked };
    if (!how) return { ...all, text: text.value };
    const { ids } = await ask("ids", { ...all, repeat: how, ...how === "text" ? { text: text.value } : { seed } });
    return { model: all.model, ids };
  }

  /** The heads with the verdict induction, the highest score first; a model is asked once. */
  async function inductionHeads(ask, name) {
    if (!known.has(name)) {
      const { rows } = await ask("heads", { model: name });
      const inducing = rows.filter(row => row.verdict.includes("induction"));
      known.set(name, names(inducing.sort((a, b) => b.induction - a.induction)));
    }
    return known.get(name);
  }

  async function compute() {
    clearTimeout(timer);
    repeats.show(how);
    if (!text.value && how !== "random") return empty();
    const compare = second.value || null;
    const about = JSON.stringify([model.list.value, bos.checked, how, how === "random" ? seed : text.value, compare]);
    const { edits } = edited, changed = Object.keys(edits);
    let next = null;
    const answer = await work.run(async ask => {
      const subject = await subjectOf(ask), at = position.about === about ? position.at : -1;
      const asked = how || changed.length ? at : null;
      const { effect, ...bundle } = await ask("explore", { ...subject, edits, compare, position: asked });
      const heads = how ? await inductionHeads(ask, subject.model) : [];
      const middle = changed.length ? make("div", {}) : null;
      next = hidden(bundle, stateFor(bundle, about, changed, heads, compare), middle);
      await next.explorer.drawn;
      return { subject, bundle, effect, heads, middle };
    });
    if (!answer) {
      next?.explorer.remove();
      return undefined;
    }
    const { subject, bundle: { texts: [{ n, labels }] }, effect, heads, middle } = answer;
    swap(next, about);
    if (middle) fill(middle, subject, edits, effect, labels);
    const acts = { open, off: () => edited.add(heads, "mean"), on: () => edited.remove(heads) };
    const focused = repeated.contains(document.activeElement);
    repeated.hidden = !how;
    repeated.replaceChildren(...how ? induction(effect.copies, heads, changed, acts) : []);
    if (focused) repeated.querySelector(".l-turn")?.focus();
    const line = `${plural(n, "token")}${how ? ", repeated" : ""}.${undone}`;
    undone = "";
    return work.say("done", changed.length ? `${line} ${inShort(effect)}` : line);
  }

  /** What to look at: as before while the text is the same; else the last token, of the stripe where tokens are repeated.
   *  Beside it stands the changed run, else the second text. */
  function stateFor(bundle, about, changed, heads, compare) {
    const old = explorer?.state ?? {}, beside = old.other?.startsWith("t") ? "" : old.other;
    const state = { ...old, text: changed.length ? old.text : 0, other: beside || (changed.length || compare ? "t1" : "") };
    if (about !== shown) Object.assign(state, { text: 0, query: null, key: -1, locked: false });
    if (about !== shown && heads.length) state.heads = [heads[0]];
    return { ...state, twin: changed.length ? state.query ?? bundle.texts[0].n - 1 : about === shown ? old.twin : -1 };
  }

  /** An explorer that is not on the page yet. */
  function hidden(bundle, state, middle) {
    const place = make("div", { class: "l-home" });
    let query = state.twin;
    const made = mount(place, bundle, { state, middle, changed: now => {
      edited.about(now.heads);
      // The changed run is of the same text.
      if (now.query !== query && now.other === "t1" && middle) made.update({ twin: query = now.query });
    } });
    return { place, explorer: made };
  }

  /** Put an explorer, drawn before, in the place of the one on the page: nothing flickers, nothing jumps. */
  function swap(next, about) {
    home.replaceWith(next.place);
    explorer?.remove();
    [home, explorer, shown] = [next.place, next.explorer, about];
    window.explorer = explorer;
    edited.about(explorer.state.heads);
  }

  /** What the changes did, and again when the next token after another position is asked for. */
  function fill(middle, subject, edits, effect, labels) {
    const asked = async at => {
      position = { about: shown, at };
      if (root.dataset.state !== "done") return compute();       // what is on the page is not what was asked for last
      const other = await work.run(ask => ask("intervene", { ...subject, edits, position: at }));
      if (!other) return;
      const focused = middle.contains(document.activeElement);
      fill(middle, subject, edits, other, labels);
      if (focused) middle.querySelector("select").focus();
      work.say("done", `The next token after position ${other.position}.`);
    };
    middle.replaceChildren(effects(effect, labels, { open, asked }));
  }

  function empty() {
    work.stop("empty", "Type or paste a text.");
    explorer?.remove();
    [explorer, shown, window.explorer] = [null, "", null];
    edited.about([]);
    repeated.hidden = true;
  }

  model.set(models.map(({ name, n_layer, n_head, dtype }) => [name, `${name} (${n_layer} × ${n_head} heads, ${dtype})`]),
    models[0].name);
  text.value = FIRST;
  compute();
}

live(document.getElementById("live"), await (await fetch("/api/models")).json());
