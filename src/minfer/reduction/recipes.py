"""Recipes: what becomes of ignored factors, and how often the answer is brought up to date.

A recipe is a value. :func:`minfer.infer`, :func:`minfer.relax`, :func:`minfer.tradeoff`,
:func:`minfer.denoise`, reports, jobs and the command line all take one, and nobody else decides.

    Paper()                    ignored factors leave nothing behind: the paper's Algorithm 1
    Compensated(refreshes=2)   they leave their unary part, brought up to date twice
    Iterated(rounds=20)        score, add, refresh, and again, until the answer stands still
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, ClassVar, TypeVar

from minfer.basics.checks import (
    brief,
    by_name,
    check_choice,
    check_flag,
    check_number,
    check_seconds,
    check_whole,
)
from minfer.errors import SettingsError
from minfer.reduction.gains import SCORES

#: Share of the old messages that a refresh keeps once refreshes move the answer more and more.
DAMPING = 0.3
#: Mean change of the marginals in a round at which an iterated answer is said to stand still.
STILL = 1e-4
F = TypeVar("F", bound=Callable[..., Any])


@by_name
@dataclass(frozen=True, kw_only=True)
class Paper:
    """Ignored factors leave nothing behind: the paper's method.

    ``score`` is what the objective sees: "gain", the default, "residual" or "reverse".
    """

    score: str | None = None

    compensate: ClassVar = False
    refreshes: ClassVar = 0
    damping: ClassVar = DAMPING
    words: ClassVar = "the paper's"

    def __post_init__(self) -> None:
        _check_score(self.score)

    @property
    def score_kind(self) -> str:
        return self.score or "gain"


@by_name
@dataclass(frozen=True, kw_only=True)
class Compensated:
    """Ignored factors leave their unary part behind.

    Parameters
    ----------
    refreshes : int
        How often these parts are brought up to date; each is another call of the solver. If the
        last one still moves a probability by more than the solver's tolerance, the result's
        status is "not converged"; its ``error_estimates`` say how far the next one would.
    damping : float in [0, 1)
        Share of the old messages that a refresh keeps, from the first one on that moved the
        answer more than the one before.
    score : "gain", "residual" or "reverse"
        What the objective sees; the residual by default.
    """

    refreshes: int = 2
    damping: float = DAMPING
    score: str | None = None

    compensate: ClassVar = True

    def __post_init__(self) -> None:
        check_whole("refreshes", self.refreshes)
        _check_damping(self.damping)
        _check_score(self.score)

    @property
    def score_kind(self) -> str:
        return self.score or "residual"

    @property
    def words(self) -> str:
        times = {0: "", 1: ", refreshed once", 2: ", refreshed twice"}
        return "compensated" + times.get(self.refreshes, f", refreshed {self.refreshes} times")


@by_name
@dataclass(frozen=True, kw_only=True)
class Iterated:
    """Score, add, refresh, and again: relaxed inference, as of :func:`minfer.relax`.

    Parameters
    ----------
    compensate : bool
        Whether ignored factors leave their unary part behind.
    rounds : int
        Inferences after the seed's, at most.
    damping, score
        As for :class:`Compensated`; without ``compensate`` the score is the gain by default.
    time_limit : float, optional
        Seconds for everything. A solver with its own ``time_limit`` gets at most what is left.
    max_error : float
        Stop when a round that adds nothing moves no probability by more than this.
    max_bound : float, optional
        Stop when the rigorous bound on D(p_H || p_F) is within this; computed in every round.
    """

    compensate: bool = True
    rounds: int = 20
    damping: float = DAMPING
    score: str | None = None
    time_limit: float | None = None
    max_error: float = STILL
    max_bound: float | None = None

    def __post_init__(self) -> None:
        check_flag("compensate", self.compensate)
        check_whole("rounds", self.rounds, 1)
        _check_damping(self.damping)
        _check_score(self.score)
        check_seconds("time_limit", self.time_limit)
        check_number("max_error", self.max_error, 0.0, infinite=True)
        if self.max_bound is not None:
            check_number("max_bound", self.max_bound, 0.0, infinite=True)

    @property
    def score_kind(self) -> str:
        return self.score or ("residual" if self.compensate else "gain")

    @property
    def words(self) -> str:
        return f"{'compensated' if self.compensate else Paper.words}, iterated"


AnyRecipe = Paper | Compensated | Iterated
#: By their words on the command line.
RECIPES: dict[str, type[Any]] = {"paper": Paper, "compensated": Compensated, "iterated": Iterated}


def recipe_named(
    word: str, *, score: str | None = None, time_limit: float | None = None
) -> AnyRecipe:
    """The recipe of a word; a time limit for everything makes it iterated."""
    check_choice("method", word, tuple(RECIPES))
    if word != "iterated" and time_limit is None:
        return RECIPES[word](score=score)
    return Iterated(compensate=word != "paper", score=score, time_limit=time_limit)


def check_recipe(recipe: object, *kinds: type[Any]) -> None:
    kinds = kinds or tuple(RECIPES.values())
    if not isinstance(recipe, kinds):
        words = " or ".join(f"{kind.__name__}()" for kind in kinds)
        raise SettingsError(f"recipe must be {words}, not {brief(recipe)}")


def takes_recipe(function: F) -> F:
    """Refuse by name the flags that recipes took the place of."""
    flags = {f.name for kind in RECIPES.values() for f in fields(kind)}

    @wraps(function)
    def named(*args: Any, **settings: Any) -> Any:
        for flag in flags & settings.keys():
            raise SettingsError(
                f"{function.__name__}: {flag} is a setting of the recipe, as in "
                "recipe=Compensated(refreshes=2), Paper() or Iterated(rounds=20)"
            )
        return function(*args, **settings)

    return named  # type: ignore[return-value]


def _check_score(score: object) -> None:
    if score is not None:
        check_choice("score", score, SCORES)


def _check_damping(damping: object) -> None:
    check_number("damping", damping, 0.0, below=1.0, what="in [0, 1)")
