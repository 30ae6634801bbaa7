// The tree explorer: one node at a time, its children by their number of texts, and where the current text went.

import { ask } from "./api.js";
import { announce, bar, briefName, byId, count, make, name, plural, short, show, visible } from "./dom.js";
import { current, state } from "./state.js";
import { cleaned } from "./tagging.js";
import { explain } from "./why.js";

const PAGE = 60; // children that are listed at a time, and cells that are drawn
const SMALLEST = 0.012; // part of the width that a cell has at least

const ROOT = { level: 0, node: 0 };
const NO_TEXT =
  "Type a text on the page Tag, then come back: the groups that the search kept for it are marked here.";

// paths: where the text went, by tree
const view = { model: null, tree: 1, node: ROOT, answer: null, children: [], paths: null, text: null, problem: null };
let running = null;
let asked = 0;

// Requests

async function fetchNode(model, tree, node, start, limit, signal) {
  const query = new URLSearchParams({ model, tree, node: `${node.level}-${node.node}`, start, limit });
  return ask(`v1/tree?${query}`, { signal });
}

// Return the names of the nodes on the path down to a step of an explanation, as far as they are known.
export async function nodeNames(model, part, step) {
  try {
    const trees = (await fetchNode(model, 1, ROOT, 0, 1)).trees;
    const tree = trees.find((one) => one.part === part);
    if (!tree) return [];
    const { ancestors, node } = await fetchNode(model, tree.tree, step, 0, 1);
    return [...ancestors, node].slice(1).map((one) => one.name);
  } catch {
    return []; // the path is complete without names
  }
}

// Show a node of a tree that an explanation named.
export async function openNode(model, part, level, node) {
  const answer = await fetchNode(model, 1, ROOT, 0, 1).catch(noteProblem);
  const tree = answer?.trees.find((one) => one.part === part)?.tree ?? 1;
  if (model !== view.model) Object.assign(view, { paths: null, text: null });
  Object.assign(view, { model, tree, node: { level, node } });
  window.location.hash = "#tree";
}

const noteProblem = (error) => {
  byId("tree-note").textContent = error.message;
};

async function zoom(node, { from = null, focus = "cell" } = {}) {
  running?.abort();
  running = new AbortController();
  const number = (asked += 1);
  byId("icicle").setAttribute("aria-busy", "true");
  try {
    const answer = await fetchNode(view.model, view.tree, node, 0, PAGE, running.signal);
    if (number !== asked) return;
    Object.assign(view, { node, answer, children: answer.children ?? [] });
    draw(from);
    if (focus) focusAfter(focus, from);
  } catch (error) {
    if (error.name === "AbortError") return;
    noteProblem(error);
    show(byId("tree-body"), false);
  } finally {
    byId("icicle").removeAttribute("aria-busy");
  }
}

async function more() {
  const answer = await fetchNode(view.model, view.tree, view.node, view.children.length, PAGE).catch(noteProblem);
  if (!answer) return;
  const first = view.children.length;
  view.children = [...view.children, ...answer.children];
  draw();
  byId("children").children[first]?.querySelector("button")?.focus();
}

async function findText() {
  const text = cleaned(current().text);
  if (view.text === text && view.paths) return;
  Object.assign(view, { text, paths: null, problem: null });
  if (text.trim() === "") return;
  try {
    const { paths } = await ask("v1/tree/path", { body: { text, model: view.model }, onWait: () => {} });
    if (view.text === text) view.paths = paths;
  } catch (error) {
    if (view.text === text) Object.assign(view, { problem: error.message, text: null });
  }
}

// Where the text went

const textPath = () => view.paths?.find((path) => path.tree === view.tree);

// Return the score of a node that the search kept, null if it did not.
function scoreOf(level, node) {
  const found = textPath()?.levels.find((one) => one.level === level);
  return found?.kept.find((one) => one.node.node === node)?.score ?? null;
}

function drawText() {
  const path = textPath();
  show(byId("went"), Boolean(path || view.problem) || current().text.trim() === "");
  if (!path) {
    byId("went-note").textContent = view.problem ?? NO_TEXT;
    byId("went-levels").replaceChildren();
    return;
  }
  byId("went-note").textContent = `“${excerpt(current().text)}”`;
  byId("went-levels").replaceChildren(...path.levels.map((level, i) => wentLevel(level, i === path.levels.length - 1)));
}

const excerpt = (text) => (text.length > 160 ? `${text.slice(0, 159)}…` : text).replace(/\s+/g, " ").trim();

