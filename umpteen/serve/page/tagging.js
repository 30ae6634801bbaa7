// Tag the texts by the chosen models, and show labels with bars; the threshold filters what was found.

import { ApiError, ask } from "./api.js";
import { announce, bar, byId, count, make, name, percent, plural, short, show } from "./dom.js";
import { chosenModels, current, state, suggested, valueOf } from "./state.js";
import { closeExplanation, explain, leaveExplanation } from "./why.js";

const MOST_LABELS = 50; // that are asked for, so that the slider has something to show
const FIRST = 5; // labels that are shown if none reaches the threshold and the reader asks for them
const AT_ONCE = 8; // texts of a request
// What the server refuses in a text: control characters and halves of surrogate pairs
const CONTROL = /[\u0000-\u0008\u000e-\u001f\u007f]|\p{Surrogate}/gu;

let running = null; // the controller of the requests under way

export const cleaned = (text) => text.replace(CONTROL, " ");

// Tag all texts that are not empty by all models that are chosen.
export async function tag() {
  const texts = state.texts.filter((one) => one.text.trim() !== "");
  if (texts.length === 0) {
    announce("Type or paste a text first.");
    byId("text").focus();
    return;
  }
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  closeExplanation();
  announce("Tagging");
  await Promise.all(chosenModels().map((model) => tagBy(model, texts, signal)));
  if (!signal.aborted) announceLabels();
}

// Tag texts that a newly chosen model has not seen.
export function tagMissing() {
  const isTagged = state.texts.some((one) => one.found.size > 0);
  const isMissing = (model) => state.texts.some((one) => one.text.trim() && !one.found.has(model.id));
  if (isTagged && chosenModels().some(isMissing)) tag();
  else showColumns();
}

export function stop() {
  running?.abort();
  running = null;
}

async function tagBy(model, texts, signal) {
  for (const one of texts) one.found.set(model.id, { status: "waiting" });
  showColumns();
  const step = Math.min(AT_ONCE, state.limits.max_texts);
  for (let first = 0; first < texts.length; first += step) {
    const some = texts.slice(first, first + step);
    const found = await predictions(model, some, signal);
    if (found === null) return;
    const result = (i) => (Array.isArray(found) ? { status: "done", hits: found[i] } : found);
    some.forEach((one, i) => one.found.set(model.id, result(i)));
    showColumns();
  }
}

// Return the labels of each text, an error, or null if the request was given up.
async function predictions(model, texts, signal) {
  const waitFor = (seconds) => {
    for (const one of texts) one.found.set(model.id, { status: "waiting", seconds });
    showColumns();
  };
  try {
    const k = Math.min(MOST_LABELS, state.limits.max_k);
    const body = { texts: texts.map((one) => cleaned(one.text)), k, model: model.id };
    const answer = await ask("v1/predict", { body, signal, onWait: waitFor });
    return answer.predictions;
  } catch (error) {
    if (error.name === "AbortError") return null;
    return { status: "failed", error: error instanceof ApiError ? error : new ApiError(0, "unknown", String(error)) };
  }
}

// Results

export function showColumns() {
  const models = chosenModels();
  const columns = models.map((model) => column(model, models.length > 1));
  byId("columns").replaceChildren(...columns);
  byId("desk").classList.toggle("compared", models.length > 1);
  const states = models.map((model) => current().found.get(model.id)?.status);
  byId("results").setAttribute("aria-busy", String(states.includes("waiting")));
  show(byId("copying"), states.includes("done"));
  showThreshold();
  markExplained();
}

function column(model, hasTitle) {
  const found = current().found.get(model.id);
  const content = make("div", { class: "column", "data-model": model.id });
  if (hasTitle) {
    content.append(make("h3", {}, name(model.id)), make("p", { class: "muted facts" }, facts(model)));
  }
  if (found === undefined) content.append(empty(model, hasTitle));
  else if (found.status === "waiting") content.append(...waiting(found));
  else if (found.status === "failed") content.append(failed(found.error));
  else content.append(...labels(model, found.hits));
  return content;
}

const facts = (model) => `${model.recipe}, ${plural(model.labels, "label")}`;

function empty(model, hasTitle) {
  const promise = `Labels appear here: the best of ${count(model.labels)}, by ${model.recipe}.`;
  return make("p", { class: "muted empty" }, hasTitle ? "Not tagged yet." : promise);
}

function waiting(found) {
  const lines = [0.9, 0.7, 0.75, 0.5, 0.35].map((width) => {
    const line = make("div", { class: "ghost" });
    line.style.setProperty("--part", String(width));
    return line;
  });
  if (!found.seconds) return [make("div", { class: "ghosts", "aria-hidden": "true" }, ...lines)];
  const text = `The server is busy. Trying again in ${found.seconds} s.`;
  return [make("p", { class: "note" }, text), make("div", { class: "ghosts", "aria-hidden": "true" }, ...lines)];
}

