// Reads a grid cell under the pointer or the arrow keys out of the picture itself. The page works without it.
"use strict";
(() => {
  /** @type {{labels: string[], maps: Object<string, (number|null)[][]>}} */
  const data = JSON.parse(document.getElementById("page-data").textContent);

  /** Which of a plot's pictures is shown: the pattern, or value-weighted. */
  const shown = () => document.getElementById("shown-values")?.checked ? "values" : "weights";

  /** The weights of a picture: level / 255 is the square root; null is masked. @param {HTMLImageElement} image */
  function weights(image) {
    const canvas = document.createElement("canvas");
    canvas.width = image.naturalWidth;
    canvas.height = image.naturalHeight;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
    return (row, column) => {
      const at = 4 * (row * canvas.width + column);
      return pixels[at + 3] ? (pixels[at] / 255) ** 2 : null;
    };
  }

  /** A label as in the sentences: without the mark of its leading space. @param {string} label */
  const bare = label => label.length > 1 && label.startsWith("·") ? label.slice(1) : label;

  /** A number 0..1 in words; 0 and 1 are said of no other, as on the page. @param {number} value @param {number} digits */
  function number(value, digits) {
    const step = 10 ** -digits, text = value.toFixed(digits);
    if (Number(text) === 0 && value > 0) return "<" + step.toFixed(digits);
    return Number(text) === 1 && value < 1 ? ">" + (1 - step).toFixed(digits) : text;
  }

  // Many layers: the bar above starts at this page's own.
  const here = document.querySelector(".layers [aria-current]");
  const bar = here?.parentElement;
  if (bar) bar.scrollLeft = here.offsetLeft - bar.offsetLeft - bar.clientWidth / 2;

  // Induction: a token under the pointer or with the focus lights the arcs that leave or reach it, and their other ends.
  for (const list of document.querySelectorAll(".arcs")) {
    const arcs = [...list.querySelectorAll(".arc")];
    const lines = arc => [arc.parentElement.dataset.line, arc.dataset.to];
    const light = event => {
      const left = event.type === "pointerleave" || event.type === "focusout";
      const line = left ? null : event.target.closest("li")?.dataset.line;
      const own = new Set(arcs.filter(arc => lines(arc).includes(line)));
      const ends = new Set([...own].flatMap(lines));
      list.classList.toggle("lit", own.size > 0);
      for (const arc of arcs) arc.classList.toggle("lit", own.has(arc));
      for (const item of list.children) item.classList.toggle("lit", ends.has(item.dataset.line));
    };
    for (const type of ["pointerover", "pointerleave", "focusin", "focusout"]) list.addEventListener(type, light);
  }

  for (const plot of document.querySelectorAll(".plot")) {
    const cells = plot.querySelector(".cells");
    const readout = plot.parentElement.querySelector(".readout");
    const rows = Number(plot.dataset.rows), columns = Number(plot.dataset.columns);
    const exact = data.maps[plot.id];
    const cursor = document.createElement("div");
    cursor.className = "cursor";
    const read = {};
    let row = 0, column = 0;

    /** The sentence under the grid for one cell. */
    function sentence() {
      if (exact) {
        const value = exact[row][column];
        return [`${row}.${column}`, value === null ? "–" : number(value, 3)];
      }
      const kind = plot.dataset.largest === undefined ? "weights" : shown();
      const image = cells.querySelector(`img.for-${kind}`) ?? cells.querySelector("img");
      read[kind] ??= weights(image);
      const block = Math.ceil(rows / image.naturalHeight);
      const part = read[kind](Math.floor(row / block), Math.floor(column / block));
      const pair = `“${bare(data.labels[row])}” ${row} → “${bare(data.labels[column])}” ${column}`;
      if (part === null || column > row) return [pair, "masked"];
      const text = kind === "values" ? number(part * plot.dataset.largest, Number(plot.dataset.digits)) : number(part, 2);
      return [pair, (text.startsWith("<") ? "" : block > 1 ? "up to " : "≈ ") + text];
    }

    function show(newRow, newColumn) {
      row = Math.max(0, Math.min(rows - 1, newRow));
      column = Math.max(0, Math.min(columns - 1, newColumn));
      cursor.style.setProperty("--row", row);
      cursor.style.setProperty("--column", column);
      if (!cursor.parentElement) cells.append(cursor);
      const [what, value] = sentence(), strong = document.createElement("b");
      strong.textContent = value;
      readout.replaceChildren(what + "  ", strong);
    }

    function clear() {
      cursor.remove();
      readout.textContent = "\u00a0";
    }

    cells.addEventListener("pointermove", event => {
      const box = cells.getBoundingClientRect();
      show(Math.floor((event.clientY - box.top) / box.height * rows),
           Math.floor((event.clientX - box.left) / box.width * columns));
    });
    cells.addEventListener("pointerleave", clear);
    cells.addEventListener("blur", clear);
    cells.addEventListener("focus", () => { if (cells.matches(":focus-visible")) show(row, column); });
    cells.addEventListener("keydown", event => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!step) return;
      event.preventDefault();
      show(row + step[0], column + step[1]);
    });
  }
})();
