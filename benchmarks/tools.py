"""One adapter per tool, and the worker that runs it: `python tools.py TOOL CORE`.

The worker reads one JSON request a line and answers with one JSON line; it is pinned to a single
core and reports CPU time, never wall-clock time.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from problems import F8, Problem, load
from stopwatch import measure

PR_SET_PDEATHSIG = 1  # of linux/prctl.h


class Tool:
    """How one tool builds, compiles and runs a problem. `run` must not re-do the set-up."""

    package = ""
    includes_build = False  # does `run` build the model as well?
    extra_iters = 0  # iterations it needs on top of plain flooding's count

    def setup(self) -> None:
        """Import the tool."""

    def version(self) -> str:
        return importlib.metadata.version(self.package)

    def build(self, p: Problem) -> None:
        """Build the tool's own model of the problem."""
        self.p = p

    def compile(self, iters: int) -> None:
        """Anything that a tool has to do once for a given iteration count."""

    def forget(self) -> None:
        """Drop what `compile` made."""

    def run(self, iters: int) -> Any:
        """`iters` iterations of undamped sum-product from uniform messages: what is timed."""
        raise NotImplementedError

    def marginals(self, result: Any) -> F8:
        """The [V, S] marginals of what `run` returned; not timed."""
        raise NotImplementedError

    def sweeps(self, iters: int) -> None:
        """The same without building, for the cost of one sweep."""
        self.run(iters)

    def exact(self) -> F8:
        """Exact marginals [V, S]; timed, set-up excluded."""
        raise NotImplementedError

    def distance(self, iters: int, target: F8) -> float:
        self.compile(iters)
        return float(np.abs(self.marginals(self.run(iters)) - target).max())


class Yardstick(Tool):
    """The bare kernel; wiring is set-up."""

    def version(self) -> str:
        return "numba " + importlib.metadata.version("numba")

    def setup(self) -> None:
        import yardstick

        self.mod = yardstick
        tiny = load("P4i")
        self.build(tiny)
        self.run(1)

    def build(self, p: Problem) -> None:
        self.wiring = self.mod.wire(p.log_odds, p.edges, p.weights, p.feature)

    def run(self, iters: int) -> F8:
        return self.mod.sweep(self.wiring, iters, -1.0)[0]

    def marginals(self, result: F8) -> F8:
        return np.stack([1 - result, result], axis=1)


class Minfer(Tool):
    """The package itself; graph build and solver call are both inside `run`."""

    package = "minfer"
    includes_build = True

    def setup(self) -> None:
        try:
            import minfer
        except ImportError:
            sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
            import minfer
        self.mod = minfer
        missing = [
            name
            for name in ("FactorGraph", "BeliefPropagation", "Exact")
            if not hasattr(minfer, name)
        ]
        if missing:
            raise ImportError(f"minfer has no {', '.join(missing)} yet")
        for name in ("P4i", "P4m"):  # compile outside every measurement
            self.build(load(name))
            self.run(2)
            self.sweeps(2)

    def version(self) -> str:
        return str(getattr(self.mod, "__version__", "source tree"))

    def build(self, p: Problem) -> None:
        self.p = p
        if p.binary:  # one number for all edges, as a user would write it
            same = (p.weights == p.weights[0]).all()
            self.coupling = float(p.weights[0]) if same else p.weights
        self.graph = self._graph()

    def _graph(self) -> Any:
        p, graph = self.p, self.mod.FactorGraph
        if not p.binary:
            v, s = p.unary.shape
            unary = graph.from_tables(np.full(v, s), np.arange(v)[:, None], p.unary)
            return unary.add_tables(p.edges, p.tables)
        if p.shape is not None:
            return graph.grid(p.log_odds.reshape(p.shape), self.coupling)
        return graph.pairwise(p.log_odds, p.edges, p.weights, feature=p.feature)

    def _solve(self, graph: Any, iters: int, tol: float = 0.0) -> Any:
        solver = self.mod.BeliefPropagation(
            max_iters=iters, tol=tol, damping=0.0, schedule="sequential"
        )
        return solver(graph)

    def run(self, iters: int) -> Any:
        return self._solve(self._graph(), iters)

    def run_to(self, tol: float) -> Any:
        """As a user would: build, and stop by the solver's own rule."""
        return self._solve(self._graph(), 10_000, tol)

    def sweeps(self, iters: int) -> None:
        made = self._solve(self.graph, iters).iterations
        if made != iters:
            raise RuntimeError(f"asked for {iters} sweeps, got {made}")

    def marginals(self, result: Any) -> F8:
        return np.asarray(result.probs).reshape(self.p.unary.shape)

    def exact(self) -> F8:
        return self.marginals(self.mod.Exact()(self._graph()))


