// What is shown and how: the switches, and the slider of the sharpness with its two marks.

import { checkbox, make, radios } from "inspector/dom.js";
import { significant } from "inspector/say.js";
import { MOST_BETA } from "inspector/state.js";

// The slider's travel: 0 to 1 over the first half, evenly; 1 to the most over the second, evenly in the logarithm.
const HALF = 500;

/** Where a sharpness is on the slider, 0..1000. @param {number} beta */
export const placeOf = beta => beta <= 1 ? HALF * beta : HALF + HALF * Math.log(beta) / Math.log(MOST_BETA);

/** The sharpness at a place. @param {number} place */
export const betaAt = place => place <= HALF ? place / HALF : MOST_BETA ** ((place - HALF) / HALF);

/** @param {any} context */
export function controls({ bundle, update, uid }) {
  const way = radios(`${uid}-way`, "Direction", [["from", "what it looks at"], ["to", "who looks at it"]],
    value => update({ way: value, key: -1 }));
  const shown = radios(`${uid}-shown`, "Shown", [["pattern", "pattern"], ["scores", "scores"], ["values", "value-weighted"]],
    value => update({ shown: value }));
  const scale = radios(`${uid}-scale`, "Colour", [["sqrt", "square root"], ["linear", "linear"], ["log", "log"]],
    value => update({ scale: value }));
  const merge = radios(`${uid}-merge`, "Together", [["mean", "mean"], ["max", "max"]], value => update({ merge: value }));
  const first = checkbox("first token", checked => update({ first: checked }));
  const self = checkbox("the query itself", checked => update({ self: checked }));
  const lock = make("button", { type: "button", class: "x-lock",
    on: { click: () => update(state => ({ locked: !state.locked })) } });
  const root = Math.sqrt(bundle.d_head);
  const usual = bundle.texts[0].factors.flat().every(factor => Math.abs(factor * root - 1) < 1e-6);
  const marks = [[0, "0 uniform"], [1, "1 the model"], [root, "√d_head"], [MOST_BETA, "100"]];
  const list = `${uid}-marks`;
  /** The sharpness where the slider stands; near the model's it is the model's. */
  const slid = () => Math.abs(slider.valueAsNumber - HALF) < 8 ? 1 : Number(betaAt(slider.valueAsNumber).toPrecision(3));
  const slider = make("input", { type: "range", min: "0", max: String(2 * HALF), step: "1", list, "aria-label": "Sharpness",
    on: { input: () => update({ beta: slid() }) } });
  const field = make("input", { type: "number", min: "0", max: String(MOST_BETA), step: "any",
    "aria-label": "Sharpness as a number", on: { change: () => update({ beta: field.valueAsNumber }).then(tell) } });
  const tell = () => { field.value = String(Number(beta.toPrecision(4))); };
  let beta = 1;
  const about = `${significant(root)}: what the scores would be without the scale 1/√d_head`;
  const sharpness = make("fieldset", { class: "x-sharp" }, make("legend", {}, "Sharpness: the scores times"), field,
    make("div", { class: "x-slide" }, slider,
      make("datalist", { id: list }, ...marks.map(([beta]) => make("option", { value: String(placeOf(beta)) }))),
      make("div", { class: "x-marks" }, ...marks.map(([beta, label]) => make("button", { type: "button",
        style: { "--at": String(placeOf(beta) / 2 / HALF) }, title: beta === root && usual ? about : null,
        on: { click: () => update({ beta }) } }, label)))));
  const include = make("fieldset", { class: "x-choice" }, make("legend", {}, "Include"), first.element, self.element);
  return {
    element: make("div", { class: "x-controls" }, make("div", { class: "x-switches" },
      way.element, lock, shown.element, scale.element, include, merge.element), sharpness),
    /** @param {any} view */
    render({ state }) {
      way.set(state.way);
      shown.set(state.shown);
      scale.set(state.scale);
      merge.set(state.merge);
      merge.element.hidden = state.heads.length < 2;
      scale.element.disabled = state.shown === "scores";
      first.set(state.first);
      self.set(state.self);
      lock.textContent = state.locked ? "Unlock" : "Lock";
      lock.setAttribute("aria-pressed", String(state.locked));
      lock.title = state.locked ? "The query stays. Unlock: it follows the pointer."
        : "The query follows the pointer. Lock: it stays.";
      slider.value = String(placeOf(state.beta));
      const named = state.beta === 1 ? ", the model" : state.beta === 0 ? ", uniform" : "";
      slider.setAttribute("aria-valuetext", significant(state.beta) + named);
      ({ beta } = state);
      if (document.activeElement !== field) tell();        // what is being typed stands until it is done
    },
  };
}
