// The table of marginals, or of the words of a sentence.

const rows = [];

function buildTable() {
  const table = $("rows");
  const titles = sentence
    ? ["word", "head", "probability", "runner-up"]
    : ["variable", "state", "probability", "estimated error", "rigorous"];
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

// a bar from 0 to 1 with what is estimated (thick) and rigorous (thin, with ends)
function bar(cell, parts, estimate, interval) {
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
  if (parts.length !== 1) return;
  const span = (half, y, height, fill) => {
    const low = Math.max(0, at - half),
      high = Math.min(1, at + half);
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