class PGMax(Tool):
    """pgmax on JAX: float32, flooding, no stop rule, one compilation per iteration count."""

    package = "pgmax"

    def setup(self) -> None:
        import jax
        import jax.extend.backend
        import jax.lib

        if not hasattr(jax.lib, "xla_bridge"):  # gone from current JAX; pgmax asks it one thing
            bridge = types.ModuleType("jax.lib.xla_bridge")
            bridge.get_backend = jax.extend.backend.get_backend  # type: ignore[attr-defined]
            sys.modules["jax.lib.xla_bridge"] = bridge
            jax.lib.xla_bridge = bridge
        from pgmax import fgraph, fgroup, infer, vgroup

        self.jax, self.fgraph, self.fgroup = jax, fgraph, fgroup
        self.infer, self.vgroup = infer, vgroup

    def version(self) -> str:
        return f"{super().version()} (JAX {importlib.metadata.version('jax')})"

    def build(self, p: Problem) -> None:
        variables = self.vgroup.NDVarArray(num_states=p.n_states, shape=(p.n_vars,))
        graph = self.fgraph.FactorGraph(variable_groups=variables)
        pairs = [[variables[a], variables[b]] for a, b in p.edges.tolist()]
        graph.add_factors(
            self.fgroup.PairwiseFactorGroup(
                variables_for_factors=pairs, log_potential_matrix=np.ascontiguousarray(p.tables)
            )
        )
        self.bp = self.infer.build_inferer(graph.bp_state, backend="bp")
        self.arrays = self.bp.init(evidence_updates={variables: p.unary})
        self.variables = variables
        self.compiled: dict[int, Callable[[Any], Any]] = {}

    def compile(self, iters: int) -> None:
        if iters not in self.compiled:
            bp = self.bp

            def run(arrays: Any) -> Any:
                return bp.run(arrays, num_iters=iters, damping=0.0, temperature=1.0)

            self.compiled[iters] = self.jax.jit(run)
            self.run(iters)

    def forget(self) -> None:
        self.compiled.clear()

    def run(self, iters: int) -> Any:
        return self.jax.block_until_ready(self.compiled[iters](self.arrays))

    def marginals(self, result: Any) -> F8:
        found = self.infer.get_marginals(self.bp.get_beliefs(result))
        return np.asarray(found[self.variables], dtype=np.float64)


class PyGMsIsing(Tool):
    """pyGMs' special Ising solver on scipy.sparse: float64, flooding, no stop rule."""

    package = "pygms"

    def setup(self) -> None:
        import pygms.ising
        import scipy.sparse

        self.mod, self.sparse = pygms.ising, scipy.sparse

    def build(self, p: Problem) -> None:
        """In spins s = 2y - 1: w [a = b] is w/2 s_a s_b; w a b is w/4 (s_a s_b + s_a + s_b)."""
        a, b = p.edges.T
        n, half = p.n_vars, p.log_odds / 2
        if p.feature == "equal":
            spin = p.weights / 2
        else:
            spin = p.weights / 4
            half = half + np.bincount(p.edges.ravel(), np.repeat(spin, 2), n)
        diag = np.arange(n)
        rows, cols = np.concatenate([a, b, diag]), np.concatenate([b, a, diag])
        data = np.concatenate([spin, spin, half])
        self.model = self.mod.Ising(self.sparse.csr_matrix((data, (rows, cols)), shape=(n, n)))

    def run(self, iters: int) -> F8:
        return self.mod.LBP(self.model, maxIter=iters)[1]

    def marginals(self, result: F8) -> F8:
        return np.stack([1 - result, result], axis=1)


class PyGMs(Tool):
    """pyGMs' generic loopy BP over factor objects: flooding, no stop rule; junction tree.

    Unary factors send messages like any other, so that every count is one iteration longer.
    """

    package = "pygms"
    extra_iters = 1

    def setup(self) -> None:
        import pygms
        import pygms.messagepass
        import pygms.wmb

        self.mod = pygms
        self.solve, self.junction_tree = pygms.messagepass.LBP, pygms.wmb.JTree

    def build(self, p: Problem) -> None:
        x = [self.mod.Var(v, p.n_states) for v in range(p.n_vars)]
        factors = [self.mod.Factor([x[v]], np.exp(u)) for v, u in enumerate(p.unary)]
        factors += [
            self.mod.Factor([x[a], x[b]], np.exp(t)) for (a, b), t in zip(p.edges, p.tables)
        ]
        self.model = self.mod.GraphModel(factors)

    def run(self, iters: int) -> Any:
        return self.solve(self.model, maxIter=iters)[1]

    def marginals(self, result: Any) -> F8:
        return np.array([b.table for b in result])

    def exact(self) -> F8:
        order = self.mod.eliminationOrder(self.model, "minfill")[0]
        each = [self.mod.VarSet([x]) for x in self.model.X]
        found = self.junction_tree(self.model, order).beliefs(each)
        return np.array([found[x].table for x in each])


