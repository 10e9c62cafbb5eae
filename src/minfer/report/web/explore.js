// The state of the page, and everything that changes it.

const n = names.length;
let evidence = new Int32Array(engine.card.length).fill(-1); // auxiliary variables behind
const nothing = evidence.slice();
let soft = new Map(); // likelihoods of the states of variables with soft evidence; never changed
let done = new Set(); // variables that are set to what they have in the evidence; never changed
const prior = engine.posteriors(nothing);
let base = prior.logZ; // what is built into the page, under what is set
let answer = prior; // the last that was possible
let possible = true;
let chosen = null;
// of what was observed here and of what is built into the page
const logEvidence = () => answer.logZ - base + (data.given_log ?? 0);
let question = null; // "explanation", "information"
let target = null;
const past = [];

// ------------------------------------------------------------------ the address

// Parts of the address are name=state, with & or a comma between them; what cannot be written so
// goes by numbers, after a ~. Of soft evidence there are likelihoods instead, name=:0.2:0.8, and
// what is set has a colon before the sign, name:=state.
const encoded = (text, number) => {
  try {
    return text.startsWith("~") ? `~${number}` : encodeURIComponent(text);
  } catch {
    return `~${number}`; // half a character
  }
};

function toHash() {
  const parts = [];
  for (let v = 0; v < n; v += 1) {
    if (evidence[v] >= 0)
      parts.push(
        `${encoded(names[v], v)}${done.has(v) ? ":" : ""}=${encoded(states[v][evidence[v]], evidence[v])}`,
      );
    if (soft.has(v)) parts.push(`${encoded(names[v], v)}=:${soft.get(v).join(":")}`);
  }
  if (parts.length) return `#${parts.join("&")}`;
  return data.evidence.length + data.done.length ? "#none" : "";
}

const decoded = (part) => {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
};

const numbered = (part, list) => {
  if (part.startsWith("~")) return list[part.slice(1)] === undefined ? -1 : Number(part.slice(1));
  return list.indexOf(decoded(part));
};

// the observation that a part of the address names, or why it is none
function observation(part) {
  const at = part.indexOf("=");
  if (at < 0) return { why: "it is not name=state" };
  const set = part[at - 1] === ":" && numbered(part.slice(0, at - 1), names) >= 0;
  const name = part.slice(0, set ? at - 1 : at),
    v = numbered(name, names);
  if (set && !engine.settable(v)) return { why: `${brief(names[v])} cannot be set here` };
  if (v < 0) return { why: `there is no variable ${brief(decoded(name))} here` };
  const s = numbered(part.slice(at + 1), states[v]);
  if (s >= 0) return { v, s, set };
  const value = decoded(part.slice(at + 1));
  if (value.startsWith(":") && !set) {
    const likelihoods = value.slice(1).split(":").map(Number);
    if (!areLikelihoods(v, likelihoods))
      return { why: `${brief(names[v])} takes ${states[v].length} likelihoods, 0 or more, not all 0` };
    return { v, likelihoods };
  }
  return { why: `the states of ${brief(names[v])} are ${listed(states[v])}` };
}

const areLikelihoods = (v, numbers) =>
  numbers.length === states[v].length &&
  numbers.every((x) => Number.isFinite(x) && x >= 0) &&
  numbers.some((x) => x > 0);

function fromHash() {
  const found = nothing.slice(),
    softly = new Map(),
    acted = new Set(),
    unused = [];
  const text = location.hash.slice(1);
  if (!text) {
    for (const [v, s] of [...data.evidence, ...data.done]) found[v] = s;
    for (const [v] of data.done) acted.add(v);
  }
  for (const part of text === "none" ? [] : text.split(/[&,]/)) {
    if (!part) continue;
    const { v, s, set, likelihoods, why } = observation(part);
    const other = found[v] !== s || acted.has(v) !== set;
    const twice = why === undefined && found[v] >= 0 && other;
    if (twice) unused.push([part, `${brief(names[v])} is ${brief(states[v][found[v]])} already`]);
    else if (why !== undefined) unused.push([part, why]);
    else if (softly.has(v)) unused.push([part, `${brief(names[v])} has soft evidence already`]);
    else if (likelihoods) softly.set(v, likelihoods);
    else {
      found[v] = s;
      if (set) acted.add(v);
    }
  }
  return { found, softly, acted, unused };
}

