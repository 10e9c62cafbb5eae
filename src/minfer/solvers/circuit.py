"""A model compiled into a circuit: exact answers through zeros, for any evidence.

    circuit = minfer.compile(graph)          graph -> simplified -> searched once
    circuit({"x3": 1})                       one pass up and one down, as often as one likes

A circuit is the trace of a search over the model's assignments in which equal rests meet
(:mod:`minfer.engine.circuits`; Darwiche 2003; Dechter & Mateescu 2007): sums over the states of one
variable, products of independent rests. Its size is that of what differs, not of the widest table,
so it can hold diagnosis networks, pedigrees and clauses that no clique tree holds. The field of
variables that are *free* is not in it: likelihoods of their states are the input of each pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_whole
from minfer.basics.limits import clock, deadline_of, start_clock
from minfer.basics.notebook import Face
from minfer.basics.words import counted, duration, size
from minfer.engine.conditioning import MAX_JOINT_CELLS, Conditioned, condition
from minfer.engine.layout import ranges
from minfer.errors import ContradictionError, EvidenceError, RefusedError, visible
from minfer.factors.group import n_entries
from minfer.model.evidence import hard_and_field, observed_states
from minfer.solvers.base import LogZ, Marginals, Status
from minfer.solvers.circuit_passes import Leaves, Weighed, Wires
from minfer.solvers.prepared import Call, Prepared

if TYPE_CHECKING:
    from minfer.engine.circuits.arrays import CircuitArrays
    from minfer.engine.circuits.driver import SearchProgress
    from minfer.graph import FactorGraph
    from minfer.model.drawn import Samples
    from minfer.model.joint import Joint
    from minfer.model.ranked import Best
    from minfer.solvers.batch import Batch, Rows
    from minfer.solvers.exact import Exact

Floats = NDArray[np.float64]
#: Bytes of a circuit's nodes beyond which rows are answered one by one, not eight abreast.
MOST_ABREAST = 1 << 31
_FEW = 6  # names of free variables that are shown
_LINES = 1 << 10  # rows whose marginals are written out together
#: The format of files, of a layer above, is looked up when it is asked for.
_FILES = "minfer.io.circuits"
_KEY = "circuit"  # among what a graph and its copies with other fields share


class CircuitSize(NamedTuple):
    """How large a circuit is."""

    nodes: int
    edges: int
    bytes: int


class Searched(NamedTuple):
    """What a circuit is made of."""

    arrays: CircuitArrays
    leaves: Leaves
    free: NDArray[np.bool_]  # (V,)
    logs: Floats  # (sum S,) log-likelihoods of free variables' states, 0 of others
    note: str  # what was simplified


class Circuit(Prepared):
    """A compiled model: see :func:`minfer.compile`.

    Calls and batches are those of :class:`Prepared`; evidence is of free variables. Calls may come
    from several threads.

    Attributes
    ----------
    graph : FactorGraph
        The model, with the evidence that was compiled in.
    free : tuple of str
        Names of the variables that evidence may be about.
    size : CircuitSize
        Nodes, edges and bytes.

    Examples
    --------
    >>> import minfer
    >>> from minfer.examples import sprinkler
    >>> circuit = minfer.compile(sprinkler())
    >>> circuit({"wet_grass": 1})["rain"].round(3).tolist()
    [0.346, 0.654]
    >>> circuit.best({"wet_grass": 1})["rain"]
    '0'
    """

    solver: Exact
    dtypes = ("float64",)

    def __init__(
        self,
        solver: Exact,
        graph: FactorGraph,
        free: Any = None,
        *,
        progress: Callable[[SearchProgress], object] | None = None,
        most_steps: float = math.inf,
        made: Searched | None = None,
    ) -> None:
        super().__init__(solver, graph)
        began = start_clock(solver.time_limit)
        deadline = deadline_of(solver.time_limit, began)
        if made is None:
            lent = free_mask(graph, free)
            limits = solver.max_gib, deadline, most_steps
            with _locating(graph):
                made = searched(condition(graph), lent, limits, progress)
        self._wires, arrays = Wires.of(made.arrays, made.leaves)
        self._made, self._free, self._own = made._replace(arrays=arrays), made.free, made.logs
        self.note = made.note
        owner = np.repeat(np.arange(graph.n_variables), graph._n_states)
        certain = np.bincount(owner[made.leaves.kept], minlength=graph.n_variables) <= 1
        self._open = made.free | certain  # what is certain may be said again
        self.seconds = clock() - began

    @property
    def free(self) -> tuple[str, ...]:
        return tuple(self.graph.name(v) for v in np.flatnonzero(self._free).tolist())

    @property
    def size(self) -> CircuitSize:
        wires = self._wires
        return CircuitSize(len(wires.frame.variable), len(wires.weight), wires.n_bytes)

    @property
    def log_z(self) -> float:
        """Log of the partition function of :attr:`graph`."""
        return self._base.log_z

    @cached_property
    def _base(self) -> Weighed:
        """Without any evidence but the graph's own."""
        return Weighed(self._wires, self._own)

    # ------------------------------------------------------------ one answer

    def _answer(self, call: Call) -> Marginals | None:
        return None if call.weighted else self._at(call.whole)

    def _at(self, graph: FactorGraph) -> Marginals:
        """The answer for a graph of the same factors with another field of free variables."""
        began = clock()
        state = CircuitState(graph, self._weighed(graph))
        probs = state.weighed.probs
        return Marginals(
            graph, probs, self.solver, Status.EXACT, LogZ.EXACT, note=self.note,
            timings={"passes": clock() - began}, state=state,
        )  # fmt: skip

    def _weighed(self, graph: FactorGraph) -> Weighed:
        if graph is self.graph:
            return self._base
        logs = self._logs(graph)
        with _locating(graph):
            return Weighed(self._wires, logs)

    def _logs(self, graph: FactorGraph) -> Floats:
        """Log-likelihoods of all states under a graph's field."""
        logs = self._own
        base, now = self.graph._field, graph._field
        if now is base:
            return logs
        zero = np.zeros(len(logs))
        base, now = zero if base is None else base, zero if now is None else now
        with np.errstate(invalid="ignore"):
            delta = np.where(base == now, 0.0, now - base)
        self._check_free(delta != 0.0)
        if np.isnan(delta).any() or (delta == np.inf).any():
            raise EvidenceError(
                "this circuit was compiled with evidence that is gone here: compile it without"
            )
        return logs + delta

    def _opens(self, variables: list[int]) -> bool:
        """Whether evidence may be about all of these."""
        return bool(self._open[variables].all())

    def _check_free(self, changed: NDArray[np.bool_]) -> None:
        """Raise EvidenceError if any of these states (sum S,) is of a variable that is not free."""
        if changed.any():
            owner = np.repeat(np.arange(self.graph.n_variables), self.graph._n_states)
            wrong = owner[changed & ~self._open[owner]]
            if len(wrong):
                name = self.graph.name(int(wrong[0]))
                raise EvidenceError(
                    f"{name} is not free in this circuit: compile the model with "
                    f"free=[..., {name!r}], or with all variables free"
                )

    # ------------------------------------------------------------ rows

    def _in_lanes(
        self, rows: Rows, dtype: type, workers: int, log_z: bool, statistics: bool
    ) -> Batch | None:
        """Rows eight abreast; those that plain numbers cannot hold singly."""
        from minfer.solvers.batch import Batch, code, with_singles

        began = clock()
        if rows.weights is not None or statistics:
            return None
        if 2 * 64 * len(self._wires.frame.variable) * workers > MOST_ABREAST:
            return None
        found = self._answer_rows(rows.evidence, rows.field, rows.n, workers)
        values, probs, impossible, unsafe = found
        codes = np.where(impossible, code(None), code(Status.EXACT)).astype(np.int8)
        batch = Batch(
            self.graph, probs, values, LogZ.EXACT, codes, np.zeros(rows.n, dtype=np.int64),
            np.zeros(rows.n), self.solver, 0.0,
        )  # fmt: skip
        batch = with_singles(batch, self, rows, np.flatnonzero(unsafe & ~impossible))
        return replace(batch, seconds=clock() - began)

    def _answer_rows(
        self,
        evidence: NDArray[np.int32] | None,
        field: Floats | None,
        n: int,
        workers: int = 1,
    ) -> tuple[Floats, Floats, NDArray[np.bool_], NDArray[np.bool_]]:
        """log Z (n,), marginals (n, sum S), which rows are impossible, and which are not known."""
        graph, base = self.graph, self._base
        offsets, n_states = graph._offsets, int(graph._offsets[-1])
        like, tops = np.ones((n, n_states)), np.zeros(n)
        able = (self._made.leaves.leaf >= 0) & (self._own > -np.inf)
        if field is not None:
            self._check_free((field != 0.0).any(axis=0))
            values = np.broadcast_to(np.where(able, field, -np.inf), (n, n_states))
            most = np.maximum.reduceat(values, offsets[:-1], axis=1)
            most = np.where(most == -np.inf, 0.0, most)
            like = np.exp(values - np.repeat(most, graph._n_states, axis=1))
            like[:, ~able] = 1.0  # they have no share to begin with
            tops = most.sum(axis=1)
        impossible = np.zeros(n, dtype=bool)
        if evidence is not None:
            seen = (evidence >= 0).any(axis=0)
            self._check_free(np.repeat(seen, graph._n_states))
            for v in np.flatnonzero(seen).tolist():
                lo, hi = int(offsets[v]), int(offsets[v + 1])
                own = evidence[:, v]
                other = np.arange(hi - lo) != own[:, None]
                like[:, lo:hi][other & (own >= 0)[:, None]] = 0.0
                impossible |= (own >= 0) & ~able[lo:hi][own]
        found = base.rows(like, workers)
        values = base.log_z + tops + found.log_p
        probs = found.probs
        values[impossible], probs[impossible] = -np.inf, np.nan
        return values, probs, impossible, found.unsafe

    def _lines(
        self, evidence: NDArray[np.int32], targets: list[int], workers: int = 1
    ) -> tuple[Floats, Floats]:
        """Rows of states (N, V), -1 where nothing is known: probabilities of the targets end to
        end, NaN in impossible rows, and log Z."""
        offsets = self.graph._offsets
        columns = ranges(offsets[targets], self.graph._n_states[targets])
        probs, log_z = np.empty((len(evidence), len(columns))), np.empty(len(evidence))
        for lo in range(0, len(evidence), _LINES):
            some = evidence[lo : lo + _LINES]
            found = self.batch(some, workers=workers)
            probs[lo : lo + _LINES] = found.probs[:, columns]
            log_z[lo : lo + _LINES] = found.log_z
        return probs, log_z

    # ------------------------------------------------------------ questions

    def joint(self, *variables: int | str, evidence: Any = None) -> Joint:
        """The joint marginal of any variables, as :meth:`Marginals.joint`."""
        return self(evidence).joint(*variables)

    def sample(self, n: int, seed: int = 0, evidence: Any = None) -> Samples:
        """Independent samples of all variables given evidence, as :func:`minfer.sample` draws.

        The same circuit, evidence, seed and n give the same samples.
        """
        from minfer.model.drawn import Samples

        check_whole("n", n, 0)
        check_whole("seed", seed, 0)
        return Samples.of(self._drawn(self._about(evidence), n, seed), self.graph)

    def _drawn(self, graph: FactorGraph, n: int, seed: int) -> NDArray[np.int32]:
        """Samples (n, V) of a graph of the same factors."""
        return self._weighed(graph).draw(n, np.random.default_rng(seed))

    def best(self, evidence: Any = None) -> Best:
        """The most probable states of all variables together, as :func:`minfer.mpe` finds them."""
        return self.k_best(1, evidence)

    def k_best(self, k: int, evidence: Any = None) -> Best:
        """The k best, best first; ties in the order of their states."""
        check_whole("k", k, 1)
        return self._ranked(self._about(evidence), k)

    def _ranked(self, graph: FactorGraph, k: int) -> Best:
        """The k best of a graph of the same factors."""
        from minfer.solvers.circuit_best import ranked

        began = clock()
        return ranked(graph, self._weighed(graph), k, began)

    def _about(self, evidence: Any) -> FactorGraph:
        hard, field = hard_and_field(self.graph, evidence, None)
        graph = self.instance(None, None, field)
        return graph if hard is None else graph._observing(observed_states(graph, hard))

    def draw(self) -> str:
        """The circuit as a picture, SVG; of up to 300 nodes, notebooks show it by itself.

        A card for each sum, with its variable's states and their probabilities at this node under
        the model's own evidence; a dot for each product of several nodes.
        """
        from minfer.solvers.circuit_drawing import drawing

        return drawing(self)

    def _repr_svg_(self) -> str | None:
        try:
            return self.draw()
        except RefusedError:
            return None

    # ------------------------------------------------------------ files

    def save(self, path: Any) -> None:
        """Write the circuit and its model to a file, ``.circuit``."""
        import_module(_FILES).write_circuit(self, path)

    @classmethod
    def load(cls, path: Any) -> Circuit:
        """Read a circuit that :meth:`save` has written; a FormatError if the file is damaged."""
        found: Circuit = import_module(_FILES).read_circuit(path)
        return found

    # ------------------------------------------------------------ what it is

    def to_dict(self) -> dict[str, Any]:
        """Its size, free variables and log Z, ready for JSON."""
        return {
            **self.size._asdict(), "free": list(self.free), "log_z": self.log_z,
            "note": self.note, "seconds": self.seconds,
        }  # fmt: skip

    def face(self) -> Face:
        """The same for people."""
        n, free = self.graph.n_variables, len(self.free)
        named = ", ".join([*map(visible, self.free[:_FEW]), *["..."] * (free > _FEW)])
        rows = {
            "evidence": "may be about any variable" if free == n else
            f"may be about {free:,} of {n:,} variables{': ' * bool(named)}{named}",
            "log Z": f"{self.log_z:.6g} (exact)",
        }  # fmt: skip
        if self.note:
            rows["note"] = self.note
        rows["time"] = duration(self.seconds)
        return Face(repr(self), (), (), rows)

    def __repr__(self) -> str:
        found = self.size
        return (
            f"Circuit({counted(self.graph.n_variables, 'variable')}, "
            f"{int(self._free.sum()):,} free; {counted(found.nodes, 'node')}, "
            f"{counted(found.edges, 'edge')}, {size(found.bytes)})"
        )


