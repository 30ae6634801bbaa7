// Copy what is shown as JSON or as a table: all texts, all chosen models, at the present threshold.

import { announce, byId } from "./dom.js";
import { chosenModels, state, suggested } from "./state.js";

const COLUMNS = ["text", "model", "label", "name", "probability", "score"];

function shown() {
  return state.texts
    .filter((one) => one.text.trim() !== "")
    .map((one, i) => ({
      text: one.name || `text ${i + 1}`,
      models: chosenModels().flatMap((model) => {
        const found = one.found.get(model.id);
        return found?.status === "done" ? [{ model: model.id, labels: suggested(model, found.hits) }] : [];
      }),
    }));
}

// Return a field of a table; characters that separate fields and lines become spaces.
const field = (value) => (value === null ? "" : String(value).replace(/[\t\r\n\u0085\u2028\u2029]+/g, " "));

export const asJson = () => JSON.stringify(shown(), null, 2);

export function asTsv() {
  const rows = shown().flatMap(({ text, models }) =>
    models.flatMap(({ model, labels }) =>
      labels.map((hit) => [text, model, hit.label, hit.name, hit.probability, hit.score].map(field).join("\t")),
    ),
  );
  return `${[COLUMNS.join("\t"), ...rows].join("\n")}\n`;
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyBySelection(text); // browsers have a clipboard only on https and localhost
  }
  announce(`Copied as ${what}`);
}

function copyBySelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "away";
  area.setAttribute("aria-label", "What is copied");
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

function confirm(button) {
  const before = button.textContent;
  if (button.dataset.copied) return;
  button.dataset.copied = "yes";
  button.textContent = "Copied";
  setTimeout(() => {
    button.textContent = before;
    delete button.dataset.copied;
  }, 1500);
}

export function startCopying() {
  for (const [id, make, what] of [["copy-json", asJson, "JSON"], ["copy-tsv", asTsv, "TSV"]]) {
    byId(id).addEventListener("click", async (event) => {
      const button = event.currentTarget;
      await copy(make(), what);
      confirm(button);
    });
  }
}