function wentLevel(level, isLast) {
  const title = isLast ? "Labels" : `Level ${level.level}`;
  const facts = isLast
    ? `${plural(level.n_scored, "label")} scored, the best ${count(level.n_kept)}`
    : `${plural(level.n_scored, "group")} scored, ${count(level.n_kept)} kept`;
  const items = level.kept.map(({ node, score }) => {
    const content = [name(node.name), make("span", { class: "number muted" }, short(score)), bar(score)];
    const onclick = () => (isLast ? explainLabel(node) : zoom(node, { focus: "crumb" }));
    return make("li", {}, make("button", { type: "button", class: "went-node", onclick }, ...content));
  });
  return make("li", {}, make("h3", {}, title), make("p", { class: "muted small" }, facts), make("ul", {}, ...items));
}

// Drawing

function draw(from = null) {
  const { answer } = view;
  const hasTree = answer.trees.length > 0;
  show(byId("tree-body"), hasTree);
  byId("tree-note").textContent = hasTree ? aboutTree(answer) : answer.reason;
  drawChoices(answer);
  if (!hasTree) {
    show(byId("went"), false);
    return;
  }
  drawCrumbs(answer);
  drawIcicle(answer, from);
  byId("children").replaceChildren(...view.children.map(row));
  const rest = answer.node.n_children - view.children.length;
  byId("more").textContent = `Show more (${count(rest)})`;
  show(byId("more"), rest > 0);
  drawText();
}

function aboutTree(answer) {
  const tree = answer.trees.find((one) => one.tree === answer.tree);
  const root = answer.ancestors[0] ?? answer.node;
  const levels = plural(tree.n_levels - 1, "level of groups", "levels of groups");
  return `${plural(root.n_labels, "label")} in ${levels}. A group is named by its most typical words.`;
}

function drawChoices(answer) {
  const option = (value, text, isChosen) => make("option", { value, selected: isChosen }, text);
  byId("tree-model").replaceChildren(...state.models.map((one) => option(one.id, one.id, one.id === view.model)));
  byId("tree-part").replaceChildren(...answer.trees.map((one) => option(one.tree, one.part, one.tree === view.tree)));
  show(byId("tree-model-choice"), state.models.length > 1);
  show(byId("tree-part-choice"), answer.trees.length > 1);
}

function drawCrumbs(answer) {
  const above = answer.ancestors.map((node) => {
    const onclick = () => zoom(node, { from: answer.node });
    return make("li", {}, make("button", { type: "button", class: "link", onclick }, briefName(node.name)));
  });
  const attributes = { "aria-current": "location", tabindex: "-1", id: "crumb-here" };
  const here = make("span", attributes, briefName(answer.node.name));
  byId("crumbs").replaceChildren(...above, make("li", {}, here));
}

const numbers = (node) => {
  const texts = node.n_texts === null ? [] : [plural(node.n_texts, "text")];
  return (node.key === null ? [plural(node.n_labels, "label"), ...texts] : texts).join(", ");
};

const sizeOf = (node) => node.n_texts ?? node.n_labels;

function drawIcicle(answer, from) {
  const whole = make("div", { class: "whole small muted" }, numbers(answer.node));
  const drawn = view.children.slice(0, PAGE);
  const total = sizeOf(answer.node) || drawn.length || 1;
  const cells = drawn.map((child) => cell(child, sizeOf(child) / total));
  const rest = restCell(answer.node, drawn, total);
  const lane = make("div", { class: "lane", onkeydown: moveInLane }, ...cells, rest);
  if (cells.length) cells[0].tabIndex = 0;
  byId("icicle").replaceChildren(whole, lane);
  lane.classList.add(from && from.level > answer.node.level ? "out" : "in");
}

// Return a cell for all children that are not drawn one by one, if there are any.
function restCell(node, drawn, total) {
  const n = node.n_children - drawn.length;
  if (n <= 0) return null;
  const left = sizeOf(node) - drawn.reduce((sum, child) => sum + sizeOf(child), 0);
  const rest = make("div", { class: "cell rest-cell", title: plural(n, "smaller group") }, "…");
  rest.style.setProperty("--grow", String(Math.max(left / total, SMALLEST)));
  return rest;
}

