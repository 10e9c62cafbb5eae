"""``minfer denoise``: a noisy picture in, a clean one out."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minfer.cli import reduce
from minfer.cli.batch import PictureModel
from minfer.cli.failures import UsageError, demand, note
from minfer.cli.files import check_outputs, wrote
from minfer.cli.generate import Options, argument, command, flag, numbers, option, output
from minfer.cli.options import JSON, STRICT, PictureSolving, check_interval_seconds, interval_option
from minfer.cli.progress import wait_for
from minfer.limits import load_compiler
from minfer.words import counted, duration

if TYPE_CHECKING:
    from minfer.shades import Shades

SWEEPING = ("bp", "trw")  # solvers that stop at a tolerance of ours


@dataclass(frozen=True)
class Picture(PictureModel):
    """The model of a picture."""

    panel = "Picture"
    alpha: float | None = option(
        "A  Trust in single pixels. Default: estimated from the picture; with few classes, 5 over "
        "the square of the smallest distance between their means."
    )
    level: float | None = option(
        "X  Grey value that favours neither black (0) nor white (1). Default: estimated from "
        "the picture."
    )
    labels: int | None = option(
        "--labels --classes K  Segment a grey picture into K classes, found in it; with --smooth, "
        "into K grey values."
    )
    means: str | None = option("A,B,...  Segment into classes with these grey values, 0 to 1.")
    smooth: str = option(
        "HOW  Neighbours tend to have the same class (equal) or similar grey values (linear, "
        "quadratic), as in photographs.",
        "equal",
    )
    truncation: float | None = option(
        "T  Linear, quadratic: the step between neighbours, in deviations of the noise, from "
        "which on an edge costs no more. Default: 3."
    )

    @property
    def settings(self) -> dict[str, Any]:
        """As :func:`minfer.denoise` takes them."""
        means = None if self.means is None else numbers("--means", self.means)
        return {**asdict(self), "means": means}


@dataclass(frozen=True)
class PictureReduction(reduce.Reported):
    """The reduction in the words of pictures."""

    reduce: bool = flag("Ignore pairs of neighbours that matter little, and estimate the error.")
    factor_cost: float | None = option(
        "G  Keep factors whose score is at least G. Without any of these three, 0.03."
    )


@dataclass(frozen=True)
class Maps(Options):
    """Other pictures that are written."""

    panel = "Output"
    marginals: str | None = option(
        "FILE  Write the probability of white (of the likeliest class) as a picture, or all "
        "probabilities as .npy."
    )
    entropy: str | None = option(
        "FILE  Write each pixel's entropy, as a picture (black: certain) or in nats as .npy."
    )
    expected: str | None = option(
        "FILE  Write the expected grey value of each pixel, as a picture or .npy."
    )
    kept: str | None = option(
        "FILE  Write which pairwise factors were kept, as a picture (white: all of a pixel's)."
    )


@command
def denoise(
    noisy: str = argument("NOISY.png  Picture file to clean."),
    out: str | None = output(
        "-o CLEAN.png  Write the cleaned picture; the suffix sets the format."
    ),
    intervals: float | None = interval_option(
        "Search this long (default 5 seconds) for proofs of the pixels' colours, and write a map "
        "of them, CLEAN-certain.png, with undecided pixels in orange. For black and white, and few "
        "classes."
    ),
    json: bool = JSON,
    strict: bool = STRICT,
    *,
    picture: Picture,
    reduction: PictureReduction,
    maps: Maps,
    solving: PictureSolving,
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
    from minfer.cli import render
    from minfer.denoising import COLOURS, FACTOR_COST, TOL, Denoised, shaded_model, whole
    from minfer.pictures import check_suffix, read_picture
    from minfer.reduction.comparison import Comparison
    from minfer.reduction.telling import MOST_KEPT

    how = picture.settings
    check_interval_seconds(intervals)
    request = reduce.make_request(reduction, solving.time_limit, FACTOR_COST)
    if maps.kept is not None and request is None:
        raise UsageError("--kept shows what a reduction kept: add --reduce")
    certain = None
    if intervals is not None and out is not None:  # beside the clean picture
        certain = str(Path(out).with_name(f"{Path(out).stem}-certain.png"))
    pictures = {"clean": out, "certain": certain, **asdict(maps)}
    flags = {"clean": "--out", "certain": "--intervals"}
    outputs = {flags.get(name, f"--{name}"): path for name, path in pictures.items()}
    check_outputs({**outputs, "--report": reduction.report}, [noisy])
    for name, path in pictures.items():
        numbers = name in ("marginals", "expected", "entropy") and str(path).endswith(".npy")
        if path is not None and not numbers:
            check_suffix(path)
    own = {"tol": TOL} if solving.name in SWEEPING else {}
    if request is None:
        solver = solving.make(**own)
    else:  # which keeps the time itself
        solver = solving.or_else(solving.default, time_limit=None).make(**own)

    began = time.perf_counter()
    loaded = read_picture(noisy)
    shades, model, means = wait_for("making the model", lambda: shaded_model(loaded.values, **how))
    for text in loaded.notes:
        note(f"{noisy}: {text}")
    if shades is not None:
        _admit_guesses(shades, picture)
        how |= {"alpha": shades.alpha, "level": shades.level}
    seconds = time.perf_counter() - began
    pixels = counted(model.n_variables, "pixel")
    if request is None:
        load_compiler()
        result = wait_for(f"inference, {pixels}", lambda: whole(model, solver))
    else:
        result = request.run(model, solver, f", {pixels}")
    result = reduce.certified(result, intervals, **COLOURS)
    compared = request.compare(result, solver) if request and reduction.compare else None
    cleaned = Denoised(result, loaded.values.shape, means, shades, picture.smooth != "equal")
    for name, path in pictures.items():
        if path is not None:
            cleaned.write(path, name)
            wrote(path)
    if not any(pictures.values()):
        note("nothing was written: -o FILE keeps the clean picture")
    if reduction.report is not None and request is not None:
        how |= {"title": Path(noisy).name, "certify": intervals, "solver": solver}
        request.write_report(reduction.report, result, "denoise_report", loaded.values, **how)
    if json:
        content = {"minfer": render.version(), **cleaned.to_dict(), "read_seconds": seconds}
        content["picture"]["file"] = noisy
        if request is not None:
            about = {"method": request.method, "objective": str(request.objective)}
            content["reduction"] = {**about, **cleaned.reduction()}
        if isinstance(compared, Comparison):
            content["compare"] = compared.to_dict(result)
        render.write_json(content)
    else:
        advice = reduce.advice_line(request, result)
        if request is not None and not advice and result.kept_share > MOST_KEPT:
            advice = (
                "little was ignored: raise --factor-cost, or --alpha for a picture of little noise"
            )
        lines = cleaned.summary(request.describe(result) if request else "", advice)
        lines["picture"] = f"{Path(noisy).name}, {lines['picture']}"
        lines["time"] += f"; reading the picture and making its model {duration(seconds)}"
        console = render.console()
        told = {key: value for key, value in lines.items() if value}
        render.show(console, render.facts(told, result.converged))
        reduce.show_compared(console, result, compared)
    demand(strict, result.converged)


def _admit_guesses(shades: Shades, given: Picture) -> None:
    """Say so where a picture does not show two shades and something was not given."""
    guessed = [f"--level {shades.level:.3g}"] if given.level is None else []
    guessed += [f"--alpha {shades.alpha:.3g}"] if given.alpha is None else []
    if guessed and not shades.told:
        note(
            "neighbouring pixels do not tell two shades of this picture apart; a guess: "
            + " ".join(guessed)
        )
