// Requests to the server: its key, its errors, and waiting where it is busy.

import { byId } from "./dom.js";

const KEY = "umpteen.key";
const MOST_RETRIES = 3;
const LONGEST_WAIT = 60; // seconds

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let key = null;
let asking = null; // the dialog for the key, while it is open

function keptKey() {
  if (key === null) {
    try {
      key = window.sessionStorage.getItem(KEY) ?? "";
    } catch {
      key = ""; // storage is switched off
    }
  }
  return key;
}

function keepKey(value) {
  key = value;
  try {
    window.sessionStorage.setItem(KEY, value);
  } catch {
    // It is kept in this page alone.
  }
}

// Return the answer of the server; "onWait" is called with the seconds that are left where it is busy.
export async function ask(path, { body, signal, onWait } = {}) {
  for (let attempt = 0; ; attempt += 1) {
    const used = keptKey();
    const response = await send(path, body, signal, used);
    if (response.ok) return response.json();
    if (response.status === 401 && (used !== keptKey() || (await askForKey(used !== "")))) continue;
    const isBusy = response.status === 429 || (response.status === 503 && response.headers.has("Retry-After"));
    if (isBusy && attempt < MOST_RETRIES && onWait) {
      await wait(response, onWait, signal);
      continue;
    }
    throw await problem(response);
  }
}

async function send(path, body, signal, used) {
  const headers = { Accept: "application/json" };
  if (used) headers.Authorization = `Bearer ${used}`;
  const options = { headers, signal, cache: "no-store", credentials: "same-origin" };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  }
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The server cannot be reached. Check that it is running, then try again.");
  }
}

async function problem(response) {
  try {
    const { error } = await response.json();
    return new ApiError(response.status, error.code, `${error.message}`);
  } catch {
    return new ApiError(response.status, "unknown", `The server answered with the status ${response.status}.`);
  }
}

async function wait(response, onWait, signal) {
  const asked = Number.parseInt(response.headers.get("Retry-After") ?? "1", 10);
  for (let left = Math.min(Math.max(asked || 1, 1), LONGEST_WAIT); left > 0; left -= 1) {
    onWait(left);
    await new Promise((resolve) => setTimeout(resolve, 1000));
    if (signal?.aborted) throw new DOMException("given up", "AbortError");
  }
  onWait(0);
}

// Ask the reader for the key of the server; return whether one was given.
function askForKey(wasWrong) {
  asking ??= new Promise((resolve) => {
    const dialog = byId("key-dialog");
    const field = byId("key");
    byId("key-note").textContent = wasWrong
      ? "The server did not accept this key."
      : "This server asks for a key. It is kept until the tab is closed.";
    field.value = "";
    dialog.returnValue = "cancel";
    dialog.addEventListener(
      "close",
      () => {
        const isGiven = dialog.returnValue === "ok" && field.value !== "";
        if (isGiven) keepKey(field.value);
        field.value = "";
        asking = null;
        resolve(isGiven);
      },
      { once: true },
    );
    dialog.showModal();
  });
  return asking;
}
