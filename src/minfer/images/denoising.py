"""Denoising and segmenting pictures: section 5.1 of the paper as a tool.

Black and white, the paper's model of the true picture y given the seen one x:

    p(y | x)  proportional to  exp( coupling * sum_(i,j) [y_i = y_j] + alpha * sum_i x_i y_i ),

(i, j) over pixels next to each other, x with a ``level`` subtracted. The paper's level is the mean,
which suits pictures that are half black; here level and alpha are those that
``images/noise_estimate.py`` expects the fewest errors of. With class means m_1, ..., m_K the states
are K labels instead, by squared distance:

    p(y | x)  proportional to  exp( coupling * sum_(i,j) [y_i = y_j]
                                    - alpha/2 * sum_i (x_i - m_{y_i})^2 ),

in grey or, by squared distance of red, green and blue, in colour. ``images/class_estimate.py``
finds means and alpha. Many grey values are ordered, and neighbours are alike rather than equal.
With ``smooth`` linear or quadratic the means are evenly spread, and a step of d = |m_{y_i} -
m_{y_j}| sqrt(alpha), that is in standard deviations of the noise, costs coupling * min(d,
truncation), or the square of the minimum (:mod:`minfer.factors.distances`). The seed of the
reduction is the unary part. Without an objective all factors count: on a grid, ignoring some saves
no time (docs/reference/denoising.md).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import check_choice, check_number, check_whole, real_numbers
from minfer.errors import ModelError, SettingsError
from minfer.graph import FactorGraph, grid_edges
from minfer.images.class_estimate import estimate_classes
from minfer.images.denoise_result import Denoised
from minfer.images.noise_estimate import STRENGTH, Shades, estimate
from minfer.reduction import seeds
from minfer.reduction.infer import infer
from minfer.reduction.objectives import MinJoint, SelectionObjective
from minfer.reduction.parts_of_infer import check_callable, check_certify
from minfer.reduction.recipes import AnyRecipe, Compensated, takes_recipe
from minfer.reduction.result import Result
from minfer.solvers.bp import BeliefPropagation

if TYPE_CHECKING:
    from minfer.solvers.base import Solver

COUPLING = 1.0
#: A factor cost that suits most pictures, where the reduction is asked for.
FACTOR_COST = 0.03
#: Stricter than any picture shows.
TOL = 1e-4
#: Steps between neighbours, in deviations of the noise, from which on more cost nothing.
TRUNCATION = 3.0
SMOOTH = ("equal", "linear", "quadratic")

#: What is asked of intervals: no more of a pixel than its colour, but that for certain.
COLOURS: dict[str, Any] = {"tol": 0.0, "undecided": True}


@takes_recipe
def denoise(
    image: ArrayLike,
    *,
    alpha: float | None = None,
    coupling: float = COUPLING,
    objective: SelectionObjective | None = None,
    solver: Solver | None = None,
    level: float | None = None,
    labels: int | None = None,
    means: ArrayLike | None = None,
    smooth: str = "equal",
    truncation: float | None = None,
    recipe: AnyRecipe | None = None,
    certify: float | None = None,
    **options: Any,
) -> Denoised:
    """Clean a noisy black-and-white picture, or segment a grey one or one in colour.

    Parameters
    ----------
    image : numbers or bools (H, W), or (H, W, 3) in colour, for classes
        Unsigned integers are divided by the largest value of their type, unless they are all 0
        and 1; other numbers are taken as they are, best on a scale from 0 to 1.
    alpha : float, optional
        Trust in single pixels, one over the variance of the noise. By default it is estimated
        from the picture, with classes together with their means.
        Linear and quadratic smoothness are in its units, so they refuse 0.
    coupling : float
        Weight of two neighbours being equal, or of a step between them.
    objective : MinSize, MinDivergence, MinJoint or Budget, optional
        Which pairwise factors to keep, for example ``MinJoint(0.03)``; all of them by default.
    solver : any solver, optional
        ``BeliefPropagation(tol=1e-4)`` by default.
    level : float, optional
        Grey value that favours neither black (0) nor white (1). By default it is estimated from
        the picture, together with ``alpha`` unless that is given; the paper's is the mean.
    labels : int, optional
        Segment into so many classes, found in the picture; if ``smooth``, into grey values.
    means : floats (K,), or (K, 3) in colour, optional
        Segment into classes with these grey values, 0 to 1, or colours.
    smooth : "equal", "linear" or "quadratic"
        Whether neighbours tend to have the same class, or similar grey values, as in photographs.
        Then the classes are spread evenly over the picture's values (as ``means`` must be, if
        given), and 32 to 256 of them make a grey picture.
    truncation : float, optional
        For linear and quadratic smoothness: the step between neighbours, in standard deviations of
        the noise, from which on an edge costs no more. By default 3.
    certify : float, optional
        Seconds to prove which colour is the most probable, pixel by pixel: ``found.certain``.
    recipe : Paper, Compensated or Iterated
        With an objective; ``Compensated()`` by default.
    **options
        For :func:`minfer.infer`, with an objective.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import denoise
    >>> from minfer.pictures import base_pictures, gaussian
    >>> clean = base_pictures()["house"]
    >>> noisy = gaussian(clean, 0.3, np.random.default_rng(0))
    >>> found = denoise(noisy)
    >>> bool((found.clean == clean).mean() > 0.98)
    True
    >>> sure = denoise(noisy, certify=5.0)
    >>> bool((sure.certain >= 0).mean() > 0.99)
    True
    >>> from minfer import MinJoint
    >>> reduced = denoise(noisy, alpha=5.0, objective=MinJoint(0.03))
    >>> reduced.kept.shape, bool(reduced.result.kept_share < 0.5)
    ((64, 64), True)
    """
    check_certify(certify)
    shades, model, class_means, own_alpha = shaded_model(
        image, alpha=alpha, coupling=coupling, level=level, labels=labels, means=means,
        smooth=smooth, truncation=truncation,
    )  # fmt: skip
    solver = BeliefPropagation(tol=TOL) if solver is None else solver
    if objective is None:
        if options or recipe is not None:
            names = ", ".join(["recipe"] * (recipe is not None) + [*options])
            raise SettingsError(f"denoise: {names} need an objective")
        result = whole(model, solver)
    else:
        recipe = Compensated() if recipe is None else recipe
        result = infer(model, objective, solver, recipe=recipe, **options)
    if certify is not None:
        result = result.certified(certify, **COLOURS)
    height, width = np.shape(image)[:2]
    trust = None if class_means is None else own_alpha
    return Denoised(result, (height, width), class_means, shades, smooth != "equal", trust)


def reducing(reduce: bool = False, factor_cost: float | None = None) -> MinJoint | None:
    """The objective of a reduction, if one is asked for.

    Parameters
    ----------
    reduce : ignore pairs of neighbours that matter little
    factor_cost : keep pairs whose score is at least this; if only ``reduce`` is given, 0.03
    """
    if factor_cost is not None:
        return MinJoint(factor_cost)
    return MinJoint(FACTOR_COST) if reduce else None


def whole(model: FactorGraph, solver: Solver) -> Result:
    """Inference in the whole model, told as a reduction that ignored nothing and scored nothing."""
    check_callable(MinJoint(0.0), solver)
    answer, seed = solver(model), seeds.unary(model)
    keep = np.broadcast_to(np.True_, (model.n_factors,))
    gains = np.broadcast_to(np.nan, (model.n_factors,))
    timings = {"infer": answer.seconds}
    return Result(model, answer, answer, keep, seed, gains, "none", timings)


def _shades(
    x: NDArray[np.float64], alpha: float | None, coupling: float, level: float | None,
    classes: bool,
) -> Shades | None:  # fmt: skip
    """Alpha and level of black and white, as given or estimated; None with classes."""
    for name, value in {"alpha": alpha, "coupling": coupling, "level": level}.items():
        if value is not None:
            check_number(f"denoise: {name}", value)
        if name != "level" and value is not None and value < 0:
            raise SettingsError(f"denoise: {name} must be 0 or more, not {value}")
    if level is not None and not min(x.min(), 0.0) <= level <= max(x.max(), 1.0):
        raise SettingsError(
            f"denoise: level {level} is not among the picture's values, {x.min():.3g} to "
            f"{x.max():.3g}; files and unsigned integers are on a scale from 0 to 1"
        )
    if classes:
        if level is not None:
            raise SettingsError(
                "denoise: level is for black and white; it cannot be combined with class means"
            )
        return None
    if x.min() == x.max():
        only = float(x.flat[0])
        if level is None:
            raise ModelError(
                "denoise: all pixels have the same value, so there are no two shades to tell "
                "apart; say what is half way between black and white, as in level=0.5"
            )
        return Shades(STRENGTH if alpha is None else alpha, level, only, only, told=False)
    if alpha is not None and level is not None:
        return Shades(alpha, level, float(x.min()), float(x.max()), told=True)
    return estimate(x, coupling, alpha, level)


def _classes(
    x: NDArray[np.float64],
    labels: int | None,
    means: ArrayLike | None,
    smooth: str,
    coupling: float,
) -> tuple[NDArray[np.float64], float]:
    """Class means (K,), or (K, 3) in colour, and one over the variance of the noise."""
    if means is None:
        check_whole("denoise: labels", labels, 2)
        k = int(labels or 0)
        if smooth == "equal":
            estimated = estimate_classes(x.reshape(*x.shape[:2], -1), k, coupling)
            grey = estimated.means[:, 0]
            return (grey if x.ndim == 2 else estimated.means), estimated.alpha
        found = _spread(x, k)
    elif labels is not None:
        raise SettingsError("denoise: means cannot be combined with labels=... or level=...")
    else:
        found = _checked_means(means, x)
        if smooth == "equal":
            channels = x.reshape(*x.shape[:2], -1)
            given = found.reshape(len(found), -1)
            return found, estimate_classes(channels, len(found), coupling, given).alpha
    steps = np.diff(found)
    if steps.max() > 1.000001 * steps.min() or steps.min() <= 0:
        raise SettingsError(
            f"denoise: {smooth} smoothness needs means that are evenly spread, in rising order"
        )
    return found, 1.0 / noise_deviation(x) ** 2


def picture_model(
    image: ArrayLike, alpha: float | None = None, coupling: float = COUPLING, **settings: Any
) -> tuple[FactorGraph, NDArray[np.float64] | None]:
    """The model of a picture and its class means, if any; arguments as for :func:`denoise`."""
    return shaded_model(image, alpha=alpha, coupling=coupling, **settings)[1:3]


def shaded_model(
    image: ArrayLike,
    *,
    alpha: float | None = None,
    coupling: float = COUPLING,
    level: float | None = None,
    labels: int | None = None,
    means: ArrayLike | None = None,
    smooth: str = "equal",
    truncation: float | None = None,
) -> tuple[Shades | None, FactorGraph, NDArray[np.float64] | None, float | None]:
    """Shades of a picture, its model, class means and their alpha; as for :func:`denoise`.

    Variable ``r * W + c`` is a pixel; factors are one per pixel, then the pairs, those in a row
    before those in a column.
    """
    in_classes = (labels is not None or means is not None) and smooth == "equal"
    x = grey_values(image, colour=in_classes)
    shades = _shades(x, alpha, coupling, level, labels is not None or means is not None)
    check_choice("denoise: smooth", smooth, SMOOTH)
    if truncation is not None and smooth == "equal":
        raise SettingsError(
            "denoise: truncation is for linear and quadratic smoothness, but neighbours here "
            'are equal or not: leave it out, or give smooth="linear" too'
        )
    truncation = TRUNCATION if truncation is None else truncation
    check_number("denoise: truncation", truncation, above=0.0)
    if shades is not None:
        if smooth != "equal":
            raise SettingsError(
                f"denoise: {smooth} smoothness is for ordered grey values; say how many, as in "
                "labels=64"
            )
        return shades, FactorGraph.grid(shades.alpha * (x - shades.level), coupling), None, None
    found, estimated = _classes(x, labels, means, smooth, coupling)
    alpha = estimated if alpha is None else alpha
    colours = x.reshape(*x.shape[:2], 1, -1)
    away = ((colours - found.reshape(len(found), -1)) ** 2).sum(axis=3)
    graph = FactorGraph.empty(np.full(x.shape[0] * x.shape[1], len(found)))
    pixels, edges = np.arange(graph.n_variables)[:, None], grid_edges(*x.shape[:2])
    graph = graph.add_tables(pixels, -alpha / 2 * away.reshape(len(pixels), -1))
    if smooth == "equal":
        return None, graph.add_potts(edges, coupling), found, alpha
    step = float(np.diff(found).min()) * math.sqrt(alpha)  # in deviations of the noise
    if step == 0.0:
        raise SettingsError(
            f"denoise: {smooth} smoothness counts steps in standard deviations of the noise, "
            f"1 / sqrt(alpha), and with alpha {alpha:g} all steps are 0 of them: give an alpha "
            "above 0, as in alpha=1, or leave it out, and it is estimated"
        )
    far = truncation / step
    if smooth == "linear":
        return None, graph.add_truncated_linear(edges, coupling * step, far), found, alpha
    return None, graph.add_truncated_quadratic(edges, coupling * step**2, far), found, alpha


def noise_deviation(x: NDArray[np.float64]) -> float:
    """Standard deviation of the noise in a grey picture, at least a thousandth of its range.

    A difference of second differences, across and down, is zero on planes; of independent noise it
    has 6 times the deviation (Immerkaer 1996). The median is not moved by edges.
    """
    least = max(1e-3 * float(np.ptp(x)), 1e-12)
    if min(x.shape) < 3:
        return max(float(np.std(x)) / 2, least)
    second = x[:, :-2] - 2 * x[:, 1:-1] + x[:, 2:]
    both = second[:-2] - 2 * second[1:-1] + second[2:]
    return max(float(np.median(np.abs(both))) / (6 * 0.6744897501960817), least)


def _spread(x: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    low, high = float(x.min()), float(x.max())
    if low == high:
        raise ModelError("denoise: all pixels have the same value; give means instead of labels")
    return np.linspace(low, high, k)


def grey_values(
    image: ArrayLike, who: str = "denoise", colour: bool = False
) -> NDArray[np.float64]:
    """A picture as floats (H, W), or (H, W, 3) if it may be in ``colour``; what cannot be one is
    refused, in the name of ``who``."""
    try:
        raw = np.asarray(image)
    except ValueError as error:
        raise ModelError(f"{who}: this is not a picture: {error}") from None
    if raw.dtype.kind in "US" and not raw.ndim:
        raise ModelError(
            f"{who}: this is a string, not a picture; minfer.pictures.read_picture(path).values "
            "reads a file"
        )
    if raw.dtype.kind not in "buif":
        raise ModelError(f"{who}: pixels must be numbers or bools, not {raw.dtype}")
    colour = colour and raw.ndim == 3 and raw.shape[2] == 3
    if not colour and raw.ndim == 3 and raw.shape[2] in (2, 3, 4):
        raise ModelError(
            f"{who}: an array of shape {raw.shape} has {raw.shape[2]} channels; make it grey "
            "first, for example image[..., :3].mean(axis=2)"
        )
    if raw.ndim != 2 and not colour:
        raise ModelError(f"{who}: a picture must have shape (H, W), not {raw.shape}")
    if not raw.size:
        raise ModelError(f"{who}: the picture is empty, its shape is {raw.shape}")
    x = raw.astype(np.float64)
    if raw.dtype.kind == "f" and not np.isfinite(x).all():
        place = tuple(np.argwhere(~np.isfinite(x))[0].tolist())
        raise ModelError(f"{who}: pixel {place} is {x[place]}, not finite")
    if raw.dtype.kind == "u" and raw.max() > 1:
        x /= np.iinfo(raw.dtype).max
    return x


def _checked_means(means: ArrayLike, x: NDArray[np.float64]) -> NDArray[np.float64]:
    found = real_numbers(means, "denoise: means", SettingsError).astype(np.float64)
    if x.ndim == 3 and found.shape[1:] != (3,):
        raise SettingsError(
            f"denoise: means of a picture in colour have shape (K, 3), not {found.shape}"
        )
    if found.ndim != x.ndim - 1 or len(found) < 2 or not np.isfinite(found).all():
        raise SettingsError("denoise: means are at least two finite numbers")
    if len(np.unique(found, axis=0)) < len(found):
        raise SettingsError("denoise: two class means are equal")
    return found
