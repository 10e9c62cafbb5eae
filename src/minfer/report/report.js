"use strict";
// Shows the data of this page at one step of the sweep. Text from models becomes text nodes only.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { steps, drawing } = data;
  const last = steps.length - 1;
  const sentence = drawing.kind === "sentence";
  let current = data.start;

  // ---------------------------------------------------------------- small tools

  const $ = (id) => document.getElementById(id);

  function add(parent, name, attributes = {}, text = null) {
    const svg = name === "svg" || parent instanceof SVGElement;
    const node = svg
      ? document.createElementNS("http://www.w3.org/2000/svg", name)
      : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    parent.append(node);
    return node;
  }

  function number(x) {
    if (x === null || x === undefined) return "none";
    if (x === 0) return "0";
    const size = Math.abs(x);
    if (size < 1e-3 || size >= 1e5) return x.toExponential(1);
    return String(Number(x.toPrecision(3)));
  }

  const about = (x) => (x === 0 ? "0" : `about ${number(x)}`);
  const tick = (x) => number(x).replace(".0e", "e").replace("e+", "e");
  const count = (n) => n.toLocaleString("en-GB");
  const percent = (x) => `${x < 0.0995 ? Number((100 * x).toPrecision(2)) : (100 * x).toFixed(x < 1 && x > 0.995 ? 1 : 0)}%`;
  const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

  function duration(s) {
    if (s < 1e-3) return `${number(s * 1e6)} µs`;
    return s < 1 ? `${number(s * 1e3)} ms` : `${number(s)} s`;
  }

  const share = (i) => (data.n_candidates ? steps[i].kept / data.n_candidates : 1);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  function bytes(text) {
    const raw = atob(text);
    return Uint8Array.from(raw, (c) => c.charCodeAt(0));
  }

  function keys(parent, items) {
    const line = add(parent, "p", { class: "keys" });
    for (const { text, stroke, dash = "", width = 2.5, marker = "" } of items) {
      const key = add(line, "span", { class: "key" });
      const svg = add(key, "svg", { width: 26, height: 12, "aria-hidden": "true" });
      const style = { stroke, "stroke-width": width, "stroke-dasharray": dash, fill: "none" };
      add(svg, "line", { x1: 1, y1: 6, x2: 25, y2: 6, ...style });
      if (marker) mark(svg, marker, 13, 6, 3.5, stroke);
      add(key, "span", {}, text);
    }
  }

  // ---------------------------------------------------------------- plots

  function mark(svg, shape, x, y, r, stroke, filled = false) {
    const style = { stroke, fill: filled ? stroke : "var(--card)", "stroke-width": 1.6 };
    if (shape === "square") return add(svg, "rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r, ...style });
    if (shape === "triangle") {
      const d = `M${x},${y - r * 1.2}L${x + r * 1.1},${y + r}L${x - r * 1.1},${y + r}Z`;
      return add(svg, "path", { d, ...style });
    }
    return add(svg, "circle", { cx: x, cy: y, r, ...style });
  }

  function logTicks(low, high) {
    const decades = Math.log10(high / low);
    const every = Math.max(1, Math.ceil(decades / 6));
    const ticks = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e += 1) {
      const factors = decades < 1.2 ? [1, 2, 5] : decades < 2.5 ? [1, 3] : [1];
      if (decades >= 2.5 && (e % every + every) % every) continue;
      for (const f of factors) ticks.push(f * 10 ** e);
    }
    return ticks.filter((t) => t >= low * 0.999 && t <= high * 1.001);
  }

  function linearTicks(low, high) {
    const raw = (high - low) / 5 || 1;
    const unit = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((m) => m * unit >= raw) * unit;
    const ticks = [];
    for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-6; t += step) ticks.push(Number(t.toPrecision(6)));
    return ticks;
  }

  // on a logarithmic axis zeros lie one decade below the least other value, and say so
  function axis(given, from, to) {
    const values = given.values.filter((v) => v !== null && v !== undefined && (!given.log || v > 0));
    const zeros = given.log && given.values.includes(0);
    let low = Math.min(...values), high = Math.max(...values);
    if (!values.length) [low, high] = given.log ? [0.1, 1] : [0, 1];
    if (given.log) {
      const room = high / low < 3 ? 2 : 1.25;
      low /= zeros ? 10 : room;
      high *= room;
    } else if (high === low) high = low + 1;
    const place = given.log
      ? (v) => from + ((to - from) * Math.log(Math.max(v, low) / low)) / Math.log(high / low)
      : (v) => from + ((to - from) * (v - low)) / (high - low);
    const ticks = given.ticks || (given.log ? logTicks(zeros ? low * 5 : low, high) : linearTicks(low, high));
    const text = given.text || tick;
    return { place, ticks: zeros ? [low, ...ticks] : ticks, text: (t) => (zeros && t === low ? "0" : text(t)) };
  }

  // axes {x, y}: {values, log, label, text, ticks}; paint(svg, x, y, box) draws what lies on them
  function plot(host, x, y, label, paint) {
    host.replaceChildren();
    const width = Math.max(host.clientWidth, 240), height = 250;
    const box = { left: 62, right: width - 14, top: 12, bottom: height - 42 };
    const svg = add(host, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
    const across = axis(x, box.left + 8, box.right - 8), up = axis(y, box.bottom - 6, box.top + 6);
    let free = -Infinity;
    for (const t of across.ticks) {
      const at = across.place(t);
      add(svg, "line", { x1: at, x2: at, y1: box.top, y2: box.bottom, class: "grid" });
      const text = across.text(t);
      if (at - 4 * text.length < free) continue;
      add(svg, "text", { x: at, y: box.bottom + 16, "text-anchor": "middle", class: "faint" }, text);
      free = at + 4 * text.length + 4;
    }
    for (const t of up.ticks) {
      const at = up.place(t);
      add(svg, "line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "grid" });
      add(svg, "text", { x: box.left - 6, y: at + 4, "text-anchor": "end", class: "faint" }, up.text(t));
    }
    add(svg, "path", { d: `M${box.left},${box.top}V${box.bottom}H${box.right}`, fill: "none", class: "axis" });
    add(svg, "text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, x.label);
    const middle = (box.top + box.bottom) / 2;
    add(svg, "text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, y.label);
    paint(svg, across.place, up.place, box);
  }

  // a line through points [x, y, title]; those without y are left out
  function series(svg, x, y, points, { stroke, dash = "", marker = "", width = 2, pick = null }) {
    const there = points.map((p, i) => [...p, i]).filter((p) => p[1] !== null && p[1] !== undefined);
    const d = there.map((p, i) => `${i ? "L" : "M"}${x(p[0])},${y(p[1])}`).join("");
    add(svg, "path", { d, fill: "none", stroke, "stroke-width": width, "stroke-dasharray": dash, "stroke-linejoin": "round" });
    for (const [px, py, title, i] of there) {
      const now = pick !== null && i === current;
      if (marker) mark(svg, marker, x(px), y(py), now ? 7 : 4, stroke, now);
      if (!title) continue;
      const hit = add(svg, "circle", { cx: x(px), cy: y(py), r: 10, fill: "transparent" });
      add(hit, "title", {}, title);
      if (pick) { hit.setAttribute("class", "hit"); hit.addEventListener("click", () => pick(i)); }
    }
  }

  const positive = (list) => list.filter((v) => v !== null && v !== undefined);

  function timePlot() {
    const points = steps.map((s, i) => [s.seconds, s.measured_mean,
      `${data.parameter_label} ${s.label}: ${percent(share(i))} kept, ${duration(s.seconds)}, ${number(s.measured_mean)}`]);
    const groups = { "full BP": [], "active-set BP": [] };
    for (const b of data.baselines) {
      groups[b.method].push([b.seconds, b.error, `${b.method}, ${b.setting}: ${duration(b.seconds)}, ${number(b.error)}`]);
    }
    const every = [...points, ...data.baselines.map((b) => [b.seconds, b.error])];
    const now = steps[current];
    plot($("time-plot"),
      { values: every.map((p) => p[0]), log: true, label: "CPU time of the whole call", text: duration },
      { values: positive(every.map((p) => p[1])), log: true, label: "mean difference" },
      `Mean difference from the reference against time. At this setting ${number(now.measured_mean)} after ${duration(now.seconds)}.`,
      (svg, x, y) => {
        series(svg, x, y, groups["full BP"], { stroke: "var(--base)", dash: "6 4", marker: "square" });
        series(svg, x, y, groups["active-set BP"], { stroke: "var(--active)", dash: "2 3", marker: "triangle" });
        series(svg, x, y, points, { stroke: "var(--kept)", marker: "circle", pick: go });
        for (const b of data.baselines) {
          if (!b.setting.endsWith("sweep") && !b.setting.endsWith("sweeps")) continue;
          add(svg, "text", { x: x(b.seconds) + 8, y: y(b.error) - 6, class: "faint halo" }, b.setting.split(" ")[0]);
        }
      });
    keys($("time-plot"), [
      { text: "reduced", stroke: "var(--kept)", marker: "circle" },
      { text: "full BP stopped after so many sweeps", stroke: "var(--base)", dash: "6 4", marker: "square" },
      ...(groups["active-set BP"].length ? [{ text: "active-set BP", stroke: "var(--active)", dash: "2 3", marker: "triangle" }] : []),
    ]);
  }

  function sizePlot() {
    const line = (name) => steps.map((s, i) => [i, s[name], `${percent(share(i))} kept: ${number(s[name])}`]);
    const said = steps.map((s) => (s.exact && s.interval !== null && s.interval < 1 ? s.interval : null));
    const rigorous = steps.map((s, i) => [i, said[i], `${percent(share(i))} kept: at most ${number(s.interval)}`]);
    const estimated = steps.some((s) => s.error_mean !== undefined && s.error_mean !== null);
    const values = steps.flatMap((s, i) => [s.measured_mean, s.error_mean, said[i]]);
    const ticks = [];
    for (let i = 0; i <= last; i += Math.max(1, Math.round(last / 5))) ticks.push(i);
    plot($("size-plot"),
      { values: [0, last], label: `${sentence ? "pairs" : "candidate factors"} kept`, ticks, text: (i) => percent(share(i)) },
      { values: positive(values), log: true, label: "difference or error" },
      `Difference from the reference against size. At this setting ${number(steps[current].measured_mean)} with ${percent(share(current))} kept.`,
      (svg, x, y, box) => {
        add(svg, "line", { x1: x(current), x2: x(current), y1: box.top, y2: box.bottom, stroke: "var(--kept)", "stroke-dasharray": "3 3" });
        if (said.some((v) => v !== null)) series(svg, x, y, rigorous, { stroke: "var(--rigorous)", dash: "1 3", marker: "triangle" });
        if (estimated) series(svg, x, y, line("error_mean"), { stroke: "var(--estimate)", dash: "6 4", marker: "square" });
        series(svg, x, y, line("measured_mean"), { stroke: "var(--measured)", marker: "circle", pick: go });
      });
    keys($("size-plot"), [
      { text: "measured, mean", stroke: "var(--measured)", marker: "circle" },
      ...(estimated ? [{ text: "estimate, mean", stroke: "var(--estimate)", dash: "6 4", marker: "square" }] : []),
      ...(said.some((v) => v !== null) ? [{ text: "rigorous, any probability", stroke: "var(--rigorous)", dash: "1 3", marker: "triangle" }] : []),
    ]);
  }

  function gainsPlot() {
    const { edges, counts } = data.histogram, now = steps[current];
    const marks = now.threshold > 0 ? [now.threshold] : [];
    const reach = [edges[0], edges[edges.length - 1], ...marks.map((t) => Math.max(t, edges[0] / 3))];
    plot($("gains-plot"),
      { values: reach, log: true, label: `${data.score} of a ${sentence ? "pair" : "factor"}` },
      { values: [0.7, ...counts.filter((n) => n > 0)], log: true, label: "how many" },
      `Distribution of scores; ${count(now.kept)} are kept.`,
      (svg, x, y, box) => {
        counts.forEach((n, k) => {
          if (!n) return;
          const left = x(edges[k]), right = x(edges[k + 1]), top = y(n);
          const split = right - ((right - left) * now.histogram[k]) / n;
          const bar = { y: top, height: Math.max(box.bottom - top, 1) };
          add(svg, "rect", { x: left, width: Math.max(split - left - 0.5, 0), ...bar, fill: "var(--ignored)", opacity: 0.55 });
          const kept = add(svg, "rect", { x: split, width: Math.max(right - split - 0.5, 0), ...bar, fill: "var(--kept)" });
          add(kept, "title", {}, `${number(edges[k])} to ${number(edges[k + 1])}: ${count(n)}, ${count(now.histogram[k])} kept`);
        });
        if (!marks.length) return;
        const at = Math.max(x(now.threshold), box.left);
        add(svg, "line", { x1: at, x2: at, y1: box.top, y2: box.bottom, stroke: "var(--ink)", "stroke-width": 1.5 });
        const end = at > (box.left + box.right) / 2;
        add(svg, "text", { x: at + (end ? -6 : 6), y: box.top + 12, "text-anchor": end ? "end" : "start", class: "halo" },
          `threshold ${number(now.threshold)}`);
      });
    keys($("gains-plot"), [
      { text: "kept", stroke: "var(--kept)", width: 8 },
      { text: "ignored", stroke: "var(--ignored)", width: 8 },
    ]);
  }

  function convergencePlot() {
    const now = steps[current], whole = steps[last];
    const lines = [[data.seed_residuals, "var(--ignored)", "1 3"], [whole.residuals, "var(--base)", "6 4"], [now.residuals, "var(--kept)", ""]];
    const every = lines.flatMap(([points]) => points);
    const state = $("convergence-text");
    let text = `${now.status} after ${plural(now.iterations, "iteration")} of its last call.`;
    if (!now.iterations) text = `${now.status}: nothing was left to iterate.`;
    if (now.trace && now.trace.length) {
      text += ` ${plural(now.trace.length, "round")} of scoring; factors added by then: ${now.trace.map((r) => count(r[1])).join(", ")}.`;
    }
    state.textContent = text;
    state.className = now.converged ? "muted" : "warn";
    if (!every.length) {
      $("convergence-plot").replaceChildren();
      add($("convergence-plot"), "p", { class: "muted" }, "This solver leaves no trace.");
      return;
    }
    plot($("convergence-plot"),
      { values: [0, ...every.map((p) => p[0])], label: "iteration" },
      { values: positive(every.map((p) => p[1])), log: true, label: "largest change" },
      `Largest change of any probability in each iteration. ${text}`,
      (svg, x, y) => {
        for (const [points, stroke, dash] of lines) {
          const titled = points.map((p) => [p[0], p[1], `iteration ${p[0]}: ${number(p[1])}`]);
          series(svg, x, y, titled, { stroke, dash, marker: points.length < 3 ? "circle" : "" });
        }
      });
    keys($("convergence-plot"), [
      { text: "this setting", stroke: "var(--kept)" },
      { text: "all factors", stroke: "var(--base)", dash: "6 4" },
      ...(data.seed_residuals.length ? [{ text: "seed", stroke: "var(--ignored)", dash: "1 3" }] : []),
    ]);
  }

  // ---------------------------------------------------------------- numbers

  function cards() {
    const now = steps[current], host = $("cards");
    const full = data.baselines.find((b) => b.setting === "to the end");
    host.replaceChildren();
    const card = (title, tag, big, small, warn = false) => {
      const box = add(host, "div");
      const head = add(box, "dt");
      add(head, "span", {}, title);
      if (tag) add(head, "span", { class: `tag ${tag}` }, tag);
      const body = add(box, "dd");
      add(body, "div", { class: warn ? "big warn" : "big" }, big);
      add(body, "div", { class: "small" }, small);
    };
    if (sentence) {
      card("pairs kept", "", count(now.kept), `of ${count(data.n_candidates)} (${percent(share(current))}) over ${plural(data.n_arcs, "possible arc")}`);
    } else {
      const forced = data.n_forced ? `, ${count(data.n_forced)} forced` : "";
      card("factors kept", "", count(now.kept), `of ${count(data.n_candidates)} candidates (${percent(share(current))}), beside ${count(data.n_seed)} in the seed${forced}`);
    }
    card("time", "measured", duration(now.seconds), full ? `CPU, the whole call; full BP to its end: ${duration(full.seconds)}` : "CPU, the whole call");
    card("difference", "measured", number(now.measured_mean), `on average, ${number(now.measured_max)} at most, from ${data.reference}`);
    if (!sentence) {
      const own = now.exact ? "" : "; the solver's own error is not in it";
      const ignored = now.kept < data.n_candidates;
      if (now.error_mean === null) card("error", "estimate", "not known", "an ignored factor forbids what the reduced model allows", true);
      else card("error", "estimate", ignored ? about(now.error_mean) : "0", ignored ? `on average, ${number(now.error_max)} at the worst variable${own}` : "nothing is ignored");
      bound(card, now, ignored);
    }
    const what = `the sum of the ignored ${sentence ? "pairs'" : "factors'"} scores, as the seed sees them`;
    card("divergence", "estimate", now.divergence === null ? "infinite" : about(now.divergence), what);
    if (sentence && now.right !== null) {
      card("heads right", "measured", `${now.right} of ${data.n_words}`, "against the heads in the file");
    }
    card("status", "", now.status, now.iterations ? `${plural(now.iterations, "iteration")} in its last call` : "nothing to iterate", !now.converged);
  }

  function bound(card, now, ignored) {
    if (!ignored) return card("error bound", "rigorous", "0", now.exact ? "nothing is ignored" : "nothing is ignored; the solver's own error remains");
    if (now.bound === null) return card("error bound", "rigorous", "none", now.no_bound);
    const own = now.exact ? "" : "; the solver's own error comes on top";
    if (now.interval < 1) {
      return card("error bound", "rigorous", `at most ${number(now.interval)}`, `for any probability: the divergence from the full model is at most ${number(now.bound)}${own}`);
    }
    return card("error bound", "rigorous", "says nothing", `the divergence from the full model is at most ${number(now.bound)}, too much to bound probabilities`);
  }

  // ---------------------------------------------------------------- the table

  const rows = [];

  function buildTable() {
    const table = $("rows");
    const titles = sentence ? ["word", "head", "probability", "runner-up"] : ["variable", "state", "probability", "estimated error", "rigorous"];
    if (sentence && drawing.gold) titles.push("in the file");
    const twice = sentence ? [2, 3] : [2]; // a bar and a number, a word and a number
    const head = add(add(table, "thead"), "tr");
    titles.forEach((title, k) => add(head, "th", { scope: "col", colspan: twice.includes(k) ? 2 : 1, class: k >= 3 ? "number" : "" }, title));
    const body = add(table, "tbody");
    for (const row of data.rows) {
      const line = add(body, "tr");
      add(line, "th", { scope: "row" }, row.name);
      const cells = Array.from({ length: titles.length - 1 + twice.length }, (_, k) => add(line, "td", { class: k === 0 ? "" : k === 1 ? "bar" : "number" }));
      rows.push({ line, cells, name: row.name.toLowerCase() });
    }
    $("filter-label").hidden = rows.length <= 12;
    $("filter").addEventListener("input", (event) => {
      const wanted = event.target.value.toLowerCase();
      for (const row of rows) row.line.hidden = !row.name.includes(wanted);
    });
  }

  // a bar from 0 to 1 with what is estimated (thick) and rigorous (thin, with ends)
  function bar(cell, parts, estimate, interval) {
    cell.replaceChildren();
    const svg = add(cell, "svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" });
    add(svg, "rect", { x: 0, y: 4, width: 100, height: 12, fill: "var(--line)" });
    let at = 0;
    parts.forEach((p, k) => {
      add(svg, "rect", { x: 100 * at, y: 4, width: 100 * p, height: 12, fill: "var(--kept)", opacity: k % 2 ? 0.45 : 0.85 });
      at += p;
    });
    if (parts.length !== 1) return;
    const span = (half, y, height, fill) => {
      const low = Math.max(0, at - half), high = Math.min(1, at + half);
      add(svg, "rect", { x: 100 * low, y, width: Math.max(100 * (high - low), 0.4), height, fill });
    };
    if (interval !== null && interval < 1) span(interval, 17, 2, "var(--rigorous)");
    if (estimate) span(estimate, 1, 2.5, "var(--estimate)");
  }

  function table() {
    const now = steps[current];
    rows.forEach(({ line, cells }, r) => {
      const p = now.rows[r];
      if (sentence) return word(line, cells, r, p);
      const many = data.rows[r].states > p.length;
      const top = many ? p[0] : data.rows[r].states === 2 ? 1 : p.indexOf(Math.max(...p));
      const value = many ? p[1] : p[top];
      const interval = now.row_intervals === null ? null : now.row_intervals[r];
      cells[0].textContent = data.rows[r].states === 2 ? "1" : `${top} of ${data.rows[r].states}`;
      bar(cells[1], data.rows[r].states === 2 || many ? [value] : p, now.row_errors[r], interval);
      cells[2].textContent = value.toFixed(4);
      cells[3].textContent = now.row_errors[r] === null ? "not known" : about(now.row_errors[r]);
      cells[4].textContent = interval === null || interval >= 1 ? "none" : `± ${number(interval)}`;
    });
  }

  const called = (node) => (node < 0 ? "" : node === 0 ? "ROOT" : `${node} ${drawing.words[node]}`);

  function word(line, cells, r, [head, p, second, q]) {
    line.classList.toggle("changed", head !== steps[0].rows[r][0]);
    cells[0].textContent = called(head);
    bar(cells[1], [p], null, null);
    cells[2].textContent = p.toFixed(3);
    cells[3].textContent = called(second);
    cells[4].textContent = second < 0 ? "" : q.toFixed(3);
    if (!drawing.gold) return;
    const right = drawing.gold[r] === head;
    cells[5].textContent = right ? "same" : called(drawing.gold[r]);
    cells[5].className = right ? "number" : "number warn";
  }

  // ---------------------------------------------------------------- a graph

  function graph() {
    const host = $("drawing"), now = steps[current].drawing;
    host.replaceChildren();
    const n = drawing.names.length;
    const tall = Math.max(...drawing.places.map((p) => p[1]), 0);
    const width = Math.max(host.clientWidth, 240), edge = drawing.named ? 46 : 18;
    const scale = Math.min(width - 2 * edge, 440 / Math.max(tall, 1e-9));
    const height = Math.max(tall * scale, 20) + 2 * 26;
    const left = (width - scale) / 2;
    const at = drawing.places.map(([x, y]) => [left + x * scale, 26 + y * scale]);
    const svg = add(host, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `${plural(n, "variable")}; ${[...now.kept].filter((k) => k === "1").length} of ${drawing.factors.length} drawn factors kept` });
    const style = (f) => {
      if (drawing.factors[f].seed) return { stroke: "var(--ink)", "stroke-width": 2.5 };
      if (now.kept[f] === "1") return { stroke: "var(--kept)", "stroke-width": 3 };
      return { stroke: "var(--ignored)", "stroke-width": 1.2, "stroke-dasharray": "3 4" };
    };
    const told = (f) => {
      const { label, score, seed } = drawing.factors[f];
      return `${label}; ${seed ? "seed" : `${now.kept[f] === "1" ? "kept" : "ignored"}, ${data.score} ${number(score)}`}`;
    };
    const order = [...drawing.lines].sort((a, b) => (now.kept[a[2]] > now.kept[b[2]] ? 1 : now.kept[a[2]] < now.kept[b[2]] ? -1 : 0));
    for (const [a, b, f] of order) {
      const line = add(svg, "line", { x1: at[a][0], y1: at[a][1], x2: at[b][0], y2: at[b][1], ...style(f) });
      add(line, "title", {}, told(f));
    }
    drawing.squares.forEach((f, k) => {
      const [x, y] = at[n + k];
      const square = add(svg, "rect", { x: x - 6, y: y - 6, width: 12, height: 12, fill: now.kept[f] === "1" ? "var(--kept)" : "var(--card)", ...style(f) });
      add(square, "title", {}, told(f));
    });
    const r = n <= 30 ? 13 : n <= 60 ? 10 : 7;
    for (let v = 0; v < n; v += 1) {
      const [x, y] = at[v], p = now.p[v];
      const node = add(svg, "g");
      add(node, "circle", { cx: x, cy: y, r, fill: "var(--card)", stroke: "var(--ink)", "stroke-width": 1.2 });
      if (p > 0.999) add(node, "circle", { cx: x, cy: y, r: r - 2, fill: "var(--ink)" });
      else if (p > 0.001) {
        const turn = 2 * Math.PI * p, far = r - 2;
        const d = `M${x},${y}V${y - far}A${far},${far} 0 ${p > 0.5 ? 1 : 0} 1 ${x + far * Math.sin(turn)},${y - far * Math.cos(turn)}Z`;
        add(node, "path", { d, fill: "var(--ink)" });
      }
      add(node, "title", {}, `${drawing.names[v]}: p(${now.state[v]}) = ${p}`);
      if (drawing.named) add(svg, "text", { x, y: y + r + 13, "text-anchor": "middle", class: "halo" }, shortened(drawing.names[v]));
    }
    keys(host, [
      { text: "kept factor", stroke: "var(--kept)", width: 3 },
      { text: "ignored", stroke: "var(--ignored)", dash: "3 4", width: 1.5 },
      ...(drawing.factors.some((f) => f.seed) ? [{ text: "seed", stroke: "var(--ink)" }] : []),
    ]);
  }

  const shortened = (name) => (name.length > 14 ? `${name.slice(0, 13)}…` : name);

  // ---------------------------------------------------------------- a picture

  let panels = null, cursor = null; // the cursor is a pixel, or the first one of a block

  function buildPicture() {
    const { part } = drawing, large = steps[0].drawing.share !== null;
    const host = add($("drawing"), "div", { class: "pictures" });
    const size = Math.max(4, Math.floor(768 / Math.max(part.width, part.height)));
    const where = large ? ` (a part, from row ${part.top}, column ${part.left})` : "";
    const whole = { top: 0, left: 0, width: drawing.width, height: drawing.height, block: drawing.block, size: 1 };
    panels = [
      { ...part, block: 1, size, title: `What was seen, faint, and the kept pairs of neighbours${where}`, paint: paintPairs },
      { ...whole, title: drawing.classes ? "Answer: the likeliest class" : "Answer: probability of white", paint: paintAnswer },
      { ...whole, title: "Estimated error", paint: paintErrors },
      ...(large ? [{ ...whole, title: "Share of the pairs of neighbours kept", paint: paintShare }] : []),
    ];
    for (const panel of panels) {
      const figure = add(host, "figure");
      panel.canvas = add(figure, "canvas", { width: panel.width * panel.size, height: panel.height * panel.size,
        tabindex: 0, role: "img", "aria-label": panel.title, "aria-describedby": "readout" });
      panel.caption = add(figure, "figcaption", {}, panel.title);
      panel.canvas.addEventListener("pointermove", (event) => {
        const box = panel.canvas.getBoundingClientRect();
        const row = Math.floor(((event.clientY - box.top) / box.height) * panel.height);
        const column = Math.floor(((event.clientX - box.left) / box.width) * panel.width);
        look(panel, row, column);
      });
      panel.canvas.addEventListener("keydown", (event) => {
        const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
        if (!move) return;
        event.preventDefault();
        const [row, column] = cursor ? inside(panel, cursor) : [panel.height >> 1, panel.width >> 1];
        look(panel, row + move[0], column + move[1]);
      });
    }
    add($("drawing"), "p", { id: "readout", class: "muted", "aria-live": "polite" });
  }

  const inside = (panel, [row, column]) => [Math.floor((row - panel.top) / panel.block), Math.floor((column - panel.left) / panel.block)];

  function look(panel, row, column) {
    row = Math.min(Math.max(row, 0), panel.height - 1);
    column = Math.min(Math.max(column, 0), panel.width - 1);
    cursor = [panel.top + row * panel.block, panel.left + column * panel.block];
    picture();
  }

  function readout() {
    const text = $("readout");
    if (!cursor) {
      text.textContent = "Point at a pixel, or go there with the arrow keys, to read its numbers.";
      return;
    }
    const now = steps[current].drawing, { block, classes } = drawing;
    const [row, column] = cursor.map((at) => Math.floor(at / block));
    const k = row * drawing.width + column;
    const answer = bytes(now.answer)[k] / 255, error = (bytes(now.errors)[k] / 255) * now.error_top;
    const where = block > 1 ? `${block}x${block} pixels from row ${row * block}, column ${column * block}` : `row ${row}, column ${column}`;
    const what = classes
      ? `class mean ${number(Math.min(...classes) + answer * (Math.max(...classes) - Math.min(...classes)))}`
      : `probability of white ${answer.toFixed(2)}`;
    text.textContent = `${where}: ${what}, estimated error ${about(error)}`;
  }

  const rgb = (name) => colour(name).match(/\w\w/g).map((h) => parseInt(h, 16));
  const mix = (a, b, t) => a.map((x, k) => x + (b[k] - x) * t);

  function paint({ canvas, width, height }, pixel) {
    const image = new ImageData(width, height);
    for (let k = 0; k < width * height; k += 1) image.data.set([...pixel(k), 255], 4 * k);
    const small = new OffscreenCanvas(width, height);
    small.getContext("2d").putImageData(image, 0, 0);
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, canvas.width, canvas.height);
    return context;
  }

  // what was seen lies faintly under what is drawn on it
  function faint(text) {
    const seen = bytes(text), card = rgb("card");
    return (k) => mix(card, [seen[k], seen[k], seen[k]], 0.35);
  }

  // kept pairs as lines between the middles of pixels: those in rows first, then those in columns
  function paintPairs(panel, now) {
    const context = paint(panel, faint(panel.seen)), bits = bytes(now.kept), { width, height, size } = panel;
    context.strokeStyle = colour("kept");
    context.lineWidth = Math.max(1.5, size / 3.5);
    context.lineCap = "round";
    context.beginPath();
    const across = height * (width - 1);
    for (let k = 0; k < across + (height - 1) * width; k += 1) {
      if (!((bits[k >> 3] >> (7 - (k & 7))) & 1)) continue;
      const down = k >= across;
      const row = down ? Math.floor((k - across) / width) : Math.floor(k / (width - 1));
      const column = down ? (k - across) % width : k % (width - 1);
      context.moveTo((column + 0.5) * size, (row + 0.5) * size);
      context.lineTo((column + (down ? 0.5 : 1.5)) * size, (row + (down ? 1.5 : 0.5)) * size);
    }
    context.stroke();
  }

  function paintAnswer(panel, now) {
    const p = bytes(now.answer);
    paint(panel, (k) => [p[k], p[k], p[k]]);
  }

  function paintErrors(panel, now) {
    const off = bytes(now.errors), card = rgb("card"), strong = rgb("estimate");
    const top = Math.max(...steps.map((s) => s.drawing.error_top), 1e-12);
    paint(panel, (k) => mix(card, strong, Math.sqrt((off[k] / 255) * (now.error_top / top))));
    panel.caption.textContent = `Estimated error: at most ${about(now.error_top)} here; full colour is ${number(top)}`;
  }

  function paintShare(panel, now) {
    const kept = bytes(now.share), under = faint(drawing.seen), strong = rgb("kept");
    paint(panel, (k) => mix(under(k), strong, kept[k] / 255));
  }

  function picture() {
    if (!panels) buildPicture();
    for (const panel of panels) {
      panel.paint(panel, steps[current].drawing);
      if (!cursor) continue;
      const [row, column] = inside(panel, cursor), pen = panel.canvas.getContext("2d");
      pen.strokeStyle = colour("base");
      pen.lineWidth = Math.max(1, panel.size / 4);
      pen.strokeRect(column * panel.size + 0.5, row * panel.size + 0.5, panel.size, panel.size);
    }
    readout();
  }

  // ---------------------------------------------------------------- a sentence

  function arcs() {
    const host = $("drawing"), now = steps[current].drawing, first = steps[0].drawing.heads;
    host.replaceChildren();
    const measure = new OffscreenCanvas(1, 1).getContext("2d");
    measure.font = "14px system-ui, sans-serif";
    const wide = drawing.words.map((w) => Math.max(measure.measureText(w).width, 26));
    const gap = Math.max(18, (host.clientWidth - wide.reduce((a, b) => a + b, 0) - 20) / drawing.words.length);
    const x = [];
    let width = 10;
    for (const w of wide) { x.push(width + w / 2); width += w + gap; }
    const rise = (span) => 18 + 24 * Math.sqrt(Math.abs(span));
    const shown = drawing.arcs.map(([h, m], k) => ({ h, m, k, p: now.p[k], tree: now.heads[m - 1] === h }))
      .filter((a) => a.tree || a.p >= 0.05).sort((a, b) => a.tree - b.tree);
    const top = Math.max(...drawing.arcs.map(([h, m]) => rise(h - m)));
    const base = top + 24, height = base + 46;
    const box = add(host, "div", { class: "wide", tabindex: 0, role: "region", "aria-label": "arcs over the sentence" });
    const changed = now.heads.filter((h, k) => h !== first[k]).length;
    const svg = add(box, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `The decoded tree; ${changed} heads differ from the tree without pairs` });
    const tip = {}, inTree = {};
    for (const a of shown) {
      const start = x[a.h] + (a.m > a.h ? 5 : -5), end = x[a.m] + (a.m > a.h ? -5 : 5);
      const y = base - rise(a.h - a.m) * 1.25;
      const moved = a.tree && first[a.m - 1] !== a.h;
      const stroke = !a.tree ? "var(--ignored)" : moved ? "var(--base)" : "var(--kept)";
      const line = add(svg, "path", { d: `M${start},${base}C${start},${y} ${end},${y} ${end},${base - 5}`, fill: "none", stroke,
        "stroke-width": a.tree ? 1.2 + 2.2 * a.p : 1.3, "stroke-dasharray": a.tree ? (moved ? "7 3" : "") : "3 4", opacity: a.tree ? 1 : 0.35 + 0.65 * a.p });
      add(line, "title", {}, `${called(a.h)} → ${called(a.m)}: ${a.p}`);
      add(svg, "path", { d: `M${end - 4},${base - 8}L${end + 4},${base - 8}L${end},${base}Z`, fill: stroke, opacity: a.tree ? 1 : 0.5 });
      inTree[a.k] = a.tree;
      tip[a.k] = [(start + end) / 2, base - rise(a.h - a.m) * 0.94];
    }
    for (const [k, pair] of drawing.pairs.entries()) {
      const ends = pair.arcs.map((a) => tip[a]);
      if (now.kept[k] !== "1" || !pair.arcs.every((a) => inTree[a])) continue;
      const link = add(svg, "line", { x1: ends[0][0], y1: ends[0][1], x2: ends[1][0], y2: ends[1][1], stroke: "var(--measured)", "stroke-width": 1.4, opacity: 0.75 });
      add(link, "title", {}, `${pair.kind} ${pair.label}: weight ${pair.theta}, gain ${pair.gain}`);
      for (const [cx, cy] of ends) add(svg, "circle", { cx, cy, r: 2.5, fill: "var(--measured)" });
    }
    for (const a of shown) {
      if (!a.tree) continue;
      add(svg, "text", { x: tip[a.k][0], y: tip[a.k][1] - 4, "text-anchor": "middle", class: "halo" }, a.p > 0.995 ? "1" : a.p.toFixed(2));
    }
    drawing.words.forEach((w, k) => {
      add(svg, "text", { x: x[k], y: base + 18, "text-anchor": "middle", class: "word" }, w);
      if (k) add(svg, "text", { x: x[k], y: base + 34, "text-anchor": "middle", class: "faint" }, k);
    });
    keys(host, [
      { text: "arc of the tree", stroke: "var(--kept)" },
      { text: "arc that the tree without pairs does not have", stroke: "var(--base)", dash: "7 3" },
      { text: "other arc", stroke: "var(--ignored)", dash: "3 4", width: 1.5 },
      { text: "kept pair of the tree's arcs", stroke: "var(--measured)", width: 1.5 },
    ]);
    pairList(host, now);
  }

  function pairList(host, now) {
    if (!drawing.pairs.length) return;
    const details = add(host, "details");
    details.open = pairList.open || false;
    details.addEventListener("toggle", () => { pairList.open = details.open; });
    add(details, "summary", {}, `Pairs with the largest gains (${drawing.pairs.length})`);
    const inside = add(details, "div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "pairs" });
    const list = add(inside, "table");
    const head = add(add(list, "thead"), "tr");
    for (const title of ["pair", "kind", "weight", "gain", "now"]) add(head, "th", { scope: "col" }, title);
    const body = add(list, "tbody");
    drawing.pairs.forEach((pair, k) => {
      const kept = now.kept[k] === "1";
      const line = add(body, "tr", { class: kept ? "" : "dropped" });
      add(line, "th", { scope: "row" }, pair.label);
      for (const text of [pair.kind, number(pair.theta), number(pair.gain), kept ? "kept" : "ignored"]) add(line, "td", {}, text);
    });
  }

  // ---------------------------------------------------------------- all of it

  function words() {
    $("about").textContent = data.about;
    $("method").textContent = [data.method, data.solver].filter(Boolean).join("; ");
    $("parameter").textContent = data.parameter_label;
    $("command").textContent = data.command;
    $("version").textContent = `Made by minfer ${data.minfer}. This file holds all it shows and asks the network for nothing.`;
    $("verdict").textContent = `At equal time: ${data.verdict}.`;
    $("time-text").textContent = `Lower and further left is better. Differences are measured, from ${data.reference}.`;
    const titles = {
      graph: ["Kept factors", "Circles are variables; the dark part of each is a probability: of state 1, or of the likeliest of many."],
      picture: ["Kept pairs and the answer", "Pairs of neighbours are kept where they can change the answer."],
      sentence: ["The tree", "Width and number of an arc tell its probability. All kept pairs count; those of two arcs of the tree are drawn."],
    };
    [$("drawing-title").textContent, $("drawing-text").textContent] = titles[drawing.kind];
    $("rows-title").textContent = sentence ? "Heads" : "Marginals";
    $("rows-text").textContent = sentence
      ? "Rows in colour: the head differs from that of the tree without pairs."
      : `On each bar the estimated error lies above${steps.some((s) => s.exact) ? ", a rigorous interval below where one says something" : "; this solver is not exact, so there is no rigorous interval for its numbers"}.`;
    $("size-text").textContent = sentence
      ? "Measured differences of arc probabilities."
      : "What was measured beside what was estimated, and what is rigorous where that says something.";
    $("gains-title").textContent = sentence ? "Gains of all pairs" : "Scores of the candidate factors";
    const zeros = data.histogram.zeros;
    $("gains-text").textContent = `As the seed sees them, on a logarithmic scale${zeros ? `; ${count(zeros)} more are 0` : ""}.`;
    const legend = sentence
      ? [["measured", `differences from ${data.reference}, and times`],
         ["estimate", "the divergence: a sum of gains, no bound"]]
      : [["rigorous", "holds whatever the model: no probability of the reduced model is further from the full one's. It is about that model itself; a solver that is not exact adds its own error"],
         ["estimate", "how far the ignored factors would still move the answer, and the sum of their scores. Not a bound"],
         ["measured", `differences from ${data.reference}, and times on the machine that made this report`]];
    for (const [tag, text] of legend) {
      const item = add($("legend"), "li");
      add(item, "span", { class: `tag ${tag}` }, tag);
      item.append(` ${text}.`);
    }
    for (const text of data.notes) add($("notes"), "li", {}, text);
    add($("notes"), "li", {}, `The slider has ${steps.length} settings, computed beforehand; it starts at the one that was asked for, ${data.parameter_label} ${steps[data.start].label}.`);
  }

  const draw = { graph, picture, sentence: arcs }[drawing.kind];

  function show() {
    const now = steps[current];
    const kept = `${count(now.kept)} of ${count(data.n_candidates)} kept (${percent(share(current))})`;
    $("slider").value = current;
    $("slider").setAttribute("aria-valuetext", `${data.parameter_label} ${now.label}: ${kept}`);
    $("value").textContent = now.label;
    $("kept").textContent = kept;
    const option = { factor_cost: "--factor-cost", max_divergence: "--max-divergence", max_factors: "--max-factors" }[data.parameter];
    $("setting").textContent = `At this setting of the slider: ${option} ${now.label}, in Python ${data.parameter}=${now.label}.`;
    cards();
    draw();
    table();
    timePlot();
    sizePlot();
    gainsPlot();
    convergencePlot();
  }

  function go(step) {
    current = step;
    show();
  }

  words();
  buildTable();
  const slider = $("slider");
  slider.max = last;
  add($("own"), "option", { value: data.start });
  slider.addEventListener("input", () => go(Number(slider.value)));
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) { width = window.innerWidth; show(); }
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
})();
