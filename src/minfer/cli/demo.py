"""``minfer demo``: what the package does, in a minute, with nothing to set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from minfer.cli.failures import note
from minfer.cli.generate import command
from minfer.cli.progress import wait_for
from minfer.cli.run import solve
from minfer.notebook import Face, Right
from minfer.solvers.telling import describe, log_z
from minfer.words import counted, duration, probability

if TYPE_CHECKING:
    from rich.console import Console

    from minfer.examples import Picture
    from minfer.solvers.base import Marginals


@command
def demo() -> None:
    """Show what minfer does, on two examples that come with it.

    Exact marginals of a small network with names, and a noisy picture cleaned by loopy belief
    propagation, with what can be proved about its pixels. The first run on a machine compiles what
    it needs.

    \b
    Example:
      minfer demo
    """
    from minfer.cli import render

    console = render.console()
    _network(console)
    console.print()
    _picture(console)
    console.print()
    _next_steps()


# ---------------------------------------------------------------------- a network with names

STORY: dict[str, dict[int | str, int]] = {
    "no evidence": {},
    "wet grass": {"wet_grass": 1},
    "wet grass and street": {"wet_grass": 1, "wet_street": 1},
}


def _network(console: Console) -> None:
    from minfer import Exact
    from minfer.cli import render
    from minfer.examples import sprinkler

    graph = sprinkler()
    console.print("1. Why is the grass wet?", style="bold")
    console.print(describe(graph))
    solver = Exact()
    answers = {title: solver(graph.with_evidence(seen)) for title, seen in STORY.items()}
    rows = [
        (
            name,
            *(
                Right("observed" if name in STORY[title] else probability(m[name][1]))
                for title, m in answers.items()
            ),
        )
        for name in graph.names or ()
        if graph.n_states[graph.index(name)] == 2
    ]
    render.face(console, Face("", ("probability of yes", *answers), rows))
    console.print(
        "Wet grass makes both rain and the sprinkler more probable. If the street is wet as\n"
        "well, it was the rain, and the sprinkler is explained away.\n"
    )
    last = list(answers.values())[-1]
    z = "in a Bayesian network this is the log-probability of the evidence"
    render.show(console, render.facts({"solver": repr(last.solver), "log Z": log_z(last), "": z}))


# ---------------------------------------------------------------------- a noisy picture

CERTAIN_SECONDS = 3.0


def _picture(console: Console) -> None:
    from minfer import BeliefPropagation
    from minfer.cli import render
    from minfer.examples import FLIP, picture

    scene = picture()
    console.print(f"2. A picture with {FLIP:.0%} of its pixels flipped", style="bold")
    console.print(describe(scene.graph))
    note("running loopy belief propagation")
    solver = BeliefPropagation()
    answer = wait_for("belief propagation", lambda: solve(solver, scene.graph))
    again = wait_for("belief propagation", lambda: [solver(scene.graph) for _ in range(3)])
    cleaned = answer.mpm().reshape(scene.clean.shape).astype(bool)
    titles = [
        f"{name}: {(pixels == scene.clean).mean():.1%} right"
        for name, pixels in (("noisy", scene.noisy), ("denoised", cleaned))
    ]
    console.print()
    render.side_by_side(titles, [scene.noisy, cleaned], console)
    console.print()
    compiled = duration(min(one.seconds for one in again))
    lines = {
        "solver": repr(answer.solver),
        "status": f"{answer.status.value} after {counted(answer.iterations, 'iteration')}",
        "log Z": log_z(answer),
        "time": f"{compiled} now that it is compiled",
    }
    render.show(console, render.facts(lines))
    console.print()
    console.print(_certain(scene, answer))


def _certain(scene: Picture, answer: Marginals) -> str:
    """What is certain about the picture: unlike the probabilities above, this is not an
    estimate."""
    from minfer.certified.result import REFUTED
    from minfer.certified.telling import colours
    from minfer.cli.certainty import find
    from minfer.denoising import COLOURS

    note("computing certified intervals")
    # one method is enough for this picture; each is compiled on its own
    found = find(scene.graph, CERTAIN_SECONDS, methods=["walks"], **COLOURS)
    refuted = int(found.refuted(answer, REFUTED).sum())
    text = f"For certain: {colours(found, answer.mpm())}."
    if refuted:
        text += (
            f"\nOf belief propagation's converged probabilities {refuted:,} are provably off by "
            f"more than {REFUTED:g}."
        )
    return text


def _next_steps() -> None:
    typer.echo(
        "Next:\n"
        "   minfer example sprinkler -o sprinkler.minfer   a model file of your own\n"
        "   minfer run sprinkler.minfer                    its marginals\n"
        "   minfer intervals sprinkler.minfer              where they lie for certain\n"
        "   minfer plan sprinkler.minfer                   what each solver would cost\n"
        "   minfer --help                                  everything else"
    )
