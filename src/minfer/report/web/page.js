// What all pages use: their data, elements, counts.

const data = JSON.parse(document.getElementById("data").textContent);

const $ = (id) => document.getElementById(id);

function add(parent, name, attributes = {}, text = null) {
  const svg = name === "svg" || parent instanceof SVGElement;
  const node = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  parent.append(node);
  return node;
}

const count = (n) => n.toLocaleString("en-GB");
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

function bytes(text) {
  const raw = atob(text);
  return Uint8Array.from(raw, (c) => c.charCodeAt(0));
}
