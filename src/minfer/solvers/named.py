"""Solvers by the names that plans, ``minfer --solver`` and people have for them.

>>> from minfer.solvers.named import solver_named
>>> solver_named("gibbs", n_chains=2).n_chains
2
"""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from minfer.basics.words import listed
from minfer.errors import MinferError, SettingsError

if TYPE_CHECKING:
    from minfer.solvers.base import Solver

#: The class of each.
SOLVERS = {
    "auto": "Auto",
    "bp": "BeliefPropagation",
    "trw": "TreeReweighted",
    "mean-field": "MeanField",
    "structured-mean-field": "StructuredMeanField",
    "gibbs": "Gibbs",
    "tempering": "Tempering",
    "join-graph": "JoinGraph",
    "mini-buckets": "MiniBuckets",
    "windows": "Windows",
    "clamped": "Clamped",
    "exact": "Exact",
}
#: Settings that are objects of Python: another solver, blocks of variables.
NOT_PLAIN = {"clamped": {"solver"}, "structured-mean-field": {"blocks"}}


def solver_class(name: str) -> Any:
    """The class of a solver's name."""
    if name not in SOLVERS:
        raise SettingsError(f"there is no solver {name!r}; choose from {', '.join(SOLVERS)}")
    return getattr(import_module("minfer"), SOLVERS[name])


def solver_named(name: str, **settings: Any) -> Solver:
    """A solver by its name, with these settings."""
    kind = solver_class(name)
    for key in settings.keys() - {f.name for f in fields(kind)}:
        _, have = plain_settings().get(key, (None, ()))
        those = "solvers that have it are" if len(have) > 1 else "one that has it is"
        told = f"; the {those} {listed(have)}" if have else ""
        raise SettingsError(f"{key} is not a setting of the solver {name}{told}")
    try:
        return kind(**settings)
    except MinferError:
        raise  # it says what is wrong with which setting
    except (TypeError, ValueError) as error:
        raise SettingsError(f"solver {name}: {error}") from None


@lru_cache(maxsize=1)
def plain_settings() -> dict[str, tuple[type, tuple[str, ...]]]:
    """Every setting that is a number or a word: its type, and the solvers that have it.

    >>> plain_settings()["burn_in"]
    (<class 'int'>, ('gibbs', 'tempering'))
    """
    # annotations are texts, such as "float | None"; the first word is the type
    plain = {"int": int, "float": float, "str": str}
    found: dict[str, tuple[type, tuple[str, ...]]] = {}
    for solver in SOLVERS:
        for f in fields(solver_class(solver)):
            if not f.name.startswith("_") and f.name not in NOT_PLAIN.get(solver, ()):
                kind, have = found.get(f.name, (plain[str(f.type).split(" ")[0]], ()))
                found[f.name] = kind, (*have, solver)
    return found
