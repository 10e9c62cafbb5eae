// The network: a card for each variable, a button for each of its states, lines between cards.

const engine = makeEngine(data.engine);
const { names, states, nodes } = data;
const cards = []; // {host, badge, rows} of each variable; rows are state buttons, or null

const percent = (p) => {
  if (p === 0 || p === 1) return `${100 * p}%`;
  if (p < 0.0005) return "<0.1%";
  return p > 0.9995 ? ">99.9%" : `${(100 * p).toFixed(1)}%`;
};

function stateButton(parent, v, s) {
  const button = add(parent, "button", { type: "button", class: "state", "aria-pressed": false });
  button.dataset.v = v;
  button.dataset.s = s;
  add(button, "span", { class: "fill" });
  add(button, "span", { class: "prior" });
  add(button, "span", { class: "label" }, states[v][s]);
  add(button, "span", { class: "percent" });
  button.title = states[v][s];
  return button;
}

// p: probability now, prior: without any evidence
function showState(button, p, prior, seen) {
  const [fill, tick, label, number] = button.children;
  fill.style.transform = `scaleX(${p})`;
  tick.hidden = Math.abs(p - prior) < 0.0005;
  tick.style.left = `calc(${prior} * (100% - 2px))`;
  number.textContent = percent(p);
  button.setAttribute("aria-pressed", seen);
  button.classList.toggle("never", p === 0);
  button.setAttribute("aria-label", `${label.textContent}, ${percent(p)}`);
}

function line(points) {
  if (points.length === 4) return `M${points[0]},${points[1]}L${points[2]},${points[3]}`;
  let path = `M${points[0]},${points[1]}`;
  for (let k = 2; k < points.length; k += 2) {
    const [x0, y0, x, y] = points.slice(k - 2, k + 2);
    const bend = (y - y0) / 2;
    path += k % 4 === 2 ? `L${x},${y}` : `C${x0},${y0 + bend} ${x},${y - bend} ${x},${y}`;
  }
  return path;
}

const lines = []; // {ends, parts}: what lights up with a card

function buildCards() {
  const world = $("world");
  world.style.setProperty("--head", `${data.card.head}px`);
  world.style.setProperty("--row", `${data.card.row}px`);
  const [width, height] = data.size.map(Math.ceil);
  const svg = add(world, "svg", { width, height, "aria-hidden": "true" });
  for (const [a, b, points] of data.edges) {
    const parts = [add(svg, "path", { class: "edge", d: line(points) })];
    if (data.directed) {
      const [x, y] = points.slice(-2);
      parts.push(add(svg, "path", { class: "tip", d: `M${x - 4},${y - 8}h8L${x},${y}Z` }));
    }
    lines.push({ ends: [a, b], parts });
  }
  for (const [cx, cy] of data.dots) add(svg, "circle", { class: "dot", cx, cy, r: 5 });
  names.forEach((name, v) => {
    const [x, y, w, h] = nodes[v];
    const host = add(world, "div", { class: "node", role: "group", tabindex: 0 });
    host.dataset.v = v;
    Object.assign(host.style, { left: `${x}px`, top: `${y}px`, minHeight: `${h}px` });
    host.style.setProperty("width", `${w}px`);
    const size = Math.min(22, Math.max(12, (w - 12) / (0.74 * name.length)));
    host.style.setProperty("--far", `${size}px`);
    const head = add(host, "div", { class: "name" });
    add(head, "span", { title: name }, name);
    const badge = add(head, "span", { class: "badge" });
    const card = { host, badge, rows: null };
    if (states[v].length <= data.card.rows) {
      card.rows = states[v].map((_, s) => stateButton(host, v, s));
      for (const button of card.rows) button.tabIndex = -1;
    } else {
      const histogram = add(host, "div", { class: "histogram", "aria-hidden": "true" });
      card.bars = states[v].map(() => add(histogram, "span"));
      card.mode = add(host, "p", { class: "mode" });
    }
    cards.push(card);
  });
}

function showCard(v, now, prior, evidence, best, soft, done) {
  const card = cards[v],
    first = engine.start[v],
    size = states[v].length;
  const p = now.p.subarray(first, first + size);
  const top = p.indexOf(Math.max(...p));
  card.host.classList.toggle("seen", evidence[v] >= 0);
  const seen = evidence[v] >= 0;
  card.host.classList.toggle("soft", soft.has(v));
  card.host.classList.toggle("set", done.has(v));
  const likely = `${states[v][top]} ${percent(p[top])}${soft.has(v) ? ", soft evidence" : ""}`;
  const verb = done.has(v) ? "set to" : "observed";
  const text = seen ? `${verb} ${states[v][evidence[v]]}` : likely;
  card.host.setAttribute("aria-label", `${names[v]}: ${text}`);
  if (card.rows) {
    card.rows.forEach((button, s) => {
      showState(button, p[s], prior.p[first + s], evidence[v] === s);
      button.classList.toggle("best", best !== null && best[v] === s);
    });
  } else {
    card.bars.forEach((bar, s) => {
      bar.style.transform = `scaleY(${p[s] / p[top]})`;
    });
    const star = best === null ? "" : `★ ${states[v][best[v]]}, likeliest alone `;
    card.mode.textContent = `${star}${states[v][top]} ${percent(p[top])}`;
  }
}
