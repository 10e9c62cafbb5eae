"""The worker of one general tool, `python peers_worker.py TOOL CORE`: speed.py's, and the traps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import tools
from peers_cases import CASES, path
from problems import load
from tools import TOOLS, serve


def _minfer(tool: Any) -> Any:
    return tool.graph.with_evidence({"zz": 1})


def _pgmpy(tool: Any) -> Any:
    return tool.engine(tool.model).query(["v0"], evidence={"zz": 1}, show_progress=False)


def _pgmpy_messages(tool: Any) -> Any:
    return tool.engine(tool.model).query(["v0"], evidence={"zz": 1})


def _pyagrum(tool: Any) -> Any:
    engine = tool.mod.ShaferShenoyMRFInference(tool.model)
    engine.setEvidence({"zz": 1})
    engine.makeInference()
    return engine.posterior("v0")


def _pgmax(tool: Any) -> Any:
    other = tool.vgroup.NDVarArray(num_states=2, shape=(4,))
    return tool.bp.init(evidence_updates={other: np.zeros((4, 2))})


def _pygms(tool: Any) -> Any:
    return tool.model.condition({99: 1})


def _pomegranate(tool: Any) -> Any:
    zeros = tool.torch.zeros(1, 5, dtype=tool.torch.int64)  # five columns for four variables
    mask = zeros.bool()
    mask[0, 4] = True
    return tool.model.predict_proba(tool.torch.masked.MaskedTensor(zeros, mask=mask))


#: Evidence on a variable that the model does not have, as each tool takes evidence.
UNKNOWN: dict[str, Callable[[Any], Any]] = {
    "minfer": _minfer,
    "pgmpy": _pgmpy,
    "pgmpy-messages": _pgmpy_messages,
    "pyagrum": _pyagrum,
    "pgmax": _pgmax,
    "pygms": _pygms,
    "pomegranate": _pomegranate,
}


class Worker(tools.Worker):
    """Answers for one tool."""

    def __init__(self, name: str):
        super().__init__(TOOLS[name]())
        self.name = name

    def accuracy(self, problem: str, target: str, iters: int) -> dict[str, Any]:
        """How far belief propagation is from the exact marginals after so many iterations."""
        self.tool.build(load(problem))
        return {"error": self.tool.distance(iters, np.load(target))}

    def case(self, case: str, way: str) -> dict[str, Any]:
        """One of the traps: an error, or how far off the answer is."""
        trap = CASES[case]
        p = trap.make()
        try:
            self.tool.build(p)
            if way == "exact":
                found = self.tool.exact()
            else:
                self.tool.compile(trap.iters)
                found = self.tool.marginals(self.tool.run(trap.iters))
        except Exception as error:
            return {"raised": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        if not np.isfinite(found).all():
            return {"not_finite": float((~np.isfinite(found)).mean())}
        if trap.answer is None:
            return {"answered": np.round(found[0], 4).tolist()}
        return {"error": float(np.abs(found - trap.answer(p)).max())}

    def unknown(self, way: str) -> dict[str, Any]:
        """Evidence on a variable that is not there; a tool takes it one way."""
        if self.name not in UNKNOWN:
            return {"no_evidence": True}
        self.tool.build(path())
        try:
            UNKNOWN[self.name](self.tool)
        except Exception as error:
            return {"raised": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        return {"ignored": True}


if __name__ == "__main__":
    serve(Worker(sys.argv[1]), int(sys.argv[2]))
