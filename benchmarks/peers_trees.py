"""First-order tree marginals: minfer, torch-struct and SuPar on the same scores.

Run as a worker, `python peers_trees.py TOOL CORE`: lines of JSON as in tools.py. Scores are
[sentence, head, modifier] with the root first; exactly one word hangs on the root. The torch
libraries work in float32, as their users do, on one thread; minfer in float64.
"""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Any, NamedTuple

import numpy as np

from problems import F8
from tools import Minfer, cpu_seconds, repeats, serve


class Batch(NamedTuple):
    """Sentences of 25 words; scores are normal with standard deviation ``scale``."""

    projective: bool
    sentences: int
    scale: float = 1.0
    words: int = 25


#: A trained parser is sure of most arcs: its scores are far apart.
BATCHES = {
    "projective, 32 sentences": Batch(True, 32),
    "projective, 256 sentences": Batch(True, 256),
    "projective, 32 sentences, sure": Batch(True, 32, 20.0),
    "non-projective, 32 sentences": Batch(False, 32),
    "non-projective, 256 sentences": Batch(False, 256),
    "non-projective, 32 sentences, sure": Batch(False, 32, 20.0),
}


def scores(name: str) -> F8:
    """Seeded scores (B, n+1, n+1)."""
    b = BATCHES[name]
    size = (b.sentences, b.words + 1, b.words + 1)
    return np.random.default_rng(25).normal(0, b.scale, size)


class MinferTrees:
    """Build nothing, check the scores, and answer."""

    def setup(self) -> None:
        Minfer().setup()  # finds the package
        import minfer.parsing

        self.parsing = minfer.parsing
        for projective in (True, False):  # compile outside every measurement
            self.parsing.batch_marginals(np.zeros((1, 3, 3)), projective=projective)

    def version(self) -> str:
        return importlib.metadata.version("minfer")

    def prepare(self, x: F8, projective: bool) -> None:
        self.x, self.projective = x, projective

    def run(self) -> Any:
        return self.parsing.batch_marginals(self.x, projective=self.projective)

    def marginals(self, result: Any) -> F8:
        return result[0]


class TorchStruct:
    """torch-struct: charts in torch and automatic differentiation; the matrix-tree theorem."""

    def setup(self) -> None:
        import torch
        import torch_struct

        torch.set_num_threads(1)
        self.torch, self.lib = torch, torch_struct

    def version(self) -> str:
        own = importlib.metadata.version("torch-struct")
        return f"{own} (torch {importlib.metadata.version('torch')})"

    def prepare(self, x: F8, projective: bool) -> None:
        inner = x[:, 1:, 1:].copy()
        words = np.arange(inner.shape[1])
        inner[:, words, words] = x[:, 0, 1:]  # scores of the root lie on the diagonal
        self.x = self.torch.tensor(inner, dtype=self.torch.float32)
        self.x.requires_grad_(projective)  # its charts raise an error on scores without
        self.kind = self.lib.DependencyCRF if projective else self.lib.NonProjectiveDependencyCRF

    def run(self) -> Any:
        return self.kind(self.x, multiroot=False).marginals

    def marginals(self, result: Any) -> F8:
        found = result.detach().numpy().astype(np.float64)
        out = np.zeros((len(found), found.shape[1] + 1, found.shape[1] + 1))
        words = np.arange(found.shape[1])
        out[:, 0, 1:] = found[:, words, words]
        found[:, words, words] = 0.0
        out[:, 1:, 1:] = found
        return out


class SuPar:
    """SuPar's structured distributions, [modifier, head]."""

    def setup(self) -> None:
        import torch
        from supar import structs

        torch.set_num_threads(1)
        self.torch, self.lib = torch, structs

    def version(self) -> str:
        return f"{importlib.metadata.version('supar')} (torch {self.torch.__version__})"

    def prepare(self, x: F8, projective: bool) -> None:
        turned = np.ascontiguousarray(x.transpose(0, 2, 1))
        self.x = self.torch.tensor(turned, dtype=self.torch.float32)
        self.kind = self.lib.DependencyCRF if projective else self.lib.MatrixTree

    def run(self) -> Any:
        return self.kind(self.x, multiroot=False).marginals

    def marginals(self, result: Any) -> F8:
        return result.detach().numpy().astype(np.float64).transpose(0, 2, 1)


TREE_TOOLS = {"minfer": MinferTrees, "torch-struct": TorchStruct, "supar": SuPar}


class Worker:
    """Answers for one library."""

    def __init__(self, tool: Any):
        self.tool = tool
        self.number = 1

    def hello(self) -> dict[str, Any]:
        seconds = cpu_seconds(self.tool.setup)
        return {"version": self.tool.version(), "seconds": seconds}

    def prepare(self, batch: str, out: str) -> dict[str, Any]:
        """Take the scores over and leave the marginals in a file; not timed."""
        self.tool.prepare(scores(batch), BATCHES[batch].projective)
        np.save(out, self.tool.marginals(self.tool.run()))
        self.number = repeats(self.tool.run)
        return {}

    def time(self) -> dict[str, Any]:
        return {"seconds": cpu_seconds(self.tool.run, self.number)}


if __name__ == "__main__":
    serve(Worker(TREE_TOOLS[sys.argv[1]]()), int(sys.argv[2]))
