"""XDSL, the format of GeNIe and SMILE; it is read, not written.

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
and becomes the table

    P(Y >= y | x) = P(leak >= y) * prod_i P(q_i(x_i) >= y)

over the states' numbers. The state without effect must have q = (0, ..., 0, 1). Decision, utility,
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
from math import prod

import numpy as np

from minfer.basics.words import counted
from minfer.errors import visible
from minfer.factors.group import Ints
from minfer.graph import FactorGraph
from minfer.io.elements import Element, ElementTree
from minfer.io.networks import Draft
from minfer.io.opening import parsed
from minfer.io.text import PathLike

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
        _table(tree, first, node, v, parents)
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
        _table(tree, step, given, v, parents)
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


def _table(tree: ElementTree, draft: Draft, node: Element, v: str, parents: list[str]) -> None:
    """The table of v that a node states."""
    _check_read(tree, node)
    at = next(node.all("parents"), node)
    scope = draft.scope(v, parents, node, [at] * len(parents))
    if node.tag == "cpt":
        table = tree.one(node, "probabilities")
        draft.table(scope, tree.numbers(table), table)
    elif node.tag == "deterministic":
        _deterministic(tree, draft, node, scope)
    else:
        _noisy_max(tree, draft, node, scope)


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


def _noisy_max(tree: ElementTree, draft: Draft, node: Element, scope: list[int]) -> None:
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
    draft.check_expanded(scope, node)
    tail = np.cumsum(q[:, ::-1], axis=1)[:, ::-1] / q.sum(axis=1, keepdims=True)  # P(q >= y)
    joint = np.broadcast_to(tail[-1], (*shape, size)).copy()
    first = 0
    for axis, (n, own) in enumerate(zip(shape, order)):
        if abs(q[first + n - 1, -1] - 1.0) > _NEAR:
            parent = draft.states[scope[axis]][own[-1]]
            tree.fail(
                listed,
                f"the state without effect, {visible(parent)!r} of "
                f"{visible(draft.name(scope[axis]))}, must have the distribution 0 ... 0 1",
            )
        by_state = np.empty((n, size))
        by_state[own] = tail[first : first + n]
        joint *= by_state.reshape((1,) * axis + (n,) + (1,) * (len(shape) - axis - 1) + (size,))
        first += n
    table = joint.copy()
    table[..., :-1] -= joint[..., 1:]
    draft.table(scope, np.maximum(table, 0.0), node)


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