class Pomegranate(Tool):
    """pomegranate's FactorGraph on torch: float32, flooding.

    Its stop rule (a signed sum of divergences below tol) fires before 1e-4 even at tol 0, because
    the sum can round to below zero; a negative tol, set past the check, lets it run on.
    """

    package = "pomegranate"

    def setup(self) -> None:
        import torch
        from pomegranate.distributions import Categorical, JointCategorical
        from pomegranate.factor_graph import FactorGraph

        torch.set_num_threads(1)
        self.torch, self.graph_class = torch, FactorGraph
        self.unary_class, self.table_class = Categorical, JointCategorical

    def version(self) -> str:
        return f"{super().version()} (torch {importlib.metadata.version('torch')})"

    def build(self, p: Problem) -> None:
        unary = np.exp(p.unary)
        tables = np.exp(p.tables)
        unary /= unary.sum(1, keepdims=True)
        tables /= tables.sum((1, 2), keepdims=True)
        marginals = [self.unary_class([u.tolist()]) for u in unary]
        factors = [self.table_class(t.tolist()) for t in tables]
        edges = [(marginals[v], f) for ends, f in zip(p.edges.tolist(), factors) for v in ends]
        self.model = self.graph_class(factors, marginals, edges)
        self.model.tol = -1.0
        zeros = self.torch.zeros(1, p.n_vars, dtype=self.torch.int64)
        self.unseen = self.torch.masked.MaskedTensor(zeros, mask=zeros.bool())

    def run(self, iters: int) -> Any:
        self.model.max_iter = iters
        return self.model.predict_proba(self.unseen)

    def marginals(self, result: Any) -> F8:
        return np.stack([t[0].detach().numpy() for t in result]).astype(np.float64)


class PyAgrum(Tool):
    """pyAgrum's exact Shafer-Shenoy inference for Markov random fields."""

    package = "pyagrum"

    def setup(self) -> None:
        import pyagrum

        self.mod = pyagrum

    def build(self, p: Problem) -> None:
        self.model = self.mod.MarkovRandomField()
        self.ids = [
            self.model.add(self.mod.RangeVariable(f"v{v}", "", 0, p.n_states - 1))
            for v in range(p.n_vars)
        ]
        for v, u in enumerate(p.unary):
            self.model.addFactor([f"v{v}"]).fillWith(np.exp(u).tolist())
        for (a, b), t in zip(p.edges.tolist(), p.tables):
            # the first variable of a pyAgrum tensor runs fastest
            self.model.addFactor([f"v{a}", f"v{b}"]).fillWith(np.exp(t).T.ravel().tolist())

    def exact(self) -> F8:
        engine = self.mod.ShaferShenoyMRFInference(self.model)
        engine.makeInference()
        return np.array([engine.posterior(v).toarray() for v in self.ids])


class Pgmpy(Tool):
    """pgmpy's exact variable elimination, one query per variable."""

    package = "pgmpy"

    def setup(self) -> None:
        import logging

        logging.disable(logging.WARNING)
        from pgmpy.factors.discrete import DiscreteFactor
        from pgmpy.inference import VariableElimination
        from pgmpy.models import DiscreteMarkovNetwork

        self.factor, self.engine = DiscreteFactor, VariableElimination
        self.network = DiscreteMarkovNetwork

    def build(self, p: Problem) -> None:
        s, edges = p.n_states, p.edges.tolist()
        self.model = self.network([(f"v{a}", f"v{b}") for a, b in edges])
        factors = [self.factor([f"v{v}"], [s], np.exp(u)) for v, u in enumerate(p.unary)]
        factors += [
            self.factor([f"v{a}", f"v{b}"], [s, s], np.exp(t)) for (a, b), t in zip(edges, p.tables)
        ]
        self.model.add_factors(*factors)
        self.names = [f"v{v}" for v in range(p.n_vars)]

    def exact(self) -> F8:
        engine = self.engine(self.model)
        found = [engine.query([v], show_progress=False).values for v in self.names]
        return np.array([f / f.sum() for f in found])  # queries come back unnormalised


