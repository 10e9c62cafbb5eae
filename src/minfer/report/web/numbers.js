// Cards of numbers, each with its kind: rigorous, estimate or measured.

function cards() {
  const now = steps[current],
    host = $("cards");
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
    card(
      "pairs kept",
      "",
      count(now.kept),
      `of ${count(data.n_candidates)} (${percent(share(current))}) over ${plural(data.n_arcs, "possible arc")}`,
    );
  } else {
    const forced = data.n_forced ? `, ${count(data.n_forced)} forced` : "";
    card(
      "factors kept",
      "",
      count(now.kept),
      `of ${count(data.n_candidates)} candidates (${percent(share(current))}), beside ${count(data.n_seed)} in the seed${forced}`,
    );
  }
  card(
    "time",
    "measured",
    duration(now.seconds),
    full
      ? `CPU, the whole call; full BP to its end: ${duration(full.seconds)}`
      : "CPU, the whole call",
  );
  card(
    "difference",
    "measured",
    number(now.measured_mean),
    `on average, ${number(now.measured_max)} at most, from ${data.reference}`,
  );
  if (!sentence) {
    const own = now.exact ? "" : "; the solver's own error is not in it";
    const ignored = now.kept < data.n_candidates;
    card(
      "error of leaving out",
      "estimate",
      now.no_estimate ? "none" : !ignored ? "0" : about(now.error_mean),
      now.no_estimate ||
        (ignored
          ? `on average, ${number(now.error_max)} at the worst variable${own}`
          : "nothing is ignored"),
      Boolean(now.no_estimate),
    );
    bound(card, now, ignored);
    judged(card, now);
  }
  const what = `the sum of the ignored ${sentence ? "pairs'" : "factors'"} scores, as the seed sees them`;
  card(
    "divergence",
    "estimate",
    now.divergence === null ? "infinite" : about(now.divergence),
    what,
  );
  if (sentence && now.right !== null) {
    card(
      "heads right",
      "measured",
      `${now.right} of ${data.n_words}`,
      "against the heads in the file",
    );
  }
  card(
    "status",
    "",
    now.status,
    (now.iterations
      ? `${plural(now.iterations, "iteration")} in its last call`
      : "nothing to iterate") +
      (now.moved ? `; the last refresh still moved a probability by ${number(now.moved)}` : ""),
    !now.converged,
  );
  // five in one row, seven in two
  host.style.setProperty("--least", host.children.length <= 5 ? "11.5rem" : "15rem");
}

function bound(card, now, ignored) {
  if (!ignored)
    return card(
      "bound of leaving out",
      "rigorous",
      "0",
      now.exact ? "nothing is ignored" : "nothing is ignored; the solver's own error remains",
    );
  if (now.bound === null) return card("bound of leaving out", "rigorous", "none", now.no_bound);
  const own = now.exact ? "" : "; the solver's own error comes on top";
  card(
    "bound of leaving out",
    "rigorous",
    `at most ${number(now.bound)}`,
    `is the divergence from the full model${own}`,
  );
}

// how far off the answer can be: what was left out, and the solver's own error, together
function judged(card, now) {
  const sure = data.certified;
  if (!sure) return;
  card(
    "largest possible error",
    "rigorous",
    now.interval >= 1 ? "any" : `at most ${number(now.interval)}`,
    `by intervals that hold the full model's probabilities, ${number(sure.mean_width)} wide on average${sure.vacuous ? `; of ${count(sure.vacuous)} nothing is known` : ""}`,
  );
  card(
    "refuted",
    "rigorous",
    count(now.refuted),
    `of ${plural(sure.variables, "variable")}: the answer is provably off by more than 0.01`,
    now.refuted > 0,
  );
}
