// Applies the chosen theme, else the system's, before the page is drawn.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("benchhouse-theme");
  } catch {
    // without storage the choice lasts only for this page
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
