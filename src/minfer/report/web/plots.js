// Plots on linear or logarithmic axes, and the four that a report has.

function mark(svg, shape, x, y, r, stroke, filled = false) {
  const style = { stroke, fill: filled ? stroke : "var(--card)", "stroke-width": 1.6 };
  if (shape === "square")
    return add(svg, "rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r, ...style });
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
    if (decades >= 2.5 && ((e % every) + every) % every) continue;
    for (const f of factors) ticks.push(f * 10 ** e);
  }
  return ticks.filter((t) => t >= low * 0.999 && t <= high * 1.001);
}

function linearTicks(low, high) {
  const raw = (high - low) / 5 || 1;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((m) => m * unit >= raw) * unit;
  const ticks = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-6; t += step)
    ticks.push(Number(t.toPrecision(6)));
  return ticks;
}

// on a logarithmic axis zeros lie one decade below the least other value, and say so
function axis(given, from, to) {
  const values = given.values.filter((v) => v !== null && v !== undefined && (!given.log || v > 0));
  const zeros = given.log && given.values.includes(0);
  let low = Math.min(...values),
    high = Math.max(...values);
  if (!values.length) [low, high] = given.log ? [0.1, 1] : [0, 1];
  if (given.log) {
    const room = high / low < 3 ? 2 : 1.25;
    low /= zeros ? 10 : room;
    high *= room;
  } else if (high === low) high = low + 1;
  const place = given.log
    ? (v) => from + ((to - from) * Math.log(Math.max(v, low) / low)) / Math.log(high / low)
    : (v) => from + ((to - from) * (v - low)) / (high - low);
  const ticks =
    given.ticks || (given.log ? logTicks(zeros ? low * 5 : low, high) : linearTicks(low, high));
  const text = given.text || tick;
  return {
    place,
    ticks: zeros ? [low, ...ticks] : ticks,
    text: (t) => (zeros && t === low ? "0" : text(t)),
  };
}

