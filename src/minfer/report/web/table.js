// The table of marginals, or of the words of a sentence.

const rows = [];

function buildTable() {
  const table = $("rows");
  const titles = sentence
    ? ["word", "head", "probability", "runner-up"]
    : ["variable", "state", "probability", "error of leaving out"];
  if (data.certified) titles.push("certainly between");
  if (sentence && drawing.gold) titles.push("in the file");
  const twice = sentence ? [2, 3] : [2]; // a bar and a number, a word and a number
  const head = add(add(table, "thead"), "tr");
  titles.forEach((title, k) =>
    add(
      head,
      "th",
      { scope: "col", colspan: twice.includes(k) ? 2 : 1, class: k >= 3 ? "number" : "" },
      title,
    ),
  );
  const body = add(table, "tbody");
  for (const row of data.rows) {
    const line = add(body, "tr");
    add(line, "th", { scope: "row" }, row.name);
    const cells = Array.from({ length: titles.length - 1 + twice.length }, (_, k) =>
      add(line, "td", { class: k === 0 ? "" : k === 1 ? "bar" : "number" }),
    );
    rows.push({ line, cells, name: row.name.toLowerCase() });
  }
  $("filter-label").hidden = rows.length <= 12;
  $("filter").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    for (const row of rows) row.line.hidden = !row.name.includes(wanted);
  });
}

// a bar from 0 to 1; above it what is estimated, below it the interval that holds the true
// probability, with a tick where the answer is: in the colour of warnings where that is refuted
function bar(cell, parts, estimate, ends, value, refuted) {
  cell.replaceChildren();
  const svg = add(cell, "svg", {
    viewBox: "0 0 100 20",
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  add(svg, "rect", { x: 0, y: 4, width: 100, height: 12, fill: "var(--line)" });
  let at = 0;
  parts.forEach((p, k) => {
    add(svg, "rect", {
      x: 100 * at,
      y: 4,
      width: 100 * p,
      height: 12,
      fill: "var(--kept)",
      opacity: k % 2 ? 0.45 : 0.85,
    });
    at += p;
  });
  const rect = (low, high, y, height, fill) =>
    add(svg, "rect", {
      x: 100 * Math.max(0, low),
      y,
      width: Math.max(100 * (Math.min(1, high) - Math.max(0, low)), 0.6),
      height,
      fill,
    });
  if (ends) {
    const fill = refuted ? "var(--warn)" : "var(--rigorous)";
    const middle = (ends[0] + ends[1]) / 2,
      half = Math.max(ends[1] - ends[0], 0.012) / 2;
    rect(middle - half, middle + half, 15, 5, fill);
    rect(value - 0.002, value + 0.002, 4, 16, "currentColor");
  }
  if (parts.length === 1 && estimate) rect(at - estimate, at + estimate, 1, 2.5, "var(--estimate)");
}

function table() {
  const now = steps[current];
  rows.forEach(({ line, cells }, r) => {
    const p = now.rows[r];
    if (sentence) return word(line, cells, r, p);
    const many = data.rows[r].states > p.length;
    const top = many ? p[0] : data.rows[r].states === 2 ? 1 : p.indexOf(Math.max(...p));
    const value = many ? p[1] : p[top];
    const ends = now.row_ends ? now.row_ends[r] : null;
    const refuted = Boolean(ends) && now.row_refuted[r] === "1";
    const { states, labels } = data.rows[r];
    const name = labels ? labels[top] : `${top}`;
    cells[0].textContent = labels || states === 2 ? name : `${name} of ${states}`;
    const parts = data.rows[r].states === 2 || many ? [value] : p;
    bar(cells[1], parts, now.row_errors[r], ends, value, refuted);
    cells[2].textContent = value.toFixed(4);
    cells[3].textContent = now.row_errors[r] === null ? "not known" : about(now.row_errors[r]);
    if (!ends) return;
    cells[4].textContent = `${ends.map((x) => x.toFixed(4)).join(" and ")}${refuted ? ", refuted" : ""}`;
    cells[4].className = refuted ? "number warn" : "number";
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
