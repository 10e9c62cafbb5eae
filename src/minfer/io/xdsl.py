"""XDSL, the format of GeNIe and SMILE.

    <smile version="1.0" id="garden"><nodes>
      <cpt id="rain"><state id="no"/><state id="yes"/><probabilities>0.8 0.2</probabilities></cpt>
      <deterministic id="wet"><state id="no"/><state id="yes"/><parents>rain</parents>
        <resultingstates>no yes</resultingstates></deterministic>
    </nodes></smile>

Tables run with the node itself fastest and its first parent slowest. A *deterministic* node becomes
the table that is one at the resulting state of each row. A *noisy-MAX* node (noisy-OR is the binary
one) has its states from the strongest, 0, to "no effect", the last. Its ``strengths`` list each
parent's states from the strongest to the one without effect, and its ``parameters`` a distribution
q for each of these states in that order, then the leak. It is the strongest of independent effects,

    P(Y >= y | x) = P(leak >= y) * prod_i P(q_i(x_i) >= y)

over the states' numbers, and is kept as such, with any number of parents, as
:class:`minfer.NoisyMin` is (whose states are from the lowest), and written back. The state without
effect must have q = (0, ..., 0, 1). Where a parent has none, what all its states do is written as
part of the leak, or else the table. A gate of the highest state, as :class:`minfer.NoisyMax` and
:class:`minfer.NoisyOr` are, is written with its states in reverse, and so are the tables of its
children; nodes come after their parents. Decision, utility,
equation and noisy-adder nodes are refused by name; and so are nodes with several parents in a file
that names aGrUM as its author, since pyAgrum lists rows with the first parent fastest.

A network through time has nodes on a plate, of which each slice has its own, and after the nodes
the tables that they have in all slices but the first:

    <cpt id="rain" dynamic="plate"> ... </cpt> ...
    <dynamic numslices="5"><cpt id="rain" order="1"><parents>rain</parents> ... </cpt></dynamic>

Such a table has the node's own parents first, then those in the slice before, which alone are
listed. Nodes that are not on the plate are the same in all slices: every slice here has a copy of
them. Of *anchors*, the parents in the first slice alone, the later tables have no axes. Terminal
nodes, and orders beyond 1, are refused. :func:`parse_slices` reads such a file, for
:meth:`minfer.Dynamic.load`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import prod
from typing import NamedTuple

import numpy as np

from minfer.basics.words import counted
from minfer.errors import RefusedError, visible
from minfer.factors.causes import IndependentCauses
from minfer.factors.group import MAX_TABLE_CELLS, Floats, Ints
from minfer.graph import FactorGraph
from minfer.io.elements import UNWRITABLE, Element, ElementTree
from minfer.io.networks import (
    Draft,
    check_network,
    check_one_line,
    conditional,
    in_words,
    names_of,
)
from minfer.io.opening import parsed
from minfer.io.text import PathLike, write_bytes
from minfer.model.causes import DrawnCauses, table_of
from minfer.model.directed import order_or_cycle, parents_first

_READ = {"cpt", "deterministic", "noisymax"}
_REFUSED = {
    "decision": "a decision node",
    "utility": "a utility node",
    "mau": "a multi-attribute utility node",
    "equation": "an equation node",
    "noisyadder": "a noisy-adder node",
    "truthtable": "a truth table",
    "demorgan": "a DeMorgan node",
}
_NUMBERS = ["probabilities", "resultingstates", "strengths", "parameters"]
_TAGS = frozenset([*_NUMBERS, "nodes", "state", "parents", "dynamic", "extensions", "genie"])
#: How far a row may be from what it must be.
_NEAR = 1e-4


def read_xdsl(path: PathLike) -> FactorGraph:
    """Read a Bayesian network in GeNIe's XDSL; ``-`` for standard input, gzip is recognised."""
    return parsed(path, parse_xdsl)


def parse_xdsl(name: str, data: bytes) -> FactorGraph:
    """The network in the XML ``data``; ``name`` is the file for messages."""
    tree, root, nodes, draft = _opened(name, data)
    for dynamic in root.all("dynamic"):
        tree.fail(dynamic, "a network through time: minfer.Dynamic.load and `minfer time` read it")
    for node in nodes:
        _table(tree, draft, node, _id(tree, node), _parents(tree, node))
    return draft.graph()


