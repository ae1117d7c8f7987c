// All heads at a glance: a small picture of each, by layer or by a score. Arrow keys walk, a click opens.

import { checkbox, make, select } from "inspector/dom.js";
import { number } from "inspector/say.js";

const GAP = 3;          // pixels between two pictures, in pixels of the canvas
const REST = 60;        // milliseconds on a head until it is decoded: who stays there may open it

/** The orders that a bundle offers. @param {any} bundle @returns {[string, string, string?][]} */
function orders(bundle) {
  const by = (on, where) => bundle.names.map(({ column, title }) => [`${on}:${column}`, title, where]);
  return [["layer", "layer and head"], ...by("text", "score on this text"),
    ...(bundle.repeats ? by("repeats", "score on repeated random tokens") : [])];
}

/** The score of a head in an order, or null. @param {any} bundle @param {number} text @param {string} order
 *  @param {string} head */
export function scoreOf(bundle, text, order, head) {
  const [on, column] = order.split(":"), [layer, place] = head.split(".").map(Number);
  const scores = on === "repeats" ? bundle.repeats : bundle.texts[text].scores;
  return scores[column]?.[layer][place] ?? null;
}

/** Heads in an order: as the model has them, or the largest score first. @param {any} bundle @param {number} text
 *  @param {string} order */
export function ordered(bundle, text, order) {
  const heads = Object.keys(bundle.texts[text].heads);
  if (order === "layer") return heads;
  const value = new Map(heads.map(head => [head, scoreOf(bundle, text, order, head) ?? -1]));
  return heads.sort((a, b) => value.get(b) - value.get(a));       // sort is stable: equal ones stay as the model has them
}

/** @param {any} context */
export function wall({ bundle, store, update }) {
  const canvas = make("canvas", { class: "x-tiles", "aria-hidden": "true" });
  const buttons = new Map();
  const layers = make("div", { class: "x-layers", "aria-hidden": "true" });
  const board = make("div", { class: "x-board", role: "group",
    "aria-label": "All heads. Arrow keys walk, Enter opens, Shift and Enter adds." }, canvas);
  const chosen = select("Order", order => update({ order }));
  const readout = make("p", { class: "x-readout" }, "\u00a0");
  const several = checkbox("several at once", checked => {
    adding = checked;
    if (!checked) update(state => ({ heads: state.heads.slice(-1) }));
  });
  const hint = make("p", { class: "note x-hint" }, `Point at a head to read its scores, click to open it${
    Object.keys(bundle.verdicts).length ? "; coloured names are heads found on repeated random tokens" : ""}.`);
  const element = make("section", { class: "x-wall", "aria-label": "All heads" },
    make("div", { class: "x-bar" }, make("h2", {}, "All heads"), chosen.element, several.element),
    make("div", { class: "x-frame" }, layers, board), hint, readout);
  let adding = false, order = [], columns = 1, drawn = "", resting = 0;

  /** A head and its scores, in words. @param {number} text @param {string} head */
  function words(text, head) {
    const verdict = bundle.verdicts[head];
    const score = order => number(scoreOf(bundle, text, order, head));
    const scores = bundle.names.map(({ column, title }) =>
      `${title} ${score(`text:${column}`)}${bundle.repeats ? ` (${score(`repeats:${column}`)} on repeats)` : ""}`);
    return `${head}${verdict ? ` (${verdict})` : ""}: ${scores.join(", ")}`;
  }

  function open(head, add) {
    update(state => {
      if (!add) return { heads: [head] };
      const heads = state.heads.includes(head) ? state.heads.filter(one => one !== head) : [...state.heads, head];
      return heads.length ? { heads } : {};
    });
  }

  for (const head of Object.keys(bundle.texts[0].heads)) {
    const button = make("button", { type: "button", tabindex: "-1", "data-head": head,
      on: { click: event => open(head, adding || event.shiftKey || event.ctrlKey || event.metaKey) } });
    buttons.set(head, button);
    board.append(button);
  }
  const tell = event => {
    const head = event.target.closest?.("button")?.dataset.head;
    if (!head) return;
    const text = Number(board.dataset.text);
    readout.textContent = words(text, head);
    clearTimeout(resting);
    resting = setTimeout(() => store.head(text, head).catch(() => {}), REST);      // what fails is told when it is opened
  };
  board.addEventListener("pointerover", tell);
  board.addEventListener("focusin", tell);
  board.addEventListener("pointerleave", () => {
    readout.textContent = "\u00a0";
    clearTimeout(resting);
  });
  board.addEventListener("keydown", event => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    const from = order.indexOf(document.activeElement?.dataset?.head);
    if (step === undefined || from < 0) return;
    event.preventDefault();
    const to = Math.max(0, Math.min(order.length - 1, from + step));
    if (Math.abs(step) === columns && Math.abs(to - from) !== columns) return;
    buttons.get(order[to]).focus();
  });

  /** Paint every head's small picture. @param {any} view */
  function paint({ state, levels, colours }) {
    const { side } = bundle.texts[state.text], { scale } = state, cell = side + GAP;
    const rows = Math.ceil(order.length / columns);
    canvas.width = columns * cell - GAP;
    canvas.height = rows * cell - GAP;
    const { width } = canvas, context = canvas.getContext("2d"), image = context.createImageData(width, canvas.height);
    const pixels = new Uint32Array(image.data.buffer), colour = colours.pixelOf(scale, 1);
    const inks = Uint32Array.from({ length: 256 }, (_, root) => colour((root / 255) ** 2));     // of each stored level
    order.forEach((head, place) => {
      const from = store.index(head) * side * side, top = Math.floor(place / columns) * cell, left = place % columns * cell;
      for (let i = 0; i < side; i++) {
        for (let j = 0; j <= i; j++) pixels[(top + i) * width + left + j] = inks[levels[from + i * side + j]];
      }
    });
    context.putImageData(image, 0, 0);
  }

  return {
    element,
    /** @param {any} view */
    render(view) {
      const { state, colours } = view;
      chosen.set(orders(bundle), state.order);
      const now = [state.text, state.order, colours.theme, state.scale].join();
      if (now !== drawn) {
        drawn = now;
        order = ordered(bundle, state.text, state.order);
        columns = bundle.n_head;
        board.dataset.text = String(state.text);
        board.style.setProperty("--columns", String(columns));
        board.style.setProperty("--rows", String(Math.ceil(order.length / columns)));
        const named = state.order === "layer" ? Array.from({ length: bundle.n_layer }, (_, layer) => String(layer)) : [];
        layers.replaceChildren(...named.map(layer => make("span", {}, layer)));
        paint(view);
        // The buttons lie over the pictures in the order of the pictures, for Tab and screen readers alike.
        board.append(...order.map(head => buttons.get(head)));
        order.forEach((head, place) => {
          const button = buttons.get(head);
          button.setAttribute("aria-label", words(state.text, head));
          button.classList.toggle("x-found", Boolean(bundle.verdicts[head]));
          button.style.setProperty("--column", String(place % columns));
          button.style.setProperty("--row", String(Math.floor(place / columns)));
        });
      }
      for (const head of order) {
        const button = buttons.get(head);
        button.setAttribute("aria-pressed", String(state.heads.includes(head)));
        button.tabIndex = head === state.heads[0] ? 0 : -1;
      }
    },
  };
}
