// Charts, theme switch, copy buttons, sliders, and the self-refreshing page Live. Pages work without it: tables replace
// charts, and number fields replace sliders.
(() => {
  "use strict";
  const root = document.documentElement;
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

  const LETTER_PX = 6.8, NAME_PX = 6.5, LINE_PX = 13; // of a title, and of the names and titles of an axis
  const nameLimit = (width) => width < 520 ? 130 : 300;

  const config = (width) => {
    const [text, faint, line] = ["var(--text)", "var(--muted)", "var(--line)"];
    const font = getComputedStyle(document.body).fontFamily;
    return {
      background: "transparent",
      font,
      view: { stroke: null },
      axis: {
        labelColor: faint, titleColor: faint, titleFontWeight: "normal", gridColor: line, domainColor: line,
        tickColor: line, labelFontSize: 11, titleFontSize: 11, titlePadding: 8, labelSeparation: 5,
        labelLimit: nameLimit(width),
      },
      title: { color: text, fontWeight: "normal", fontSize: 12, limit: Math.max(width, 100) },
    };
  };

  const options = (width) => ({
    ast: true, // interpret expressions, since the page's policy forbids eval
    actions: false,
    renderer: "svg",
    config: config(width),
    defaultStyle: false,
    tooltip: { disableDefaultStyle: true, theme: "page" },
  });

  // A specification with the page's colours for their names: a chart follows the theme, and prints in the light one.
  const coloured = (part) => {
    if (typeof part === "string") return part.startsWith("--") ? `var(${part})` : part;
    if (Array.isArray(part)) return part.map(coloured);
    return part && typeof part === "object"
      ? Object.fromEntries(Object.entries(part).map(([name, value]) => [name, name === "values" ? value : coloured(value)]))
      : part;
  };

  // A title in lines of at most so many letters, which a narrow panel would cut off.
  const lines = (text, most) => text.split(" ").reduce((found, word) => {
    const longer = [...found.slice(-1), word].join(" ");
    return longer.length <= most ? [...found.slice(0, -1), longer] : [...found, word];
  }, []);

  // A name of a row in lines; one with too many is without its middle, since its end tells it from others.
  const name = (text, most, count) => {
    const found = lines(text, most);
    if (found.length <= count && found.every((line) => line.length <= most)) return found.join("\n");
    const end = count > 1 ? most - 1 : Math.floor(most / 2) - 1;
    const start = count > 1 ? found.slice(0, count - 1) : [];
    return count > 1 ? [...start, `…${text.slice(-end)}`].join("\n") : `${text.slice(0, end)}…${text.slice(-end)}`;
  };

  const draw = async (panel) => {
    const plot = panel.querySelector(".plot");
    const spec = JSON.parse(panel.querySelector('script[type="application/json"]').textContent);
    if (spec.title) spec.title.text = lines(spec.title.text, plot.clientWidth / LETTER_PX);
    const names = spec.params.find((one) => one.name === "ytext");
    const isNamed = names.value.some((one) => one.length > 12);
    const room = { x: plot.clientWidth - (isNamed ? nameLimit(plot.clientWidth) : 60), y: spec.height };
    for (const { encoding } of spec.layer) // the same titles in each layer
      for (const axis of ["x", "y"])
        if (encoding?.[axis]?.title)
          encoding[axis].title = encoding[axis].title.flatMap((line) => lines(line, room[axis] / NAME_PX));
    const [most, count] = [nameLimit(plot.clientWidth) / NAME_PX, spec.height / names.value.length / LINE_PX];
    names.value = names.value.map((one) => name(one, Math.floor(most), Math.max(1, Math.floor(count))));
    try {
      await plot.view?.finalize();
      plot.view = await vegaEmbed(plot, coloured(spec), options(plot.clientWidth));
      plot.querySelector("svg").setAttribute("aria-hidden", "true"); // the label and the table describe it
      panel.dataset.drawn = "yes";
      const figure = panel.closest("figure");
      if (!figure.querySelector(".panel:not([data-drawn])")) figure.dataset.drawn = "yes";
    } catch (error) {
      plot.textContent = `This chart cannot be drawn: ${error.message}`;
      panel.closest("figure").querySelector("details").open = true;
      console.error(error);
    }
  };

  const PANELS = "figure.chart .panel";
  const isShown = (panel) => panel.querySelector(".plot").clientWidth > 0; // folded charts are drawn once unfolded

  const prepare = (part) => {
    if (globalThis.vegaEmbed) part.querySelectorAll(PANELS).forEach((one) => isShown(one) && !one.dataset.drawn && draw(one));
    part.querySelectorAll("[data-copy]").forEach((button) => {
      button.hidden = !navigator.clipboard;
    });
  };

  // On a phone the navigation is wider than the screen: scroll to the current page.
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
        // without storage the choice lasts only for this page
      }
      label();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });

  // On a phone, what may be folded is closed: the answer comes before the fields that no one has filled in.
  if (matchMedia("(max-width: 640px)").matches)
    document.querySelectorAll("details[data-folds]").forEach((fold) => (fold.open = false));

  // Back at a page, its filters are those of its address again, not what was chosen before it was left.
  addEventListener("pageshow", () =>
    document.querySelectorAll("form.filters[method=get]:not(:has([hx-get]))").forEach((form) => form.reset()));

  // A slider has a list of values, where null means no limit. The form sends the number field next to it.
  const numberOf = (slider) => document.getElementById(slider.dataset.slides);
  const announce = (slider) => slider.setAttribute("aria-valuetext", numberOf(slider).value || "no limit");
  document.querySelectorAll("input[data-slides]").forEach((slider) => {
    const values = JSON.parse(slider.dataset.values);
    const number = numberOf(slider);
    slider.hidden = false;
    announce(slider);
    slider.addEventListener("input", () => {
      number.value = values[slider.value] ?? "";
      announce(slider);
    });
    number.addEventListener("input", () => {
      const limit = number.value === "" ? null : Number(number.value);
      const isLeast = values[0] === null;
      const fitting = values.filter((value) => value !== null && (isLeast ? value <= limit : value < limit)).length;
      slider.value = limit === null ? values.indexOf(null) : fitting;
      announce(slider);
    });
  });

  // What filters and limits found: dimmed while the server is asked, and said to be older where it does not answer.
  const found = () => document.getElementById("found");
  document.addEventListener("htmx:before:request", () => found()?.setAttribute("aria-busy", "true"));
  const unanswered = ({ detail }) => {
    if (!found()) return;
    found().removeAttribute("aria-busy");
    found().querySelector(".unanswered")?.remove();
    const page = new DOMParser().parseFromString(detail.ctx?.text ?? "", "text/html");
    const why = page.querySelector(".lead")?.textContent ?? "no answer. Is benchhouse dashboard still running?";
    const notice = document.createElement("p");
    notice.className = "notice unanswered";
    notice.role = "alert";
    notice.textContent = `What follows is of the choice before: ${why}`;
    found().prepend(notice);
  };
  document.addEventListener("htmx:after:swap", () => {
    const said = [...(found()?.querySelectorAll("h2, .notice, .bar > span") ?? [])].slice(0, 2);
    if (found()) document.getElementById("said").textContent = said.map((one) => one.textContent).join(". ");
  });
  document.addEventListener("htmx:error", unanswered);
  document.addEventListener("htmx:response:error", unanswered);

  // The page Live refreshes itself unless it is paused or hidden.
  const live = document.getElementById("live");
  const pause = document.getElementById("pause");
  if (live && pause) {
    const silence = document.getElementById("silence");
    const isPaused = () => pause.getAttribute("aria-pressed") === "true";
    pause.hidden = false;
    pause.addEventListener("click", () => {
      pause.setAttribute("aria-pressed", isPaused() ? "false" : "true");
      pause.textContent = isPaused() ? "Resume" : "Pause";
    });
    document.addEventListener("htmx:before:request", (event) => {
      if (event.target === live && (isPaused() || document.hidden)) event.preventDefault();
    });
    const showMessage = (text) => {
      if (silence.textContent !== text) silence.textContent = text;
    };
    const lost = () =>
      showMessage("No connection: this is the last known state. Is benchhouse dashboard still running?");
    document.addEventListener("htmx:error", lost);
    document.addEventListener("htmx:response:error", lost);
    document.addEventListener("htmx:after:swap", () => showMessage(""));
  }

  document.addEventListener("toggle", (event) => event.target.open && prepare(event.target), true);
  const openTarget = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (target && target.tagName === "DETAILS") target.open = true;
  };
  addEventListener("hashchange", openTarget);
  openTarget();
  prepare(document);
  document.addEventListener("htmx:after:swap", () => prepare(document));
})();
