"""Commands to begin with, and about this installation."""

from __future__ import annotations

import time

import typer

from minfer.basics.words import counted, duration
from minfer.cli.failures import note
from minfer.cli.files import OUT, wrote
from minfer.cli.generate import argument, command, option
from minfer.cli.progress import wait_for
from minfer.errors import SettingsError, visible

NEXT = """
Next:
   minfer example sprinkler -o sprinkler.minfer   a model file of your own
   minfer run sprinkler.minfer                    its marginals
   minfer intervals sprinkler.minfer              where they lie for certain
   minfer plan sprinkler.minfer                   what each solver would cost
   minfer --help                                  everything else"""
CERTAIN_SECONDS = 3.0


@command()
def demo() -> None:
    """Show what minfer does, on two examples that come with it.

    Exact marginals of a small network with names, and a noisy picture cleaned by loopy belief
    propagation, with what can be proved about its pixels. The first run on a machine compiles what
    it needs.

    \b
    Example:
      minfer demo
    """
    from minfer import BeliefPropagation
    from minfer.cli import render
    from minfer.cli.intervals import find
    from minfer.examples import FLIP, picture, sprinkler_story
    from minfer.images.denoising import COLOURS
    from minfer.say.answers import answered, describe, summary
    from minfer.say.intervals import judged_colours

    console = render.console()
    console.print("1. Why is the grass wet?", style="bold")
    render.face(console, sprinkler_story())

    scene, solver = picture(), BeliefPropagation()
    console.print(f"\n2. A picture with {FLIP:.0%} of its pixels flipped", style="bold")
    console.print(describe(scene.graph))
    note("running loopy belief propagation")
    answer = wait_for("belief propagation", lambda: answered(solver, scene.graph))
    again = wait_for("belief propagation", lambda: [solver(scene.graph) for _ in range(3)])
    pictures = scene.shown(answer)
    console.print()
    render.pictures(console, [*pictures], [*pictures.values()])
    console.print()
    took = f"{duration(min(one.seconds for one in again))} now that it is compiled"
    render.show(console, render.facts({**summary(answer), "time": took}))
    console.print()
    note("computing certified intervals")
    # one method is enough for this picture; each is compiled on its own
    found = find(scene.graph, CERTAIN_SECONDS, methods=["walks"], **COLOURS)
    console.print(f"For certain: {judged_colours(found, answer)}.")
    console.print(NEXT)


@command()
def example(
    name: str | None = argument("NAME  Which example; without a name, they are listed.", None),
    out: str | None = option(
        "-o FILE  File to write; the suffix sets the format, - is standard output (UAI; CoNLL-U "
        "for treebank).",
        file=OUT,
    ),
) -> None:
    """Write an example model to a file, or list the examples.

    Names of variables are lost in .uai and .fg files. As a .png file the picture is grey, with
    Gaussian noise, for `minfer denoise`.

    \b
    Examples:
      minfer example
      minfer example sprinkler -o sprinkler.minfer
      minfer example sprinkler -o sprinkler.bif
      minfer example treebank -o tiny.conllu
      minfer example picture -o noisy.png
    """
    from minfer.examples import TREEBANK, listed_examples, write_example

    about = listed_examples()
    if name is None and out is None:
        for key, text in about.items():
            typer.echo(f"{key:<12}{text}")
        typer.echo("\nWrite one with `minfer example NAME -o NAME.minfer`.")
        return
    if name not in about:
        what = f"there is no example {name!r}; choose" if name else "-o of which example? Choose"
        raise SettingsError(f"{what} from {', '.join(about)}")
    if out is None:
        file = "tiny.conllu" if name == TREEBANK else f"{name}.minfer"
        raise SettingsError(f"where to? For instance `minfer example {name} -o {file}`")
    wrote(out, write_example(name, out))


@command()
def warmup(
    part: str | None = argument(
        "PART  solvers, method, intervals, circuits, time, trees or parser. Default: all of them.",
        None,
    ),
    workers: int | None = option("N  Processes. Default: one per core.", min=1),
) -> None:
    """Compile every kernel, so that no later run has to wait for it.

    Each is asked at once whether it says what plain Python has said; one that does not is not used.
    Compiled kernels stay in a cache folder until minfer, numba or Python changes. Those of other
    versions that nobody has used for a month are removed. `minfer parse` needs the part `parser`.

    \b
    Examples:
      minfer warmup
      minfer warmup parser
    """
    from minfer.kernels.compiling.cache import prune
    from minfer.kernels.compiling.jit import CACHE_DIR, folders
    from minfer.upkeep.warmup import warmed_up

    began = time.perf_counter()
    done, unsaved, asked, wrong = warmed_up(part, workers), "", 0, set()
    while step := wait_for("compiling", lambda: next(done, None)):
        typer.echo(str(step), err=True)
        unsaved = unsaved or step.unsaved
        asked += step.asked
        wrong |= {step.wrong} - {""}
    took = f"{time.perf_counter() - began:.1f} s"
    if wrong:
        for text in sorted(wrong):
            typer.echo(visible(text), err=True)
        raise typer.Exit(1)
    if unsaved:
        text = f"Compiled in {took}, but not kept in {CACHE_DIR}: {unsaved}"
        typer.echo(visible(text), err=True)
        raise typer.Exit(1)
    gone, freed = prune(CACHE_DIR, folders())
    if gone:
        text = f"Removed {counted(gone, 'folder')} of old kernels, {freed / 2**20:,.0f} MiB"
        typer.echo(text, err=True)
    checked = f" {counted(asked, 'kernel')} compiled, all answer right." if asked else ""
    typer.echo(visible(f"Ready after {took}.{checked} The cache is {CACHE_DIR}"))


@command()
def doctor(json: bool = option("One JSON object on standard output.")) -> None:
    """Check the installation: versions, the compiled kernels, and whether they are correct.

    Every compiled kernel is loaded; a damaged one is removed and will be compiled again. Each is
    asked questions that plain Python has answered; one that is wrong is not used again. Those
    without a question are counted apart.

    Exits with code 1 if something is broken. Include its output in bug reports.

    \b
    Example:
      minfer doctor
    """
    from minfer.cli import render
    from minfer.upkeep.health import examine

    findings = []
    for finding in examine():
        findings.append(finding)
        if not json:
            typer.echo(str(finding))
    broken = [f.name for f in findings if f.ok is False]
    if json:
        render.write_json({"ok": not broken, "findings": [f._asdict() for f in findings]})
    elif broken:
        typer.echo(f"\nBroken: {', '.join(broken)}")
    else:
        some = any(f.name in ("kernels", "not asked") and f.ok is None for f in findings)
        typer.echo(f"\nEverything{' that was checked' if some else ''} is in order.")
    if broken:
        raise typer.Exit(1)