def parse_slices(
    name: str, data: bytes, before: Callable[[str], str]
) -> tuple[FactorGraph, FactorGraph]:
    """The first slice and the step of a network through time; ``before`` gives the names that
    variables of the slice before have in a step."""
    tree, root, nodes, first = _opened(name, data)
    dynamic = tree.one(root, "dynamic")
    step = Draft(tree.n_bytes, tree.fail)
    of = {_id(tree, node): node for node in nodes}
    kind = {v: node.attributes.get("dynamic", "") for v, node in of.items()}
    for v, node in of.items():
        if kind[v] not in ("", "plate", "anchor"):
            tree.fail(node, f"{visible(v)} is a {visible(kind[v])} node, which is not read")
        step.variable(v, first.states[first.index(v, node)], node)
    for v, node in of.items():
        past = before(v)
        states = first.states[first.index(v, node)]
        step.variable(past, states, node)
        step.table([step.index(past, node)], np.full(len(states), 1.0 / len(states)), node)
    later: dict[str, Element] = {}
    for node in dynamic.children:
        v = _id(tree, node)
        if kind.get(v) != "plate":
            tree.fail(node, f"{visible(v)} is not a node on the plate")
        if node.attributes.get("order") != "1":
            tree.fail(node, f"{visible(v)}: only tables of order 1 are read: one slice before")
        if v in later:
            tree.fail(node, f"{visible(v)} has two tables of order 1")
        later[v] = node
    for v, node in of.items():
        parents = _parents(tree, node)
        _table(tree, first, node, v, parents, written_out=True)
        mixed = next((p for p in parents if kind.get(p) == "plate"), None)
        if kind[v] != "plate":
            if mixed is not None:
                tree.fail(
                    node, f"{visible(v)} is in all slices, its parent {visible(mixed)} in one"
                )
            scope = step.scope(v, [before(v)], node, [node])
            step.check_expanded(scope, node)
            step.table(scope, np.eye(len(step.states[scope[-1]])), node)
            continue
        parents = [p for p in parents if kind[p] != "anchor"]
        given = later.get(v, node)
        if v in later:
            parents += map(before, _parents(tree, given))
        _table(tree, step, given, v, parents, written_out=True)
    return first.graph(), step.graph()


def _opened(name: str, data: bytes) -> tuple[ElementTree, Element, Sequence[Element], Draft]:
    """The file, its root and nodes, and a draft of their variables."""
    tree = ElementTree(name, data, _TAGS, all_in=("nodes", "dynamic"))
    root = tree.root
    assert root is not None  # expat refuses a file without one
    if root.tag != "smile":
        tree.fail(root, "the root of an XDSL file is <smile>")
    draft = Draft(tree.n_bytes, tree.fail)
    nodes = tree.one(root, "nodes").children
    for node in nodes:
        _check_read(tree, node)
        states = [_id(tree, state) for state in node.all("state")]
        draft.variable(_id(tree, node), states, node)
    by_agrum = any(
        genie.attributes.get("app", "").startswith("aGrUM")
        for extensions in root.all("extensions")
        for genie in extensions.all("genie")
    )
    for node in nodes if by_agrum else ():
        if len(_parents(tree, node)) > 1:
            tree.fail(
                node,
                "aGrUM, which wrote this file, lists rows in another order than GeNIe does; save "
                "the network as BIFXML instead",
            )
    return tree, root, nodes, draft


def _parents(tree: ElementTree, node: Element) -> list[str]:
    return tree.one(node, "parents").text.split() if any(node.all("parents")) else []


def _table(
    tree: ElementTree,
    draft: Draft,
    node: Element,
    v: str,
    parents: list[str],
    written_out: bool = False,
) -> None:
    """The table of v that a node states; ``written_out``: noisy gates, too."""
    _check_read(tree, node)
    at = next(node.all("parents"), node)
    compact = node.tag == "noisymax" and not written_out
    scope = draft.scope(v, parents, node, [at] * len(parents), any_number=compact)
    if node.tag == "cpt":
        table = tree.one(node, "probabilities")
        draft.table(scope, tree.numbers(table), table)
    elif node.tag == "deterministic":
        _deterministic(tree, draft, node, scope)
    else:
        _noisy_max(tree, draft, node, scope, written_out)


def _check_read(tree: ElementTree, node: Element) -> None:
    if node.tag not in _READ:
        name = node.attributes.get("id", "")
        what = _REFUSED.get(node.tag, "of a kind that is not known")
        tree.fail(node, f"{visible(name)!r} is {what}; only chance nodes with tables are read")


