// Arcs over a sentence, and the list of its pairs of arcs.

function arcs() {
  const host = $("drawing"),
    now = steps[current].drawing,
    first = steps[0].drawing.heads;
  host.replaceChildren();
  const measure = new OffscreenCanvas(1, 1).getContext("2d");
  measure.font = "14px system-ui, sans-serif";
  const wide = drawing.words.map((w) => Math.max(measure.measureText(w).width, 26));
  const gap = Math.max(
    18,
    (host.clientWidth - wide.reduce((a, b) => a + b, 0) - 20) / drawing.words.length,
  );
  const x = [];
  let width = 10;
  for (const w of wide) {
    x.push(width + w / 2);
    width += w + gap;
  }
  const rise = (span) => 18 + 30 * Math.sqrt(Math.abs(span));
  const shown = drawing.arcs
    .map(([h, m], k) => ({ h, m, k, p: now.p[k], tree: now.heads[m - 1] === h }))
    .filter((a) => a.tree || a.p >= 0.05)
    .sort((a, b) => a.tree - b.tree);
  const top = Math.max(...drawing.arcs.map(([h, m]) => rise(h - m)));
  const base = top + 24,
    height = base + 46;
  const box = add(host, "div", {
    class: "wide",
    tabindex: 0,
    role: "region",
    "aria-label": "arcs over the sentence",
  });
  const changed = now.heads.filter((h, k) => h !== first[k]).length;
  const svg = add(box, "svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": `The decoded tree; ${changed} heads differ from the tree without pairs`,
  });
  const tip = {},
    inTree = {};
  for (const a of shown) {
    const start = x[a.h] + (a.m > a.h ? 5 : -5),
      end = x[a.m] + (a.m > a.h ? -5 : 5);
    const y = base - rise(a.h - a.m) * 1.25;
    const moved = a.tree && first[a.m - 1] !== a.h;
    const stroke = !a.tree ? "var(--ignored)" : moved ? "var(--base)" : "var(--kept)";
    const line = add(svg, "path", {
      d: `M${start},${base}C${start},${y} ${end},${y} ${end},${base - 5}`,
      fill: "none",
      stroke,
      "stroke-width": a.tree ? 1.2 + 2.2 * a.p : 1.3,
      "stroke-dasharray": a.tree ? (moved ? "7 3" : "") : "3 4",
      opacity: a.tree ? 1 : 0.35 + 0.65 * a.p,
    });
    add(line, "title", {}, `${called(a.h)} → ${called(a.m)}: ${a.p}`);
    add(svg, "path", {
      d: `M${end - 4},${base - 8}L${end + 4},${base - 8}L${end},${base}Z`,
      fill: stroke,
      opacity: a.tree ? 1 : 0.5,
    });
    inTree[a.k] = a.tree;
    tip[a.k] = [(start + end) / 2, base - rise(a.h - a.m) * 0.94];
  }
  for (const [k, pair] of drawing.pairs.entries()) {
    const ends = pair.arcs.map((a) => tip[a]);
    if (now.kept[k] !== "1" || !pair.arcs.every((a) => inTree[a])) continue;
    const link = add(svg, "line", {
      x1: ends[0][0],
      y1: ends[0][1],
      x2: ends[1][0],
      y2: ends[1][1],
      stroke: "var(--measured)",
      "stroke-width": 1.4,
      opacity: 0.75,
    });
    add(link, "title", {}, `${pair.kind} ${pair.label}: weight ${pair.theta}, gain ${pair.gain}`);
    for (const [cx, cy] of ends) add(svg, "circle", { cx, cy, r: 2.5, fill: "var(--measured)" });
  }
  for (const a of shown) {
    if (!a.tree) continue;
    add(
      svg,
      "text",
      { x: tip[a.k][0], y: tip[a.k][1] - 4, "text-anchor": "middle", class: "halo" },
      a.p > 0.995 ? "1" : a.p.toFixed(2),
    );
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
  details.addEventListener("toggle", () => {
    pairList.open = details.open;
  });
  add(details, "summary", {}, `Pairs with the largest gains (${drawing.pairs.length})`);
  const inside = add(details, "div", {
    class: "scroll",
    tabindex: 0,
    role: "region",
    "aria-label": "pairs",
  });
  const list = add(inside, "table");
  const head = add(add(list, "thead"), "tr");
  for (const title of ["pair", "kind", "weight", "gain", "now"])
    add(head, "th", { scope: "col" }, title);
  const body = add(list, "tbody");
  drawing.pairs.forEach((pair, k) => {
    const kept = now.kept[k] === "1";
    const line = add(body, "tr", { class: kept ? "" : "dropped" });
    add(line, "th", { scope: "row" }, pair.label);
    for (const text of [
      pair.kind,
      number(pair.theta),
      number(pair.gain),
      kept ? "kept" : "ignored",
    ])
      add(line, "td", {}, text);
  });
}
