// The texts: typed, opened or dropped. Several files are several texts.

import { announce, byId, count, make, name, plural, show, visible } from "./dom.js";
import { current, state } from "./state.js";
import { showColumns, stop, tag } from "./tagging.js";
import { closeExplanation } from "./why.js";

const LARGEST = 4 * 1024 * 1024; // bytes of a file
const MOST_FILES = 100;

export function showTexts() {
  byId("text").value = current().text;
  showSize();
  const buttons = state.texts.map((one, i) =>
    make(
      "button",
      { type: "button", class: "chip", "aria-pressed": String(i === state.at), onclick: () => turnTo(i) },
      name(one.name || `Text ${i + 1}`),
    ),
  );
  byId("documents").replaceChildren(...buttons);
  show(byId("documents"), state.texts.length > 1);
}

function showSize() {
  const { length } = current().text;
  const { max_characters: most } = state.limits;
  const isTooLong = length > most;
  byId("size").textContent = isTooLong
    ? `${count(length)} characters, the server takes ${count(most)}`
    : length ? `${count(length)} characters` : "";
  byId("size").classList.toggle("problem-text", isTooLong);
}

function turnTo(i) {
  closeExplanation();
  state.at = i;
  showTexts();
  showColumns();
  byId("documents").children[i]?.focus();
}

function typed() {
  const one = current();
  one.text = byId("text").value;
  if (one.found.size) {
    stop();
    one.found.clear();
    showColumns();
  }
  showSize();
}

function clear() {
  stop();
  closeExplanation();
  state.texts = [{ name: "", text: "", found: new Map() }];
  state.at = 0;
  showTexts();
  showColumns();
  byId("text").focus();
}

// Read files as texts and tag them.
export async function openFiles(files) {
  const some = [...files].slice(0, MOST_FILES);
  const read = await Promise.all(some.map(readFile));
  const texts = read.filter((one) => one !== null);
  const refused = files.length - texts.length;
  if (texts.length === 0) {
    announceProblem("No text could be read: only text files of up to 4 MB can be opened.");
    return;
  }
  stop();
  closeExplanation();
  state.texts = texts.map(([title, text]) => ({ name: title, text, found: new Map() }));
  state.at = 0;
  showTexts();
  showColumns();
  announceProblem(refused ? `${plural(refused, "file")} could not be read as text.` : "");
  tag();
}

async function readFile(file) {
  if (file.size > LARGEST) return null;
  const text = new TextDecoder("utf-8").decode(await file.arrayBuffer());
  return text.includes("\u0000") || text.trim() === "" ? null : [visible(file.name), text];
}

function announceProblem(text) {
  const hint = byId("text-hint");
  hint.textContent = text || "Ctrl + Enter, or drop text files here";
  hint.classList.toggle("problem-text", text !== "");
  if (text) announce(text);
}

function startDropping() {
  const card = byId("text-card");
  const isFiles = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!isFiles(event)) return;
    event.preventDefault();
    card.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) card.classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    card.classList.remove("dropping");
    if (!isFiles(event)) return;
    event.preventDefault();
    openFiles(event.dataTransfer.files);
  });
}

export function startTexts() {
  byId("text").addEventListener("input", typed);
  byId("clear").addEventListener("click", clear);
  byId("file").addEventListener("change", (event) => {
    const { files } = event.currentTarget;
    if (files.length) openFiles(files).then(() => (byId("file").value = ""));
  });
  startDropping();
  showTexts();
}