def _id(tree: ElementTree, node: Element) -> str:
    found = node.attributes.get("id")
    if found is None:
        tree.fail(node, "it has no id")
    return found


def _deterministic(tree: ElementTree, draft: Draft, node: Element, scope: list[int]) -> None:
    """Ones at the resulting states, one for each row."""
    listed = tree.one(node, "resultingstates")
    results, states = listed.text.split(), draft.states[scope[-1]]
    rows = prod(draft.shape(scope[:-1]))
    if len(results) != rows:
        tree.fail(listed, f"{counted(len(results), 'state')} for {float(rows):.15g} rows")
    draft.check_expanded(scope, node)
    table = np.zeros((rows, len(states)))
    number = {state: k for k, state in enumerate(states)}
    for row, state in enumerate(results):
        if state not in number:
            name = visible(_id(tree, node))
            tree.fail(listed, f"{visible(state[:40])!r} is not a state of {name}")
        table[row, number[state]] = 1.0
    draft.table(scope, table, node)


def _noisy_max(
    tree: ElementTree, draft: Draft, node: Element, scope: list[int], written_out: bool
) -> None:
    *shape, size = draft.shape(scope)
    listed = tree.one(node, "parameters")
    q = tree.numbers(listed)
    if q.size != (sum(shape) + 1) * size:
        tree.fail(
            listed,
            f"{counted(q.size, 'number')}, but {sum(shape)} states of parents and the leak, each "
            f"with {size}, need {(sum(shape) + 1) * size}",
        )
    q = q.reshape(-1, size)
    off = np.abs(q.sum(axis=1) - 1.0) > _NEAR
    if off.any():
        k = int(np.argmax(off))
        tree.fail(listed, f"distribution {k + 1} sums to {q[k].sum():.6g}, not 1")
    order = _strengths(tree, node, shape)
    causes, first = {}, 0
    for v, n, own in zip(scope, shape, order):
        if abs(q[first + n - 1, -1] - 1.0) > _NEAR:
            parent = draft.states[v][own[-1]]
            tree.fail(
                listed,
                f"the state without effect, {visible(parent)!r} of {visible(draft.name(v))}, must "
                "have the distribution 0 ... 0 1",
            )
        by_state = np.empty((n, size))
        by_state[own] = q[first : first + n]
        causes[draft.name(v)] = by_state
        first += n
    entry = DrawnCauses(causes, q[-1], top=False)
    if written_out or not shape or size < 2:
        draft.check_expanded(scope, node)
        if prod((*shape, size)) > MAX_TABLE_CELLS:
            tree.fail(node, f"{len(shape)} parents are too many to write its table out")
        draft.table(scope, table_of(entry, draft.name(scope[-1]), (*shape, size)), node)
    else:
        draft.gate(scope, entry, node)


def _strengths(tree: ElementTree, node: Element, shape: list[int]) -> list[Ints]:
    """Each parent's states from the strongest to the one without effect."""
    if not any(True for _ in node.all("strengths")):
        return [np.arange(n) for n in shape]
    listed = tree.one(node, "strengths")
    values = tree.numbers(listed)
    if values.size != sum(shape):
        tree.fail(listed, f"{counted(values.size, 'number')} for {sum(shape)} states of parents")
    out, first = [], 0
    for n in shape:
        own = values[first : first + n]
        if not np.array_equal(np.sort(own), np.arange(n)):
            tree.fail(
                listed, f"numbers {first + 1} to {first + n} should be 0 to {n - 1}, once each"
            )
        out.append(own.astype(np.int64))
        first += n
    return out


# ---------------------------------------------------------------- writing


def write_xdsl(graph: FactorGraph, path: PathLike) -> None:
    """Write a Bayesian network in XDSL, with its noisy gates; see the module.

    Models that are not Bayesian networks, or contain evidence, are refused.
    """
    write_bytes(path, format_xdsl(graph))


