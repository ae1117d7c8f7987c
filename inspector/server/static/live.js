// The live page: a text and a model in, the explorer out; what is typed on cancels what is under way.

import { make, select } from "inspector/dom.js";
import { mount } from "inspector/explorer.js";
import { plural } from "inspector/say.js";
import { askPatiently, Refused } from "live/asking.js";
import { changes } from "live/changes.js";
import { repeating } from "live/repeating.js";

const PAUSE = 350;      // milliseconds without a key before a text is computed

/** Fill the page. @param {HTMLElement} root @param {any} facts of GET /api/models */
export function live(root, { models, limits }) {
  const text = make("textarea", { rows: "3", "aria-label": "Text", spellcheck: "false", on: { input: () => { source = null; later(); } } });
  const model = select("Model", () => { heads.clear(); edited.reset(); compute(); });
  const bos = make("input", { type: "checkbox", on: { change: () => compute() } });
  const bar = make("progress", { max: "1", hidden: true, "aria-label": "Progress" }), status = make("p", { class: "l-status", role: "status" });
  const stop = make("button", { type: "button", hidden: true, on: { click: () => cancel("Cancelled.") } }, "Cancel");
  const home = make("div", { class: "l-home" });
  const edited = changes({ changed: () => compute(), open: head => explorer?.update({ heads: [head] }), asked: at => { position = at; compute(); } });
  const induction = repeating({ repeat, undo: () => { source = null; edited.reset(); compute(); }, open: head => explorer?.update({ heads: [head] }),
    cut: found => edited.set({ ...edited.edits, ...Object.fromEntries(found.map(head => [head, "mean"])) }) });
  root.replaceChildren(make("form", { class: "l-form", on: { submit: event => event.preventDefault() } }, text,
    make("div", { class: "x-switches" }, model.element, make("label", { class: "x-check" }, bos, "BOS first"), induction.buttons, bar, stop, status)), home);
  const panels = make("div", { class: "l-panels" }, edited.element, induction.element);
  model.set(models.map(each => [each.name, `${each.name} (${each.n_layer} × ${each.n_head} heads, ${each.dtype})`]), models[0].name);

  let explorer = null, abort = null, timer = 0, source = null, position = -1, told = "";
  /** Induction heads of the models asked so far. @type {Map<string, Promise<string[]>>} */
  const heads = new Map();

  /** What the requests are about: the text, or ids that stand in for it. */
  const subject = () => ({ model: model.list.value, ...source ? { ids: source } : { text: text.value }, bos: source ? false : bos.checked });

  function later() {
    clearTimeout(timer);
    cancel("");
    timer = setTimeout(() => { edited.reset(); position = -1; compute(); }, PAUSE);
  }

  function cancel(line) {
    abort?.abort();
    abort = null;
    bar.hidden = stop.hidden = true;
    if (line) status.textContent = line;
  }

  /** Run one question with the page's progress bar; what it raises is told, and null given. @template T
   *  @param {(signal: AbortSignal, progress: any) => Promise<T>} work @returns {Promise<T|null>} */
  async function run(work) {
    clearTimeout(timer);
    cancel("");
    const mine = abort = new AbortController();
    stop.hidden = bar.hidden = false;
    bar.removeAttribute("value");
    status.textContent = "Computing …";
    root.dataset.state = "computing";
    try {
      return await work(mine.signal, (done, total, what) => {
        if (total) bar.value = done / total;
        status.textContent = `${what} ${done}${total ? ` of ${total}` : ""} …`;
      });
    } catch (error) {
      if (error.name === "AbortError") return null;
      if (!(error instanceof Refused)) throw error;
      status.textContent = error.message;
      root.dataset.state = "refused";
      return null;
    } finally {
      if (abort === mine) {
        abort = null;
        bar.hidden = stop.hidden = true;
      }
    }
  }

  async function compute() {
    if (!source && !text.value) return empty();
    const edits = edited.edits, any = Object.keys(edits).length > 0, repeated = source !== null;
    const found = await run(async (signal, progress) => {
      const asked = subject();
      const bundle = await askPatiently("explore", { ...asked, edits }, signal, progress);
      const effect = any || repeated ? await askPatiently("intervene", { ...asked, edits, position }, signal, progress) : null;
      const named = repeated ? await inductionHeads(asked.model, signal, progress) : [];
      return { bundle, effect, named };
    });
    if (!found) return;
    show(found, edits, repeated);
  }

  /** The heads with the verdict induction, highest score first; asked once a model. */
  function inductionHeads(name, signal, progress) {
    if (!heads.has(name)) {
      const asked = askPatiently("heads", { model: name }, signal, progress).then(({ rows }) => rows.filter(row => row.verdict.includes("induction"))
        .sort((a, b) => b.induction - a.induction).map(row => `${row.layer}.${row.head}`));
      heads.set(name, asked);
      asked.catch(() => heads.delete(name));
    }
    return heads.get(name);
  }

  function show({ bundle, effect, named }, edits, repeated) {
    const any = Object.keys(edits).length > 0, old = explorer?.state, before = told;
    told = JSON.stringify([subject(), repeated]);
    const state = { ...old, text: 0, other: any ? (old?.other.startsWith("t") || !old?.other ? "t1" : old.other) : old?.other.startsWith("t") ? "" : old?.other ?? "" };
    if (told !== before) Object.assign(state, { query: null, key: -1, locked: false });
    if (repeated && told !== before && named.length) state.heads = [named[0]];
    state.twin = state.query ?? bundle.texts[0].n - 1;
    explorer?.remove();
    explorer = mount(home, bundle, { state, middle: panels, changed: now => edited.about(now.heads) });
    window.explorer = explorer;
    edited.about(explorer.state.heads);
    edited.render(any ? effect : null, bundle.texts[0].labels);
    induction.mode(repeated);
    if (repeated) induction.render(effect.copies, named, Object.keys(edits));
    status.textContent = `${plural(bundle.texts[0].n, "token")}${repeated ? ", repeated" : ""}.`;
    root.dataset.state = "done";
    root.dataset.shown = told;
  }

  function empty() {
    cancel("Type or paste a text.");
    explorer?.remove();
    explorer = null;
    edited.reset();
    root.dataset.state = "empty";
  }

  /** @param {string} how text or random */
  async function repeat(how) {
    const asked = how === "text" ? { model: model.list.value, text: text.value, bos: bos.checked, repeat: how } : { model: model.list.value, bos: bos.checked, repeat: how, seed: seed++ };
    const found = await run((signal, progress) => askPatiently("ids", asked, signal, progress));
    if (!found) return;
    source = found.ids;
    position = -1;
    edited.reset();
    await compute();
  }
  let seed = 0;

  text.value = "When Mary and John went to the store, John gave a drink to Mary. When Mary and John";
  text.maxLength = limits.max_body;
  compute();
}

live(document.getElementById("live"), await (await fetch("/api/models")).json());
