// Explain a label: words highlighted in the text, and a panel with the words, the path of the search and the parts.

import { ask } from "./api.js";
import { announce, bar, briefName, byId, make, name, plural, short, show, visible } from "./dom.js";
import { current, state } from "./state.js";
import { cleaned, markExplained } from "./tagging.js";
import { nodeNames, openNode } from "./tree.js";

const SHADES = 5;
const WEAKEST = 0.15; // words below this part of the strongest are not marked
const MOST_WORDS = 8; // in the list of words
const MOST_TERMS = 5; // contributions of a step

let running = null;
let opener = null; // what had the focus when the panel was opened
let drawn = 0; // counts panels, so that late names do not go into a newer one

export async function explain(model, label, shownName) {
  const { text } = current();
  if (text.trim() === "") {
    announce("Type or paste a text first.");
    byId("text").focus();
    return;
  }
  running?.abort();
  running = new AbortController();
  opener = document.activeElement;
  state.explained = { model, label };
  markExplained();
  waitingPanel(shownName);
  try {
    const body = { text: cleaned(text), label, model };
    const found = await ask("v1/explain", { body, signal: running.signal, onWait: busy });
    highlight(found);
    panel(found, model);
    if (window.matchMedia("(max-width: 60rem)").matches) byId("why").scrollIntoView({ block: "start" });
    announce(`${found.label}: ${found.reason}`);
  } catch (error) {
    if (error.name !== "AbortError") failedPanel(shownName, error, () => explain(model, label, shownName));
  }
}

export function closeExplanation() {
  if (state.explained === null) return;
  running?.abort();
  state.explained = null;
  markExplained();
  show(byId("why"), false);
  editText();
}

// Close the panel and put the focus back where it was.
export function leaveExplanation() {
  const { explained } = state;
  closeExplanation();
  const again = [...document.querySelectorAll("button.label")].find((one) => one.dataset.label === explained?.label);
  (opener?.isConnected ? opener : (again ?? byId("text"))).focus();
}

export function editText() {
  show(byId("read"), false);
  show(byId("legend"), false);
  show(byId("edit"), false);
  show(byId("text"), true);
}

// Highlights

function highlight(found) {
  const read = byId("read");
  read.replaceChildren(...highlighted(found));
  read.style.setProperty("--height", `${byId("text").offsetHeight || read.offsetHeight}px`);
  byId("legend-label").replaceChildren("the label ", briefName(found.label));
  show(byId("text"), false);
  for (const id of ["read", "legend", "edit"]) show(byId(id), true);
  read.scrollTop = 0;
}

// Return the text with its words marked. The server counts characters, a string of JavaScript halves of some.
function highlighted(found) {
  const characters = Array.from(found.text ?? "");
  const most = Math.max(0, ...found.words.map((word) => Math.abs(word.contribution)));
  const pieces = [];
  let at = 0;
  for (const word of found.words) {
    const part = most ? Math.abs(word.contribution) / most : 0;
    if (part < WEAKEST || word.start < at) continue;
    const shade = Math.max(1, Math.ceil((SHADES * (part - WEAKEST)) / (1 - WEAKEST)));
    pieces.push(characters.slice(at, word.start).join(""));
    const kind = word.contribution > 0 ? `for${shade}` : "against";
    const shown = characters.slice(word.start, word.end).join("");
    pieces.push(make("mark", { class: kind, title: signed(word.contribution) }, shown));
    at = word.end;
  }
  pieces.push(characters.slice(at).join(""));
  return pieces;
}

const signed = (value) => (value ? `${value > 0 ? "+" : "−"}${short(Math.abs(value))}` : "0");

// Panel

function head(title, label) {
  const heading = make("h2", { id: "why-title", tabindex: "-1" }, title, briefName(label), "?");
  const close = make("button", { type: "button", class: "quiet", id: "why-close", onclick: leaveExplanation }, "Close");
  return make("div", { class: "card-head" }, heading, close);
}

function waitingPanel(label) {
  const why = byId("why");
  const line = make("p", { class: "muted", id: "why-wait" }, "Looking at the words …");
  why.replaceChildren(head("Why ", label), line);
  why.setAttribute("aria-busy", "true");
  show(why, true);
}

function busy(seconds) {
  const line = byId("why-wait");
  if (line) line.textContent = seconds ? `The server is busy. Trying again in ${seconds} s.` : "Looking at the words …";
}

function failedPanel(label, error, again) {
  const button = make("button", { type: "button", onclick: again }, "Try again");
  const problem = make("div", { class: "problem", role: "alert" }, make("p", {}, error.message), button);
  byId("why").replaceChildren(head("Why ", label), problem);
  byId("why").setAttribute("aria-busy", "false");
}

function panel(found, model) {
  drawn += 1;
  const why = byId("why");
  const title = found.is_suggested ? "Why " : "Why not ";
  const by = state.models.length > 1 ? `${model}: ` : "";
  const notes = found.notes.map((note) => make("p", { class: "muted" }, note));
  why.replaceChildren(
    head(title, found.label),
    make("p", { class: "reason" }, `${by}${found.reason} Score ${short(found.score)}.`),
    ...notes,
    ...words(found),
    ...paths(found, model, drawn),
    ...parts(found),
    ...nearest(found),
  );
  why.setAttribute("aria-busy", "false");
}

