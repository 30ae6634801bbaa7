// Elements and texts. Whatever comes from the server becomes a text node, never markup.

// Control characters, and marks that change the direction of the text around them
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

const BRIEF = 80; // characters of a name in a heading or a sentence

export const byId = (id) => document.getElementById(id);

// Return an element with attributes and children; a property that begins with "on" is a listener.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Return a text with control characters made visible, such as \x1b.
export function visible(text) {
  return String(text).replace(UNSAFE, (char) => {
    const code = char.codePointAt(0).toString(16);
    return code.length <= 2 ? `\\x${code.padStart(2, "0")}` : `\\u${code.padStart(4, "0")}`;
  });
}

// Return the name of a label or node, apart from the direction of what is around it.
export function name(text, className = "name") {
  const shown = visible(text);
  return make("bdi", { class: className, title: shown.length > 60 ? shown.slice(0, 1000) : null }, shown);
}

// Return a name for a place where it must not take several lines.
export function briefName(text) {
  const characters = Array.from(visible(text));
  const shown = characters.length > BRIEF ? `${characters.slice(0, BRIEF - 1).join("")}…` : characters.join("");
  const title = characters.length > BRIEF ? characters.slice(0, 1000).join("") : null;
  return make("bdi", { class: "brief", title }, shown);
}

// Return a bar that is filled to a fraction between 0 and 1.
export function bar(fraction, className = "bar") {
  const fill = make("span", { class: "fill" });
  fill.style.setProperty("--part", String(Math.min(Math.max(fraction, 0), 1)));
  return make("span", { class: className, "aria-hidden": "true" }, fill);
}

export const count = (number) => number.toLocaleString("en");

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

export function percent(value) {
  if (value > 0 && value < 0.01) return "<1 %";
  if (value > 0.99 && value < 1) return ">99 %";
  return `${Math.round(100 * value)} %`;
}

export function short(value) {
  if (value === 0) return "0";
  return Math.abs(value) < 0.001 ? value.toExponential(1) : value.toPrecision(3).replace(/\.?0+$/, "");
}

// Tell a screen reader what has changed; nothing is shown.
export function announce(text) {
  byId("status").textContent = text;
}

export function show(element, isShown) {
  element.hidden = !isShown;
}