class PgmpyMessages(Pgmpy):
    """pgmpy's recursive message passing, meant for trees; one query per variable."""

    def setup(self) -> None:
        super().setup()
        from pgmpy.inference import BeliefPropagationWithMessagePassing
        from pgmpy.models import FactorGraph

        self.engine, self.graph = BeliefPropagationWithMessagePassing, FactorGraph

    def build(self, p: Problem) -> None:
        super().build(p)
        factors = self.model.get_factors()
        self.model = self.graph()
        self.model.add_nodes_from([*self.names, *factors])
        self.model.add_edges_from((v, f) for f in factors for v in f.variables)
        self.model.add_factors(*factors)

    def exact(self) -> F8:
        engine = self.engine(self.model)
        found = [engine.query([v])[v].values for v in self.names]
        return np.array([f / f.sum() for f in found])


TOOLS: dict[str, type[Tool]] = {
    "minfer": Minfer,
    "yardstick": Yardstick,
    "pgmax": PGMax,
    "pygms-ising": PyGMsIsing,
    "pygms": PyGMs,
    "pomegranate": Pomegranate,
    "pyagrum": PyAgrum,
    "pgmpy": Pgmpy,
    "pgmpy-messages": PgmpyMessages,
}


class Worker:
    """Answers the requests of speed.py for one tool."""

    def __init__(self, tool: Tool):
        self.tool = tool
        self.number: dict[str, int] = {}

    def hello(self) -> dict[str, Any]:
        seconds = measure.cpu_seconds(self.tool.setup)
        return {"version": self.tool.version(), "seconds": seconds}

    def build(self, problem: str) -> dict[str, Any]:
        p = load(problem)
        self.number = {}
        return {"seconds": measure.cpu_seconds(lambda: self.tool.build(p))}

    def count(self, target: str, tol: float, guess: int) -> dict[str, Any]:
        """The smallest iteration count within `tol` of the target, searched from a guess."""
        limit = 3 * guess + 20
        want = np.load(target)
        k, error = guess, self.tool.distance(guess, want)
        while not error <= tol:
            k += 1
            if k > limit:
                raise RuntimeError(f"not within {tol:g} after {limit} iterations ({error:.1e})")
            error = self.tool.distance(k, want)
        while k > 1 and (less := self.tool.distance(k - 1, want)) <= tol:
            k, error = k - 1, less
        return {"iters": k, "error": error}

    def compile(self, iters: int) -> dict[str, Any]:
        self.tool.forget()
        return {"seconds": measure.cpu_seconds(lambda: self.tool.compile(iters))}

    def _sample(self, key: str, f: Callable[[], Any]) -> dict[str, Any]:
        if key not in self.number:
            self.number[key] = measure.repeats(f)
        return {"seconds": measure.cpu_seconds(f, self.number[key])}

    def time(self, iters: int) -> dict[str, Any]:
        return self._sample(f"run {iters}", lambda: self.tool.run(iters))

    def once(self, iters: int) -> dict[str, Any]:
        """One cold run, for tools too slow to repeat."""
        self.tool.compile(iters)
        return {"seconds": measure.cpu_seconds(lambda: self.tool.run(iters))}

    def sweep(self, few: int, many: int) -> dict[str, Any]:
        """Seconds per sweep: (time of `many` - time of `few`) / (many - few)."""
        short = self._sample(f"sweeps {few}", lambda: self.tool.sweeps(few))["seconds"]
        long = self._sample(f"sweeps {many}", lambda: self.tool.sweeps(many))["seconds"]
        return {"seconds": (long - short) / (many - few)}

    def own_stop(self, target: str, tol: float) -> dict[str, Any]:
        """minfer only: stop by its own rule; how far is the answer then?"""
        tool = self.tool
        assert isinstance(tool, Minfer)
        result = tool.run_to(tol)
        error = float(np.abs(tool.marginals(result) - np.load(target)).max())
        seconds = self._sample("own stop", lambda: tool.run_to(tol))["seconds"]
        return {"iters": int(result.iterations), "error": error, "seconds": seconds}

    def exact_error(self, target: str) -> dict[str, Any]:
        return {"error": float(np.abs(self.tool.exact() - np.load(target)).max())}

    def exact(self) -> dict[str, Any]:
        return self._sample("exact", self.tool.exact)


def serve(worker: Any, core: int) -> None:
    """Answer the requests on stdin by the worker's methods, pinned to one core."""
    measure.pin(core)
    if sys.platform == "linux":  # never outlive the one who asks, however that one ends
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a peer prints must not reach the answers
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("op"))(**request)
        except Exception as error:  # report it; the tool is skipped, the benchmark goes on
            answer = {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(Worker(TOOLS[sys.argv[1]]()), int(sys.argv[2]))
