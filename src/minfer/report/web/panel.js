// The panel: what was observed, the chosen variable, and the two questions.

const short = (x) => {
  if (x === 0) return "0";
  if (x >= 0.001) return String(Number(x.toPrecision(4)));
  return x.toExponential(2).replace("e-", "e−");
};
// exp of a logarithm that may be too small for a number
function fromLog(log) {
  if (log > -700) return short(Math.exp(Math.min(log, 0)));
  const ten = log / Math.LN10,
    whole = Math.floor(ten);
  return `${(10 ** (ten - whole)).toFixed(2)}e−${-whole}`;
}

const softly = (v, likelihoods) =>
  `${names[v]} ~ ${states[v].map((s, k) => `${s} ${short(likelihoods[k])}`).join(", ")}`;

// what is observed or set of a variable
function fact(v, evidence, done) {
  const text = `${names[v]} = ${states[v][evidence[v]]}`;
  return done.has(v) ? `do(${text})` : text;
}

function showEvidence(evidence, log, soft, done) {
  const list = $("chips"),
    focused = list.contains(document.activeElement);
  list.replaceChildren();
  for (const { text } of data.given) {
    const chip = add(add(list, "li"), "span", { class: "chip given" });
    chip.title = `${text} (built into this page)`;
    add(chip, "span", {}, text);
  }
  names.forEach((_, v) => {
    if (evidence[v] < 0 && !soft.has(v)) return;
    const text = soft.has(v) ? softly(v, soft.get(v)) : fact(v, evidence, done);
    const chip = add(add(list, "li"), "button", {
      type: "button",
      class: done.has(v) ? "chip set" : "chip",
      "aria-label": `Take back ${text}`,
    });
    chip.dataset.v = v;
    chip.title = text;
    add(chip, "span", {}, text);
    add(chip, "span", { "aria-hidden": "true" }, "×");
  });
  if (!list.children.length)
    add(list, "li", { class: "muted" }, "None yet. Choose a state of any card.");
  else if (focused) list.querySelector("button")?.focus();
  $("clear").hidden = $("legend").hidden = !list.querySelector("button");
  const facts = $("likelihood");
  facts.replaceChildren();
  if ($("clear").hidden && !data.given.length) return;
  const under = [...(data.given_log === null ? ["built in"] : []), ...(done.size ? ["do(…)"] : [])];
  const told = data.given_log === null ? "observed" : "evidence";
  const what = `P(${[told, under.join(", ")].filter(Boolean).join(" | ")})`;
  const rows =
    log === null
      ? [[what, "0, impossible"]]
      : [
          [what, fromLog(log)],
          ["ln P", log.toFixed(4).replace("-", "−")],
        ];
  for (const [term, value] of rows) {
    const row = add(facts, "div");
    add(row, "dt", {}, term);
    add(row, "dd", {}, value);
  }
}

let shown = null; // the variable whose states are in the panel

function showChosen(v, now, prior, evidence, best, soft, done) {
  $("chosen").hidden = v === null;
  if (v === null) return;
  const host = $("chosen-states");
  if (shown !== v) {
    shown = v;
    $("chosen-title").textContent = names[v];
    host.replaceChildren();
    states[v].forEach((_, s) => stateButton(host, v, s));
    showLinks(v);
    showTable(v);
    const inputs = $("soft-inputs");
    inputs.replaceChildren();
    for (const state of states[v]) {
      const line = add(inputs, "label");
      add(line, "span", {}, state);
      add(line, "input", { type: "number", min: 0, step: "any" });
    }
  }
  host.classList.toggle("set", done.has(v));
  $("chosen-table").classList.toggle("cut", done.has(v));
  const told = soft.get(v);
  [...$("soft-inputs").querySelectorAll("input")].forEach((input, s) => {
    if (input !== document.activeElement || told) input.value = told ? told[s] : 1;
  });
  $("soft-wrong").hidden = true;
  markRow(evidence, done.has(v));
  [...host.children].forEach((button, s) => {
    const k = engine.start[v] + s;
    showState(button, now.p[k], prior.p[k], evidence[v] === s);
    button.classList.toggle("best", best !== null && best[v] === s);
  });
}

function showLinks(v) {
  const host = $("chosen-links");
  host.replaceChildren();
  const near = { from: new Set(), to: new Set() };
  const n = names.length;
  for (const { ends: [a, b] } of lines) {
    if (a === v && b < n) near.to.add(b);
    if (b === v) near.from.add(a);
    if (b >= n && a === v) for (const { ends } of lines) if (ends[1] === b) near.to.add(ends[0]);
  }
  near.to.delete(v);
  const kinds = data.directed
    ? [
        ["Parents", near.from],
        ["Children", near.to],
      ]
    : [["Neighbours", new Set([...near.from, ...near.to])]];
  for (const [kind, set] of kinds) {
    if (!set.size) continue;
    const text = add(host, "p", { class: "links" }, `${kind}: `);
    [...set].forEach((u, k) => {
      if (k) text.append(", ");
      add(text, "button", { type: "button" }, names[u]).dataset.go = u;
    });
  }
}

