"""``minfer demo``: what the package does, in a minute, with nothing to set up."""

from __future__ import annotations

from minfer.basics.words import duration
from minfer.cli.failures import note
from minfer.cli.generate import command
from minfer.cli.progress import wait_for

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
    from minfer.cli.certainty import find
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
    time = f"{duration(min(one.seconds for one in again))} now that it is compiled"
    render.show(console, render.facts({**summary(answer), "time": time}))
    console.print()
    note("computing certified intervals")
    # one method is enough for this picture; each is compiled on its own
    found = find(scene.graph, CERTAIN_SECONDS, methods=["walks"], **COLOURS)
    console.print(f"For certain: {judged_colours(found, answer)}.")
    console.print(NEXT)