function cell(child, part) {
  const score = scoreOf(child.level, child.node);
  const isLabel = child.key !== null;
  const grains = isLabel ? [] : child.parts.map((one) => grain(child, one));
  const kept = score === null ? "" : `, kept for the text with score ${short(score)}`;
  const button = make(
    "button",
    {
      type: "button",
      class: score === null ? "cell" : "cell kept",
      tabindex: "-1",
      title: visible(child.name).slice(0, 300),
      "aria-label": `${visible(child.name)}, ${numbers(child)}${kept}`,
      "data-node": child.node,
      onclick: () => openChild(child),
    },
    make("span", { class: "cell-text" }, name(child.name)),
    isLabel ? null : make("span", { class: "grains", "aria-hidden": "true" }, ...grains),
  );
  button.style.setProperty("--grow", String(Math.max(part, SMALLEST)));
  button.style.setProperty("--score", String(score ?? 0));
  return button;
}

function grain(child, [node, size]) {
  const score = scoreOf(child.level + 1, node);
  const one = make("span", { class: score === null ? "grain" : "grain kept" });
  one.style.setProperty("--grow", String(Math.max(size, 1)));
  one.style.setProperty("--score", String(score ?? 0));
  return one;
}

function row(child) {
  const score = scoreOf(child.level, child.node);
  const most = Math.max(1, ...view.children.map(sizeOf));
  const isLabel = child.key !== null;
  const content = [
    name(child.name),
    make("span", { class: "muted small" }, numbers(child)),
    bar(sizeOf(child) / most),
    score === null ? null : make("span", { class: "went-here" }, `the text came here: ${short(score)}`),
    isLabel ? null : make("span", { class: "muted small examples" }, ...examples(child.examples)),
  ];
  const onclick = () => (isLabel ? explainLabel(child) : zoom(child, { focus: "crumb" }));
  const button = make("button", { type: "button", class: score === null ? "node" : "node kept", onclick }, ...content);
  button.style.setProperty("--score", String(score ?? 0));
  return make("li", {}, button);
}

const examples = (names) => names.flatMap((one, i) => (i ? [" · ", briefName(one)] : [briefName(one)]));

// Zooming

function openChild(child) {
  if (child.key === null) zoom(child, { focus: "cell" });
  else explainLabel(child);
}

// Explain a label of the tree for the current text; without one there is nothing to explain.
function explainLabel(label) {
  window.location.hash = "#tag";
  explain(view.model, label.key, label.name);
}

function up() {
  const above = view.answer?.ancestors ?? [];
  if (above.length === 0) return false;
  zoom(above[above.length - 1], { from: view.answer.node, focus: "cell" });
  return true;
}

function focusAfter(focus, from) {
  const lane = byId("icicle").querySelector(".lane");
  const back = from && lane.querySelector(`[data-node="${from.node}"]`);
  const isDrawn = lane.getClientRects().length > 0; // narrow screens have the list alone
  const target = focus === "cell" && isDrawn ? (back ?? lane.querySelector("button")) : byId("crumb-here");
  (target ?? byId("crumb-here"))?.focus();
  if (target?.classList.contains("cell")) rove(target);
  announce(`${view.answer.node.name}: ${plural(view.answer.node.n_children, "child", "children")}`);
}

function rove(target) {
  for (const one of target.parentElement.children) one.tabIndex = one === target ? 0 : -1;
  target.focus();
}

function moveInLane(event) {
  const cells = [...event.currentTarget.querySelectorAll("button")];
  const at = cells.indexOf(event.target.closest(".cell"));
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: cells.length - 1 }[event.key];
  if (to !== undefined && cells[to]) rove(cells[to]);
  else if (event.key === "ArrowDown") openChild(view.children[at]);
  else if (event.key === "ArrowUp") up();
  else return;
  event.preventDefault();
}

// Show the tree of the model that tags, or of the one that was chosen here.
export async function showTree() {
  if (!state.models.length) return;
  if (view.model === null) view.model = state.chosen[0];
  const node = view.node;
  await Promise.all([zoom(node, { focus: null }), findText()]);
  if (view.answer?.trees.length) draw();
}

export function startTree() {
  byId("more").addEventListener("click", more);
  byId("tree-model").addEventListener("change", (event) => {
    Object.assign(view, { model: event.currentTarget.value, tree: 1, node: ROOT, paths: null, text: null });
    showTree();
  });
  byId("tree-part").addEventListener("change", (event) => {
    Object.assign(view, { tree: Number(event.currentTarget.value), node: ROOT });
    showTree();
  });
  byId("tree").addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.target.matches("select") && up()) event.preventDefault();
  });
}
