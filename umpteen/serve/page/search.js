// Search labels by name, to explain one that was not suggested. The keys are those of a combobox.

import { ask } from "./api.js";
import { announce, byId, make, name, plural, show } from "./dom.js";
import { chosenModels } from "./state.js";
import { explain } from "./why.js";

const PAUSE = 150; // milliseconds after the last key
const MOST = 20;

let found = [];
let at = -1;
let timer = 0;
let running = null;

async function search() {
  const words = byId("search").value.trim();
  running?.abort();
  if (words === "") {
    close();
    return;
  }
  running = new AbortController();
  const [model] = chosenModels();
  const query = new URLSearchParams({ q: words.slice(0, 200), limit: String(MOST), model: model.id });
  try {
    const answer = await ask(`v1/labels?${query}`, { signal: running.signal });
    open(answer.labels, model);
  } catch (error) {
    if (error.name === "AbortError") return;
    list([note(error.message)]);
  }
}

const note = (text) => make("li", { class: "muted", role: "option", "aria-disabled": "true" }, text);

function open(labels, model) {
  found = labels.map((label) => ({ ...label, model: model.id }));
  at = -1;
  const options = found.map((label, i) => {
    const onmousedown = (event) => choose(i, event);
    return make("li", { role: "option", id: `found-${i}`, "aria-selected": "false", onmousedown }, name(label.name));
  });
  list(options.length ? options : [note("No label has this in its name.")]);
  announce(options.length ? `${plural(options.length, "label")} found` : "No label found");
}

function list(options) {
  byId("found").replaceChildren(...options);
  show(byId("found"), true);
  byId("search").setAttribute("aria-expanded", "true");
}

function close() {
  found = [];
  at = -1;
  show(byId("found"), false);
  byId("search").setAttribute("aria-expanded", "false");
  byId("search").removeAttribute("aria-activedescendant");
}

function select(i) {
  const options = byId("found").querySelectorAll("[id]");
  if (options.length === 0) return;
  at = (i + options.length) % options.length;
  options.forEach((option, number) => option.setAttribute("aria-selected", String(number === at)));
  options[at].scrollIntoView({ block: "nearest" });
  byId("search").setAttribute("aria-activedescendant", options[at].id);
}

function choose(i, event) {
  event?.preventDefault(); // the field keeps the focus
  const label = found[i];
  if (!label) return;
  byId("search").value = "";
  close();
  explain(label.model, label.label, label.name);
}

function keys(event) {
  const isOpen = !byId("found").hidden;
  if (event.key === "ArrowDown" && isOpen) select(at + 1);
  else if (event.key === "ArrowUp" && isOpen) select(at - 1);
  else if (event.key === "Enter" && isOpen && found.length) choose(Math.max(at, 0));
  else if (event.key === "Escape" && (isOpen || event.currentTarget.value)) {
    event.currentTarget.value = "";
    close();
    event.stopPropagation();
  } else return;
  event.preventDefault();
}

export function startSearch() {
  const field = byId("search");
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, PAUSE);
  });
  field.addEventListener("keydown", keys);
  field.addEventListener("blur", close);
}
