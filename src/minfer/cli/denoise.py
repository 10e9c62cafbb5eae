"""``minfer denoise``: a noisy picture in, a clean one out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from minfer.basics.limits import clock, load_compiler
from minfer.cli import reduce, render
from minfer.cli.failures import demand, in_flags, note
from minfer.cli.files import IN, OUT, Used, check_files, write_report, wrote
from minfer.cli.generate import Given, Options, argument, command, option, output, setting, taken
from minfer.cli.intervals import certified
from minfer.cli.options import JSON, STRICT, PictureSolving, interval_option
from minfer.cli.progress import wait_for
from minfer.errors import SettingsError
from minfer.io.typed import numbers

SWEEPING = ("bp", "trw")  # solvers that stop at a tolerance of ours


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


@command("minfer:denoise")
def denoise(
    noisy: str = argument("NOISY.png  Picture file to clean.", file=IN),
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
    means: str | None = setting("A,B,...", rich_help_panel="Picture"),
    picture: Given = taken(
        "minfer:denoise",
        "alpha coupling level smooth truncation",
        "Picture",
        labels="--labels --classes K",
    ),
    *,
    reduction: reduce.Reported,
    maps: Maps,
    solving: PictureSolving,
) -> None:
    """Clean a noisy black-and-white or grey picture, or segment a grey one.

    Neighbouring pixels tend to be equal; that is the model of section 5.1 of
    the paper. With --intervals, the most probable colour of most pixels is
    proven, whatever the solver. With --reduce, or another option under Reduction,
    most pairs of neighbours are ignored, and the report says what that may have
    cost. Colours are read as their luminance, but for --labels (without a report,
    which is in grey), transparent pixels as white.
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
    from minfer.images.denoise_result import account_dict, account_summary, check_name
    from minfer.images.denoising import COLOURS, FACTOR_COST, TOL
    from minfer.pictures import read_picture
    from minfer.reduction.spoken_request import account

    how = {**picture, "means": None if means is None else numbers("--means", means)}
    request = reduce.make_request(reduction, solving.time_limit, FACTOR_COST)
    if maps.kept is not None and request is None:
        raise SettingsError("--kept shows what a reduction kept: add --reduce")
    pictures = {"out": out, **maps.given}
    if intervals is not None and out is not None:  # beside the clean picture
        pictures["certain"] = str(Path(out).with_name(f"{Path(out).stem}-certain.png"))
    pictures = {what: path for what, path in pictures.items() if path is not None}
    check_files([Used("NOISY", IN, noisy), *(Used(f"--{k}", OUT, v) for k, v in pictures.items())])
    for what, path in pictures.items():
        check_name(path, what)
    own = {"tol": TOL} if solving.name in SWEEPING else {}  # options that are given come first
    solver = reduce.solver_for(request, solving, **own)
    reducing: Given = {}
    if request is not None:
        reducing = {"objective": request.objective, "recipe": request.recipe}
    load_compiler()
    began = clock()
    in_colour = picture["labels"] is not None and picture["smooth"] == "equal"
    loaded = read_picture(noisy, in_colour and reduction.report is None)
    for text in loaded.notes:
        note(f"{noisy}: {text}")
    clean = partial(minfer.denoise, loaded.values, solver=solver, **reducing, **how)
    cleaned = wait_for(f"cleaning {noisy}", clean)
    seconds = clock() - began - cleaned.result.seconds
    cleaned = replace(cleaned, result=certified(cleaned.result, intervals, **COLOURS))
    result, shades = cleaned.result, cleaned.shades
    if shades is not None:
        if guess := shades.guess(picture["alpha"], picture["level"]):
            note(in_flags(guess))
        how |= {"alpha": shades.alpha, "level": shades.level}
    told = None
    if request is not None:
        comparing = reduction.compare is not None
        work = partial(account, request, result, solver, bounding=False, comparing=comparing)
        told = wait_for("looking at the answer", work)
        about = {**how, "title": Path(noisy).name, "certify": intervals}
        about |= request.around(result, solver)
        write_report(reduction.report, "denoise_report", loaded.values, **about)
    for what, path in pictures.items():
        cleaned.write(path, "clean" if what == "out" else what)
        wrote(path)
    if not pictures:
        note("the clean picture was not written; -o FILE writes it")
    content = account_dict(cleaned, told, noisy, seconds)
    lines = account_summary(cleaned, told, noisy, seconds)
    others = () if told is None else told.faces()
    render.tell(json, content, notes=lines, more=others, ok=result.converged)
    demand(strict, result.converged)
