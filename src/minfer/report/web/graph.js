// The drawing of a factor graph.

function graph() {
  const host = $("drawing"),
    now = steps[current].drawing;
  host.replaceChildren();
  const n = drawing.names.length;
  const tall = Math.max(...drawing.places.map((p) => p[1]), 0);
  const width = Math.max(host.clientWidth, 240),
    edge = drawing.named ? 46 : 18;
  const scale = Math.min(width - 2 * edge, 440 / Math.max(tall, 1e-9));
  const height = Math.max(tall * scale, 20) + 2 * 26;
  const left = (width - scale) / 2;
  const at = drawing.places.map(([x, y]) => [left + x * scale, 26 + y * scale]);
  const svg = add(host, "svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": `${plural(n, "variable")}; ${[...now.kept].filter((k) => k === "1").length} of ${drawing.factors.length} drawn factors kept`,
  });
  const style = (f) => {
    if (drawing.factors[f].seed) return { stroke: "var(--ink)", "stroke-width": 2.5 };
    if (now.kept[f] === "1") return { stroke: "var(--kept)", "stroke-width": 3 };
    return { stroke: "var(--ignored)", "stroke-width": 1.2, "stroke-dasharray": "3 4" };
  };
  const told = (f) => {
    const { label, score, seed } = drawing.factors[f];
    return `${label}; ${seed ? "seed" : `${now.kept[f] === "1" ? "kept" : "ignored"}, ${data.score} ${number(score)}`}`;
  };
  const order = [...drawing.lines].sort((a, b) =>
    now.kept[a[2]] > now.kept[b[2]] ? 1 : now.kept[a[2]] < now.kept[b[2]] ? -1 : 0,
  );
  for (const [a, b, f] of order) {
    const line = add(svg, "line", {
      x1: at[a][0],
      y1: at[a][1],
      x2: at[b][0],
      y2: at[b][1],
      ...style(f),
    });
    add(line, "title", {}, told(f));
  }
  drawing.squares.forEach((f, k) => {
    const [x, y] = at[n + k];
    const square = add(svg, "rect", {
      x: x - 6,
      y: y - 6,
      width: 12,
      height: 12,
      fill: now.kept[f] === "1" ? "var(--kept)" : "var(--card)",
      ...style(f),
    });
    add(square, "title", {}, told(f));
  });
  const r = n <= 30 ? 13 : n <= 60 ? 10 : 7;
  for (let v = 0; v < n; v += 1) {
    const [x, y] = at[v],
      p = now.p[v];
    const node = add(svg, "g");
    add(node, "circle", {
      cx: x,
      cy: y,
      r,
      fill: "var(--card)",
      stroke: "var(--ink)",
      "stroke-width": 1.2,
    });
    if (p > 0.999) add(node, "circle", { cx: x, cy: y, r: r - 2, fill: "var(--ink)" });
    else if (p > 0.001) {
      const turn = 2 * Math.PI * p,
        far = r - 2;
      const d = `M${x},${y}V${y - far}A${far},${far} 0 ${p > 0.5 ? 1 : 0} 1 ${x + far * Math.sin(turn)},${y - far * Math.cos(turn)}Z`;
      add(node, "path", { d, fill: "var(--ink)" });
    }
    add(node, "title", {}, `${drawing.names[v]}: p(${now.state[v]}) = ${p}`);
    if (drawing.named)
      add(
        svg,
        "text",
        { x, y: y + r + 13, "text-anchor": "middle", class: "halo" },
        shortened(drawing.names[v]),
      );
  }
  keys(host, [
    { text: "kept factor", stroke: "var(--kept)", width: 3 },
    { text: "ignored", stroke: "var(--ignored)", dash: "3 4", width: 1.5 },
    ...(drawing.factors.some((f) => f.seed) ? [{ text: "seed", stroke: "var(--ink)" }] : []),
  ]);
}

const shortened = (name) => (name.length > 14 ? `${name.slice(0, 13)}…` : name);
