// Moving about: zoom, pan, pinch, and the way from card to card by arrow keys.

const view = { x: 0, y: 0, scale: 1, own: false }; // own: moved by hand, so no longer fitted
const CLOSEST = 2.5,
  FAR = 0.48;
const stage = $("stage"),
  world = $("world");
const isList = () => stage.classList.contains("list");

function place() {
  world.style.transform = isList() ? "" : `translate(${view.x}px,${view.y}px) scale(${view.scale})`;
  world.classList.toggle("far", !isList() && view.scale < FAR);
}

const widest = () => Math.min(0.1, fitted().scale);

function fitted() {
  const { clientWidth: w, clientHeight: h } = stage;
  const [width, height] = data.size.map((s) => Math.max(s, 1));
  const edge = Math.min(28, w / 20);
  const scale = Math.min((w - 2 * edge) / width, (h - 2 * edge) / height, 1.1);
  return {
    scale: Math.max(scale, 0.01),
    x: (w - scale * width) / 2,
    y: (h - scale * height) / 2,
  };
}

function fit() {
  Object.assign(view, fitted(), { own: false });
  place();
}

function zoom(factor, x = stage.clientWidth / 2, y = stage.clientHeight / 2) {
  const scale = Math.min(Math.max(view.scale * factor, widest()), CLOSEST);
  const by = scale / view.scale;
  Object.assign(view, { scale, x: x - by * (x - view.x), y: y - by * (y - view.y), own: true });
  place();
}

// moves as little as needed to have all of a card in sight, or its middle to the middle
function reveal(v, middle = false) {
  if (isList()) {
    cards[v].host.scrollIntoView({ block: "nearest" });
    return;
  }
  const [x, y, w, h] = nodes[v];
  if (middle && view.scale < 0.8) {
    view.scale = 0.9;
    view.own = true;
  }
  const along = (at, from, size, room) => {
    const low = at + view.scale * from,
      high = low + view.scale * size;
    if (middle) return (room - view.scale * size) / 2 - view.scale * from;
    if (low < 12) return at + 12 - low;
    return high > room - 12 ? at + room - 12 - high : at;
  };
  const before = [view.x, view.y];
  view.x = along(view.x, x, w, stage.clientWidth);
  view.y = along(view.y, y, h, stage.clientHeight);
  if (before[0] !== view.x || before[1] !== view.y) view.own = true;
  place();
}

// the next card in a direction: near, and not far to the side
function beside(v, key) {
  const middle = (u) => {
    if (!isList()) return [nodes[u][0] + nodes[u][2] / 2, nodes[u][1] + nodes[u][3] / 2];
    const box = cards[u].host.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  };
  const [x, y] = middle(v);
  let best = null,
    least = Infinity;
  names.forEach((_, u) => {
    const [ux, uy] = middle(u);
    const [along, across] = {
      ArrowRight: [ux - x, uy - y],
      ArrowLeft: [x - ux, uy - y],
      ArrowDown: [uy - y, ux - x],
      ArrowUp: [y - uy, ux - x],
    }[key];
    const cost = along + 2 * Math.abs(across);
    if (u === v || along <= 4 || cost >= least || !cards[u].host.offsetParent) return;
    [best, least] = [u, cost];
  });
  return best;
}

const touches = new Map();
let dragged = false; // since the last button went down

function listenToPointers() {
  const local = (event) => {
    const box = stage.getBoundingClientRect();
    return [event.clientX - box.x, event.clientY - box.y];
  };
  stage.addEventListener(
    "wheel",
    (event) => {
      const asleep = window !== window.top && !document.hasFocus(); // a notebook scrolls
      if (isList() || asleep) return;
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 16 : 1;
      zoom(Math.exp(-event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.0016)), ...local(event));
    },
    { passive: false },
  );
  stage.addEventListener("pointerdown", (event) => {
    if (isList() || event.button > 0 || event.target.closest("#zoom, #alarm, #skip")) return;
    if (touches.size === 0) dragged = false;
    touches.set(event.pointerId, local(event));
  });
  stage.addEventListener("pointermove", (event) => {
    const before = touches.get(event.pointerId);
    if (!before) return;
    const now = local(event);
    const far = Math.hypot(now[0] - before[0], now[1] - before[1]);
    if (!dragged && touches.size === 1 && far < 5) return; // a click with a trembling hand
    if (!dragged) {
      dragged = true;
      stage.classList.add("moving");
      stage.setPointerCapture(event.pointerId);
    }
    if (touches.size === 2) {
      const [other] = [...touches].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const span = (at) => Math.max(Math.hypot(at[0] - other[0], at[1] - other[1]), 1);
      zoom(span(now) / span(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
      view.x += (now[0] - before[0]) / 2;
      view.y += (now[1] - before[1]) / 2;
    } else if (touches.size === 1) {
      view.x += now[0] - before[0];
      view.y += now[1] - before[1];
    }
    view.own = true;
    touches.set(event.pointerId, now);
    place();
  });
  const end = (event) => {
    touches.delete(event.pointerId);
    if (touches.size === 0) stage.classList.remove("moving");
  };
  for (const kind of ["pointerup", "pointercancel"]) stage.addEventListener(kind, end);
  window.addEventListener("pointerup", end);
  stage.addEventListener(
    "click",
    (event) => {
      if (!dragged) return;
      dragged = false; // the end of a drag is not a click
      event.preventDefault();
      event.stopPropagation();
    },
    true,
  );
  $("closer").addEventListener("click", () => zoom(1.3));
  $("further").addEventListener("click", () => zoom(1 / 1.3));
  $("fit").addEventListener("click", fit);
  new ResizeObserver(() => {
    if (!view.own) fit();
  }).observe(stage);
}

function show(kind) {
  stage.classList.toggle("list", kind === "list");
  $("as-map").setAttribute("aria-pressed", kind === "map");
  $("as-list").setAttribute("aria-pressed", kind === "list");
  for (const [v, card] of cards.entries()) {
    card.host.style.setProperty("width", kind === "list" ? "auto" : `${nodes[v][2]}px`);
  }
  if (kind === "map" && !view.own) fit();
  else place();
}
