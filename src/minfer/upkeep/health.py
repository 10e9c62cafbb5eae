"""Whether this installation is in order: versions, the cache of kernels, and right answers."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import util
from typing import TYPE_CHECKING, Any, NamedTuple

from minfer.basics.words import counted
from minfer.errors import visible

if TYPE_CHECKING:
    from minfer.kernels.compiling.answers import Verdict
    from minfer.kernels.compiling.cache import Fault, Version


class Finding(NamedTuple):
    """One line of the report; ``ok`` is None where nothing can be wrong."""

    name: str
    text: str
    ok: bool | None = None

    def __str__(self) -> str:
        mark = {True: "ok", False: "BROKEN", None: ""}[self.ok]
        return visible(f"{self.name:<12}{mark:<8}{self.text}").rstrip()


EXTRAS = {
    "plot": "matplotlib",
    "image": "PIL",
    "parsing": "safetensors",
    "batch": "pyarrow",
    "ray": "ray",
    "rules": "duckdb",
    "torch": "torch",
    "toulbar2": "pytoulbar2",
    "cuda": "cupy",
}


def examine() -> Iterator[Finding]:
    """Every check in turn; one that fails is a finding, not the end."""
    yield from _versions()
    for name, check in CHECKS.items():
        try:
            yield check()
        except Exception as error:
            yield Finding(name, f"{type(error).__name__}: {error}", False)


def _versions() -> Iterator[Finding]:
    from importlib import metadata

    import minfer

    yield Finding("minfer", minfer.__version__)
    yield Finding("python", f"{platform.python_version()} on {platform.platform()}")
    for name in ("numpy", "scipy", "numba", "llvmlite", "typer", "rich"):
        try:
            yield Finding(name, metadata.version(name), True)
        except metadata.PackageNotFoundError:
            yield Finding(name, "not installed", False)
    for extra, module in EXTRAS.items():
        there = util.find_spec(module) is not None
        yield Finding(extra, "present" if there else f"no: pip install 'minfer[{extra}]'")
    count = getattr(os, "sched_getaffinity", None)
    usable = len(count(0)) if count else os.cpu_count()
    yield Finding("cores", f"{usable} usable of {os.cpu_count()}")


def _device() -> Finding:
    """The card, if CuPy is there to ask for one."""
    from minfer.device.cuda import cuda
    from minfer.errors import DeviceError

    if util.find_spec("cupy") is None:
        return Finding("device", "not looked for: CuPy is not installed")
    try:
        return Finding("device", f"{cuda().name}, used with device='cuda'", True)
    except DeviceError as error:
        return Finding("device", str(error))


@cache
def _loaded() -> list[Version]:
    """Every compiled kernel, loaded once for all checks; what is damaged is removed."""
    from minfer.kernels.compiling import jit as _jit
    from minfer.kernels.compiling.cache import load_all

    return load_all(_jit.CACHE_DIR, _jit.kernels())


def _cache() -> Finding:
    from minfer.kernels.compiling import jit as _jit
    from minfer.kernels.compiling.cache import FAULTS
    from minfer.kernels.compiling.trust import opened

    _loaded.cache_clear()
    _verdicts.cache_clear()
    try:
        opened(_jit.CACHE_DIR).prove()
    except OSError as error:
        return Finding("cache", f"{_jit.CACHE_DIR} (not in use: {error})", False)
    before = len(FAULTS)
    loaded = sum(version.origin == "the cache" for version in _loaded())
    faults = {fault.path: fault for fault in FAULTS[before:]}.values()
    removed = [fault for fault in faults if fault.removed]
    stuck = [fault for fault in faults if not fault.removed]
    parts = [f"{counted(loaded, 'compiled kernel')}, all loaded"]
    if not loaded and not _jit.READY.missing:
        parts = ["empty: kernels come with this installation"]
    elif not loaded:
        parts = ["empty: the first run compiles; `minfer warmup` does so now"]
    if removed:
        damaged = counted(len(removed), "damaged file")
        parts.append(f"{damaged} removed, will be compiled again when needed: {_shown(removed)}")
    if stuck:
        parts.append(f"not used and not removed, remove by hand: {_shown(stuck, whole=True)}")
    return Finding("cache", f"{_jit.CACHE_DIR} ({'; '.join(parts)})", not stuck)


@cache
def _verdicts() -> list[tuple[Version, Verdict]]:
    """What every compiled kernel said to the questions that there are for its types."""
    from minfer.kernels.compiling import answers as _answers

    return [
        (version, _answers.ask(version.kernel, version.signature, version.made.entry_point))
        for version in _loaded()
    ]


def _kernels() -> Finding:
    """Asks every compiled kernel what plain Python has answered; a wrong one is not used again."""
    from minfer.kernels.compiling import answers as _answers

    asked, wrong = 0, []
    if not _verdicts():
        return Finding("kernels", "none is compiled yet, so none was asked")
    for version, verdict in _verdicts():
        asked += verdict.asked > 0
        if verdict.wrong:
            report = _answers.report(version.kernel, version.signature, verdict)
            wrong.append(_refused(version, report))
    text = f"{counted(asked, 'compiled kernel')} asked, {len(wrong) or 'none'} wrong"
    return Finding("kernels", "; ".join([text, *wrong]), not wrong if asked else None)


def _unasked() -> Finding:
    """Counts compiled kernels that there is no question for: nothing is known of these."""
    names = [version.kernel.__name__ for version, verdict in _verdicts() if not verdict.asked]
    if not names:
        return Finding("not asked", "no compiled kernel", True)
    some = sorted(set(names))
    more = f" and {len(some) - 5:,} more" if len(some) > 5 else ""
    what = f"{counted(len(names), 'compiled kernel')} without a question, so not checked"
    of = f"of {counted(len(some), 'function')}: {', '.join(some[:5])}{more}"
    return Finding("not asked", f"{what} ({of})")


def _refused(version: Version, report: str) -> str:
    """See to it that wrong code is not loaded again, and say what to report."""
    context = version.kernel.targetctx
    done = version.kernel._cache.refuse(version.signature, context, report)
    what = "it will be compiled anew and asked again when needed"
    if not done:
        what = f"it is still in use: {version.kernel._cache.folder} cannot be written to"
    return f"{version.origin} holds {report}; {what}. Please report this"


def _shown(faults: list[Fault], whole: bool = False, most: int = 3) -> str:
    shown = [f"{f.path if whole else f.path.name}: {f.why}" for f in faults[:most]]
    more = len(faults) - most
    return ", ".join([*shown, *([f"and {more:,} more"] if more > 0 else [])])


def _right(name: str, solver: str, tolerance: float, **settings: Any) -> Finding:
    """Marginals of a chain of three variables against the sum over its eight assignments."""
    import numpy as np

    import minfer

    graph = minfer.FactorGraph.pairwise([0.5, -1.0, 0.25], [[0, 1], [1, 2]], [2.0, -1.5])
    x = np.array(list(np.ndindex(2, 2, 2)))
    a, b, c = x.T
    weight = np.exp(0.5 * a - b + 0.25 * c + 2.0 * a * b - 1.5 * b * c)
    truth = (weight @ x) / weight.sum()
    answer = getattr(minfer, solver)(**settings)(graph)
    off = float(np.abs(answer.probs[1::2] - truth).max())
    off_log_z = abs(answer.log_z - float(np.log(weight.sum())))
    ok = off <= tolerance and off_log_z <= 10 * tolerance
    return Finding(name, f"off by {off:.0e}, log Z by {off_log_z:.0e}", ok)


def _ready() -> Finding:
    """Machine code from the wheel: whether it is there, fits, and was used just now."""
    from minfer.kernels.compiling.jit import READY

    if READY.missing:
        return Finding("ready code", f"not in use: {READY.missing}; kernels are compiled here")
    used = f"{counted(READY.loaded, 'kernel')} taken from it just now"
    return Finding("ready code", f"in use, for any {READY.name} processor; {used}", True)


CHECKS: dict[str, Callable[[], Finding]] = {
    "cache": _cache,
    "kernels": _kernels,
    "not asked": _unasked,
    "exact": partial(_right, "exact", "Exact", 1e-9, method="clique-tree"),  # what is compiled
    "bp": partial(_right, "bp", "BeliefPropagation", 1e-5),
    "ready code": _ready,
    "device": _device,
}
