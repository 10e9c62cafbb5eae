// The drawings of a picture, and a cursor that reads single pixels.

let panels = null,
  cursor = null; // the cursor is a pixel, or the first one of a block

function buildPicture() {
  const { part } = drawing,
    large = steps[0].drawing.share !== null;
  const host = add($("drawing"), "div", { class: "pictures" });
  const size = Math.max(4, Math.floor(768 / Math.max(part.width, part.height)));
  const where = large ? ` (a part, from row ${part.top}, column ${part.left})` : "";
  const whole = {
    top: 0,
    left: 0,
    width: drawing.width,
    height: drawing.height,
    block: drawing.block,
    size: 1,
  };
  panels = [
    {
      ...part,
      block: 1,
      size,
      title: `What was seen, faint, and the kept pairs of neighbours${where}`,
      paint: paintPairs,
    },
    {
      ...whole,
      title: drawing.classes ? "Answer: the likeliest class" : "Answer: probability of white",
      paint: paintAnswer,
    },
    { ...whole, title: "Estimated error of leaving out", paint: paintErrors },
    ...(large
      ? [{ ...whole, title: "Share of the pairs of neighbours kept", paint: paintShare }]
      : []),
  ];
  for (const panel of panels) {
    const figure = add(host, "figure");
    panel.canvas = add(figure, "canvas", {
      width: panel.width * panel.size,
      height: panel.height * panel.size,
      tabindex: 0,
      role: "img",
      "aria-label": panel.title,
      "aria-describedby": "readout",
    });
    panel.caption = add(figure, "figcaption", {}, panel.title);
    panel.canvas.addEventListener("pointermove", (event) => {
      const box = panel.canvas.getBoundingClientRect();
      const row = Math.floor(((event.clientY - box.top) / box.height) * panel.height);
      const column = Math.floor(((event.clientX - box.left) / box.width) * panel.width);
      look(panel, row, column);
    });
    panel.canvas.addEventListener("keydown", (event) => {
      const move = {
        ArrowUp: [-1, 0],
        ArrowDown: [1, 0],
        ArrowLeft: [0, -1],
        ArrowRight: [0, 1],
      }[event.key];
      if (!move) return;
      event.preventDefault();
      const [row, column] = cursor ? inside(panel, cursor) : [panel.height >> 1, panel.width >> 1];
      look(panel, row + move[0], column + move[1]);
    });
  }
  add($("drawing"), "p", { id: "readout", class: "muted", "aria-live": "polite" });
}

const inside = (panel, [row, column]) => [
  Math.floor((row - panel.top) / panel.block),
  Math.floor((column - panel.left) / panel.block),
];

function look(panel, row, column) {
  row = Math.min(Math.max(row, 0), panel.height - 1);
  column = Math.min(Math.max(column, 0), panel.width - 1);
  cursor = [panel.top + row * panel.block, panel.left + column * panel.block];
  picture();
}

function readout() {
  const text = $("readout");
  if (!cursor) {
    text.textContent = "Point at a pixel, or go there with the arrow keys, to read its numbers.";
    return;
  }
  const now = steps[current].drawing,
    { block, classes } = drawing;
  const [row, column] = cursor.map((at) => Math.floor(at / block));
  const k = row * drawing.width + column;
  const answer = bytes(now.answer)[k] / 255;
  const at = (map, top) => about((bytes(map)[k] / 255) * top);
  let error = "error of leaving out not known";
  if (now.errors) error = `estimated error of leaving out ${at(now.errors, now.error_top)}`;
  else if (now.moves) error = `another refresh would move it by ${at(now.moves, now.move_top)}`;
  const where =
    block > 1
      ? `${block}x${block} pixels from row ${row * block}, column ${column * block}`
      : `row ${row}, column ${column}`;
  const what = classes
    ? `class mean ${number(Math.min(...classes) + answer * (Math.max(...classes) - Math.min(...classes)))}`
    : `probability of white ${answer.toFixed(2)}`;
  text.textContent = `${where}: ${what}, ${error}`;
}

const rgb = (name) =>
  colour(name)
    .match(/\w\w/g)
    .map((h) => parseInt(h, 16));
const mix = (a, b, t) => a.map((x, k) => x + (b[k] - x) * t);

function paint({ canvas, width, height }, pixel) {
  const image = new ImageData(width, height);
  for (let k = 0; k < width * height; k += 1) image.data.set([...pixel(k), 255], 4 * k);
  const small = new OffscreenCanvas(width, height);
  small.getContext("2d").putImageData(image, 0, 0);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  return context;
}

// what was seen lies faintly under what is drawn on it
function faint(text) {
  const seen = bytes(text),
    card = rgb("card");
  return (k) => mix(card, [seen[k], seen[k], seen[k]], 0.35);
}

// kept pairs as lines between the middles of pixels: those in rows first, then those in columns
function paintPairs(panel, now) {
  const context = paint(panel, faint(panel.seen)),
    bits = bytes(now.kept),
    { width, height, size } = panel;
  context.strokeStyle = colour("kept");
  context.lineWidth = Math.max(1.5, size / 3.5);
  context.lineCap = "round";
  context.beginPath();
  const across = height * (width - 1);
  for (let k = 0; k < across + (height - 1) * width; k += 1) {
    if (!((bits[k >> 3] >> (7 - (k & 7))) & 1)) continue;
    const down = k >= across;
    const row = down ? Math.floor((k - across) / width) : Math.floor(k / (width - 1));
    const column = down ? (k - across) % width : k % (width - 1);
    context.moveTo((column + 0.5) * size, (row + 0.5) * size);
    context.lineTo((column + (down ? 0.5 : 1.5)) * size, (row + (down ? 1.5 : 0.5)) * size);
  }
  context.stroke();
}

function paintAnswer(panel, now) {
  const p = bytes(now.answer);
  paint(panel, (k) => [p[k], p[k], p[k]]);
}

function paintErrors(panel, now) {
  const card = rgb("card"),
    strong = rgb("estimate");
  if (!now.errors && !now.moves) {
    paint(panel, () => card);
    panel.caption.textContent = `No error of leaving out is estimated here: ${steps[current].no_estimate}`;
    return;
  }
  const [map, key, title] = now.errors
    ? [now.errors, "error_top", "Estimated error of leaving out"]
    : [now.moves, "move_top", "Not converged. What another refresh would move"];
  const off = bytes(map),
    own = now[key];
  const top = Math.max(...steps.map((s) => s.drawing[key] ?? 0), 1e-12);
  paint(panel, (k) => mix(card, strong, Math.sqrt((off[k] / 255) * (own / top))));
  panel.caption.textContent = `${title}: at most ${about(own)} here; full colour is ${number(top)}`;
}

function paintShare(panel, now) {
  const kept = bytes(now.share),
    under = faint(drawing.seen),
    strong = rgb("kept");
  paint(panel, (k) => mix(under(k), strong, kept[k] / 255));
}

function picture() {
  if (!panels) buildPicture();
  for (const panel of panels) {
    panel.paint(panel, steps[current].drawing);
    if (!cursor) continue;
    const [row, column] = inside(panel, cursor),
      pen = panel.canvas.getContext("2d");
    pen.strokeStyle = colour("base");
    pen.lineWidth = Math.max(1, panel.size / 4);
    pen.strokeRect(column * panel.size + 0.5, row * panel.size + 0.5, panel.size, panel.size);
  }
  readout();
}
