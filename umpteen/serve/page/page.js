// The page: which models there are, which view is shown, and the keys that work everywhere.

import { ask } from "./api.js";
import { startCopying } from "./copying.js";
import { byId, make, name, show } from "./dom.js";
import { startSearch } from "./search.js";
import { state } from "./state.js";
import { showColumns, startTagging, tag, tagMissing } from "./tagging.js";
import { startTexts } from "./texts.js";
import { showTree, startTree } from "./tree.js";
import { leaveExplanation, startExplaining } from "./why.js";

async function loadModels() {
  try {
    const { models, limits } = await ask("v1/models", { onWait: () => {} });
    Object.assign(state.limits, limits);
    state.models = models;
    state.chosen = models.slice(0, 1).map((model) => model.id);
    showChoices();
    showColumns();
    showView();
  } catch (error) {
    const again = make("button", { type: "button", onclick: loadModels }, "Try again");
    const problem = make("div", { class: "problem", role: "alert" }, make("p", {}, error.message), again);
    byId("columns").replaceChildren(problem);
  }
}

function showChoices() {
  const choices = state.models.map((model) => {
    const box = make("input", { type: "checkbox", checked: state.chosen.includes(model.id), onchange: chooseModels });
    box.value = model.id;
    return make("label", { class: "chip" }, box, name(model.id));
  });
  byId("model-choices").replaceChildren(...choices);
}

function chooseModels(event) {
  const boxes = [...byId("model-choices").querySelectorAll("input")];
  const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
  if (chosen.length === 0) {
    event.currentTarget.checked = true; // one model tags at least
    return;
  }
  state.chosen = chosen;
  tagMissing();
}

function showView() {
  const isTree = window.location.hash === "#tree";
  show(byId("tagging"), !isTree);
  show(byId("tree"), isTree);
  show(byId("models"), state.models.length > 1 && !isTree); // the tree has a choice of its own
  for (const [id, isHere] of [["to-tagging", !isTree], ["to-tree", isTree]]) {
    if (isHere) byId(id).setAttribute("aria-current", "page");
    else byId(id).removeAttribute("aria-current");
  }
  if (isTree) showTree();
}

function keys(event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !byId("tagging").hidden) {
    event.preventDefault();
    tag();
  } else if (event.key === "Escape" && state.explained && !byId("tagging").hidden && !byId("key-dialog").open) {
    leaveExplanation();
  }
}

startTexts();
startTagging();
startExplaining();
startSearch();
startCopying();
startTree();
document.addEventListener("keydown", keys);
window.addEventListener("hashchange", showView);
loadModels();
