"""Compiled circuits in files, ``.circuit``: arrays without pickle, in the style of ``.minfer``.

The layout is that of :mod:`minfer.io.native` with a magic of its own; one of the arrays is the
model, a native file. A file is believed only where it can be checked: sizes and bounds, children
before parents, every variable exactly once below the roots in each product (by sums of random
numbers modulo a prime, which two different sets share with a chance of 2^-61), weights that are
positive and finite, shares that add up; and log Z, found again, and the probability of an
assignment drawn from the circuit, by the model's own factors.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_type
from minfer.engine.circuits.arrays import CircuitArrays
from minfer.errors import ContradictionError, FormatError, ModelError
from minfer.graph import FactorGraph
from minfer.io.native import ArrayReader, format_native, lay_out, parse_native, unseal
from minfer.io.opening import parsed
from minfer.io.text import PathLike, write_bytes
from minfer.solvers.circuit import Circuit, Searched, keep_circuit
from minfer.solvers.circuit_passes import Leaves, Weighed
from minfer.solvers.exact import Exact

MAGIC = b"MINFERC\n"

_BYTE, _I4, _I8, _F8 = "|u1", "<i4", "<i8", "<f8"
_NEAR = 1e-9  # of log Z, relatively; and a thousand times that of a log probability


def write_circuit(circuit: Circuit, path: PathLike) -> None:
    """Write a circuit and its model; global factors are refused."""
    write_bytes(path, format_circuit(circuit))


def format_circuit(circuit: Circuit) -> bytes:
    """The bytes of a file: the same for the same circuit."""
    check_type(circuit, Circuit, "a circuit file holds a compiled model (minfer.compile)")
    made, arrays = circuit._made, circuit._made.arrays
    model = np.frombuffer(format_native(circuit.graph), dtype=np.uint8)
    own: dict[str, NDArray] = {
        "model": model.astype(_BYTE),
        "free": made.free.astype(_BYTE),
        "logs": made.logs.astype(_F8),
        "first": made.leaves.first.astype(_I8),
        "leaf": made.leaves.leaf.astype(_I4),
        "share": made.leaves.share.astype(_F8),
        "variable": arrays.variable.astype(_I4),
        "eptr": arrays.eptr.astype(_I8),
        "state": arrays.state.astype(_I4),
        "weight": arrays.weight.astype(_F8),
        "cptr": arrays.cptr.astype(_I8),
        "child": arrays.child.astype(_I4),
        "roots": arrays.roots.astype(_I4),
        "logs_of_all": np.array([arrays.log_scale, circuit.log_z], dtype=_F8),
    }
    return lay_out({"circuit": 1, "note": made.note}, own, MAGIC)


def read_circuit(path: PathLike) -> Circuit:
    """Read a circuit; ``-`` for standard input, gzip is recognised."""
    return parsed(path, parse_circuit)


def parse_circuits(name: str, data: bytes) -> FactorGraph:
    """The model of a circuit, which remembers the circuit."""
    return keep_circuit(parse_circuit(name, data)).graph


def parse_circuit(name: str, data: bytes) -> Circuit:
    """The circuit in ``data``; ``name`` is the file for messages."""
    try:
        return _CircuitReader(*unseal(data, MAGIC), len(data)).circuit(name)
    except ContradictionError:
        raise FormatError(f"{name}: the circuit leaves nothing possible") from None
    except (FormatError, ModelError) as error:
        told = str(error)
        raise FormatError(told if told.startswith(name) else f"{name}: {told}") from None


def _check(fine: Any, wrong: str) -> None:
    if not fine:
        raise FormatError(f"the circuit is damaged: {wrong}")


class _CircuitReader(ArrayReader):
    """A circuit, and its model."""

    def circuit(self, name: str) -> Circuit:
        _check(self.item(self._header, "circuit", int) == 1, "another kind of circuit")
        graph = parse_native(name, self._line("model", _BYTE).tobytes())
        n, n_states = graph.n_variables, int(graph._offsets[-1])
        free = self.array("free", _BYTE, [n])
        _check((free <= 1).all(), "free variables are 0 or 1")
        free = free.astype(bool)
        logs = self.array("logs", _F8, [n_states])
        lent = np.repeat(free, graph._n_states)
        _check((logs < np.inf).all() and not logs[~lent].any(), "log-likelihoods")
        leaves = self._leaves(graph)
        arrays, log_z = self._arrays(graph, leaves)
        made = Searched(arrays, leaves, free, logs, self.item(self._header, "note", str)[:500])
        found = Circuit(Exact(method="circuit"), graph, made=made)
        _check_scopes(found)  # before any pass
        _check(abs(found.log_z - log_z) <= _NEAR * max(1.0, abs(log_z)), "log Z is another")
        x = found._drawn(graph, 1, 0)
        score = float(np.asarray(graph.log_score(x))[0])
        seen = np.full(len(logs), -np.inf)
        places = graph._offsets[:-1] + x[0]
        seen[places] = logs[places]
        told = Weighed(found._wires, seen).log_z
        near = 1e3 * _NEAR * (1.0 + abs(score) + abs(log_z))
        _check(abs(score - told) <= near, "it is of another model")
        return found

    def _line(self, name: str, dtype: str) -> NDArray:
        """An array of one dimension, of whatever length."""
        shape = self.item(self.item(self._table, name, dict), "shape", list)
        _check(len(shape) == 1, f"{name} must have one dimension")
        return self.array(name, dtype, shape)

    def _leaves(self, graph: FactorGraph) -> Leaves:
        n, n_states = graph.n_variables, int(graph._offsets[-1])
        first = self.array("first", _I8, [n + 1])
        _check(first[0] == 0 and (np.diff(first) >= 0).all(), "leaves begin in order")
        _check(first[-1] <= n_states, "more leaves than states")
        leaf, share = self.array("leaf", _I4, [n_states]), self.array("share", _F8, [n_states])
        owner, kept = np.repeat(np.arange(n), graph._n_states), leaf >= 0
        inside = (leaf >= first[owner]) & (leaf < first[owner + 1])
        _check((inside | (leaf == -1)).all(), "a state in another variable's leaf")
        _check((share >= 0.0).all() and (share <= 1.0 + 1e-9).all(), "shares of states")
        _check(not share[~kept].any(), "shares of excluded states")
        sums = np.bincount(leaf[kept], share[kept], minlength=int(first[-1]))
        used = np.bincount(leaf[kept], minlength=int(first[-1])) > 0
        _check((np.abs(sums[used] - 1.0) <= 1e-9).all(), "shares do not add up to 1")
        return Leaves(graph._offsets, first, leaf, share)

    def _arrays(self, graph: FactorGraph, leaves: Leaves) -> tuple[CircuitArrays, float]:
        variable = self._line("variable", _I4)
        n, state = len(variable), self._line("state", _I4)
        eptr, e = self.array("eptr", _I8, [n + 1]), len(state)
        weight, cptr = self.array("weight", _F8, [e]), self.array("cptr", _I8, [e + 1])
        child, roots = self._line("child", _I4), self._line("roots", _I4)
        log_scale, log_z = self.array("logs_of_all", _F8, [2]).tolist()
        _check(np.isfinite([log_scale, log_z]).all(), "log Z is not finite")
        _check(eptr[0] == 0 and eptr[-1] == e and (np.diff(eptr) > 0).all(), "edges of nodes")
        _check(cptr[0] == 0 and cptr[-1] == len(child), "children of edges")
        _check((np.diff(cptr) >= 0).all(), "children of edges")
        most = graph.n_variables + n
        _check((variable >= 0).all() and (variable < most).all(), "a node without a variable")
        _check((weight > 0.0).all() and (weight < np.inf).all(), "a weight is not positive")
        owner = np.repeat(np.arange(n), np.diff(eptr))
        parent = np.repeat(owner, np.diff(cptr))
        _check((child >= 0).all() and (child < parent).all(), "a child that is no earlier node")
        _check((roots >= 0).all() and (roots < n).all(), "a root that is no node")
        size = np.append(np.diff(leaves.first), np.iinfo(np.int32).max)
        own = variable[owner]
        _check((state >= 0).all(), "a state below 0")
        limit = size[np.minimum(own, graph.n_variables)]
        _check((state < limit).all(), "a state that its variable does not have")
        return CircuitArrays(variable, eptr, state, weight, cptr, child, roots, log_scale), log_z


def _check_scopes(circuit: Circuit) -> None:
    """FormatError unless every variable is exactly once below the roots, in each product."""
    from minfer.kernels.circuits.passes import PRIME, scopes

    wires = circuit._wires
    words = np.frombuffer(os.urandom(8 * wires.width), dtype=np.uint64)
    salt = (words % np.uint64(PRIME)).astype(np.int64)
    out = np.empty(len(wires.frame.variable), dtype=np.int64)
    bad = scopes(wires.frame, salt, out)
    _check(bad < 0, f"the edges of node {bad} are over different variables")
    there = np.unique(wires.frame.variable)
    total = sum(int(x) for x in out[wires.roots]) % PRIME
    _check(total == sum(int(x) for x in salt[there]) % PRIME, "a variable is not there just once")
    alone = np.setdiff1d(np.arange(circuit.graph.n_variables), circuit._made.arrays.variable)
    _check((circuit._made.leaves.each[alone] <= 1).all(), "a variable is missing")
