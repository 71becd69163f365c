"use strict";
// Language, theme, sorting, filtering, and the charts. Nothing is fetched; without this script all text and tables stand.
(() => {
  const root = document.documentElement;
  const data = unpacked(document.getElementById("data").textContent); // a promise
  const turns = new Map(); // by chart: the call that draws it
  const remembered = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  // What servebench.report.templates.packed made: JSON, gzip, base64.
  async function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  }
  const remember = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private window */ } };

  // A specification with its data, in the chosen language and colours.
  function specification({ charts, datasets, colours }, key) {
    const spec = structuredClone(charts[key][root.dataset.language]);
    spec.datasets = {};
    (function collect(part) {
      if (part && typeof part === "object") {
        if (part.data && part.data.name && datasets[part.data.name]) spec.datasets[part.data.name] = datasets[part.data.name];
        Object.values(part).forEach(collect);
      }
    })(charts[key][root.dataset.language]);
    let text = JSON.stringify(spec);
    if (root.dataset.theme === "dark") for (const [light, dark] of colours) text = text.replaceAll(light, dark);
    return JSON.parse(text);
  }

  const parts = (spec) => spec.concat || spec.hconcat || spec.vconcat;
  const plots = (spec) => (parts(spec) ? parts(spec).flatMap(plots) : [spec]);
  const across = (spec) => spec.concat ? Math.min(spec.columns || spec.concat.length, spec.concat.length)
    : spec.hconcat ? spec.hconcat.length : spec.vconcat ? Math.max(...spec.vconcat.map(across)) : 1;

  // Another width for a plot, its x domain moved so that the room for text on the right stays as wide as it was.
  function resize(plot, width, room) {
    const share = (w) => Math.max(0.25, (w - room) / w), factor = share(plot.width) / share(width);
    const scales = [];
    (function collect(part) {
      if (!part || typeof part !== "object") return;
      if (part.encoding?.x?.scale?.domain?.length === 2) scales.push(part.encoding.x.scale);
      (part.layer || []).forEach(collect);
    })(plot);
    if (room) for (const scale of new Set(scales)) {
      const [low, high] = scale.domain;
      scale.domain = [low, scale.type === "log" ? low * (high / low) ** factor : low + (high - low) * factor];
    }
    plot.width = width;
  }

  const tip = document.getElementById("tip");
  function tooltip(handler, event, item, value) {
    tip.hidden = value == null || value === "";
    if (tip.hidden) return;
    const entries = typeof value === "object" ? Object.entries(value) : [["", value]];
    tip.replaceChildren(...entries.map(([name, text]) => {
      const line = document.createElement("div");
      line.textContent = name ? `${name}: ${text}` : text;
      return line;
    }));
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 12))}px`;
    tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 12)}px`;
  }

  // The tip of a mark, by touch or keyboard. Vega keeps what a mark stands for in its element's __data__.
  const marks = (chart) => [...chart.querySelectorAll("svg path, svg text")].filter((mark) => mark.__data__?.tooltip);
  function tell(mark, chart) {
    chart.querySelector("[data-told]")?.removeAttribute("data-told");
    mark.dataset.told = "";
    const box = mark.getBoundingClientRect();
    tooltip(null, { clientX: box.right, clientY: box.bottom }, null, mark.__data__.tooltip);
  }
  function hush(chart) {
    chart.querySelector("[data-told]")?.removeAttribute("data-told");
    tip.hidden = true;
  }
  function reach(chart) {
    chart.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return hush(chart);
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const found = [...new Map(marks(chart).map((mark) => [JSON.stringify(mark.__data__.tooltip), mark])).values()]; // each once
      if (!step || !found.length) return;
      event.preventDefault();
      const at = found.findIndex((mark) => "told" in mark.dataset);
      const next = found[at < 0 ? (step > 0 ? 0 : found.length - 1) : (at + step + found.length) % found.length];
      next.scrollIntoView({ block: "nearest", inline: "nearest" });
      tell(next, chart);
    });
    chart.addEventListener("blur", () => hush(chart));
    chart.addEventListener("pointerup", (event) => {
      if (event.pointerType !== "touch") return;
      const far = (mark) => {
        const box = mark.getBoundingClientRect();
        const dx = Math.max(box.left - event.clientX, event.clientX - box.right, 0);
        return Math.hypot(dx, Math.max(box.top - event.clientY, event.clientY - box.bottom, 0));
      };
      const nearest = marks(chart).map((mark) => [far(mark), mark]).sort(([a], [b]) => a - b)[0];
      setTimeout(() => (nearest && nearest[0] < 28 ? tell(nearest[1], chart) : hush(chart)));
    });
  }

  async function show(element, spec) {
    // Into a child: vega-embed changes the role and the label of what it draws into.
    await vegaEmbed(element.firstElementChild, spec, { renderer: "svg", actions: false, defaultStyle: false, tooltip });
    element.querySelector("svg").setAttribute("aria-hidden", "true");
    // Its marks are reached by arrow keys; what scrolls sideways must be reachable, too.
    if (marks(element).length || element.scrollWidth > element.clientWidth) element.tabIndex = 0;
    else element.removeAttribute("tabindex");
  }

  // Draw, measure what labels and legends take, and draw again so that it fits. The last call for a chart wins.
  async function draw(element, room = element.clientWidth) {
    const turn = {};
    turns.set(element, turn);
    const spec = specification(await data, element.dataset.chart);
    if (spec.concat) spec.columns = Math.min(spec.columns || spec.concat.length, room < 620 ? 1 : room < 900 ? 2 : 3);
    await show(element, spec);
    if (turns.get(element) !== turn) return;
    const excess = (element.querySelector("svg").width.baseVal.value - room) / across(spec);
    if (excess > 2 || excess < -12) {
      const least = Math.max(130, (spec.usermeta?.room || 0) + 80);
      for (const plot of plots(spec)) {
        const width = Math.round(Math.max(least, Math.min(plot.width * 1.3, plot.width - excess - 1)));
        resize(plot, width, spec.usermeta?.room || 0);
      }
      await show(element, spec);
    }
    element.dataset.drawn = root.dataset.language;
  }

  const charts = [...document.querySelectorAll("[data-chart]")];
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting && !turns.has(entry.target)) draw(entry.target);
  }, { rootMargin: "900px" });

  function language(code) {
    root.lang = root.dataset.language = code;
    document.title = document.body.dataset[code === "ja" ? "titleJa" : "titleEn"];
    for (const name of ["title", "aria-label"])
      for (const element of document.querySelectorAll(`[data-${name}-${code}]`)) {
        if (element !== document.body) element.setAttribute(name, element.getAttribute(`data-${name}-${code}`));
      }
  }
  const redraw = () => Promise.all([...turns.keys()].map((chart) => draw(chart)));

  root.dataset.theme = remembered("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  language(remembered("language") || (navigator.language.startsWith("ja") ? "ja" : "en"));
  document.getElementById("language").addEventListener("click", () => {
    language(root.dataset.language === "en" ? "ja" : "en");
    remember("language", root.dataset.language);
    redraw();
  });
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    remember("theme", root.dataset.theme);
    redraw();
  });
  document.getElementById("print").addEventListener("click", () => print());
  document.getElementById("print-all")?.addEventListener("click", () => { all = true; print(); });

  // Paper is white and of one width. What is folded stays so, unless all of it is asked for.
  let before = null, all = false;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    root.toggleAttribute("data-all", all);
    if (all) for (const details of document.querySelectorAll("details:not([open])")) { details.open = true; details.dataset.closed = ""; }
    for (const chart of charts) if (chart.checkVisibility()) draw(chart, 680);
  });
  addEventListener("afterprint", () => {
    all = false;
    root.dataset.theme = before;
    root.removeAttribute("data-all");
    for (const details of document.querySelectorAll("details[data-closed]")) { details.open = false; delete details.dataset.closed; }
    redraw();
  });
  let width = innerWidth, waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { if (innerWidth !== width) { width = innerWidth; redraw(); } }, 150);
  });

  // Sorting: numbers by data-sort, words by text, what is missing always last.
  for (const button of document.querySelectorAll(".values thead button"))
    button.addEventListener("click", () => {
      const head = button.closest("th"), table = button.closest("table"), column = Number(button.dataset.column);
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("thead th").forEach((th) => th.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => {
        const cell = row.children[column];
        if ("sort" in cell.dataset) return cell.dataset.sort === "" ? null : Number(cell.dataset.sort);
        return cell.innerText.trim() || null;
      };
      const rows = [...table.tBodies[0].rows].map((row) => [value(row), row]);
      rows.sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null);
        return (up ? 1 : -1) * (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
      });
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });

  document.getElementById("filter")?.addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase().split(/\s+/);
    const rows = [...document.querySelectorAll(".values tbody tr")];
    for (const row of rows) row.hidden = !wanted.every((word) => row.textContent.toLowerCase().includes(word));
    const none = document.getElementById("none");
    if (none) none.hidden = rows.some((row) => !row.hidden);
  });

  // Other limits, tried on the measured levels: up to how many users both hold, with no gap below, and what comes then.
  function choose(limits, given) {
    const sliders = ["ttft", "speed"].map((name) => document.getElementById(`limit-${name}`));
    function limited() {
      const [ttft, speed] = sliders.map((slider) => {
        const value = given[slider.id.slice(6)][slider.valueAsNumber];
        slider.nextElementSibling.textContent = `${value} ${slider.dataset.unit}`;
        slider.setAttribute("aria-valuetext", `${value} ${slider.dataset.unit}`);
        return value;
      });
      const stops = (level) => ["×", "?", "…"].includes(level.sign) ? level.sign : level.ttft > ttft ? `TTFT p95 ${level.ttft.toPrecision(3)} s`
        : level.speed < speed ? `${level.speed.toPrecision(3)} tok/s` : "";
      for (const table of limits.querySelectorAll("table")) given.runs[table.dataset.limits].forEach(({ levels }, n) => {
        const end = levels.findIndex(stops), held = end < 0 ? levels : levels.slice(0, end), [, users, then] = table.tBodies[0].rows[n].cells;
        users.textContent = held.length ? `${held.at(-1).users}${held.some((level) => level.sign) ? " ◌" : ""}` : "–";
        then.textContent = end < 0 ? "–" : `${levels[end].users}: ${stops(levels[end])}`;
      });
    }
    sliders.forEach((slider, n) => {
      const offered = given[slider.id.slice(6)];
      slider.max = offered.length - 1;
      slider.value = offered.indexOf(given.line[n]);
      slider.addEventListener("input", limited);
    });
    limited();
    limits.hidden = false;
  }

  // A link to what is folded opens it.
  const unfold = () => {
    let id = location.hash.slice(1);
    try { id = decodeURIComponent(id); } catch { /* as it stands */ }
    const target = document.getElementById(id);
    if (target?.tagName === "DETAILS") target.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();

  data.then((given) => {
    charts.forEach((chart) => { near.observe(chart); reach(chart); });
    const limits = document.getElementById("limits");
    if (limits) choose(limits, given.limits);
  }, (error) => { // an old browser
    document.getElementById("undrawable").hidden = false;
    for (const chart of charts) chart.hidden = true;
    console.warn(error);
  }).finally(() => { root.dataset.ready = ""; });
})();
