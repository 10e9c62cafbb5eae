"""``minfer paper``: the paper's experiments, run again."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from minfer.basics.words import duration
from minfer.cli import render
from minfer.cli.failures import note
from minfer.cli.files import wrote
from minfer.cli.generate import argument, command, option
from minfer.cli.progress import wait_for
from minfer.errors import RefusedError
from minfer.io.owned import Owned
from minfer.io.text import make_folder


@command()
def paper(
    experiment: str = argument("fig1|table1|fig2  Which one."),
    out: str = option("-o DIR  Output folder; made if it is not there.", "."),
    quick: bool = option(
        "Use less data: about a minute of CPU time for fig1, for table1 and fig2 one or two for "
        "each treebank."
    ),
    data: str | None = option(
        "DIR  table1, fig2: the folder of the treebanks. fig1: also run on the .npz files in a "
        "folder, with arrays labels (P, H, W) and noisy (P, N, H, W)."
    ),
    models: str | None = option(
        "DIR  table1, fig2: folder where trained parsers are stored and reused; default: that of "
        "--out."
    ),
) -> None:
    """Repeat an experiment of the paper: numbers, a figure and a page.

    fig1 is Figure 1: size, error and speed-up of the three objectives in image
    denoising (section 5.1), next to our additions. It writes fig1.png
    (needs matplotlib, the extra `plot`), fig1.csv and fig1.md, and says which
    of the section's statements hold. It takes a few minutes.

    table1 is Table 1: size, time, error and accuracy in dependency parsing
    (section 5.2), per treebank found below --data; it writes table1.csv and
    table1.md. fig2 is Figure 2: size and time against the number of variables,
    time against accuracy; it writes fig2.png, fig2.csv and fig2.md. Both train
    parsers (the extra `parsing`) and store them for the next run.
    The treebanks are those of Universal Dependencies, as downloaded.

    What was written is listed in minfer-files.jsonl; other files of these names
    are not overwritten.

    \b
    Examples:
      minfer paper fig1 --quick
      minfer paper fig1 -o results
      minfer paper table1 --data ud-treebanks -o results
    """
    run = _runner(experiment)
    for folder in (out, models or out):
        make_folder(Path(folder))
    ends = ("csv", "md", "png") if experiment.startswith("fig") else ("csv", "md")
    Owned(Path(out)).check(*(f"{experiment}.{end}" for end in ends))  # before the work
    began = time.process_time()
    made = wait_for(experiment, partial(run, quick, data, Path(models or out), note))
    for path in made.write(str(Path(out) / experiment)):
        wrote(path)
    console = render.console()
    render.face(console, made.face())
    console.print(f"{duration(time.process_time() - began)} of CPU time")


def _runner(experiment: str) -> Callable[..., Any]:
    """The experiments are a package beside this one, in the same wheel."""
    try:
        return import_module(f"minfer_experiments.{experiment}").run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "minfer_experiments":
            raise
        raise RefusedError(
            "the paper's experiments (minfer_experiments) are not installed: minfer's wheel has "
            "them, and so has a checkout after pip install -e ."
        ) from None
