"""A small circuit as a picture: a card for each sum, a dot for each product of several rests.

A card is a variable, with a column for each of its states and below it the state's probability at
this node, given all that was decided on the way to it; what follows a state hangs below its column.
Dots, and the start of the drawing, are products: all that leaves them holds together. The product
of the probabilities that a choice of states meets, every dot followed to all its ends, is the
probability of an assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from minfer.basics.cards import layered
from minfer.basics.svg import begun, safe, written
from minfer.basics.words import counted
from minfer.errors import RefusedError, visible

if TYPE_CHECKING:
    from minfer.solvers.circuit import Circuit

MOST_NODES = 300
_SHOWN = 3  # states of one column, and the others by their number
_LETTER, _PAD, _NAME, _ROWS, _DOT, _EDGE = 6.6, 12.0, 19.0, 34.0, 9.0, 16.0  # pixels
_STYLE = """
  svg { background: #ffffff; }
  text { font: 12px sans-serif; fill: #1a1a1a; text-anchor: middle; }
  .name { font-weight: bold; } .share { font-size: 11px; fill: #5f6368; }
  .card { fill: #f1f3f4; stroke: #9aa0a6; } .line { stroke: #1558b0; fill: none; }
  .dot { fill: #1558b0; }
  @media (prefers-color-scheme: dark) {
    svg { background: #202124; } text { fill: #e8eaed; } .share { fill: #9aa0a6; }
    .card { fill: #303134; stroke: #5f6368; } .line { stroke: #8ab4f8; } .dot { fill: #8ab4f8; }
  }"""


class _Column(NamedTuple):
    state: str
    share: float
    width: float
    below: int  # what hangs below it, among all that is drawn, or -1


class _Card(NamedTuple):
    name: str
    columns: list[_Column]

    @property
    def width(self) -> float:
        inside = sum(column.width for column in self.columns)
        return max(inside, len(self.name) * (_LETTER + 0.8) + _PAD)


def drawing(circuit: Circuit) -> str:
    """The SVG of a circuit, with the probabilities of its model's own evidence."""
    wires, n = circuit._wires, circuit.size.nodes
    if n > MOST_NODES:
        raise RefusedError(
            f"this circuit has {counted(n, 'node')}, and a drawing shows up to {MOST_NODES}: "
            "compile a smaller model, or with more evidence"
        )
    frame, share = wires.frame, circuit._base.share.tolist()
    names = _states(circuit)
    products: dict[tuple[int, ...], int] = {}

    def product(rests: list[int]) -> int:
        """What stands for a product of nodes: none, the one, or a dot."""
        if len(rests) < 2:
            return rests[0] if rests else -1
        return products.setdefault(tuple(rests), n + len(products))

    cards = []
    for i in range(n):
        columns = []
        for e in range(int(frame.eptr[i]), int(frame.eptr[i + 1])):
            state = names[int(frame.leaf[e])]
            width = _LETTER * max(len(state), len(_short(share[e]))) + _PAD
            rests = frame.child[int(frame.cptr[e]) : int(frame.cptr[e + 1])].tolist()
            columns.append(_Column(state, share[e], width, product(rests)))
        v = int(frame.variable[i])
        name = visible(circuit.graph.name(v)) if v < circuit.graph.n_variables else "(auxiliary)"
        cards.append(_Card(name, columns))
    product(wires.roots.tolist())
    sizes = np.full((n + len(products), 2), _DOT)
    sizes[:n] = [(card.width, _NAME + _ROWS) for card in cards]
    above: list[list[int]] = [[] for _ in sizes]
    for i, card in enumerate(cards):
        for column in card.columns:
            if column.below >= 0:
                above[column.below].append(i)
    for rests, dot in products.items():
        for rest in rests:
            above[rest].append(dot)
    placed = layered(above, sizes)
    corners = (placed.corners + _EDGE).tolist()
    leaving: dict[tuple[int, int], list[list[float]]] = {}
    for a, b, points in placed.edges:
        leaving.setdefault((a, b), []).append([x + _EDGE for x in points])
    lines, marks = [], []
    for i, card in enumerate(cards):
        x, y = corners[i]
        marks.append(f'<rect class="card" x="{x:.1f}" y="{y:.1f}" width="{card.width:.1f}" '
                     f'height="{_NAME + _ROWS:.1f}" rx="4"/>')  # fmt: skip
        marks.append(written(x + card.width / 2, y + 14, card.name, "name"))
        room = card.width / max(sum(column.width for column in card.columns), 1.0)
        for column in card.columns:
            wide = column.width * room
            middle = x + wide / 2
            marks.append(written(middle, y + _NAME + 13, column.state))
            marks.append(written(middle, y + _NAME + 28, _short(column.share), "share"))
            if column.below >= 0:
                told = f"{card.name} = {column.state}: {column.share:.4g}"
                lines.append(_line(leaving[i, column.below].pop(), middle, column.share, told))
            x += wide
    for rests, dot in products.items():
        x, y = (c + _DOT / 2 for c in corners[dot])
        marks.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{_DOT / 2}"/>')
        lines += [_line(leaving[dot, rest].pop(), x, 1.0, "") for rest in rests]
    width, height = (s + 2 * _EDGE for s in placed.size)
    title = f"A circuit of {counted(n, 'node')} and {counted(len(share), 'edge')}"
    about = f"{title}, of {counted(circuit.graph.n_variables, 'variable')}"
    return "\n".join([*begun(width, height, title, about, _STYLE), *lines, *marks, "</svg>", ""])


def _short(share: float) -> str:
    return f"{share:.3g}"


def _states(circuit: Circuit) -> list[str]:
    """What each leaf stands for, in words; the last is of auxiliary variables."""
    graph, leaves = circuit.graph, circuit._wires.leaves
    begin, members = leaves.members
    owner = np.repeat(np.arange(graph.n_variables), graph._n_states)
    out = []
    for k in range(leaves.n):
        own = members[begin[k] : begin[k + 1]].tolist()
        told = [graph.states(int(owner[s]))[s - int(leaves.offsets[owner[s]])] for s in own]
        more = [f"{len(told) - _SHOWN} more"] if len(told) > _SHOWN else []
        out.append(", ".join([*map(visible, told[:_SHOWN]), *more]))
    return [*out, "·"]


def _line(points: list[float], x: float, share: float, told: str) -> str:
    """From a column, at x, down to what hangs there."""
    at = list(zip(points[::2], points[1::2]))
    (_, top), last = at[0], (x, at[1][1])
    path = f"M{x:.1f},{top:.1f} V{last[1]:.1f}"
    for (x, y), (_, end) in zip(at[2::2], at[3::2]):
        bend = (last[1] + y) / 2
        path += f" C{last[0]:.1f},{bend:.1f} {x:.1f},{bend:.1f} {x:.1f},{y:.1f} V{end:.1f}"
        last = (x, end)
    title = f"<title>{safe(told)}</title>" if told else ""
    seen = 0.25 + 0.75 * share
    return f'<path class="line" d="{path}" opacity="{seen:.2f}">{title}</path>'