// axes {x, y}: {values, log, label, text, ticks}; paint(svg, x, y, box) draws what lies on them
function plot(host, x, y, label, paint) {
  host.replaceChildren();
  const width = Math.max(host.clientWidth, 240),
    height = 250;
  const box = { left: 62, right: width - 14, top: 12, bottom: height - 42 };
  const svg = add(host, "svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": label,
  });
  const across = axis(x, box.left + 8, box.right - 8),
    up = axis(y, box.bottom - 6, box.top + 6);
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
    add(
      svg,
      "text",
      { x: box.left - 6, y: at + 4, "text-anchor": "end", class: "faint" },
      up.text(t),
    );
  }
  add(svg, "path", {
    d: `M${box.left},${box.top}V${box.bottom}H${box.right}`,
    fill: "none",
    class: "axis",
  });
  add(
    svg,
    "text",
    { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" },
    x.label,
  );
  const middle = (box.top + box.bottom) / 2;
  add(
    svg,
    "text",
    { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` },
    y.label,
  );
  paint(svg, across.place, up.place, box);
}

// a line through points [x, y, title]; those without y are left out
function series(svg, x, y, points, { stroke, dash = "", marker = "", width = 2, pick = null }) {
  const there = points.map((p, i) => [...p, i]).filter((p) => p[1] !== null && p[1] !== undefined);
  const d = there.map((p, i) => `${i ? "L" : "M"}${x(p[0])},${y(p[1])}`).join("");
  add(svg, "path", {
    d,
    fill: "none",
    stroke,
    "stroke-width": width,
    "stroke-dasharray": dash,
    "stroke-linejoin": "round",
  });
  for (const [px, py, title, i] of there) {
    const now = pick !== null && i === current;
    if (marker) mark(svg, marker, x(px), y(py), now ? 7 : 4, stroke, now);
    if (!title) continue;
    const hit = add(svg, "circle", { cx: x(px), cy: y(py), r: 10, fill: "transparent" });
    add(hit, "title", {}, title);
    if (pick) {
      hit.setAttribute("class", "hit");
      hit.addEventListener("click", () => pick(i));
    }
  }
}

const positive = (list) => list.filter((v) => v !== null && v !== undefined);

function timePlot() {
  const points = steps.map((s, i) => [
    s.seconds,
    s.measured_mean,
    `${data.parameter_label} ${s.label}: ${percent(share(i))} kept, ${duration(s.seconds)}, ${number(s.measured_mean)}`,
  ]);
  const groups = { "full BP": [], "active-set BP": [] };
  for (const b of data.baselines) {
    groups[b.method].push([
      b.seconds,
      b.error,
      `${b.method}, ${b.setting}: ${duration(b.seconds)}, ${number(b.error)}`,
    ]);
  }
  const every = [...points, ...data.baselines.map((b) => [b.seconds, b.error])];
  const now = steps[current];
  plot(
    $("time-plot"),
    {
      values: every.map((p) => p[0]),
      log: true,
      label: "CPU time of the whole call",
      text: duration,
    },
    { values: positive(every.map((p) => p[1])), log: true, label: "mean difference" },
    `Mean difference from the reference against time. At this setting ${number(now.measured_mean)} after ${duration(now.seconds)}.`,
    (svg, x, y) => {
      series(svg, x, y, groups["full BP"], {
        stroke: "var(--base)",
        dash: "6 4",
        marker: "square",
      });
      series(svg, x, y, groups["active-set BP"], {
        stroke: "var(--active)",
        dash: "2 3",
        marker: "triangle",
      });
      series(svg, x, y, points, { stroke: "var(--kept)", marker: "circle", pick: go });
      for (const b of data.baselines) {
        if (!b.setting.endsWith("sweep") && !b.setting.endsWith("sweeps")) continue;
        add(
          svg,
          "text",
          { x: x(b.seconds) + 8, y: y(b.error) - 6, class: "faint halo" },
          b.setting.split(" ")[0],
        );
      }
    },
  );
  keys($("time-plot"), [
    { text: "reduced", stroke: "var(--kept)", marker: "circle" },
    {
      text: "full BP stopped after so many sweeps",
      stroke: "var(--base)",
      dash: "6 4",
      marker: "square",
    },
    ...(groups["active-set BP"].length
      ? [{ text: "active-set BP", stroke: "var(--active)", dash: "2 3", marker: "triangle" }]
      : []),
  ]);
}

function sizePlot() {
  const line = (name) =>
    steps.map((s, i) => [i, s[name], `${percent(share(i))} kept: ${number(s[name])}`]);
  const said = steps.map((s) => (s.interval && s.interval < 1 ? s.interval : null));
  const rigorous = steps.map((s, i) => [
    i,
    said[i],
    `${percent(share(i))} kept: at most ${number(s.interval)}`,
  ]);
  const estimated = steps.some((s) => s.error_mean !== undefined && s.error_mean !== null);
  const values = steps.flatMap((s, i) => [s.measured_mean, s.error_mean, said[i]]);
  const ticks = [];
  for (let i = 0; i <= last; i += Math.max(1, Math.round(last / 5))) ticks.push(i);
  plot(
    $("size-plot"),
    {
      values: [0, last],
      label: `${sentence ? "pairs" : "candidate factors"} kept`,
      ticks,
      text: (i) => percent(share(i)),
    },
    { values: positive(values), log: true, label: "difference or error" },
    `Difference from the reference against size. At this setting ${number(steps[current].measured_mean)} with ${percent(share(current))} kept.`,
    (svg, x, y, box) => {
      add(svg, "line", {
        x1: x(current),
        x2: x(current),
        y1: box.top,
        y2: box.bottom,
        stroke: "var(--kept)",
        "stroke-dasharray": "3 3",
      });
      if (said.some((v) => v !== null))
        series(svg, x, y, rigorous, {
          stroke: "var(--rigorous)",
          dash: "1 3",
          marker: "triangle",
        });
      if (estimated)
        series(svg, x, y, line("error_mean"), {
          stroke: "var(--estimate)",
          dash: "6 4",
          marker: "square",
        });
      series(svg, x, y, line("measured_mean"), {
        stroke: "var(--measured)",
        marker: "circle",
        pick: go,
      });
    },
  );
  keys($("size-plot"), [
    { text: "measured, mean", stroke: "var(--measured)", marker: "circle" },
    ...(estimated
      ? [{ text: "estimate, mean", stroke: "var(--estimate)", dash: "6 4", marker: "square" }]
      : []),
    ...(said.some((v) => v !== null)
      ? [
          {
            text: "rigorous, any probability",
            stroke: "var(--rigorous)",
            dash: "1 3",
            marker: "triangle",
          },
        ]
      : []),
  ]);
}

function gainsPlot() {
  const { edges, counts } = data.histogram,
    now = steps[current];
  const marks = now.threshold > 0 ? [now.threshold] : [];
  const reach = [edges[0], edges[edges.length - 1], ...marks.map((t) => Math.max(t, edges[0] / 3))];
  plot(
    $("gains-plot"),
    { values: reach, log: true, label: `${data.score} of a ${sentence ? "pair" : "factor"}` },
    { values: [0.7, ...counts.filter((n) => n > 0)], log: true, label: "how many" },
    `Distribution of scores; ${count(now.kept)} are kept.`,
    (svg, x, y, box) => {
      counts.forEach((n, k) => {
        if (!n) return;
        const left = x(edges[k]),
          right = x(edges[k + 1]),
          top = y(n);
        const split = right - ((right - left) * now.histogram[k]) / n;
        const bar = { y: top, height: Math.max(box.bottom - top, 1) };
        add(svg, "rect", {
          x: left,
          width: Math.max(split - left - 0.5, 0),
          ...bar,
          fill: "var(--ignored)",
          opacity: 0.55,
        });
        const kept = add(svg, "rect", {
          x: split,
          width: Math.max(right - split - 0.5, 0),
          ...bar,
          fill: "var(--kept)",
        });
        add(
          kept,
          "title",
          {},
          `${number(edges[k])} to ${number(edges[k + 1])}: ${count(n)}, ${count(now.histogram[k])} kept`,
        );
      });
      if (!marks.length) return;
      const at = Math.max(x(now.threshold), box.left);
      add(svg, "line", {
        x1: at,
        x2: at,
        y1: box.top,
        y2: box.bottom,
        stroke: "var(--ink)",
        "stroke-width": 1.5,
      });
      const end = at > (box.left + box.right) / 2;
      add(
        svg,
        "text",
        {
          x: at + (end ? -6 : 6),
          y: box.top + 12,
          "text-anchor": end ? "end" : "start",
          class: "halo",
        },
        `threshold ${number(now.threshold)}`,
      );
    },
  );
  keys($("gains-plot"), [
    { text: "kept", stroke: "var(--kept)", width: 8 },
    { text: "ignored", stroke: "var(--ignored)", width: 8 },
  ]);
}

function convergencePlot() {
  const now = steps[current],
    whole = steps[last];
  const lines = [
    [data.seed_residuals, "var(--ignored)", "1 3"],
    [whole.residuals, "var(--base)", "6 4"],
    [now.residuals, "var(--kept)", ""],
  ];
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
  plot(
    $("convergence-plot"),
    { values: [0, ...every.map((p) => p[0])], label: "iteration" },
    { values: positive(every.map((p) => p[1])), log: true, label: "largest change" },
    `Largest change of any probability in each iteration. ${text}`,
    (svg, x, y) => {
      for (const [points, stroke, dash] of lines) {
        const titled = points.map((p) => [p[0], p[1], `iteration ${p[0]}: ${number(p[1])}`]);
        series(svg, x, y, titled, { stroke, dash, marker: points.length < 3 ? "circle" : "" });
      }
    },
  );
  keys($("convergence-plot"), [
    { text: "this setting", stroke: "var(--kept)" },
    { text: "all factors", stroke: "var(--base)", dash: "6 4" },
    ...(data.seed_residuals.length
      ? [{ text: "seed", stroke: "var(--ignored)", dash: "1 3" }]
      : []),
  ]);
}
