// Light or dark, before anything is drawn. Without a choice of the reader, the browser decides.
"use strict";

(() => {
  const KEPT = "umpteen.theme";
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  const chosen = () => {
    try {
      return window.localStorage.getItem(KEPT);
    } catch {
      return null; // storage is switched off
    }
  };

  const apply = () => {
    const theme = chosen() === "dark" || chosen() === "light" ? chosen() : dark.matches ? "dark" : "light";
    root.dataset.theme = theme;
    document.getElementById("theme")?.setAttribute("aria-pressed", String(theme === "dark"));
  };

  const choose = () => {
    const theme = root.dataset.theme === "dark" ? "light" : "dark";
    try {
      window.localStorage.setItem(KEPT, theme);
    } catch {
      root.dataset.theme = theme; // for this page alone
      return;
    }
    apply();
  };

  apply();
  dark.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", choose);
  });
})();
