"""``minfer denoise``: a noisy picture in, a clean one out."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Optional

import typer

from minfer.cli import reduce
from minfer.cli.failures import UsageError, note
from minfer.cli.files import check_report, check_writable
from minfer.cli.generate import option, takes
from minfer.cli.options import (
    OUTPUT_PANEL,
    Json,
    Strict,
    check_interval_seconds,
    interval_option,
    make_solver,
    solver_name,
    solver_options,
)
from minfer.cli.progress import wait_for
from minfer.cli.run import NOT_CONVERGED
from minfer.errors import RefusedError
from minfer.words import counted, duration

if TYPE_CHECKING:
    from rich.text import Text

    from minfer.denoising import Denoised
    from minfer.pictures import Loaded
    from minfer.reduction.comparison import Comparison
    from minfer.reduction.result import Result
    from minfer.shades import Shades

PICTURE_PANEL = "Picture"
SWEEPING = ("bp", "trw")  # solvers that stop at a tolerance of ours


@dataclass(frozen=True)
class Picture:
    """The model of a picture."""

    alpha: float | None = option(
        "Trust in single pixels. Default: estimated from the picture; with few classes, 5 over the "
        "square of the smallest distance between their means.",
        "A",
    )
    coupling: float = option("Weight of equal neighbours.", "W", default=1.0)
    level: float | None = option(
        "Grey value that favours neither black (0) nor white (1). Default: estimated from the "
        "picture.",
        "X",
    )
    labels: int | None = option(
        "Segment a grey picture into K classes, found in it; with --smooth, into K grey values.",
        "K",
        "--labels",
        "--classes",
    )
    means: str | None = option("Segment into classes with these grey values, 0 to 1.", "A,B,...")
    smooth: str = option(
        "Neighbours tend to have the same class (equal) or similar grey values (linear, "
        "quadratic), as in photographs.",
        "HOW",
        default="equal",
    )
    truncation: float | None = option(
        "Linear, quadratic: the step between neighbours, in deviations of the noise, from which "
        "on an edge costs no more. Default: 3.",
        "T",
    )

    def checked(self) -> dict[str, Any]:
        """As :func:`minfer.denoise` takes it."""
        if self.truncation is not None and self.smooth == "equal":
            raise UsageError("--truncation needs --smooth linear or quadratic")
        return {**asdict(self), "means": _means(self.means, self.labels, self.level)}


@dataclass(frozen=True)
class PictureReduction(reduce.Reported):
    """The reduction in the words of pictures."""

    reduce: bool = option(
        "Ignore pairs of neighbours that matter little, and estimate the error.", default=False
    )
    factor_cost: float | None = option(
        "Keep factors whose score is at least G. Without any of these three, 0.03.", "G"
    )


@dataclass(frozen=True)
class Maps:
    """Other pictures that are written."""

    marginals: str | None = option(
        "Write the probability of white (of the likeliest class) as a picture, or all "
        "probabilities as .npy.",
        "FILE",
    )
    entropy: str | None = option(
        "Write each pixel's entropy, as a picture (black: certain) or in nats as .npy.",
        "FILE",
    )
    expected: str | None = option(
        "Write the expected grey value of each pixel, as a picture or .npy.", "FILE"
    )
    kept: str | None = option(
        "Write which pairwise factors were kept, as a picture (white: all of a pixel's).", "FILE"
    )


@partial(solver_options, default=reduce.DEFAULT_SOLVER)
@takes(OUTPUT_PANEL, maps=Maps)
@takes(reduce.PANEL, reduction=PictureReduction)
@takes(PICTURE_PANEL, picture=Picture)
def denoise(
    noisy: Annotated[str, typer.Argument(metavar="NOISY.png", help="Picture file to clean.")],
    out: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--out",
            "-o",
            metavar="CLEAN.png",
            help="Write the cleaned picture; the suffix sets the format.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    intervals: Annotated[
        Optional[float],  # noqa: UP045
        interval_option(
            "Search this long (default 5 seconds) for proofs of the pixels' colours, and write a "
            "map of them, CLEAN-certain.png, with undecided pixels in orange. For black and white, "
            "and few classes."
        ),
    ] = None,
    json: Json = False,
    strict: Strict = False,
    *,
    picture: Picture,
    reduction: PictureReduction,
    maps: Maps,
    **settings: Any,
) -> None:
    """Clean a noisy black-and-white or grey picture, or segment a grey one.

    Neighbouring pixels tend to be equal; that is the model of section 5.1 of
    the paper. With --intervals, the most probable colour of most pixels is
    proven, whatever the solver. With --reduce, or another option of that panel,
    most pairs of neighbours are ignored, and the report says what that may have
    cost. Colours are read as their luminance, transparent pixels as white.
    Needs Pillow, the extra `image`.

    \b
    Examples:
      minfer denoise scan.png -o clean.png
      minfer denoise scan.png -o clean.png --reduce --marginals p.png --kept kept.png
      minfer denoise scan.png -o clean.png --intervals
      minfer denoise photo.png -o classes.png --labels 4
      minfer denoise photo.png -o smooth.png --labels 64 --smooth linear --entropy open.png
      minfer denoise scan.png --method paper --solver trw --compare full
      minfer denoise scan.png --report scan.html
    """
    from minfer.denoising import COLOURS, FACTOR_COST, Denoised

    how = picture.checked()
    check_interval_seconds(intervals)
    certain = None if intervals is None or out is None else certain_name(out)
    request = reduce.make_request(
        reduction, settings.get("time_limit"), intervals, factor_cost=FACTOR_COST
    )
    if maps.kept is not None and request is None:
        raise UsageError("--kept shows what a reduction kept: add --reduce")
    outputs = {"--out": out, "--intervals": certain}
    outputs |= {f"--{name}": path for name, path in asdict(maps).items()}
    _check_outputs(outputs, noisy)
    if reduction.report is not None:
        check_report(reduction.report, [*outputs.values()], [noisy])
    solver = make_solver(_with_tol(settings, request is not None), reduce.DEFAULT_SOLVER)

    began = time.perf_counter()
    loaded, shades, model, found = wait_for(f"reading {noisy}", lambda: _model(noisy, how))
    for text in loaded.notes:
        note(f"{noisy}: {text}")
    if shades is not None:
        _admit_guesses(shades, picture.alpha, picture.level)
        how |= {"alpha": shades.alpha, "level": shades.level}
    seconds = time.perf_counter() - began
    result = reduce.certified(_infer(request, model, solver), intervals, **COLOURS)
    comparison = None
    if request is not None and request.compare:
        try:
            comparison = reduce.compared(request, result, solver)
        except RefusedError as error:
            note(f"no comparison, the full inference was refused: {error}")

    height, width = loaded.values.shape
    cleaned = Denoised(result, (height, width), found, shades, picture.smooth != "equal")
    _write(cleaned, out, maps, certain)
    if reduction.report is not None and request is not None:
        from minfer.report import denoise_report

        page = partial(denoise_report, loaded.values, **how)
        reduce.write_report(request, solver, result, Path(noisy).name, page)
    told = _Told(noisy, request, cleaned, comparison, seconds)
    if json:
        told.as_json()
    else:
        told.as_table()
    if strict and not result.converged:
        raise typer.Exit(NOT_CONVERGED)


def certain_name(out: str) -> str:
    """Where the map of certain pixels goes: beside the clean picture."""
    return str(Path(out).with_name(f"{Path(out).stem}-certain.png"))


def _with_tol(settings: dict[str, Any], reduced: bool) -> dict[str, Any]:
    """The solver's settings, with the tool's own tolerance; a reduction keeps the time itself."""
    from minfer.denoising import TOL

    settings = {**settings, "time_limit": None if reduced else settings.get("time_limit")}
    if settings.get("tol") is None and solver_name(settings, reduce.DEFAULT_SOLVER) in SWEEPING:
        settings["tol"] = TOL
    return settings


def _infer(request: reduce.Request | None, model: Any, solver: Any) -> Result:
    import minfer.kernels._jit  # noqa: F401 (loads numba, which is no part of the method's time)
    from minfer.denoising import whole

    pixels = counted(model.n_variables, "pixel")
    if request is None:
        return wait_for(f"inference, {pixels}", lambda: whole(model, solver))
    return wait_for(f"reduced inference, {pixels}", lambda: request(model, solver))


def _means(text: str | None, labels: int | None, level: float | None) -> Any:
    """Class means from ``0.1,0.5,0.9``; None if they were not given."""
    if text is None:
        if labels is not None and level is not None:
            raise UsageError("--level is for black and white; it cannot be combined with --labels")
        return None
    if labels is not None or level is not None:
        raise UsageError("--means cannot be combined with --labels or --level")
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"--means: {text!r} is not a list of numbers such as 0,0.5,1") from None


def _check_outputs(paths: dict[str, str | None], noisy: str) -> None:
    """Fail before the work, not after it."""
    from minfer.pictures import check_suffix

    given = {flag: path for flag, path in paths.items() if path is not None}
    for flag, path in given.items():
        if list(given.values()).count(path) > 1:
            raise UsageError(f"{flag} and another output are the same file, {path}")
        if not (flag in ("--marginals", "--expected", "--entropy") and path.endswith(".npy")):
            check_suffix(path)
        check_writable(path, [noisy])


def _model(path: str, how: dict[str, Any]) -> tuple[Loaded, Shades | None, Any, Any]:
    from minfer.denoising import picture_model, picture_shades
    from minfer.pictures import read_picture

    loaded = read_picture(path)
    own = {k: v for k, v in how.items() if k not in ("smooth", "truncation")}
    shades = picture_shades(loaded.values, **own)
    if shades is not None:
        how = {**how, "alpha": shades.alpha, "level": shades.level}
    model, found = picture_model(loaded.values, **how)
    return loaded, shades, model, found


def _admit_guesses(shades: Shades, alpha: float | None, level: float | None) -> None:
    """Say so where a picture does not show two shades and something was not given."""
    guessed = [f"--level {shades.level:.3g}"] if level is None else []
    guessed += [f"--alpha {shades.alpha:.3g}"] if alpha is None else []
    if guessed and not shades.told:
        note(
            "neighbouring pixels do not tell two shades of this picture apart; a guess: "
            + " ".join(guessed)
        )


def _write(cleaned: Denoised, out: str | None, maps: Maps, certain: str | None) -> None:
    import numpy as np

    from minfer.io import atomic_write
    from minfer.pictures import write_marked, write_picture

    if certain is not None and cleaned.certain is not None:
        shown = cleaned.certain == 1 if cleaned.means is None else cleaned.means[cleaned.certain]
        write_marked(certain, shown, cleaned.certain < 0)
    if out is not None:
        write_picture(out, cleaned.clean, bits=8)
    if maps.kept is not None:
        write_picture(maps.kept, cleaned.kept, bits=8)
    for name, path in asdict(maps).items():
        if path is None or name == "kept":
            continue
        values = getattr(cleaned, name)
        if path.endswith(".npy"):
            with atomic_write(path) as file:
                np.save(file, values)
        elif name == "entropy":
            write_picture(path, values / np.log(cleaned.n_classes))
        else:
            write_picture(path, values if values.ndim == 2 else values.max(axis=2))
    written = asdict(maps).values()
    for path in (out, certain, *written):
        if path is not None:
            note(f"wrote {path}")
    if out is None and not any(written):
        note("nothing was written: -o FILE keeps the clean picture")


class _Told(NamedTuple):
    """Everything that is told of one picture.

    There is no bound here: on a picture it takes longer than the inference and says nothing.
    """

    noisy: str
    request: reduce.Request | None
    cleaned: Denoised
    comparison: Comparison | None
    read: float

    def as_json(self) -> None:
        from minfer.cli import render
        from minfer.reduction.result import finite_or_none

        result, means = self.cleaned.result, self.cleaned.means
        height, width = self.cleaned.shape
        info: dict[str, Any] = {"file": self.noisy, "height": height, "width": width}
        info["means"] = None if means is None else means.tolist()
        shades = self.cleaned.shades
        info["alpha"] = None if shades is None else shades.alpha
        info["level"] = None if shades is None else shades.level
        content: dict[str, Any] = {
            "minfer": render.version(),
            "picture": info,
            "solver": repr(result.marginals.solver),
            "status": result.status.value,
            "converged": result.converged,
            "seconds": result.seconds,
            "timings": dict(result.timings),
            "read_seconds": self.read,
        }
        if self.request is not None:
            content["reduction"] = {
                "method": self.request.method,
                "objective": str(self.request.objective),
                "score": result.score_kind,
                "factors": result.n_factors,
                "added": result.n_added,
                "ignored": result.n_ignored,
                "kept_share": result.kept_share,
                "divergence_estimate": result.divergence,
                "mean_error_estimate": finite_or_none(result.mean_error_estimate),
                "no_estimate": result.no_estimate,
            }
        if (certain := self.cleaned.certain) is not None and result.intervals is not None:
            content["intervals"] = {
                "certain": int((certain >= 0).sum()),
                "wrong": int(((certain >= 0) & (certain != self.cleaned.labels)).sum()),
                "white": int((certain == 1).sum()),
                "stopped": result.intervals.stopped,
                "seconds": result.intervals.seconds,
            }
        if self.comparison is not None:
            content["compare"] = self.comparison.to_dict(result)
        sys.stdout.write(render.to_json(content) + "\n")

    def as_table(self) -> None:
        from minfer.cli import render
        from minfer.reduction import telling

        result, m = self.cleaned.result, self.cleaned.result.marginals
        pairs = result.n_factors - result.n_seed
        lines: dict[str, str | Text] = {
            "picture": self._picture(),
            "shades": self._shades(),
            "solver": repr(m.solver),
            "method": self.request.describe(result) if self.request else "",
            "status": reduce.status_line(result),
            "advice": reduce.advice_line(self.request, result) or self._little_ignored(),
            "pairs": f"{pairs:,}: {result.n_added:,} kept ({result.kept_share:.1%}), "
            f"{result.n_ignored:,} ignored",
            "divergence": telling.divergence(result) if self.request else "",
            "error of leaving out": telling.error(result) if self.request else "",
            "certain": self._certain(),
            "time": f"{duration(result.seconds)}, compiling or loading kernels included; "
            f"reading the picture and making its model {duration(self.read)}",
        }
        console = render.console()
        render.show(console, render.facts({k: v for k, v in lines.items() if v}))
        if self.comparison is not None:
            console.print()
            render.compared(console, result, self.comparison)

    def _little_ignored(self) -> str:
        from minfer.reduction.telling import MOST_KEPT

        if self.request is None or self.cleaned.result.kept_share <= MOST_KEPT:
            return ""
        return "little was ignored: raise --factor-cost, or --alpha for a picture of little noise"

    def _certain(self) -> str:
        from minfer.certified.telling import colours

        iv = self.cleaned.intervals
        return "" if iv is None else colours(iv, self.cleaned.labels.ravel())

    def _shades(self) -> str:
        shades = self.cleaned.shades
        if shades is None:
            return ""
        return f"told apart at level {shades.level:.3g} with alpha {shades.alpha:.3g}"

    def _picture(self) -> str:
        cleaned = self.cleaned
        height, width = cleaned.shape
        if cleaned.means is None:
            doubt = float((abs(cleaned.marginals - 0.5) < 0.45).mean())
            what = f"{float(cleaned.clean.mean()):.1%} white, {doubt:.1%} of the pixels in doubt"
        else:
            ends = [f"{m:.3g}" for m in cleaned.means]
            means = ", ".join(ends if len(ends) <= 12 else [*ends[:3], "...", ends[-1]])
            what = f"{len(ends)} classes with means {means}"
        return f"{Path(self.noisy).name}, {height} x {width}; {what}"