const MOST_UNUSED = 5;
const brief = (text) => (text.length > 40 ? `${text.slice(0, 40)}…` : text);
const listed = (words) =>
  words.slice(0, 8).map(brief).join(", ") + (words.length > 8 ? ", and others" : "");

// what of the address was not used, and why
function showUnused(unused) {
  const box = $("unused");
  box.hidden = !unused.length;
  box.replaceChildren();
  if (!unused.length) return;
  add(box, "p", {}, "Not used from the address of this page:");
  const list = add(box, "ul");
  for (const [part, why] of unused.slice(0, MOST_UNUSED)) {
    const item = add(list, "li");
    add(item, "strong", {}, brief(decoded(part)));
    item.append(`: ${why}`);
  }
  const more = unused.length - MOST_UNUSED;
  if (more > 0) add(list, "li", {}, `and ${count(more)} more`);
  const how =
    "Evidence is written as #name=state&name=state, likelihoods as #name=:0.2:0.8, what is set as #name:=state.";
  add(box, "p", { class: "muted" }, how);
}

function remember() {
  showUnused([]);
  if (location.protocol === "about:") return; // inside a notebook there is no address
  try {
    history.pushState(null, "", location.href.split("#")[0] + toHash());
  } catch {
    // a browser that forbids it here; the page works without
  }
}

// ------------------------------------------------------------------ changes

function set(next, softly, acted, { keep = true } = {}) {
  if (keep) past.push([evidence, soft, done]);
  [evidence, soft, done] = [next, softly, acted];
  if (keep) remember();
  engine.soften(new Map());
  engine.act(done);
  base = prior.logZ;
  if (done.size && data.given_log === null) {
    const alone = nothing.slice();
    for (const v of done) alone[v] = evidence[v];
    base = engine.posteriors(alone)?.logZ ?? prior.logZ;
  }
  engine.soften(soft);
  const found = engine.posteriors(evidence);
  possible = found !== null;
  if (possible) answer = found;
  refresh();
}

function without(v, from = soft) {
  const left = new from.constructor(from);
  left.delete(v);
  return left;
}

// likelihoods of a variable's states, in place of what was observed; null takes them back
function soften(v, likelihoods) {
  const next = evidence.slice();
  next[v] = -1;
  const told = likelihoods !== null && likelihoods.some((x) => x !== likelihoods[0]);
  set(next, told ? new Map([...without(v), [v, likelihoods]]) : without(v), without(v, done));
  const log = possible ? `P(evidence) ${fromLog(logEvidence())}` : "impossible";
  $("told").textContent = `${told ? softly(v, likelihoods) : `${names[v]} taken back`}; ${log}`;
}

function readSoft() {
  const numbers = [...$("soft-inputs").querySelectorAll("input")].map((input) =>
    input.value.trim() ? Number(input.value) : NaN,
  );
  const fine = areLikelihoods(chosen, numbers);
  if (fine) soften(chosen, numbers);
  $("soft-wrong").hidden = fine;
}

// On a state: observed, then set where that is possible, then taken back. What is set stays so in
// another state.
function press(v, s) {
  if (evidence[v] !== s) put(v, s, done.has(v));
  else if (!done.has(v) && engine.settable(v)) put(v, s, true);
  else takeBack(v);
}

const takeBack = (v) => put(v, -1, false);

function put(v, state, acted) {
  const next = evidence.slice(),
    s = state < 0 ? evidence[v] : state;
  next[v] = state;
  set(next, without(v), acted ? new Set([...done, v]) : without(v, done));
  const verb = state < 0 ? "taken back" : acted ? "set" : "observed";
  const log = possible ? `P(evidence) ${fromLog(logEvidence())}` : "impossible";
  $("told").textContent = `${names[v]} ${states[v][s]} ${verb}; ${log}`;
}

function undo() {
  if (!past.length) return;
  [evidence, soft, done] = past.pop();
  remember();
  set(evidence, soft, done, { keep: false });
}

const clear = () => {
  if (soft.size || evidence.some((s) => s >= 0)) set(nothing.slice(), new Map(), new Set());
};

