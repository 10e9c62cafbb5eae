"""A parse as a picture: lines for a terminal, and SVG.

In the terminal each word has a row, in the order of the sentence, and hangs to the right of its
head; a vertical line joins the dependents of a word. In the SVG the words stand in a row with the
arcs above them, and an arc is as opaque as it is probable.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import TYPE_CHECKING, NamedTuple

from minfer.basics.notebook import Face, Right
from minfer.basics.svg import begun, safe, written
from minfer.basics.words import probability
from minfer.errors import visible

if TYPE_CHECKING:
    from minfer.parsing.conllu import Sentence
    from minfer.parsing.inference import Inference
    from minfer.parsing.parser import Parser

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_LINES = " ╵╷│╴┘┐┤╶└┌├─┴┬┼"  # by the sum of the directions in which there is a line
_ASCII = " '.|-'.|-'.|-''+"


def tree_lines(heads: Sequence[int], ascii_only: bool = False) -> list[str]:
    """What stands before each word (n,): lines from heads to dependents.

    heads : (n,) of word i + 1, 0 for the root; a tree

    >>> for line, word in zip(tree_lines([2, 3, 0, 3]), "The dog sleeps .".split()):
    ...     print(line, word)
        ┌── The
      ┌─┘ dog
    ──┤ sleeps
      └── .
    """
    n = len(heads)
    column = _columns(heads)
    width = max(column, default=0) + 2
    grid = [[0] * width for _ in range(n)]
    for head in range(1, n + 1):
        rows = [head - 1, *(k for k in range(n) if heads[k] == head)]
        x = column[head]
        for row in range(min(rows), max(rows) + 1):
            grid[row][x] |= _UP * (row > min(rows)) | _DOWN * (row < max(rows))
    for k, head in enumerate(heads):
        left = column[head] if head else 0
        for x in range(left, column[k + 1] + 1):
            grid[k][x] |= _RIGHT * (x < column[k + 1]) | _LEFT * (x > left or not head)
        if not any(h == k + 1 for h in heads):
            grid[k][column[k + 1]] |= _RIGHT
    letters = _ASCII if ascii_only else _LINES
    return ["".join(letters[cell] for cell in row).rstrip() for row in grid]


def _columns(heads: Sequence[int]) -> list[int]:
    """Where each node's line of dependents stands: right of its head's, free in all its rows."""
    n = len(heads)
    children: list[list[int]] = [[] for _ in range(n + 1)]
    for k, head in enumerate(heads, 1):
        children[head].append(k)
    column = [0] * (n + 1)
    taken: list[set[int]] = [set() for _ in range(n + 1)]  # columns with a line through a row
    queue = list(children[0])
    for node in queue:
        span = range(min([node, *children[node]]), max([node, *children[node]]) + 1)
        x = column[heads[node - 1]] + 2
        while any(x in taken[row] for row in span):
            x += 2
        column[node] = x
        for row in span:
            taken[row].add(x)
        queue += children[node]
    return column


# ---------------------------------------------------------------------- SVG

_LETTER, _GAP, _LEVEL, _TOP = 9.0, 22.0, 30.0, 30.0  # pixels
_LEAST_SHOWN = 0.05  # runner-up heads below it are left out
_STYLE = """
  svg { background: #ffffff; }
  text { font: 15px sans-serif; fill: #1a1a1a; text-anchor: middle; }
  .tag { font-size: 11px; fill: #5f6368; } .name { font-size: 11px; }
  .arc { stroke: #1558b0; fill: none; stroke-width: 1.8; }
  .tip { fill: #1558b0; stroke: none; }
  .second .arc { stroke: #b3400e; stroke-dasharray: 5 4; } .second .tip { fill: #b3400e; }
  .wrong .arc { stroke: #c5221f; stroke-width: 2.6; } .wrong .tip { fill: #c5221f; }
  @media (prefers-color-scheme: dark) {
    svg { background: #202124; } text { fill: #e8eaed; } .tag { fill: #9aa0a6; }
    .arc { stroke: #8ab4f8; } .tip { fill: #8ab4f8; }
    .second .arc { stroke: #fcad70; } .second .tip { fill: #fcad70; }
    .wrong .arc { stroke: #f28b82; } .wrong .tip { fill: #f28b82; }
  }"""


class Drawn(NamedTuple):
    """What is drawn of a parse of n words."""

    forms: Sequence[str]
    tags: Sequence[str]
    deprels: Sequence[str]
    heads: Sequence[int]
    probs: Sequence[float]  # of the arcs
    second: Sequence[int]  # the best other heads, -1 for none
    second_probs: Sequence[float]
    tree_prob: float  # of the whole tree
    gold: Sequence[int] | None = None  # heads to compare with

    @classmethod
    def of(
        cls, parser: Parser, sentence: Sentence, tags: str | None, inference: Inference
    ) -> Drawn:
        """What a parser finds in a sentence."""
        batch = parser.parse_batch([sentence], tags, inference=inference)
        [parsed] = parser.sentences([sentence], batch)
        gold = None if sentence.heads is None else sentence.heads.tolist()
        return cls(
            parsed.forms, parsed.upos, parsed.deprels, batch.heads.tolist(), batch.probs.tolist(),
            batch.second.tolist(), batch.second_probs.tolist(), exp(float(batch.log_p[0])), gold,
        )  # fmt: skip

    def visible(self) -> Drawn:
        """The same with words, tags and relations as they can be shown, on one line each."""
        forms, tags, deprels = (
            list(map(visible, texts)) for texts in (self.forms, self.tags, self.deprels)
        )
        return self._replace(forms=forms, tags=tags, deprels=deprels)

    def lines(self, plain: bool = False) -> list[str]:
        """The words under each other, each after the lines to its head."""
        drawn = zip(tree_lines(self.heads, plain), self.forms)
        return [f"{line} {form}" for line, form in drawn]

    def face(self) -> Face:
        """A row for each word, those with an improbable head to be seen."""

        def name(node: int) -> str:
            return f"{node} {self.forms[node - 1]}" if node else "0 ROOT"

        rows = []
        for k, form in enumerate(self.forms):
            other = self.second[k]
            row: list[object] = [k + 1, form, self.tags[k], name(self.heads[k]), self.deprels[k]]
            row.append(Right(probability(self.probs[k])))
            row.append(name(other) if other >= 0 else "")
            row.append(Right(probability(self.second_probs[k])) if other >= 0 else "")
            if self.gold is not None:
                row.append("" if self.gold[k] == self.heads[k] else name(self.gold[k]))
            rows.append(row)
        head = ("", "word", "tag", "head", "relation", "p", "runner-up", "p", "gold")
        doubtful = frozenset(k for k, p in enumerate(self.probs) if p < 0.5)
        return Face("", head[: 8 + (self.gold is not None)], rows, {}, doubtful)

    def told(self) -> str:
        """The probability of the tree, and how many heads are those to compare with."""
        text = f"probability of the tree {probability(self.tree_prob)}"
        if self.gold is None:
            return text
        right = sum(a == b for a, b in zip(self.gold, self.heads))
        return f"{text}\n{right} of {len(self.heads)} heads as in the file"


class _Arc(NamedTuple):
    head: int
    modifier: int
    name: str
    prob: float
    kind: str  # "", "second" or "wrong"


def svg(parse: Drawn) -> str:
    """A picture of one sentence that needs no other file."""
    parse = parse.visible()
    arcs = []
    for k, (head, prob) in enumerate(zip(parse.heads, parse.probs)):
        wrong = parse.gold is not None and parse.gold[k] != head
        arcs.append(_Arc(head, k + 1, parse.deprels[k], prob, "wrong" if wrong else ""))
        if parse.second[k] >= 0 and parse.second_probs[k] >= _LEAST_SHOWN:
            arcs.append(_Arc(parse.second[k], k + 1, "", parse.second_probs[k], "second"))
    levels = _levels(arcs)
    centres = [30.0]  # of the root and of the words
    right = 60.0
    for form, tag in zip(parse.forms, parse.tags):
        width = max(len(form) * _LETTER, len(tag) * 7.5, 24.0)
        centres.append(right + _GAP + width / 2)
        right += _GAP + width
    base = _TOP + _LEVEL * max(levels, default=0)
    width, height = right + 20, base + 52
    sentence = " ".join(parse.forms)
    said = "; ".join(
        f"{parse.forms[k]} is {parse.deprels[k]} of {_form(parse, h)}, probability {p:.2f}"
        for k, (h, p) in enumerate(zip(parse.heads, parse.probs))
    )
    about = f"Dependency tree, probability {parse.tree_prob:.2f}: {said}"
    lines = begun(width, height, sentence, about, _STYLE)
    offsets = _ends(arcs, centres)
    order = sorted(range(len(arcs)), key=lambda k: arcs[k].kind != "second")  # runner-ups below
    lines += [_svg_arc(arcs[k], *offsets[k], base, base - _LEVEL * levels[k], parse) for k in order]
    lines.append(written(centres[0], base + 20, "ROOT", "tag"))
    for x, form, tag in zip(centres[1:], parse.forms, parse.tags):
        lines.append(written(x, base + 20, form))
        lines.append(written(x, base + 38, tag if tag != "_" else "", "tag"))
    return "\n".join([*lines, "</svg>", ""])


def _levels(arcs: Sequence[_Arc]) -> list[int]:
    """How high each arc must go, from 1: above every shorter one whose span overlaps its own."""
    spans = [(min(a.head, a.modifier), max(a.head, a.modifier)) for a in arcs]
    levels = [0] * len(arcs)
    for k in sorted(range(len(arcs)), key=lambda k: spans[k][1] - spans[k][0]):
        a, b = spans[k]
        below = [levels[j] for j, (c, d) in enumerate(spans) if levels[j] and c < b and a < d]
        levels[k] = 1 + max(below, default=0)
    return levels


def _ends(arcs: Sequence[_Arc], centres: Sequence[float]) -> list[tuple[float, float]]:
    """Where arcs leave and arrive: side by side at a word, the longest in the middle."""
    places: dict[tuple[int, int], float] = {}
    for node, centre in enumerate(centres):
        touching = []
        for k, arc in enumerate(arcs):
            if node in (arc.head, arc.modifier):
                other = arc.modifier if node == arc.head else arc.head
                side = 1 if other > node else -1
                touching.append((side, -side * abs(other - node), k))
        touching.sort()
        for place, (_, _, k) in enumerate(touching):
            places[k, node] = centre + 7.0 * (place - (len(touching) - 1) / 2)
    return [(places[k, arc.head], places[k, arc.modifier]) for k, arc in enumerate(arcs)]


def _svg_arc(arc: _Arc, start: float, end: float, base: float, top: float, parse: Drawn) -> str:
    bend = min(14.0, abs(end - start) / 2) * (1 if end > start else -1)
    path = (
        f"M{start:.1f},{base:.1f} V{top + 12:.1f} Q{start:.1f},{top:.1f} {start + bend:.1f},"
        f"{top:.1f} H{end - bend:.1f} Q{end:.1f},{top:.1f} {end:.1f},{top + 12:.1f} V{base - 6:.1f}"
    )
    what = arc.name or "runner-up"
    words = f"{_form(parse, arc.head)} → {parse.forms[arc.modifier - 1]}"
    name = written((start + end) / 2, top - 4, arc.name, "name") if arc.name else ""
    return (
        f'<g class="{arc.kind}"><title>{safe(words)}: {safe(what)}, {arc.prob:.4f}</title>'
        f'<g opacity="{max(arc.prob, 0.02):.3f}"><path class="arc" d="{path}"/>'
        f'<path class="tip" d="M{end - 4:.1f},{base - 8:.1f} h8 l-4,8 z"/></g>{name}</g>'
    )


def _form(parse: Drawn, node: int) -> str:
    return parse.forms[node - 1] if node else "ROOT"