function section(title, ...content) {
  return [make("h3", {}, title), ...content];
}

function words(found) {
  const sums = new Map();
  for (const word of found.words) {
    const key = word.word.toLowerCase();
    sums.set(key, (sums.get(key) ?? 0) + word.contribution);
  }
  const ranked = [...sums].filter(([, value]) => value !== 0).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  if (ranked.length === 0) {
    return section("Words", make("p", { class: "muted" }, "No word of the text speaks for it or against it."));
  }
  const most = Math.abs(ranked[0][1]);
  const items = ranked.slice(0, MOST_WORDS).map(([word, value]) =>
    make(
      "li",
      { class: value > 0 ? "is-for" : "is-against" },
      name(word),
      bar(Math.abs(value) / most),
      make("span", { class: "number muted" }, signed(value)),
    ),
  );
  const scale = make("p", { class: "muted small" }, meaning(found.word_scale));
  return section("Words", make("ul", { class: "words" }, ...items), scale);
}

function meaning(scale) {
  if (scale === "margins") return "What each word adds to the margins on the path.";
  if (scale === "models") return "What each word adds in each model, as a fraction of its strongest word.";
  return `By how much the ${scale} would fall without the word.`;
}

// Path

function paths(found, model, number) {
  const all = [...found.paths.map((path) => [path, path.part])];
  found.models.forEach((one, i) => all.push(...one.paths.map((path) => [path, `model ${i + 1}: ${path.part}`])));
  return all.flatMap(([path, part]) => onePath(path, part, found, model, number));
}

function onePath(path, part, found, model, number) {
  const last = path.steps[path.steps.length - 1];
  const steps = path.steps.map((step) => {
    const isLabel = step === last;
    const title = make("span", { class: "step-name" }, isLabel ? name(found.label) : `Group ${step.node}`);
    const element = make("li", { class: stepClass(step, isLabel) }, title, ...stepFacts(step, isLabel));
    return { step, title, element };
  });
  const list = make("ol", { class: "path" }, ...steps.map((one) => one.element));
  if (path.steps.length > 1) {
    nodeNames(model, part, path.steps[path.steps.length - 2]).then((names) => {
      if (number !== drawn) return;
      steps.slice(0, -1).forEach(({ step, title }, i) => {
        if (!names[i]) return;
        const open = () => openNode(model, part, step.level, step.node);
        title.replaceChildren(make("button", { type: "button", class: "link", onclick: open }, briefName(names[i])));
      });
    });
  }
  return section(`Path of the search: ${part}`, list);
}

function stepClass(step, isLabel) {
  const isLost = step.rank !== null && step.rank > step.n_kept && !isLabel;
  return isLost || step.rank === null ? "step lost" : "step";
}

function stepFacts(step, isLabel) {
  const facts = make("span", { class: "muted small" }, placeOf(step, isLabel));
  const score = make("span", { class: "number value" }, short(step.score));
  const terms = step.contributions.slice(0, MOST_TERMS).filter((one) => one.contribution !== 0);
  if (terms.length === 0) return [score, bar(step.score), facts];
  const shown = terms.map((one) => `${visible(one.name)} ${signed(one.contribution)}`).join(", ");
  const bias = step.bias === null ? "" : `, bias ${signed(step.bias)}`;
  return [score, bar(step.score), facts, make("span", { class: "muted small terms" }, `${shown}${bias}`)];
}

function placeOf(step, isLabel) {
  if (step.rank === null) return "The search did not come here.";
  if (isLabel) return `Rank ${step.rank} among the labels that were scored.`;
  const verdict = step.rank <= step.n_kept ? "kept" : "not kept";
  const last = short(step.last_kept_score);
  return `Level ${step.level}, rank ${step.rank}: ${verdict}. The search keeps ${step.n_kept}, down to ${last}.`;
}

// Parts and examples

function parts(found) {
  if (found.parts.length < 2) return [];
  const items = found.parts.map((part) => {
    const number = make("span", { class: "number muted" }, signed(part.contribution));
    const kind = part.contribution < 0 ? "is-against" : "is-for";
    return make("li", { class: kind }, name(part.name), bar(part.fraction), number);
  });
  return section(`Parts of the ${found.scale}`, make("ul", { class: "words" }, ...items));
}

function nearest(found) {
  if (found.nearest.length === 0) return [];
  const items = found.nearest.map((one) =>
    make(
      "li",
      {},
      make("p", { class: "example" }, visible(one.text)),
      make("p", { class: "muted small" }, `Similarity ${short(one.similarity)}. ${one.labels.map(visible).join(", ")}`),
    ),
  );
  return section(`${plural(items.length, "similar training text")}`, make("ul", { class: "nearest" }, ...items));
}

export function startExplaining() {
  byId("edit").addEventListener("click", () => {
    closeExplanation();
    byId("text").focus();
  });
}

