"""``minfer denoise``: a noisy picture in, a clean one out."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from minfer.cli import reduce
from minfer.cli.batch import PictureModel
from minfer.cli.certainty import certified
from minfer.cli.failures import demand, note
from minfer.cli.files import IN, OUT, Used, check_files, write_report, wrote
from minfer.cli.generate import Options, argument, command, flag, option, output
from minfer.cli.options import JSON, STRICT, PictureSolving, interval_option
from minfer.cli.progress import wait_for
from minfer.errors import SettingsError
from minfer.limits import load_compiler
from minfer.typed import numbers
from minfer.words import duration, options_in

SWEEPING = ("bp", "trw")  # solvers that stop at a tolerance of ours


@dataclass(frozen=True)
class Picture(PictureModel):
    """The model of a picture."""

    panel = "Picture"
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
    import minfer
    from minfer.cli import render
    from minfer.denoised import account_dict, account_summary, check_name
    from minfer.denoising import COLOURS, FACTOR_COST, TOL
    from minfer.pictures import read_picture

    how = picture.settings
    request = reduce.make_request(reduction, solving.time_limit, FACTOR_COST)
    if maps.kept is not None and request is None:
        raise SettingsError("--kept shows what a reduction kept: add --reduce")
    pictures: dict[str, Any] = {"out": out, **asdict(maps)}
    if intervals is not None and out is not None:  # beside the clean picture
        pictures["certain"] = str(Path(out).with_name(f"{Path(out).stem}-certain.png"))
    pictures = {what: path for what, path in pictures.items() if path is not None}
    check_files([Used("NOISY", IN, noisy), *(Used(f"--{k}", OUT, v) for k, v in pictures.items())])
    for what, path in pictures.items():
        check_name(path, what)
    own = {"tol": TOL} if solving.name in SWEEPING else {}  # options that are given come first
    solver = reduce.solver_for(request, solving, **own)
    reducing: dict[str, Any] = {}
    if request is not None:
        reducing = {"objective": request.objective, "recipe": request.recipe}
    load_compiler()
    began = time.perf_counter()
    loaded = read_picture(noisy)
    for text in loaded.notes:
        note(f"{noisy}: {text}")
    clean = partial(minfer.denoise, loaded.values, solver=solver, **reducing, **how)
    cleaned = wait_for(f"cleaning {noisy}", clean)
    seconds = time.perf_counter() - began - cleaned.result.seconds
    cleaned = replace(cleaned, result=certified(cleaned.result, intervals, **COLOURS))
    result, shades = cleaned.result, cleaned.shades
    if shades is not None:
        if guess := shades.guess(picture.alpha, picture.level):
            note(options_in(guess))
        how |= {"alpha": shades.alpha, "level": shades.level}
    told = None
    if request is not None:
        comparing = reduction.compare is not None
        told = reduce.account(request, result, solver, bounding=False, comparing=comparing)
        about = {**how, "title": Path(noisy).name, "certify": intervals}
        about |= request.around(result, solver)
        write_report(reduction.report, "denoise_report", loaded.values, **about)
    for what, path in pictures.items():
        cleaned.write(path, "clean" if what == "out" else what)
        wrote(path)
    if not pictures:
        note("nothing was written: -o FILE keeps the clean picture")
    if json:
        content = {**account_dict(cleaned, told), "read_seconds": seconds}
        content["picture"]["file"] = noisy
        render.write_json(content)
    else:
        lines = account_summary(cleaned, told)
        lines["picture"] = f"{Path(noisy).name}, {lines['picture']}"
        lines["time"] += f"; reading the picture and making its model {duration(seconds)}"
        console = render.console()
        render.show(console, render.facts(lines, result.converged))
        if told is not None:
            reduce.show_more(console, told)
    demand(strict, result.converged)
