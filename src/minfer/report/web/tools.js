// What everything in a report uses: the current step, numbers and colours.

const { steps, drawing } = data;
const last = steps.length - 1;
const sentence = drawing.kind === "sentence";
let current = data.start;

function number(x) {
  if (x === null || x === undefined) return "none";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size < 1e-3 || size >= 1e5) return x.toExponential(1);
  return String(Number(x.toPrecision(3)));
}

const about = (x) => (x === 0 ? "0" : `about ${number(x)}`);
const tick = (x) => number(x).replace(".0e", "e").replace("e+", "e");
const percent = (x) =>
  `${x < 0.0995 ? Number((100 * x).toPrecision(2)) : (100 * x).toFixed(x < 1 && x > 0.995 ? 1 : 0)}%`;

function duration(s) {
  if (s < 1e-3) return `${number(s * 1e6)} µs`;
  return s < 1 ? `${number(s * 1e3)} ms` : `${number(s)} s`;
}

const share = (i) => (data.n_candidates ? steps[i].kept / data.n_candidates : 1);
const colour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

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
