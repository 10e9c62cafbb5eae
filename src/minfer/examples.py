"""Example models that come with minfer, drawn and made up here: nothing to download.

* ``sprinkler``: a garden on one page, seven named variables. Why is the grass wet?
* ``picture``: a black-and-white drawing of 64x64 pixels seen through noise, as a grid.
* ``stereo``: how near each pixel of two views of a drawn scene is, of 16 disparities.

    noisy_v = clean_v flipped with probability FLIP
    p(y | noisy)  proportional to  exp( sum_v a_v y_v + COUPLING * sum_(u,v) [y_u = y_v] ),
    a_v = log((1 - FLIP) / FLIP) with the sign of noisy_v
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.notebook import Face, Right
from minfer.basics.words import probability
from minfer.errors import ModelError, SettingsError
from minfer.graph import FactorGraph
from minfer.say.answers import describe, log_z
from minfer.solvers.exact import Exact

if TYPE_CHECKING:
    from minfer.solvers.base import Marginals

SIDE = 64
FLIP = 0.15
COUPLING = 1.2


class Example(NamedTuple):
    """A model, and what it is."""

    about: str
    make: Callable[[], FactorGraph]


class Picture(NamedTuple):
    """The drawing, what was seen of it, and the model of what it may have been."""

    clean: NDArray[np.bool_]
    noisy: NDArray[np.bool_]
    graph: FactorGraph

    def shown(self, answer: Marginals) -> dict[str, NDArray[np.bool_]]:
        """The noisy picture and the cleaned one, by titles that say how much of them is right."""
        cleaned = answer.mpm().reshape(self.clean.shape).astype(bool)
        pictures = {"noisy": self.noisy, "denoised": cleaned}
        return {f"{k}: {(p == self.clean).mean():.1%} right": p for k, p in pictures.items()}


def sprinkler() -> FactorGraph:
    """A Bayesian network about a garden; state 1 is yes, seasons run from 0 (winter) to 3."""
    yes = _given
    tables: dict[tuple[str, ...], NDArray] = {
        ("season",): np.array([0.25, 0.25, 0.25, 0.25]),
        ("season", "rain"): yes([0.45, 0.35, 0.15, 0.40]),
        ("season", "sprinkler"): yes([0.01, 0.15, 0.60, 0.10]),
        ("rain", "sprinkler", "wet_grass"): yes([[0.03, 0.90], [0.92, 0.99]]),
        ("rain", "wet_street"): yes([0.05, 0.95]),
        ("wet_grass", "wet_shoes"): yes([0.02, 0.70]),
        ("rain", "umbrella"): yes([0.08, 0.80]),
    }
    n_states = {"season": 4, "rain": 2, "sprinkler": 2, "wet_grass": 2}
    n_states |= {"wet_street": 2, "wet_shoes": 2, "umbrella": 2}
    return FactorGraph.network(n_states, {s[-1]: (list(s[:-1]), t) for s, t in tables.items()})


def _given(probability_of_yes: list) -> NDArray[np.float64]:
    """p(child | parents) from p(child = 1 | parents); the child is the last variable."""
    p = np.array(probability_of_yes)
    return np.stack([1 - p, p], axis=-1)


#: What is seen in the garden, one after the other.
STORY: dict[str, dict[int | str, int]] = {
    "no evidence": {},
    "wet grass": {"wet_grass": 1},
    "wet grass and street": {"wet_grass": 1, "wet_street": 1},
}


def sprinkler_story() -> Face:
    """How evidence in the garden explains other things away: exact marginals, side by side."""
    graph = sprinkler()
    solver = Exact()
    answers = {title: solver(graph.with_evidence(seen)) for title, seen in STORY.items()}
    rows = []
    for name in graph.names or ():
        if graph.n_states[graph.index(name)] == 2:
            told = [
                "observed" if name in STORY[title] else probability(answer[name][1])
                for title, answer in answers.items()
            ]
            rows.append((name, *map(Right, told)))
    last = [*answers.values()][-1]
    notes = {
        "so": "wet grass makes both rain and the sprinkler more probable; if the street is wet as "
        "well, it was the rain, and the sprinkler is explained away",
        "solver": repr(last.solver),
        "log Z": log_z(last),
        "": "in a Bayesian network this is the log-probability of the evidence",
    }
    return Face(describe(graph), ("probability of yes", *answers), rows, notes)


def picture(rng: int = 7) -> Picture:
    """The drawing under noise; ``rng`` starts the noise."""
    clean = drawing()
    noisy = clean ^ (np.random.default_rng(rng).random(clean.shape) < FLIP)
    strength = math.log((1 - FLIP) / FLIP)
    log_odds = np.where(noisy, strength, -strength)
    return Picture(clean, noisy, FactorGraph.grid(log_odds, COUPLING))


def drawing() -> NDArray[np.bool_]:
    """A house, a tree and the sun over a hill, (64, 64)."""
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    sun = (x - 52) ** 2 + (y - 11) ** 2 <= 49
    hill = y >= 54 - 4 * np.sin(x / SIDE * math.pi)
    wall = (x >= 10) & (x <= 32) & (y >= 30) & (y <= 52)
    roof = (y >= 14) & (y < 30) & (np.abs(x - 21) <= (y - 13))
    door = (x >= 18) & (x <= 24) & (y >= 40) & (y <= 52)
    window = (x >= 17) & (x <= 25) & (y >= 31) & (y <= 36)
    trunk = (np.abs(x - 48) <= 2) & (y >= 40) & (y <= 52)
    crown = (x - 48) ** 2 + (y - 33) ** 2 <= 81
    return sun | hill | ((wall | roof) & ~door & ~window) | trunk | crown


def noisy_drawing(rng: int = 7) -> NDArray[np.float64]:
    """The drawing as grey values (64, 64) under normal noise of deviation 0.3."""
    from minfer.pictures import gaussian

    return gaussian(drawing(), 0.3, np.random.default_rng(rng))


def stereo() -> FactorGraph:
    """How far a scene of slanted surfaces has moved between two eyes; 64x96 pixels, 16 labels."""
    from minfer.stereo import scene, stereo_model

    seen = scene(64, 96, 16)
    return stereo_model(seen.left, seen.right, 16)


EXAMPLES = {
    "sprinkler": Example("7 named variables: why is the grass wet?", sprinkler),
    "picture": Example("a noisy 64x64 picture as a grid of 4,096 pixels", lambda: picture().graph),
    "stereo": Example("depth of 64x96 pixels from two views, 16 labels each", stereo),
}


def example(name: str) -> FactorGraph:
    """An example model by name; :data:`EXAMPLES` lists them."""
    if name not in EXAMPLES:
        raise ModelError(f"there is no example {name!r}; choose from {', '.join(EXAMPLES)}")
    return EXAMPLES[name].make()


#: What can be written beside the models.
TREEBANK = "treebank"


def listed_examples() -> dict[str, str]:
    """What each example that can be written is."""
    about = {name: one.about for name, one in EXAMPLES.items()}
    return {**about, TREEBANK: "40 English sentences with their trees, for `minfer parse`"}


def write_example(name: str, path: str) -> str:
    """Write an example to a file, whose suffix sets the format; returns what to try on it."""
    from minfer.io import write
    from minfer.io.formats import format_of, writing_complaint
    from minfer.parsing.conllu import write_conllu
    from minfer.parsing.tiny import tiny_treebank
    from minfer.pictures import write_picture

    if name == TREEBANK:
        write_conllu(tiny_treebank(), path)
        return f"; now try `minfer parse train {path} -o tiny.model`"
    if name == "picture" and path.lower().endswith(".png"):
        write_picture(path, noisy_drawing())
        return f"; now try `minfer denoise {path} -o clean.png`"
    if path != "-" and (complaint := writing_complaint(path)):
        also = " (or in .png, for `minfer denoise`)" if name == "picture" else ""
        raise SettingsError(f"{complaint}{also}")
    graph = example(name)
    write(graph, path)
    kind = format_of(path)
    lossy = graph.names and kind is not None and kind.name in ("uai", "fg")
    names = " (its variables are x0, x1, ...: .uai and .fg files keep no names)"
    return f"{names if lossy else ''}; now try `minfer run {path}`"