function choose(v) {
  chosen = v;
  cards.forEach(({ host }, u) => host.classList.toggle("chosen", u === v));
  const dots = new Set();
  for (const { ends } of lines) if (ends[0] === v && ends[1] >= n) dots.add(ends[1]);
  for (const { ends, parts } of lines) {
    const lit = ends.includes(v) || dots.has(ends[1]);
    for (const part of parts) {
      part.classList.toggle("lit", lit);
      if (lit) part.parentNode.append(part);
    }
  }
  showChosen(chosen, answer, prior, evidence, best(), soft, done);
  if (question === "information" && evidence[target] >= 0 && evidence[v] < 0) {
    target = v; // the old one is known by now
    reply();
  }
}

let explained = null;
const best = () => (explained === null ? null : explained.states);

function refresh() {
  explained = question === "explanation" && possible ? engine.explanation(evidence) : null;
  document.body.classList.toggle("stale", !possible);
  const any = soft.size > 0 || evidence.some((s) => s >= 0);
  for (const host of [world, $("chosen-states")]) host.classList.toggle("moved", any);
  for (let v = 0; v < n; v += 1) showCard(v, answer, prior, evidence, best(), soft, done);
  for (const { ends, parts } of lines)
    for (const part of parts) part.classList.toggle("cut", done.has(ends[1]));
  showEvidence(evidence, possible ? logEvidence() : null, soft, done);
  showChosen(chosen, answer, prior, evidence, best(), soft, done);
  alarm();
  reply();
}

function alarm() {
  const box = $("alarm");
  box.hidden = possible;
  box.replaceChildren();
  if (possible) return;
  const clash = engine.conflict(evidence);
  const named = names.map((_, v) => v).filter((v) => clash[v] >= 0);
  const told = named.map((v) => fact(v, evidence, done));
  for (const [v, each] of soft) if (each.includes(0)) told.push(softly(v, each));
  const all =
    told.length === 1 ? told[0] : `${told.slice(0, -1).join(", ")} and ${told.at(-1)} together`;
  const text = add(box, "p");
  add(text, "strong", {}, "Impossible. ");
  text.append(`This model gives ${all} probability zero. What is shown is from before.`);
  const choices = add(box, "div", { class: "choices" });
  if (past.length) {
    const button = add(choices, "button", { type: "button" }, "Undo");
    button.addEventListener("click", undo);
  }
  for (const v of named.slice(0, 4)) {
    const button = add(choices, "button", { type: "button" }, `Take back ${names[v]}`);
    button.addEventListener("click", () => takeBack(v));
  }
}

// ------------------------------------------------------------------ questions

function reply() {
  $("ask-explanation").setAttribute("aria-pressed", question === "explanation");
  $("ask-information").setAttribute("aria-pressed", question === "information");
  for (const { badge } of cards) badge.textContent = "";
  const host = $("reply");
  if (question === null || !possible) {
    host.replaceChildren();
    if (!possible && question) add(host, "p", {}, "The evidence is impossible.");
    return;
  }
  if (question === "explanation") {
    showExplanation(explained, evidence, explained.score - answer.logZ);
    return;
  }
  if (target === null) target = chosen ?? evidence.subarray(0, n).indexOf(-1);
  if (target < 0) target = 0;
  const bits = engine.information(target, evidence);
  showInformation(target, bits, answer, evidence);
  if (evidence[target] >= 0) return;
  cards.forEach(({ badge }, v) => {
    if (v === target || evidence[v] >= 0 || bits[v] < 0.0005) return;
    badge.textContent = bits[v].toFixed(3);
  });
  cards[target].badge.textContent = "target";
}

function ask(what) {
  question = question === what ? null : what;
  if (question === "information" && chosen !== null) target = chosen;
  refresh();
}

// ------------------------------------------------------------------ listening

function go(v) {
  choose(v);
  reveal(v, true);
  cards[v].host.focus({ preventScroll: true });
}

function matches() {
  const wanted = $("search").value.trim().toLowerCase();
  if (!wanted) return null;
  return names.map((_, v) => v).filter((v) => names[v].toLowerCase().includes(wanted));
}

