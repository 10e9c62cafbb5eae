// The words of the page, and the slider that moves all of it.

function words() {
  $("about").textContent = data.about;
  $("method").textContent = [data.method, data.solver].filter(Boolean).join("; ");
  $("parameter").textContent = data.parameter_label;
  $("command").textContent = data.command;
  $("version").textContent =
    `Made by minfer ${data.minfer}. This file holds all it shows and asks the network for nothing.`;
  $("verdict").textContent = `At equal time: ${data.verdict}.`;
  $("time-text").textContent =
    `Lower and further left is better. Differences are measured, from ${data.reference}.`;
  const titles = {
    graph: [
      "Kept factors",
      "Circles are variables; the dark part of each is a probability: of state 1, or of the likeliest of many.",
    ],
    picture: [
      "Kept pairs and the answer",
      "Pairs of neighbours are kept where they can change the answer.",
    ],
    sentence: [
      "The tree",
      "Width and number of an arc tell its probability. All kept pairs count; those of two arcs of the tree are drawn.",
    ],
  };
  [$("drawing-title").textContent, $("drawing-text").textContent] = titles[drawing.kind];
  $("rows-title").textContent = sentence ? "Heads" : "Marginals";
  $("rows-text").textContent = sentence
    ? "Rows in colour: the head differs from that of the tree without pairs."
    : `On each bar the estimated error of leaving factors out lies above; there is none where the answer has not converged${data.certified ? ", below it the interval that holds the full model's probability, with a tick where the answer is" : ""}.`;
  $("size-text").textContent = sentence
    ? "Measured differences of arc probabilities."
    : "What was measured beside what was estimated, and what is rigorous where that says something.";
  $("gains-title").textContent = sentence
    ? "Gains of all pairs"
    : "Scores of the candidate factors";
  const zeros = data.histogram.zeros;
  $("gains-text").textContent =
    `As the seed sees them, on a logarithmic scale${zeros ? `; ${count(zeros)} more are 0` : ""}.`;
  const legend = sentence
    ? [
        ["measured", `differences from ${data.reference}, and times`],
        ["estimate", "the divergence: a sum of gains, no bound"],
      ]
    : [
        [
          "rigorous",
          data.certified
            ? "holds whatever the model and the solver: the full model's probabilities lie in their intervals, and an answer outside by more than 0.01 is refuted. The bound is about leaving out alone; a solver that is not exact adds its own error"
            : "the bound on the divergence holds whatever the model. It is about leaving out alone; a solver that is not exact adds its own error",
        ],
        [
          "estimate",
          "how far the ignored factors would still move an answer that has converged, and the sum of their scores. Not a bound",
        ],
        [
          "measured",
          `differences from ${data.reference}, and times on the machine that made this report`,
        ],
      ];
  for (const [tag, text] of legend) {
    const item = add($("legend"), "li");
    add(item, "span", { class: `tag ${tag}` }, tag);
    item.append(` ${text}.`);
  }
  for (const text of data.notes) add($("notes"), "li", {}, text);
  add(
    $("notes"),
    "li",
    {},
    `The slider has ${steps.length} settings, computed beforehand; it starts at the one that was asked for, ${data.parameter_label} ${steps[data.start].label}.`,
  );
}

const draw = { graph, picture, sentence: arcs }[drawing.kind];

function show() {
  const now = steps[current];
  const kept = `${count(now.kept)} of ${count(data.n_candidates)} kept (${percent(share(current))})`;
  $("slider").value = current;
  $("slider").setAttribute("aria-valuetext", `${data.parameter_label} ${now.label}: ${kept}`);
  $("value").textContent = now.label;
  $("kept").textContent = kept;
  const option = {
    factor_cost: "--factor-cost",
    max_divergence: "--max-divergence",
    max_factors: "--max-factors",
  }[data.parameter];
  const [word, python] = now.full
    ? ["--full", "Inference.full()"]
    : [`${option} ${now.label}`, `${data.parameter}=${now.label}`];
  $("setting").textContent = `At this setting of the slider: ${word}, in Python ${python}.`;
  cards();
  draw();
  table();
  timePlot();
  sizePlot();
  gainsPlot();
  convergencePlot();
}

function go(step) {
  current = step;
  show();
}

words();
buildTable();
const slider = $("slider");
slider.max = last;
add($("own"), "option", { value: data.start });
slider.addEventListener("input", () => go(Number(slider.value)));
let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== width) {
    width = window.innerWidth;
    show();
  }
});
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
show();