const MOST_ROWS = 64;
// whose states the rows of the shown table are for, and the rows
let tabled = { parents: [], rows: [] };

// the conditional distribution of a variable: a row for each combination of its parents' states
function showTable(v) {
  const host = $("chosen-table");
  host.replaceChildren();
  tabled = { parents: [], rows: [] };
  const known = data.tables?.[v];
  $("chosen-table-of").hidden = !known;
  if (!known) return;
  const { parents, text, cells } = known;
  const given = parents.map((u) => names[u]);
  $("chosen-table-title").textContent = `P(${[names[v], given.join(", ")].filter(Boolean).join(" | ")})`;
  if (text === null) {
    add(host, "p", { class: "muted" }, `${count(cells)} numbers, too many for this page.`);
    return;
  }
  const p = floats(text),
    size = states[v].length,
    n = p.length / size;
  const table = add(host, "table");
  const head = add(add(table, "thead"), "tr");
  for (const name of given) add(head, "th", { scope: "col", class: "parent" }, name);
  for (const state of states[v]) add(head, "th", { scope: "col" }, state);
  const body = add(table, "tbody");
  for (let r = 0; r < Math.min(n, MOST_ROWS); r += 1) {
    const row = add(body, "tr"),
      at = [];
    for (let k = parents.length - 1, rest = r; k >= 0; k -= 1) {
      at[k] = rest % states[parents[k]].length;
      rest = Math.floor(rest / states[parents[k]].length);
    }
    at.forEach((s, k) => add(row, "th", { scope: "row" }, states[parents[k]][s]));
    for (let s = 0; s < size; s += 1) add(row, "td", {}, short(p[r * size + s]));
    tabled.rows.push({ row, at });
  }
  tabled.parents = parents;
  if (n > MOST_ROWS) add(host, "p", { class: "muted" }, `and ${plural(n - MOST_ROWS, "more row")}`);
}

// the rows that the observed parents leave; none where the table has given way
function markRow(evidence, gone) {
  const { parents, rows } = tabled;
  const seen = !gone && parents.some((u) => evidence[u] >= 0);
  for (const { row, at } of rows) {
    const fits = parents.every((u, k) => evidence[u] < 0 || evidence[u] === at[k]);
    row.classList.toggle("holds", seen && fits);
  }
}

function showExplanation(found, evidence, log) {
  const host = $("reply");
  host.replaceChildren();
  const told = "The likeliest states of all variables together, marked ★: probability";
  add(host, "p", {}, `${told} ${fromLog(log)} given the evidence.`);
  const list = add(host, "ol");
  names.forEach((name, v) => {
    const item = add(list, "li", { class: evidence[v] >= 0 ? "seen" : "" });
    const button = add(item, "button", { type: "button" });
    button.dataset.go = v;
    add(button, "span", { class: "label" }, name);
    add(button, "span", { class: "value" }, states[v][found.states[v]]);
  });
}

const MOST = 12; // rows of the ranking
const bitsOf = (x) => (x < 0.0005 ? "<0.001" : x.toFixed(3));

function showInformation(target, bits, now, evidence) {
  const host = $("reply");
  host.replaceChildren();
  const line = add(host, "p", {}, "Average information about ");
  const choice = add(line, "select", { id: "target", "aria-label": "Target" });
  names.forEach((name, v) => {
    if (evidence[v] >= 0 && v !== target) return;
    add(choice, "option", { value: v }, name).selected = v === target;
  });
  if (evidence[target] >= 0) {
    add(host, "p", {}, "It is observed: nothing more can be told about it. Choose another one.");
    return;
  }
  const p = now.p.subarray(engine.start[target], engine.start[target + 1]);
  const entropy = p.reduce((sum, q) => (q > 0 ? sum - q * Math.log2(q) : sum), 0);
  add(host, "p", { class: "muted" }, `Its uncertainty now: ${bitsOf(entropy)} bits.`);
  const ranked = names
    .map((_, v) => v)
    .filter((v) => v !== target && evidence[v] < 0 && bits[v] > 1e-9)
    .sort((a, b) => bits[b] - bits[a] || a - b);
  const list = add(host, "ol");
  for (const v of ranked.slice(0, MOST)) {
    const button = add(add(list, "li"), "button", { type: "button" });
    button.dataset.go = v;
    const fill = add(button, "span", { class: "fill" });
    fill.style.transform = `scaleX(${Math.min(bits[v] / Math.max(entropy, 1e-12), 1)})`;
    add(button, "span", { class: "label" }, names[v]);
    add(button, "span", { class: "value" }, `${bitsOf(bits[v])} bits`);
  }
  const rest = ranked.length - MOST;
  if (!ranked.length) add(host, "p", {}, "No other variable can tell anything about it now.");
  else if (rest > 0) add(host, "p", { class: "muted" }, `and ${count(rest)} that tell less`);
}