function search() {
  const hits = matches();
  cards.forEach(({ host }, v) => host.classList.toggle("miss", hits !== null && !hits.includes(v)));
  $("found").textContent = hits === null ? "" : `${count(hits.length)} found`;
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { key } = event,
    at = event.target;
  const done = () => event.preventDefault();
  if (at.matches("input, select")) {
    if (at.id !== "search") return;
    if (key === "Escape") {
      at.value = "";
      search();
    } else if (key === "Enter" && matches()?.length) {
      const [first] = matches();
      at.value = "";
      search();
      go(first);
      done();
    }
    return;
  }
  const node = at.closest(".node"),
    v = node ? Number(node.dataset.v) : null;
  const state = at.closest(".state");
  if (key === "/") {
    $("search").focus();
    done();
  } else if (key === "u") undo();
  else if (key === "f") fit();
  else if (key === "+" || key === "=") zoom(1.2);
  else if (key === "-") zoom(1 / 1.2);
  else if (key === "Escape") {
    if (state && node) node.focus({ preventScroll: true });
    else if (v !== null && evidence[v] >= 0) takeBack(v);
    else clear();
  } else if (node && /^[1-9]$/.test(key)) {
    if (Number(key) <= states[v].length) press(v, Number(key) - 1);
  } else if (state && (key === "ArrowUp" || key === "ArrowDown")) {
    const next = key === "ArrowUp" ? state.previousElementSibling : state.nextElementSibling;
    if (next?.matches(".state")) next.focus({ preventScroll: true });
    done();
  } else if (node && key.startsWith("Arrow")) {
    const next = beside(v, key);
    if (next !== null) cards[next].host.focus({ preventScroll: true });
    done();
  } else if (node && !state && key === "Enter") {
    const p = posterior(v);
    const first = evidence[v] >= 0 ? evidence[v] : p.indexOf(Math.max(...p));
    choose(v);
    const list = cards[v].rows ?? [...$("chosen-states").children];
    list[first].focus({ preventScroll: cards[v].rows !== null });
    done();
  }
}

function listen() {
  document.addEventListener("keydown", onKey);
  document.addEventListener("click", (event) => {
    const on = (selector) => event.target.closest(selector);
    const state = on(".state"),
      node = on(".node");
    if (node) choose(Number(node.dataset.v));
    if (state) press(Number(state.dataset.v), Number(state.dataset.s));
    else if (on(".chip[data-v]")) {
      const v = Number(on(".chip").dataset.v);
      if (soft.has(v)) soften(v, null);
      else takeBack(v);
    }
    else if (on("[data-go]")) go(Number(on("[data-go]").dataset.go));
  });
  stage.addEventListener("focusin", (event) => {
    const node = event.target.closest(".node");
    if (!node || !node.matches(":focus-visible, :has(:focus-visible)")) return;
    choose(Number(node.dataset.v));
    reveal(chosen);
  });
  $("clear").addEventListener("click", clear);
  $("ask-explanation").addEventListener("click", () => ask("explanation"));
  $("ask-information").addEventListener("click", () => ask("information"));
  $("soft-inputs").addEventListener("change", readSoft);
  $("reply").addEventListener("change", (event) => {
    target = Number(event.target.value);
    reply();
    $("target").focus();
  });
  $("as-map").addEventListener("click", () => show("map"));
  $("as-list").addEventListener("click", () => show("list"));
  $("search").addEventListener("input", search);
  $("skip").addEventListener("click", (event) => {
    event.preventDefault();
    ($("clear").hidden ? $("ask-explanation") : $("clear")).focus();
  });
  window.addEventListener("hashchange", open);
}

function open() {
  const { found, softly, acted, unused } = fromHash();
  past.length = 0;
  set(found, softly, acted, { keep: false });
  showUnused(unused);
}

const posterior = (v) => answer.p.subarray(engine.start[v], engine.start[v + 1]);

$("about").textContent = data.about;
if (data.given.length)
  $("legend").textContent = "Ticks: the probabilities with the built-in evidence alone.";
if (engine.card.some((_, v) => engine.settable(v)))
  $("legend").textContent += " A second click on a state sets its variable, as by an experiment, whatever its causes: do(…); a third one takes that back.";
$("version").textContent = `Computed in this page, exactly. minfer ${data.minfer}`;
buildCards();
listenToPointers();
listen();
fit();
open();

// for the browser's console, and for tests
window.minfer = Object.freeze({
  names,
  states,
  evidence: () => Array.from(evidence.subarray(0, n)),
  soft: () => Object.fromEntries(soft),
  done: () => [...done].sort((a, b) => a - b),
  possible: () => possible,
  posteriors: () => states.map((_, v) => Array.from(posterior(v))),
  logProbability: () => (possible ? logEvidence() : -Infinity),
  explanation: () => engine.explanation(evidence)?.states.slice(0, n) ?? null,
  information: (v) => Array.from(engine.information(v, evidence)?.subarray(0, n) ?? []),
});
