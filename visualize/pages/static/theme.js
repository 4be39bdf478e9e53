// Before anything is drawn: the theme that was chosen here, else the system's.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("benchhouse-theme");
  } catch {
    // without storage the choice lasts for the page
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
