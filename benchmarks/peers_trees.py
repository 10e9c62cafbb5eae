"""Arc probabilities: minfer, torch-struct and SuPar on the same scores.

Run as a worker, `python peers_trees.py TOOL CORE`: lines of JSON as in tools.py. Scores are
[sentence, head, modifier] with the root first; exactly one word hangs on the root. They are
float32, as users of the torch libraries have them, unless the batch says otherwise; one thread.

Second order: scores of pairs of arcs as well. The forms that the libraries have are different
models, so only their times are compared, and each with its own limit: without pair scores a form
must give the first-order answer of its kind of structure (see LIMITS).
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from problems import F8
from stopwatch import measure
from tools import Minfer, serve

Marginals = Callable[[], Any]


class Batch(NamedTuple):
    """Sentences of 25 words; scores are normal with standard deviation ``scale``."""

    projective: bool
    sentences: int
    scale: float = 1.0
    dtype: str = "float32"
    words: int = 25


#: A trained parser is sure of most arcs: its scores are far apart.
BATCHES = {
    "projective, 32 sentences": Batch(True, 32),
    "projective, 256 sentences": Batch(True, 256),
    "projective, 32 sentences, sure": Batch(True, 32, 20.0),
    "projective, 32 sentences, sure, float64": Batch(True, 32, 20.0, "float64"),
    "non-projective, 32 sentences": Batch(False, 32),
    "non-projective, 256 sentences": Batch(False, 256),
    "non-projective, 256 sentences, float64": Batch(False, 256, 1.0, "float64"),
    "non-projective, 32 sentences, sure": Batch(False, 32, 20.0),
    "non-projective, 32 sentences, sure, float64": Batch(False, 32, 20.0, "float64"),
}


class PairBatch(NamedTuple):
    """Scores of pairs, normal with standard deviation ``scale``, on top of a batch."""

    first: str
    scale: float


PAIR_BATCHES = {
    "flat arcs": PairBatch("projective, 32 sentences", 0.3),
    "sure arcs": PairBatch("projective, 32 sentences, sure", 0.3),
    "flat arcs, strong pairs": PairBatch("projective, 32 sentences", 1.0),
}


def scores(batch: str) -> F8:
    """Seeded scores (B, n+1, n+1), rounded to the batch's precision."""
    b = BATCHES[batch]
    size = (b.sentences, b.words + 1, b.words + 1)
    return np.random.default_rng(25).normal(0, b.scale, size).astype(b.dtype).astype(np.float64)


class Pairs(NamedTuple):
    """arcs (B, N, N) [h, m]; sib (B, N, N, N) [h, m, s], the same for m, s and s, m; gp [g, h, m].

    No arc runs into the root or into its own head.
    """

    arcs: F8
    sib: F8
    gp: F8


def pair_scores(batch: str, scale: float) -> Pairs:
    """Seeded scores of a first-order batch and of its pairs."""
    arcs = scores(batch)
    nodes = np.arange(arcs.shape[1])
    arcs[:, :, 0] = arcs[:, nodes, nodes] = -np.inf
    sib, gp = scale * np.random.default_rng(50).normal(0, 1, (2, *arcs.shape, len(nodes)))
    later = np.triu(np.ones(sib.shape[2:], bool), 1)  # m before s
    return Pairs(arcs, np.where(later, sib, sib.swapaxes(2, 3)), gp)


def heads_alone(arcs: F8) -> F8:
    """Each word chooses its head by itself."""
    p = np.exp(arcs[:, :, 1:] - arcs[:, :, 1:].max(1, keepdims=True))
    out = np.zeros_like(arcs)
    out[:, :, 1:] = p / p.sum(1, keepdims=True)
    return out


def arcs_alone(arcs: F8) -> F8:
    """Each arc is there or not by itself."""
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-arcs))


#: What a form's answer is without pair scores; None is that of projective trees, from a file.
LIMITS: dict[str, Callable[[F8], F8] | None] = {
    "projective trees": None,
    "a head for each word": heads_alone,
    "single arcs": arcs_alone,
}


class Form(NamedTuple):
    """One kind of second-order model and inference of a library."""

    limit: str
    prepare: Callable[[Pairs], Marginals]