@contextmanager
def _locating(graph: FactorGraph) -> Iterator[None]:
    """Contradictions in the block name the observations that a graph has."""
    try:
        yield
    except ContradictionError as error:
        from minfer.solvers.conflicts import located

        raise located(error, graph) from None


# ---------------------------------------------------------------- making one


def free_mask(graph: FactorGraph, free: Any) -> NDArray[np.bool_]:
    """Which variables may be observed later (V,): all not observed yet, or those named."""
    observed = np.zeros(graph.n_variables, dtype=bool)
    if graph._field is not None and graph.n_variables:
        left = np.add.reduceat(graph._field > -np.inf, graph._offsets[:-1])
        observed = (left == 1) & (graph._n_states > 1)
    if free is None or free is True:
        return ~observed
    out = np.zeros(graph.n_variables, dtype=bool)
    out[graph._indices(free, "compile: free")] = True
    if (out & observed).any():
        name = graph.name(int(np.flatnonzero(out & observed)[0]))
        raise EvidenceError(
            f"compile: {name} is observed in the model, and cannot be free: compile the model "
            "without that evidence"
        )
    return out


def searched(
    model: Conditioned,
    free: NDArray[np.bool_],
    limits: tuple[float, float, float],
    progress: Callable[[SearchProgress], object] | None = None,
) -> Searched:
    """The circuit of a model; ``limits``: GiB, a deadline, steps."""
    from minfer.engine.circuits.driver import build
    from minfer.engine.simplify import simplify

    graph = model.graph
    lent = np.repeat(free, graph._n_states)
    base = np.where(lent & (model.field > -np.inf), 0.0, model.field)
    simple = simplify(replace(model, field=base), free)
    first = simple.model.graph._offsets
    again = np.repeat(free, simple.model.graph._n_states)  # what tables say of their states alone
    own = np.where(again & (simple.model.field > -np.inf), simple.model.field, 0.0)
    rest = replace(simple.model, field=simple.model.field - own)
    gib, deadline, steps = limits
    arrays = build(
        rest, max_gib=gib, deadline=deadline, free=free, progress=progress, most_steps=steps
    )
    owner = np.repeat(np.arange(graph.n_variables), graph._n_states)
    state, only = simple.state, rest.fixed[owner]
    kept = (state >= 0) & (model.field > -np.inf) & ((only < 0) | (state == only))
    kept &= simple.model.field[first[owner] + np.maximum(state, 0)] > -np.inf
    leaf = np.where(kept, first[owner] + state, -1).astype(np.int32)
    leaves = Leaves(graph._offsets, first, leaf, np.where(kept, simple.share, 0.0))
    logs = np.where(lent, model.field, 0.0)
    logs[kept] += own[leaf[kept]]
    note = f"{simple.note}; {_told_apart(arrays.keyed)}".removeprefix("; ")
    return Searched(arrays, leaves, free, logs, note if arrays.keyed else simple.note)


