"""A cleaned picture: what was found of each pixel, how it was found, and files of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import compiled
from minfer.basics.words import duration, plain
from minfer.errors import RefusedError
from minfer.io.text import write_bytes
from minfer.pictures import check_suffix, write_marked, write_picture
from minfer.reduction.result import Result
from minfer.say import reduced
from minfer.say.answers import took
from minfer.say.intervals import judged_colours

if TYPE_CHECKING:
    from minfer.certified.result import Intervals
    from minfer.images.noise_estimate import Shades
    from minfer.reduction.spoken_request import Account


#: Arrays that can be written as .npy too.
AS_NUMBERS = ("marginals", "expected", "entropy")


def check_name(path: str | Path, what: str) -> None:
    """FormatError unless an array of a :class:`Denoised` can be written under this name."""
    if what not in AS_NUMBERS or not str(path).endswith(".npy"):
        check_suffix(path)


@dataclass(frozen=True, eq=False, repr=False)
class Denoised:
    """A cleaned picture and how it was found.

    Attributes
    ----------
    result : Result
        Marginals, kept factors, timings and error estimates.
    shape : (H, W)
    means : float array (K,), (K, 3) in colour, or None
        The class means; None for black and white.
    shades : Shades or None
        For black and white: ``alpha`` and ``level``, and how ``dark`` and ``light`` the two look.
    ordered : bool
        Whether the classes are ordered grey values, alike in neighbours rather than equal.
    alpha : float or None
        Of classes: one over the variance of the noise, as given or estimated.
    """

    result: Result
    shape: tuple[int, int]
    means: NDArray[np.float64] | None = None
    shades: Shades | None = None
    ordered: bool = False
    alpha: float | None = None

    @cached_property
    def clean(self) -> NDArray:
        """The cleaned picture (H, W): bools, class means, or (``smooth``) what is expected."""
        if self.means is not None:
            return self.expected if self.ordered else self.means[self.labels]
        return self.marginals > 0.5

    @cached_property
    def expected(self) -> NDArray[np.float64]:
        """The expected grey value of each pixel, (H, W): of the class means, or 0 and 1."""
        return self.marginals if self.means is None else self.marginals @ self.means

    @cached_property
    def entropy(self) -> NDArray[np.float64]:
        """How open each pixel is, in nats, (H, W): 0 where it is certain."""
        p = self.marginals
        return entropies(np.stack([1 - p, p], axis=2) if self.means is None else p)

    @property
    def n_classes(self) -> int:
        """How many classes there are; 2 for black and white."""
        return 2 if self.means is None else len(self.means)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """The most probable state of each pixel, (H, W)."""
        if self.means is None:
            return self.clean.astype(np.int64)
        return self.marginals.argmax(axis=2)

    @property
    def marginals(self) -> NDArray[np.float64]:
        """p(y = 1 | x), (H, W); with class means p(y = k | x), (H, W, K)."""
        probs = self.result.marginals.probs
        if self.means is None:
            return probs[1::2].reshape(self.shape)
        return probs.reshape(*self.shape, len(self.means))

    @property
    def intervals(self) -> Intervals | None:
        """Where the true marginals lie for certain; None unless ``certify`` asked for them."""
        return self.result.intervals

    @cached_property
    def certain(self) -> NDArray[np.int64] | None:
        """The colour that a pixel certainly has under the model: 1 white, 0 black, (H, W).

        With classes, the number of its most probable one. -1 where that is open; None unless
        ``certify`` asked for it.
        """
        return None if self.intervals is None else self.intervals.states().reshape(self.shape)

    @cached_property
    def kept(self) -> NDArray[np.float64]:
        """Share of each pixel's pairwise factors that were kept, (H, W)."""
        height, width = self.shape
        keep = self.result.keep[height * width :]  # the pixels' own factors come first
        across = keep[: height * (width - 1)].reshape(height, width - 1)
        down = keep[height * (width - 1) :].reshape(height - 1, width)
        count, out = np.zeros(self.shape), np.zeros(self.shape)
        for kept, here, there in (
            (across, np.s_[:, :-1], np.s_[:, 1:]),
            (down, np.s_[:-1], np.s_[1:]),
        ):
            for side in (here, there):
                count[side] += 1
                out[side] += kept
        return out / np.maximum(count, 1)

    def to_dict(self) -> dict[str, Any]:
        """How it was found, as plain Python values; the arrays are attributes."""
        result, (height, width) = self.result, self.shape
        content: dict[str, Any] = {
            "picture": {
                "height": height,
                "width": width,
                "means": None if self.means is None else self.means.tolist(),
                "alpha": self.alpha if self.shades is None else self.shades.alpha,
                "level": None if self.shades is None else self.shades.level,
            },
            "solver": repr(result.marginals.solver),
            "status": result.status.value,
            "converged": result.converged,
            "seconds": result.seconds,
            "timings": dict(result.timings),
        }
        if self.certain is not None and self.intervals is not None:
            sure = self.certain >= 0
            content["intervals"] = {
                "certain": int(sure.sum()),
                "wrong": int((sure & (self.certain != self.labels)).sum()),
                "white": int((self.certain == 1).sum()),
                "refuted": int(self.intervals.refuted(result.marginals).sum()),
                "stopped": self.intervals.stopped,
                "seconds": self.intervals.seconds,
            }
        return content

    def reduction(self) -> dict[str, Any]:
        """What was kept and what that may have cost, as plain Python values, without a bound."""
        result = self.result
        return {
            "score": result.score_kind,
            "factors": result.n_factors,
            "added": result.n_added,
            "ignored": result.n_ignored,
            "kept_share": result.kept_share,
            "divergence_estimate": result.divergence,
            "mean_error_estimate": plain(result.mean_error_estimate),
            "no_estimate": result.no_estimate,
        }

    def summary(self, method: str = "", advice: str = "") -> dict[str, str]:
        result, (height, width) = self.result, self.shape
        pairs = result.n_factors - result.n_seed
        shades = ""
        if self.shades is not None:
            of = f"level {self.shades.level:.3g} with alpha {self.shades.alpha:.3g}"
            shades = f"told apart at {of}"
        if method and not advice and result.kept_share > reduced.MOST_KEPT:
            advice = (
                "little was ignored: raise factor_cost, or set alpha=... for a picture of little "
                "noise"
            )
        certain = self.intervals
        return {
            "picture": f"{height} x {width}; {self._contents()}",
            "shades": shades,
            "solver": repr(result.marginals.solver),
            "method": method,
            "status": reduced.status(result),
            "advice": advice,
            "pairs": f"{pairs:,}: {result.n_added:,} kept ({result.kept_share:.1%}), "
            f"{result.n_ignored:,} ignored",
            "divergence": reduced.divergence(result) if method else "",
            "error of leaving out": reduced.error(result) if method else "",
            "certain": "" if certain is None else judged_colours(certain, result.marginals),
            "time": took(result.seconds),
        }

    def _contents(self) -> str:
        if self.means is None:
            doubt = float((abs(self.marginals - 0.5) < 0.45).mean())
            return f"{float(self.clean.mean()):.1%} white, {doubt:.1%} of the pixels in doubt"
        ends = [" ".join(f"{m:.3g}" for m in np.atleast_1d(own)) for own in self.means]
        means = ", ".join(ends if len(ends) <= 12 else [*ends[:3], "...", ends[-1]])
        noise = f"; noise {self.alpha**-0.5:.3g}" if self.alpha else ""
        return f"{len(ends)} classes with means {means}{noise}"

    def write(self, path: str | Path, what: str = "clean") -> None:
        """One of the arrays as a picture file, or as .npy: ``clean``, ``kept``, ``expected``, ...

        Of ``marginals`` the picture is the probability of the likeliest class, ``entropy`` is
        relative to the largest, and what is not ``certain`` is marked.
        """
        values = getattr(self, what)
        if str(path).endswith(".npy"):
            whole = BytesIO()  # numpy does not say why a file could not be written, a full disk say
            np.save(whole, values)
            write_bytes(path, whole.getvalue())
        elif what == "certain":
            shown = values == 1 if self.means is None else self.means[values]
            write_marked(path, shown, values < 0)
        elif what in ("clean", "kept") or (what == "expected" and values.ndim == 3):
            write_picture(path, values, bits=8)
        elif what == "entropy":
            write_picture(path, values / np.log(self.n_classes))
        else:
            write_picture(path, values if values.ndim == 2 else values.max(axis=2))

    def __repr__(self) -> str:
        height, width = self.shape
        what = "black and white" if self.means is None else f"{len(self.means)} labels"
        return f"Denoised({height}x{width}, {what}; {self.result!r})"


def account_dict(
    cleaned: Denoised, told: Account | None, file: str, seconds: float
) -> dict[str, Any]:
    """The cleaned picture of a file as plain values; ``seconds`` are those of reading it."""
    content = {**cleaned.to_dict(), "read_seconds": seconds, "compile_seconds": compiled()}
    content["picture"]["file"] = file
    if told is not None:
        content["reduction"] = {**told.request.settings(), **cleaned.reduction()}
        if told.compared is not None and not isinstance(told.compared, RefusedError):
            content["compare"] = told.compared.to_dict(cleaned.result)
    return content


def account_summary(
    cleaned: Denoised, told: Account | None, file: str, seconds: float
) -> dict[str, str]:
    result, method, advice = cleaned.result, "", cleaned.result.advice
    if told is not None:
        method, advice = told.request.describe(result), told.request.advice(result)
    lines = cleaned.summary(method, advice)
    lines["picture"] = f"{Path(file).name}, {lines['picture']}"
    lines["time"] += f"; reading the picture and making its model {duration(seconds)}"
    return lines


def entropies(marginals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Entropies in nats (H, W) of marginals (H, W, K)."""
    return -np.where(marginals > 0, marginals * np.log(np.maximum(marginals, 1e-300)), 0.0).sum(-1)