class Library:
    """First-order trees of one library, and the forms of second order that it has."""

    def setup(self) -> None:
        """Import it."""

    def version(self) -> str:
        raise NotImplementedError

    def prepare(self, x: F8, b: Batch) -> None:
        """Take the scores over; not timed."""
        raise NotImplementedError

    def run(self) -> Any:
        """What is timed."""
        raise NotImplementedError

    def marginals(self, result: Any) -> F8:
        """What `run` returned as [sentence, head, modifier]."""
        raise NotImplementedError

    def forms(self) -> dict[str, Form]:
        return {}

    def remarks(self, result: Any) -> dict[str, float]:
        """Whatever else is worth knowing about what a form returned."""
        return {}


class MinferTrees(Library):
    """Build nothing, check the scores, and answer; a sentence at a time in second order."""

    def setup(self) -> None:
        Minfer().setup()  # finds the package
        import minfer.parsing

        self.parsing = minfer.parsing
        for projective in (True, False):  # compile outside every measurement
            for dtype in (np.float64, np.float32):
                self.parsing.tree_marginals(np.zeros((1, 3, 3), dtype), projective=projective)

    def version(self) -> str:
        return importlib.metadata.version("minfer")

    def prepare(self, x: F8, b: Batch) -> None:
        self.x, self.projective = x.astype(b.dtype), b.projective

    def run(self) -> Any:
        return self.parsing.tree_marginals(self.x, projective=self.projective)[0]

    def exact(self) -> F8:
        wide = self.x.astype(np.float64)
        return self.parsing.tree_marginals(wide, projective=self.projective)[0]

    def marginals(self, result: Any) -> F8:
        return np.stack([getattr(r, "probs", r) for r in result])

    def remarks(self, result: Any) -> dict[str, float]:
        found = [r for r in result if hasattr(r, "kept")]
        return {
            name: float(np.mean([getattr(r, name) for r in found]))
            for name in ("converged", "kept", "iterations")
            if found
        }

    def forms(self) -> dict[str, Form]:
        settings = {"BP, all pairs": self.parsing.Inference.full(),
                    "BP, reduced": self.parsing.Inference()}  # fmt: skip

        def bp(inference: Any) -> Callable[[Pairs], Marginals]:
            def prepare(x: Pairs) -> Marginals:
                return lambda: [
                    self.parsing.marginals(a, sib=s, gp=g, inference=inference)
                    for a, s, g in zip(*x)
                ]

            return prepare

        def exact(x: Pairs) -> Marginals:
            return lambda: [self.parsing.exact_grandparent(a, g)[0] for a, g in zip(x.arcs, x.gp)]

        return {name: Form("projective trees", bp(how)) for name, how in settings.items()} | {
            "exact, grandparents": Form("projective trees", exact)
        }


class TorchStruct(Library):
    """torch-struct: charts in torch and automatic differentiation; the matrix-tree theorem."""

    def setup(self) -> None:
        import torch
        import torch_struct

        torch.set_num_threads(1)
        self.torch, self.lib = torch, torch_struct

    def version(self) -> str:
        own = importlib.metadata.version("torch-struct")
        return f"{own} (torch {importlib.metadata.version('torch')})"

    def prepare(self, x: F8, b: Batch) -> None:
        inner = x[:, 1:, 1:].copy()
        words = np.arange(inner.shape[1])
        inner[:, words, words] = x[:, 0, 1:]  # scores of the root lie on the diagonal
        self.x = self.torch.tensor(inner, dtype=getattr(self.torch, b.dtype))
        self.x.requires_grad_(b.projective)  # its charts raise an error on scores without
        self.kind = self.lib.DependencyCRF if b.projective else self.lib.NonProjectiveDependencyCRF

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