def _told_apart(contents: int) -> str:
    """That keys could collide, and how probable it is."""
    from minfer.engine.circuits.driver import collision_bound

    chance = collision_bound(contents)
    return f"equal rests known by 128-bit keys (that some two collide: below {chance:.0e})"


def circuit_of(graph: FactorGraph) -> Circuit | None:
    """The circuit that was compiled of a graph's factors."""
    found: Circuit | None = graph._conditioning.get(_KEY)
    return found


def kept_circuit(graph: FactorGraph) -> Circuit | None:
    """The same, if it answers for the graph's field."""
    found = circuit_of(graph)
    if found is None:
        return None
    try:
        found._logs(graph)
    except EvidenceError:
        return None
    return found


def keep_circuit(circuit: Circuit) -> Circuit:
    """Have a graph, and its copies with other fields, remember their circuit."""
    circuit.graph._conditioning[_KEY] = circuit
    return circuit


# ---------------------------------------------------------------- what an answer leaves


@dataclass(eq=False)
class CircuitState:
    """A circuit under an answer's evidence. Joints are computed when one is asked for: with all
    variables but one in given states, a row for each, a pass gives the marginals of the last."""

    graph: FactorGraph
    weighed: Weighed

    def log_z(self) -> float:
        return self.weighed.log_z

    def factor(self, factor: int) -> Floats:
        scope = self.graph.scope(factor)
        shape = tuple(int(s) for s in self.graph._n_states[scope])
        return self.factors(np.array([factor]))[0].reshape(shape)

    def factors(self, factors: NDArray[np.int64]) -> Floats:
        """Exact joint marginals of factors of one shape, (n, cells)."""
        return self.joints([self.graph.scope(f).tolist() for f in factors.tolist()])

    def joint(self, variables: list[int]) -> Floats:
        shape = [int(s) for s in self.graph._n_states[variables]]
        return self.joints([variables])[0].reshape(shape)

    def joints(self, scopes: list[list[int]]) -> Floats:
        """Joint marginals of scopes of one shape, (n, cells)."""
        probs, offsets = self.weighed.probs, self.graph._offsets
        shape = [int(s) for s in self.graph._n_states[scopes[0]]]
        if n_entries(shape) * len(scopes) > MAX_JOINT_CELLS:
            raise RefusedError(
                f"{len(scopes)} joint marginals over {len(shape)} variables each are too large to "
                "be written out; ask for fewer at a time, or for the variables' own"
            )
        out = np.zeros((len(scopes), n_entries(shape)))
        if not shape:
            return out + 1.0
        last = shape[-1]
        rows: dict[tuple[tuple[int, ...], tuple[int, ...]], list[tuple[int, int, int]]] = {}
        for n, scope in enumerate(scopes):
            some = [np.flatnonzero(probs[offsets[v] : offsets[v + 1]]).tolist() for v in scope[:-1]]
            for states in product(*some):
                cell = 0
                for s, k in zip(states, shape):
                    cell = cell * k + s
                # those that are certain anyway need not be said
                told = [(v, s) for v, s, own in zip(scope, states, some) if len(own) > 1]
                key = tuple(v for v, _ in told), tuple(s for _, s in told)
                rows.setdefault(key, []).append((n, cell * last, scope[-1]))
        keys = list(rows)
        for k, found, p in self.weighed.clamped([(list(v), list(s)) for v, s in keys]):
            for n, at, v in rows[keys[k]]:
                out[n, at : at + last] = p * found[offsets[v] : offsets[v + 1]]
        return out / out.sum(axis=1, keepdims=True)

    def logs(self, variables: list[int], cells: NDArray[np.int64]) -> Floats:
        """log Z with some variables observed in given states (n, k), (n,)."""
        values = np.empty(len(cells))
        rows = [(variables, row) for row in cells.tolist()]
        for k, _, p in self.weighed.clamped(rows):
            values[k] = self.weighed.log_z + math.log(p) if p > 0.0 else -math.inf
        return values

    def moved(self, direction: Floats) -> Floats:
        """How marginals move along a direction of the field."""
        return self.weighed.moved(direction)

    def moved_joints(self, scopes: list[list[int]], direction: Floats) -> Floats:
        """How joint marginals of scopes of one shape do: p(cell) (E[T | cell] - E[T])."""
        offsets = self.graph._offsets
        shape = [int(s) for s in self.graph._n_states[scopes[0]]]
        out = np.zeros((len(scopes), n_entries(shape)))
        mean = float((self.weighed.probs * direction).sum())
        places, rows = [], []
        for n, scope in enumerate(scopes):
            some = [
                np.flatnonzero(self.weighed.probs[offsets[v] : offsets[v + 1]]).tolist()
                for v in scope
            ]
            for states in product(*some):
                cell = 0
                for s, k in zip(states, shape):
                    cell = cell * k + s
                places.append((n, cell))
                rows.append((scope, list(states)))
        for k, found, p in self.weighed.clamped(rows):
            out[places[k]] = p * (float((found * direction).sum()) - mean)
        return out
