// Charts, the theme, copying, sliders, the page that renews itself. Pages work without it: then charts are the tables
// below them, and limits numbers.
(() => {
  "use strict";
  const root = document.documentElement;
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

  // The value of a custom property as the page has it now; light-dark() is resolved only in a used colour.
  const probe = document.createElement("span");
  const colour = (name) => {
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };

  const config = () => {
    const text = colour("--text"), faint = colour("--muted"), line = colour("--line");
    const font = getComputedStyle(document.body).fontFamily;
    const palette = Array.from({ length: 8 }, (_, place) => colour(`--c${place}`));
    return {
      background: "transparent",
      font,
      view: { stroke: null },
      axis: {
        labelColor: faint, titleColor: faint, titleFontWeight: "normal", gridColor: line, domainColor: line,
        tickColor: line, labelFontSize: 11, titleFontSize: 11, titlePadding: 8, labelSeparation: 5,
      },
      legend: { labelColor: text, titleColor: faint, titleFontWeight: "normal", labelFontSize: 11, titleFontSize: 11 },
      range: { category: palette },
      rule: { color: faint },
      mark: { color: palette[0] },
    };
  };

  const options = () => ({
    ast: true, // expressions are interpreted: the page's policy has no eval
    actions: false,
    renderer: "svg",
    config: config(),
    defaultStyle: false,
    tooltip: { disableDefaultStyle: true, theme: "page" },
  });

  // A specification with the page's colours in the place of their names.
  const coloured = (part) => {
    if (typeof part === "string") return part.startsWith("--") ? colour(part) : part;
    if (Array.isArray(part)) return part.map(coloured);
    return part && typeof part === "object"
      ? Object.fromEntries(Object.entries(part).map(([name, value]) => [name, name === "values" ? value : coloured(value)]))
      : part;
  };

  const draw = async (figure) => {
    const plot = figure.querySelector(".plot");
    const spec = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
    try {
      await plot.view?.finalize();
      plot.view = await vegaEmbed(plot, coloured(spec), options());
      plot.querySelector("svg").setAttribute("aria-hidden", "true"); // its name, and the table below, say what is in it
      figure.dataset.drawn = "yes";
    } catch (error) {
      plot.textContent = `This chart cannot be drawn: ${error.message}`;
      figure.querySelector("details").open = true;
      console.error(error);
    }
  };

  const prepare = (part) => {
    if (globalThis.vegaEmbed) part.querySelectorAll("figure.chart:not([data-drawn])").forEach(draw);
    part.querySelectorAll("[data-copy]").forEach((button) => {
      button.hidden = !navigator.clipboard;
    });
  };

  const redraw = () => globalThis.vegaEmbed && document.querySelectorAll("figure.chart").forEach(draw);

  // On a phone the navigation is wider than the screen: begin with the page that is shown.
  const current = document.querySelector("nav [aria-current]");
  if (current) current.parentElement.scrollLeft = current.offsetLeft - current.parentElement.offsetLeft;

  const toggle = document.getElementById("theme");
  if (toggle) {
    const label = () => {
      toggle.textContent = isDark() ? "Light" : "Dark";
      toggle.setAttribute("aria-label", `Switch to the ${isDark() ? "light" : "dark"} theme`);
    };
    toggle.hidden = false;
    label();
    toggle.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      try {
        localStorage.setItem("benchhouse-theme", root.dataset.theme);
      } catch {
        // without storage the choice lasts for the page
      }
      label();
      redraw();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      label();
      redraw();
    });
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });

  // A slider has a list of values, of which null is no limit. The number next to it is what the form sends.
  const numberOf = (slider) => document.getElementById(slider.dataset.slides);
  const say = (slider) => slider.setAttribute("aria-valuetext", numberOf(slider).value || "no limit");
  document.querySelectorAll("input[data-slides]").forEach((slider) => {
    const values = JSON.parse(slider.dataset.values);
    const number = numberOf(slider);
    slider.hidden = false;
    say(slider);
    slider.addEventListener("input", () => {
      number.value = values[slider.value] ?? "";
      say(slider);
    });
    number.addEventListener("input", () => {
      const limit = number.value === "" ? null : Number(number.value);
      const isLeast = values[0] === null;
      const fitting = values.filter((value) => value !== null && (isLeast ? value <= limit : value < limit)).length;
      slider.value = limit === null ? values.indexOf(null) : fitting;
      say(slider);
    });
  });

  // The page Live renews its part by itself, until it is paused; a page that nobody sees asks for nothing.
  const live = document.getElementById("live");
  const pause = document.getElementById("pause");
  if (live && pause) {
    const silence = document.getElementById("silence");
    const isPaused = () => pause.getAttribute("aria-pressed") === "true";
    pause.hidden = false;
    pause.addEventListener("click", () => {
      pause.setAttribute("aria-pressed", isPaused() ? "false" : "true");
      pause.textContent = isPaused() ? "Go on" : "Pause";
    });
    document.addEventListener("htmx:before:request", (event) => {
      if (event.target === live && (isPaused() || document.hidden)) event.preventDefault();
    });
    const tell = (text) => {
      if (silence.textContent !== text) silence.textContent = text;
    };
    const lost = () => tell("No answer: this is what was last known. Is benchhouse dashboard still running?");
    document.addEventListener("htmx:error", lost);
    document.addEventListener("htmx:response:error", lost);
    document.addEventListener("htmx:after:swap", () => tell(""));
  }

  prepare(document);
  document.addEventListener("htmx:after:swap", () => prepare(document));
})();