def format_xdsl(graph: FactorGraph) -> bytes:
    """The text of an XDSL file."""
    check_network(graph, "XDSL")
    check_one_line(graph, "XDSL")
    names = [_attribute(name) for name in names_of(graph)]
    for name in names_of(graph):
        if len(name.split()) != 1:
            raise RefusedError(
                f"the name {visible(name)!r} is empty or has a space, and XDSL lists parents with "
                "spaces between them: rename it, or write .minfer"
            )
    factor = {graph.child(i): i for i in range(graph.n_factors)}
    scopes = {v: graph.scope(i).tolist() for v, i in factor.items()}
    gates = {v: _effects(graph, i) for v, i in factor.items()}
    #: Variables whose states are listed from the last to the first.
    turned = {v for v, gate in gates.items() if gate is not None and gate.turned}
    order = list(range(graph.n_variables))
    parents = {v: [u for u in scopes[v] if u != v] for v in order}
    if not parents_first([[*parents[v], v] for v in order]):
        order = order_or_cycle(parents)[0]
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<smile version="1.0" id="network">']
    lines.append("<nodes>")
    for v in order:
        gate = gates[v]
        tag = "cpt" if gate is None else "noisymax"
        lines.append(f"  <{tag} id={names[v]}>")
        states = graph.states(v)[:: -1 if v in turned else 1]
        lines += [f"    <state id={_attribute(s)} />" for s in states]
        if parents[v]:
            given = escape(" ".join(graph.name(u) for u in parents[v]), quote=False)
            lines.append(f"    <parents>{given}</parents>")
        if gate is None:
            _, own, table = conditional(graph, factor[v], "XDSL")
            back = tuple(a for a, u in enumerate([*own, v]) if u in turned)
            numbers = in_words(np.flip(table, back).ravel().tolist(), " ")
            lines.append(f"    <probabilities>{numbers}</probabilities>")
        else:
            strengths, rows = gate.listed([u in turned for u in parents[v]])
            lines.append(f"    <strengths>{' '.join(map(str, strengths))}</strengths>")
            lines.append(f"    <parameters>{in_words(rows.ravel().tolist(), ' ')}</parameters>")
        lines.append(f"  </{tag}>")
    lines += ["</nodes>", "</smile>", ""]
    return "\n".join(lines).encode()


class _Effects(NamedTuple):
    """A noisy gate as XDSL has it: each parent has a state without effect."""

    rows: list[Floats]  # (states, S) of each parent, by state, from the strongest level
    none: list[int]  # the state without effect
    leak: Floats  # (S,)
    turned: bool  # the strongest state is the last one

    def listed(self, turned: list[bool]) -> tuple[list[int], Floats]:
        """``strengths`` and ``parameters``; which parents list their states in reverse."""
        strengths, out = [], []
        for rows, none, back in zip(self.rows, self.none, turned):
            order = [s for s in range(len(rows)) if s != none] + [none]
            strengths += [len(rows) - 1 - s if back else s for s in order]
            out.append(rows[order])
        return strengths, np.concatenate([*out, self.leak[None]])


def _effects(graph: FactorGraph, factor: int) -> _Effects | None:
    """A factor as a gate of XDSL; None where it is a table, or has to be one."""
    group, row = graph._locate(factor)
    if not isinstance(group, IndependentCauses):
        return None
    *parents, leak = (q[:, :: -1 if group.highest else 1] for q in group.distributions(row))
    rows, none = [], []
    leak_tail = _tails(leak[0])
    size = len(leak_tail)
    for q in parents:
        without = [s for s in range(len(q)) if q[s, -1] == 1.0]
        if not without:  # what all its states do is the leak's
            tails = np.array([_tails(p) for p in q])
            for s in range(len(q)):
                if (tails[s] > 0.0).all():
                    rest = tails / tails[s]
                    more = -np.diff(rest, axis=1, append=0.0)
                    if (rest <= 1.0 + 1e-15).all() and (more >= 0.0).all():
                        without, leak_tail = [s], leak_tail * tails[s]
                        q = more / more.sum(axis=1, keepdims=True)
                        q[s] = np.arange(size) == size - 1
                        break
            else:
                return None
        rows.append(q)
        none.append(without[-1])
    own = leak[0] if np.array_equal(leak_tail, _tails(leak[0])) else None
    if own is None:
        own = -np.diff(leak_tail, append=0.0)
        own = own / own.sum()
    return _Effects(rows, none, own, group.highest)


def _tails(q: Floats) -> Floats:
    """P(q >= y)."""
    return np.asarray(np.cumsum(q[::-1])[::-1] / q.sum())


def _attribute(name: str) -> str:
    """A name in quotes, if it would be read back as it is."""
    if not name or UNWRITABLE.search(name):
        raise RefusedError(
            f"the name {visible(name)!r} is empty or has a character that XML cannot hold: rename "
            "it, or write .minfer"
        )
    return f'"{escape(name)}"'.replace("\t", "&#9;")
