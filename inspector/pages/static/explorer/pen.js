// Two pens for one drawing: on a canvas, or as SVG. Both know text, pictures, lines and boxes; places are in pixels.

const FAMILY = "system-ui, 'DejaVu Sans', 'Noto Sans CJK SC', 'Noto Color Emoji', sans-serif";
const ruler = new OffscreenCanvas(1, 1).getContext("2d");

/** How wide a text is, in pixels. @param {string} text @param {number} size */
export function widthOf(text, size) {
  ruler.font = `${size}px ${FAMILY}`;
  return ruler.measureText(text).width;
}

/** A text that fits, its end cut where it does not. @param {string} text @param {number} size @param {number} most */
export function fitted(text, size, most) {
  if (widthOf(text, size) <= most) return text;
  const parts = [...text];
  while (parts.length > 1 && widthOf(parts.join("") + "…", size) > most) parts.pop();
  return parts.join("") + "…";
}

/**
 * How a text stands: its middle at the height of its place.
 * @typedef {{size: number, fill: string, anchor?: "start"|"middle"|"end", turned?: boolean}} Lettering turned: it runs
 *  upwards
 */

/** Draws on a canvas. */
export class CanvasPen {
  /** @param {HTMLCanvasElement} canvas @param {number} width @param {number} height
   *  @param {number} ratio pixels of the canvas to one */
  constructor(canvas, width, height, ratio) {
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== wide) canvas.width = wide;
    if (canvas.height !== high) canvas.height = high;
    this.ratio = ratio;
    this.context = canvas.getContext("2d");
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width + 1, height + 1);
    Object.assign(this.context, { textBaseline: "middle", direction: "ltr", imageSmoothingEnabled: false });
  }

  /** @param {string} text @param {number} x @param {number} y @param {Lettering} how */
  text(text, x, y, { size, fill, anchor = "start", turned = false }) {
    const { context } = this;
    const textAlign = anchor === "middle" ? "center" : anchor;
    Object.assign(context, { font: `${size}px ${FAMILY}`, fillStyle: fill, textAlign });
    if (!turned) return context.fillText(text, x, y);
    context.save();
    context.translate(x, y);
    context.rotate(-Math.PI / 2);
    context.fillText(text, 0, 0);
    return context.restore();
  }

  /** A picture, unsmoothed, stretched over a box. @param {HTMLCanvasElement} picture @param {number} x @param {number} y
   *  @param {number} width
   *  @param {number} height
   *  @param {number} [part] how many of its pixels, from the left and from the top; may end within one */
  image(picture, x, y, width, height, part) {
    this.context.drawImage(picture, 0, 0, part ?? picture.width, part ?? picture.height, x, y, width, height);
  }

  /** @param {number[][]} all from x, y to x, y @param {string} stroke */
  lines(all, stroke) {
    this.context.strokeStyle = stroke;
    this.context.beginPath();
    for (const [x, y, toX, toY] of all) {
      this.context.moveTo(x, y);
      this.context.lineTo(toX, toY);
    }
    this.context.stroke();
  }

  /** A box, filled or outlined. @param {number} x @param {number} y @param {number} width @param {number} height
   *  @param {{fill?: string, stroke?: string}} how */
  box(x, y, width, height, { fill, stroke }) {
    Object.assign(this.context, { fillStyle: fill ?? "#000", strokeStyle: stroke ?? "#000" });
    if (fill) this.context.fillRect(x, y, width, height);
    if (stroke) this.context.strokeRect(x, y, width, height);
  }
}

/** Text inside markup, without what XML cannot hold. @param {string} text */
const escaped = text => text.replace(/[&<>"\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g,
  c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", "\"": "&quot;" })[c] ?? "");

/** To a hundredth of a pixel. @param {number} place */
const place = place => String(Number(place.toFixed(2)));

/** Writes SVG, with the strokes of CanvasPen. */
export class SvgPen {
  /** @param {number} width @param {number} height */
  constructor(width, height) {
    [this.width, this.height, this.ratio] = [width, height, Infinity];      // it can be enlarged at will
    /** @type {string[]} */
    this.parts = [];
  }

  /** @param {string} text @param {number} x @param {number} y @param {Lettering} how */
  text(text, x, y, { size, fill, anchor = "start", turned = false }) {
    const where = turned ? `transform="translate(${place(x)} ${place(y)}) rotate(-90)"` : `x="${place(x)}" y="${place(y)}"`;
    this.parts.push(`<text ${where} font-size="${size}" text-anchor="${anchor}" dominant-baseline="central" fill="${fill}" `
      + `direction="ltr">${escaped(text)}</text>`);
  }

  /** @param {HTMLCanvasElement} picture @param {number} x @param {number} y @param {number} width @param {number} height */
  image(picture, x, y, width, height) {
    this.parts.push(`<image x="${place(x)}" y="${place(y)}" width="${place(width)}" height="${place(height)}" `
      + `style="image-rendering:pixelated" preserveAspectRatio="none" href="${picture.toDataURL()}"/>`);
  }

  /** @param {number[][]} all @param {string} stroke */
  lines(all, stroke) {
    const path = all.map(([x, y, toX, toY]) => `M${place(x)} ${place(y)}L${place(toX)} ${place(toY)}`).join("");
    this.parts.push(`<path d="${path}" fill="none" stroke="${stroke}"/>`);
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height
   *  @param {{fill?: string, stroke?: string}} how */
  box(x, y, width, height, { fill = "none", stroke = "none" }) {
    this.parts.push(`<rect x="${place(x)}" y="${place(y)}" width="${place(width)}" height="${place(height)}" fill="${fill}" `
      + `stroke="${stroke}"/>`);
  }

  /** The whole file. */
  toString() {
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${this.width} ${this.height}" width="${this.width}" `
      + `height="${this.height}" font-family="${FAMILY}">${this.parts.join("")}</svg>`;
  }
}