class SuPar(Library):
    """SuPar's structured distributions, [modifier, head], and its variational layers."""

    def setup(self) -> None:
        import torch
        from supar import structs
        from supar.utils.common import MIN

        torch.set_num_threads(1)
        self.torch, self.lib, self.least = torch, structs, MIN

    def version(self) -> str:
        return f"{importlib.metadata.version('supar')} (torch {self.torch.__version__})"

    def prepare(self, x: F8, b: Batch) -> None:
        self.x = self._tensor(x.swapaxes(1, 2), b.dtype)
        self.kind = self.lib.DependencyCRF if b.projective else self.lib.MatrixTree

    def run(self) -> Any:
        return self.kind(self.x, multiroot=False).marginals

    def marginals(self, result: Any) -> F8:
        out = result.detach().numpy().astype(np.float64).swapaxes(1, 2)
        out[:, :, 0] = 0.0  # nothing is said of the root's own head
        return out

    def forms(self) -> dict[str, Form]:
        def trees(x: Pairs) -> Marginals:
            inputs = self._arcs(x), self._pairs(x.sib)
            return lambda: self.lib.Dependency2oCRF(inputs, multiroot=False).marginals

        def heads(kind: str) -> Callable[[Pairs], Marginals]:
            layer = getattr(self.lib, kind)()

            def prepare(x: Pairs) -> Marginals:
                inputs = self._arcs(x), self._pairs(x.sib)
                mask = self.torch.ones(x.arcs.shape[:2], dtype=bool)
                mask[:, 0] = False
                return lambda: layer(inputs, mask)

            return prepare

        def graphs(kind: str) -> Callable[[Pairs], Marginals]:
            layer = getattr(self.lib, kind)()

            def prepare(x: Pairs) -> Marginals:
                none = np.zeros_like(x.sib)  # two heads of a word: trees have none
                inputs = self._arcs(x), *(self._pairs(p) for p in (x.sib, none, x.gp))
                mask = self.torch.ones(x.arcs.shape, dtype=bool)
                mask[:, 0] = False
                return lambda: layer(inputs, mask)

            return prepare

        words, arcs = "a head for each word", "single arcs"
        return {
            "Dependency2oCRF": Form("projective trees", trees),
            "DependencyLBP": Form(words, heads("DependencyLBP")),
            "DependencyMFVI": Form(words, heads("DependencyMFVI")),
            "SemanticDependencyLBP": Form(arcs, graphs("SemanticDependencyLBP")),
            "SemanticDependencyMFVI": Form(arcs, graphs("SemanticDependencyMFVI")),
        }

    def _tensor(self, x: F8, dtype: str = "float32") -> Any:
        return self.torch.tensor(np.ascontiguousarray(x), dtype=getattr(self.torch, dtype))

    def _arcs(self, x: Pairs) -> Any:
        return self._tensor(np.where(np.isfinite(x.arcs), x.arcs, self.least).swapaxes(1, 2))

    def _pairs(self, x: F8) -> Any:
        """[head, modifier, other] as [modifier, head, other]."""
        return self._tensor(x.swapaxes(1, 2))


TREE_TOOLS: dict[str, type[Library]] = {
    "minfer": MinferTrees,
    "torch-struct": TorchStruct,
    "supar": SuPar,
}


class Worker:
    """Answers for one library."""

    def __init__(self, tool: Library):
        self.tool = tool
        self.timed: dict[str, tuple[Marginals, int]] = {}

    def hello(self) -> dict[str, Any]:
        seconds = measure.cpu_seconds(self.tool.setup)
        return {"version": self.tool.version(), "seconds": seconds}

    def prepare(self, batch: str, out: str) -> dict[str, Any]:
        """Take the scores over and leave the marginals in a file; not timed."""
        self.tool.prepare(scores(batch), BATCHES[batch])
        np.save(out, self.tool.marginals(self.tool.run()))
        self._ready("", self.tool.run)
        return {}

    def exact(self, out: str) -> dict[str, Any]:
        """The same in float64 by minfer."""
        np.save(out, self.tool.exact())
        return {}

    def forms(self) -> dict[str, Any]:
        return {"forms": list(self.tool.forms())}

    def prepare_form(self, form: str, batch: str, out: str, trees: str) -> dict[str, Any]:
        """As `prepare`; also how far the form is from its limit without pair scores."""
        (first, scale), how = PAIR_BATCHES[batch], self.tool.forms()[form]
        alone = pair_scores(first, 0.0)
        found = self.tool.marginals(how.prepare(alone)())
        limit = LIMITS[how.limit]
        want = np.load(trees) if limit is None else limit(alone.arcs)
        run = how.prepare(pair_scores(first, scale))
        result = run()
        np.save(out, self.tool.marginals(result))
        self._ready(form, run)
        off = float(np.abs(found - want).max())
        return {"limit": how.limit, "off": off, **self.tool.remarks(result)}

    def time(self, form: str = "") -> dict[str, Any]:
        run, number = self.timed[form]
        return {"seconds": measure.cpu_seconds(run, number)}

    def _ready(self, form: str, run: Marginals) -> None:
        self.timed[form] = run, measure.repeats(run)


if __name__ == "__main__":
    serve(Worker(TREE_TOOLS[sys.argv[1]]()), int(sys.argv[2]))
