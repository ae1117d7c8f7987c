// Elements in short: what a page is made of here, always text and never markup.

/**
 * An element with attributes and children. `on` holds listeners, `style` custom properties; null children are left out.
 * @param {string} tag @param {Record<string, any>} [attributes] @param {(Node|string|null|undefined)[]} children
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [type, listener] of Object.entries(value)) element.addEventListener(type, listener);
    else if (name === "style") for (const [property, to] of Object.entries(value)) element.style.setProperty(property, to);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

/** A table; the first cell of each row is its head.
 *  @param {string|null} caption @param {string[]} columns @param {(string|Node)[][]} rows
 *  @param {number} [on] the marked row */
export const table = (caption, columns, rows, on) => make("table", { class: "x-table" },
  caption === null ? null : make("caption", {}, caption),
  make("thead", {}, make("tr", {}, ...columns.map(name => make("th", { scope: "col" }, name)))),
  make("tbody", {}, ...rows.map(([head, ...cells], i) => make("tr", { class: i === on ? "x-on" : null },
    make("th", { scope: "row" }, head), ...cells.map(cell => make("td", {}, cell))))));

/** A choice of one of several, as radio buttons. @param {string} name @param {string} legend
 *  @param {[string, string][]} options [value, label] @param {(value: string) => void} chosen */
export function radios(name, legend, options, chosen) {
  const inputs = options.map(([value, label]) => [value, make("input", { type: "radio", name, value,
    on: { change: () => chosen(value) } }), label]);
  const element = make("fieldset", { class: "x-choice" }, make("legend", {}, legend),
    ...inputs.map(([, input, label]) => make("label", {}, input, label)));
  return { element, set: wanted => { for (const [value, input] of inputs) input.checked = value === wanted; },
    allow: (value, allowed) => { for (const [own, input] of inputs) if (own === value) input.disabled = !allowed; } };
}

/** A check box. @param {string} label @param {(checked: boolean) => void} changed */
export function checkbox(label, changed) {
  const input = make("input", { type: "checkbox", on: { change: () => changed(input.checked) } });
  return { element: make("label", { class: "x-check" }, input, label), set: wanted => { input.checked = wanted; } };
}

/** A list to choose from, filled anew when its options change. @param {string} label
 *  @param {(value: string) => void} chosen */
export function select(label, chosen) {
  const list = make("select", { on: { change: () => chosen(list.value) } });
  let shown = "";
  return { element: make("label", { class: "x-select" }, make("span", {}, label), list), list,
    /** @param {[string, string, string?][]} options [value, label, group] @param {string} wanted */
    set(options, wanted) {
      const now = JSON.stringify(options);
      if (now !== shown) {
        shown = now;
        list.replaceChildren();
        const groups = new Map();
        for (const [value, text, group] of options) {
          if (group && !groups.has(group)) {
            groups.set(group, make("optgroup", { label: group }));
            list.append(groups.get(group));
          }
          (group ? groups.get(group) : list).append(make("option", { value }, text));
        }
      }
      list.value = wanted;
    } };
}
