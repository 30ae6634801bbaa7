// Renders the OpenAPI document of the server, and sends requests. Nothing is loaded from elsewhere, and everything that
// comes from the document or from a response is inserted as text.
"use strict";

const examples = {
  "/v1/predict": { texts: ["A text to tag"], k: 5 },
  "/v1/explain": { text: "A text to tag", k: 5 },
  "/v1/projects/{project_id}/suggest": { text: "A text to tag", limit: 5 },
  "/v1/projects/{project_id}/suggest-batch": { documents: [{ text: "A text to tag", document_id: "1" }] },
  "/v1/admin/reload": {},
};

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function field(parent, id, label, kind = "input") {
  parent.append(element("label", label, { for: id }));
  const input = element(kind, "", { id });
  parent.append(input);
  return input;
}

function target(path, inputs) {
  let url = path;
  const query = new URLSearchParams();
  for (const { name, place, input } of inputs) {
    if (place === "path") url = url.replace(`{${name}}`, encodeURIComponent(input.value));
    else if (input.value !== "") query.set(name, input.value);
  }
  return query.size ? `${url}?${query}` : url;
}

async function send(method, path, inputs, body, shown) {
  const headers = {};
  const key = document.getElementById("key").value;
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body) headers["Content-Type"] = "application/json";
  shown.textContent = "…";
  try {
    const response = await fetch(target(path, inputs), { method, headers, body: body ? body.value : undefined });
    const text = await response.text();
    let pretty = text;
    try { pretty = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not JSON */ }
    shown.textContent = `${response.status} ${response.statusText}\n\n${pretty}`;
  } catch (error) {
    shown.textContent = `The server cannot be reached: ${error.message}`;
  }
}

function show(path, method, operation, schemas) {
  const box = element("details");
  const summary = element("summary");
  summary.append(element("code", `${method.toUpperCase()} ${path}`), ` ${operation.description || ""}`);
  box.append(summary);
  const id = `${method}${path}`.replace(/\W+/g, "-");
  const inputs = (operation.parameters || []).map((one) => ({
    name: one.name, place: one.in,
    input: field(box, `${id}-${one.name}`, `${one.name} (${one.in})${one.required ? "" : ", optional"}`),
  }));
  let body = null;
  if (operation.requestBody) {
    body = field(box, `${id}-body`, "Body (JSON)", "textarea");
    body.value = JSON.stringify(examples[path] || {}, null, 2);
    const schema = operation.requestBody.content["application/json"].schema;
    const name = (schema.$ref || "").split("/").pop();
    box.append(element("p", "Schema of the body:"), element("pre", JSON.stringify(schemas[name] || schema, null, 2)));
  }
  const button = element("button", "Send", { type: "button" });
  const shown = element("pre", "", { "aria-live": "polite", tabindex: "0" });
  button.addEventListener("click", () => send(method.toUpperCase(), path, inputs, body, shown));
  const list = element("ul");
  for (const [status, one] of Object.entries(operation.responses)) {
    list.append(element("li", `${status}: ${one.description}`));
  }
  box.append(button, shown, element("p", "Responses:"), list);
  return box;
}

async function main() {
  const about = document.getElementById("about");
  const response = await fetch("openapi.json");
  const found = await response.json();
  about.textContent = `${found.info.description} Version ${found.info.version}.`;
  const place = document.getElementById("operations");
  for (const [path, methods] of Object.entries(found.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      place.append(show(path, method, operation, found.components.schemas));
    }
  }
}

document.getElementById("key-form").addEventListener("submit", (event) => event.preventDefault());
main().catch((error) => { document.getElementById("about").textContent = `openapi.json cannot be read: ${error.message}`; });