function failed(error) {
  const again = make("button", { type: "button", onclick: tag }, "Try again");
  return make("div", { class: "problem", role: "alert" }, make("p", {}, error.message), again);
}

function labels(model, hits) {
  const kept = suggested(model, hits);
  const items = kept.map((hit) => make("li", {}, labelButton(model, hit)));
  const list = make("ol", { class: "labels", "aria-label": `Labels by ${model.id}`, onkeydown: moveInList }, ...items);
  const rest = hits.length - kept.length;
  const note = rest ? `${plural(rest, "more label")} below the threshold` : "";
  const parts = kept.length ? [list] : [nothing(hits)];
  return note ? [...parts, make("p", { class: "muted rest" }, note)] : parts;
}

// Say that no label is shown, and offer to lower the threshold to the first ones.
function nothing(hits) {
  const lower = () => {
    state.threshold = Math.max(0, Math.floor(100 * valueOf(hits[Math.min(FIRST, hits.length) - 1])) / 100);
    showColumns();
    document.querySelector("button.label")?.focus();
  };
  const button = make("button", { type: "button", class: "link", onclick: lower }, "Show the best ones");
  return make("p", { class: "muted empty" }, "No label reaches the threshold. ", hits.length ? button : null);
}

function labelButton(model, hit) {
  const value = valueOf(hit);
  const shown = hit.probability === null ? short(value) : percent(value);
  return make(
    "button",
    {
      type: "button",
      class: "label",
      "data-label": hit.label,
      "aria-pressed": "false",
      onclick: () => toggle(model.id, hit),
    },
    name(hit.name),
    make("span", { class: "value number" }, shown),
    bar(value),
  );
}

// Explain a label, or close its explanation.
function toggle(model, hit) {
  const isShown = state.explained?.label === hit.label && state.explained.model === model;
  if (isShown) leaveExplanation();
  else explain(model, hit.label, hit.name);
}

// Move between labels with the arrow keys.
function moveInList(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || !event.target.matches("button.label")) return;
  const buttons = [...event.currentTarget.querySelectorAll("button.label")];
  buttons[buttons.indexOf(event.target) + step]?.focus();
  event.preventDefault();
}

export function markExplained() {
  for (const column of byId("columns").children) {
    for (const button of column.querySelectorAll("button.label")) {
      const { explained } = state;
      const isIt = explained?.label === button.dataset.label && explained.model === column.dataset.model;
      button.setAttribute("aria-pressed", String(isIt));
    }
  }
}

function announceLabels() {
  const parts = chosenModels().map((model) => {
    const found = current().found.get(model.id);
    if (found?.status === "failed") return found.error.message;
    if (found?.status !== "done") return "";
    const kept = suggested(model, found.hits);
    const names = kept.slice(0, 3).map((hit) => hit.name).join(", ");
    return `${model.id}: ${plural(kept.length, "label")}${names ? `: ${names}` : ""}`;
  });
  announce(parts.filter(Boolean).join(". "));
}

// Threshold

const shownThreshold = (value, model) => (model?.calibrated ? percent(value) : value.toFixed(2));

function showThreshold() {
  const [model] = chosenModels();
  if (!model) return;
  const own = Math.min(Math.max(model.threshold, 0), 1);
  const value = state.threshold ?? own;
  const slider = byId("threshold");
  if (document.activeElement !== slider || state.threshold === null) slider.value = String(value);
  slider.style.setProperty("--part", String(value));
  slider.setAttribute("aria-valuetext", shownThreshold(value, model));
  byId("threshold-mark").style.setProperty("--part", String(Math.round(100 * own) / 100)); // as the slider rounds it
  byId("threshold-value").textContent = shownThreshold(value, model);
  const several = chosenModels().length > 1;
  const limit = model.limit && !several ? `, at most ${plural(model.limit, "label")}` : "";
  const owns = chosenModels().map((one) => shownThreshold(one.threshold, one)).join(" and ");
  byId("threshold-own").textContent = `${several ? "The models’ own" : "The model’s own"}: ${owns}${limit}`;
  byId("threshold-reset").textContent = several ? "Use the models’" : "Use the model’s";
  show(byId("threshold-reset"), state.threshold !== null);
}

let speaking = 0;

function slide() {
  state.threshold = Number(byId("threshold").value);
  showColumns();
  clearTimeout(speaking);
  speaking = setTimeout(announceLabels, 600); // not at every step
}

export function startTagging() {
  byId("run").addEventListener("click", tag);
  byId("threshold").addEventListener("input", slide);
  byId("threshold-reset").addEventListener("click", () => {
    state.threshold = null;
    showColumns();
    byId("threshold").focus();
  });
}

