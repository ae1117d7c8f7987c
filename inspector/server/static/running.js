// What is under way, one question at a time: its progress, its line, and one button that cancels it or tries again.

import { make } from "inspector/dom.js";
import { askPatiently, Refused } from "live/asking.js";

/** @typedef {"pausing"|"computing"|"done"|"cancelled"|"refused"|"empty"} Phase */

/** @param {HTMLElement} root its data-state is the phase @param {() => void} again try once more */
export function runner(root, again) {
  const bar = make("progress", { max: "1", "aria-label": "Progress" });
  const status = make("p", { class: "l-status", role: "status" });
  const button = make("button", { type: "button", on: { click: () => abort ? stop("cancelled", "Cancelled.") : again() } });
  /** @type {AbortController|null} */
  let abort = null;

  /** @param {Phase} phase @param {string} line */
  function say(phase, line) {
    root.dataset.state = phase;
    status.textContent = line;
    bar.hidden = phase !== "computing";
    button.hidden = !["computing", "cancelled", "refused"].includes(phase);
    button.textContent = phase === "computing" ? "Cancel" : "Try again";
  }

  /** End what is under way. @param {Phase} phase @param {string} line */
  function stop(phase, line) {
    abort?.abort();
    abort = null;
    say(phase, line);
  }

  /** How far it is. @param {string} line @param {number|null} part of 1, if that is known */
  function tell(line, part) {
    status.textContent = line;
    if (part === null) bar.removeAttribute("value");
    else bar.value = part;
  }

  /**
   * Do one piece of work instead of the one before. Null where that is cancelled, or refused, which is told.
   * @template T @param {(ask: (name: string, body: any) => Promise<any>) => Promise<T>} work @returns {Promise<T|null>}
   */
  async function run(work) {
    stop("computing", "Computing …");
    tell("Computing …", null);
    const mine = abort = new AbortController(), { signal } = mine;
    try {
      const done = await work((name, body) => askPatiently(name, body, signal, (...how) => signal.aborted || tell(...how)));
      return signal.aborted ? null : done;
    } catch (error) {
      if (signal.aborted) return null;
      say("refused", error instanceof Refused ? error.message : `This page made a mistake, please report it: ${error}`);
      if (error instanceof Refused) return null;
      throw error;
    } finally {
      if (mine === abort) abort = null;
    }
  }

  return { elements: [bar, button, status], say, stop, run };
}
