"""``minfer denoise``: a noisy picture in, a clean one out."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Optional

import typer

from minfer.cli import reduce
from minfer.cli.failures import UsageError, note
from minfer.cli.files import check_report, check_writable
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
from minfer.words import counted

if TYPE_CHECKING:
    from rich.text import Text

    from minfer.denoising import Denoised
    from minfer.pictures import Loaded
    from minfer.reduction.result import Result
    from minfer.shades import Shades

PICTURE_PANEL = "Picture"
LIMITS = ("factor_cost", "max_divergence", "max_factors")
SWEEPING = ("bp", "trw")  # solvers that stop at a tolerance of ours


def shared_option(name: str, text: str = "") -> Any:
    """An option of ``minfer run``'s reduction, here under the same name."""
    option = next(o for o in reduce.OPTIONS if o.name == name)
    return typer.Option(
        option.flag,
        help=text or option.help,
        metavar=option.metavar,
        rich_help_panel=reduce.PANEL,
    )


@partial(solver_options, default=reduce.DEFAULT_SOLVER)
def denoise(
    noisy: Annotated[str, typer.Argument(metavar="NOISY.png", help="Picture file to clean.")],
    out: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--out",
            "-o",
            metavar="CLEAN.png",
            help="Write the cleaned picture; the suffix tells the format.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    alpha: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            metavar="A",
            help="Trust in single pixels. Default: estimated from the picture; with few classes 5 "
            "over the square of the least distance of their means.",
            rich_help_panel=PICTURE_PANEL,
        ),
    ] = None,
    coupling: Annotated[
        float,
        typer.Option(
            metavar="W", help="Weight of equal neighbours.", rich_help_panel=PICTURE_PANEL
        ),
    ] = 1.0,
    level: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            metavar="X",
            help="Grey value that speaks for neither black (0) nor white (1). Default: estimated "
            "from the picture.",
            rich_help_panel=PICTURE_PANEL,
        ),
    ] = None,
    labels: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--labels",
            "--classes",
            metavar="K",
            help="Segment a grey picture into K classes, found in it; with --smooth, into K grey "
            "values.",
            rich_help_panel=PICTURE_PANEL,
        ),
    ] = None,
    means: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="A,B,...",
            help="Segment into classes with these grey values, 0 to 1.",
            rich_help_panel=PICTURE_PANEL,
        ),
    ] = None,
    smooth: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="Neighbours tend to be of one class (equal), or of near grey values (linear, "
            "quadratic), as in photographs.",
            rich_help_panel=PICTURE_PANEL,
        ),
    ] = "equal",
    truncation: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            metavar="T",
            help="Linear, quadratic: the step between neighbours, in deviations of the noise, from "
            "which on an edge costs no more. Default: 3.",
            rich_help_panel=PICTURE_PANEL,
        ),
    ] = None,
    intervals: Annotated[
        Optional[float],  # noqa: UP045
        interval_option(
            "Look so long (5 seconds if none are given) for pixels whose colour is certain, and "
            "write a map of them beside CLEAN.png, CLEAN-certain.png: the others are orange. For "
            "black and white, and few classes."
        ),
    ] = None,
    reduce_: Annotated[
        bool,
        shared_option(
            "reduce", "Ignore pairs of neighbours that matter little, and estimate the error."
        ),
    ] = False,
    factor_cost: Annotated[
        Optional[float],  # noqa: UP045
        shared_option(
            "factor_cost",
            "Keep factors whose score is at least G. Without any of these three, 0.03.",
        ),
    ] = None,
    max_divergence: Annotated[Optional[float], shared_option("max_divergence")] = None,  # noqa: UP045
    max_factors: Annotated[Optional[int], shared_option("max_factors")] = None,  # noqa: UP045
    method: Annotated[Optional[str], shared_option("method")] = None,  # noqa: UP045
    compare: Annotated[Optional[str], shared_option("compare")] = None,  # noqa: UP045
    marginals: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="FILE",
            help="Write the probability of white (of the likeliest class) as a picture, or all "
            "probabilities as .npy.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    entropy: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="FILE",
            help="Write how open each pixel is as a picture: black certain, white all alike; nats "
            "as .npy.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    expected: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="FILE",
            help="Write the expected grey value of each pixel, as a picture or .npy.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    kept: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="FILE",
            help="Write where pairwise factors were kept as a picture: white, all of a pixel's.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    report: Annotated[Optional[str], shared_option("report")] = None,  # noqa: UP045
    json: Json = False,
    strict: Strict = False,
    **settings: Any,
) -> None:
    """Clean a noisy black-and-white or grey picture, or segment a grey one.

    Neighbouring pixels tend to be equal; that is the model of section 5.1 of
    the paper. With --intervals it is told which pixels cannot change colour:
    of these it is proved which colour is likelier, whatever the solver. With
    --reduce, or another option of that panel, most pairs of neighbours are
    ignored, and the report says what that may have cost. Colours are read as
    their luminance, transparent pixels as white. Needs Pillow, the extra `image`.

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
    given = _means(means, labels, level)
    if truncation is not None and smooth == "equal":
        raise UsageError("--truncation has no use unless you add --smooth linear or quadratic")
    check_interval_seconds(intervals)
    certain = None if intervals is None or out is None else certain_name(out)
    asked: dict[str, Any] = {"factor_cost": factor_cost, "max_divergence": max_divergence}
    asked |= {"max_factors": max_factors, "method": method, "compare": compare, "report": report}
    request = _request(asked, reduce_, settings.get("time_limit"), intervals)
    if kept is not None and request is None:
        raise UsageError("--kept shows what a reduction kept: add --reduce")
    maps = {"--marginals": marginals, "--expected": expected, "--entropy": entropy}
    outputs = {"--out": out, "--intervals": certain, **maps, "--kept": kept}
    _check_outputs(outputs, noisy)
    if report is not None:
        check_report(report, [*outputs.values()], [noisy])
    solver = make_solver(_with_tol(settings, request is not None), reduce.DEFAULT_SOLVER)

    how: dict[str, Any] = {"smooth": smooth, "truncation": truncation}
    began = time.perf_counter()
    loaded, shades, model, found = wait_for(
        f"reading {noisy}", lambda: _model(noisy, alpha, coupling, level, labels, given, how)
    )
    for text in loaded.notes:
        note(f"{noisy}: {text}")
    if shades is not None:
        _admit_guesses(shades, alpha, level)
        alpha, level = shades.alpha, shades.level
    seconds = time.perf_counter() - began
    from minfer.denoising import COLOURS

    result = reduce.certified(_infer(request, model, solver), intervals, **COLOURS)
    comparison = None
    if request is not None and request.compare:
        try:
            result, comparison = reduce.compare(request, result, solver, model)
        except RefusedError as error:
            note(f"no comparison, the full inference was refused: {error}")

    from minfer.denoising import Denoised

    height, width = loaded.values.shape
    cleaned = Denoised(result, (height, width), found, shades, smooth != "equal")
    _write(cleaned, out, maps, kept, certain)
    if report is not None and request is not None:
        from minfer.report import denoise_report

        page = partial(denoise_report, loaded.values, alpha, coupling, level=level, labels=labels,
                       means=given, **how)  # fmt: skip
        reduce.write_report(request, solver, model, Path(noisy).name, page)
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


def _request(
    asked: dict[str, Any], wanted: bool, time_limit: float | None, certify: float | None
) -> reduce.Request | None:
    if not wanted and all(value is None for value in asked.values()):
        return None
    if not any(asked[limit] is not None for limit in LIMITS):
        from minfer.denoising import FACTOR_COST

        asked = {**asked, "factor_cost": FACTOR_COST}
    request = reduce.make_request({**asked, "time_limit": time_limit, "certify": certify})
    assert request is not None
    return request


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
            raise UsageError("--level is for black and white; it has no use with --labels")
        return None
    if labels is not None or level is not None:
        raise UsageError("--means goes with neither --labels nor --level")
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"--means: {text!r} is no list of numbers such as 0,0.5,1") from None


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


def _model(
    path: str,
    alpha: float | None,
    coupling: float,
    level: float | None,
    labels: int | None,
    means: Any,
    how: dict[str, Any],
) -> tuple[Loaded, Shades | None, Any, Any]:
    from minfer.denoising import picture_model, picture_shades
    from minfer.pictures import read_picture

    loaded = read_picture(path)
    classes = {"labels": labels, "means": means}
    shades = picture_shades(loaded.values, alpha, coupling, level=level, **classes)
    if shades is not None:
        alpha, level = shades.alpha, shades.level
    model, found = picture_model(loaded.values, alpha, coupling, level=level, **classes, **how)
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


def _write(
    cleaned: Denoised,
    out: str | None,
    maps: dict[str, str | None],
    kept: str | None,
    certain: str | None,
) -> None:
    import numpy as np

    from minfer.io import atomic_write
    from minfer.pictures import write_marked, write_picture

    if certain is not None and cleaned.certain is not None:
        shown = cleaned.certain == 1 if cleaned.means is None else cleaned.means[cleaned.certain]
        write_marked(certain, shown, cleaned.certain < 0)
    if out is not None:
        write_picture(out, cleaned.clean, bits=8)
    if kept is not None:
        write_picture(kept, cleaned.kept, bits=8)
    for flag, path in maps.items():
        if path is None:
            continue
        values = getattr(cleaned, flag[2:])
        if path.endswith(".npy"):
            with atomic_write(path) as file:
                np.save(file, values)
        elif flag == "--entropy":
            write_picture(path, values / np.log(cleaned.n_classes))
        else:
            write_picture(path, values if values.ndim == 2 else values.max(axis=2))
    for path in (out, certain, *maps.values(), kept):
        if path is not None:
            note(f"wrote {path}")
    if out is None and kept is None and not any(maps.values()):
        note("nothing was written: -o FILE keeps the clean picture")


class _Told(NamedTuple):
    """Everything that is told of one picture.

    There is no bound here: on a picture it takes longer than the inference and says nothing.
    """

    noisy: str
    request: reduce.Request | None
    cleaned: Denoised
    comparison: reduce.Comparison | None
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
            "solver": result.marginals.solver,
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
                "score": result.score,
                "factors": result.n_factors,
                "added": result.n_added,
                "ignored": result.n_ignored,
                "kept_share": result.kept_share,
                "divergence_estimate": result.divergence,
                "error_estimate": finite_or_none(result.error_estimate),
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

        result, m = self.cleaned.result, self.cleaned.result.marginals
        pairs = result.n_factors - result.n_seed
        lines: dict[str, str | Text] = {
            "picture": self._picture(),
            "shades": self._shades(),
            "solver": m.solver,
            "method": self.request.describe(result) if self.request else "",
            "status": reduce.status_line(result),
            "advice": reduce.advice_line(self.request, result) or self._little_ignored(),
            "pairs": f"{pairs:,}: {result.n_added:,} kept ({result.kept_share:.1%}), "
            f"{result.n_ignored:,} ignored",
            "divergence": reduce.divergence_line(result) if self.request else "",
            "error of leaving out": reduce.error_line(result) if self.request else "",
            "certain": self._certain(),
            "time": f"{render.duration(result.seconds)}, compiling or loading kernels included; "
            f"reading the picture and making its model {render.duration(self.read)}",
        }
        console = render.console()
        render.show(console, render.facts({k: v for k, v in lines.items() if v}))
        if self.comparison is not None:
            console.print()
            render.show(console, reduce.comparison_table(result, self.comparison))

    def _little_ignored(self) -> str:
        if self.request is None or self.cleaned.result.kept_share <= reduce.MOST_KEPT:
            return ""
        return "little was ignored: raise --factor-cost, or --alpha for a picture of little noise"

    def _certain(self) -> str:
        from minfer.cli.certainty import colours

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
