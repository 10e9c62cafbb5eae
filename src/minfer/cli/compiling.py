"""``minfer compile``: a circuit of a model, in a file that answers as often as one likes."""

from __future__ import annotations

from functools import partial
from typing import Any

from minfer.cli import render
from minfer.cli.files import CIRCUIT, SVG, written, wrote
from minfer.cli.generate import Words, command, option, output, setting
from minfer.cli.options import JSON, Input
from minfer.cli.progress import Meter, wait_for
from minfer.io.typed import parse_query


@command(home="minfer:compile")
def compile(
    source: Input,
    out: str = option(
        "-o FILE.CIRCUIT  Circuit to write; - is standard output.", ..., file=CIRCUIT
    ),
    free: Words = option(
        "-f A,B  Variables that evidence may be about later: the fewer, the smaller the circuit. "
        "Default: all that are not observed here."
    ),
    max_gib: float = setting("X"),
    time_limit: float | None = setting("SECONDS"),
    draw: str | None = output(
        "FILE.svg  Draw the circuit too, if it has no more than 300 nodes.", file=SVG
    ),
    json: bool = JSON,
) -> None:
    """Compile a model into a circuit, which answers exactly for any evidence.

    Worth it where a clique tree is too large and the model has many zeros or
    repeated numbers (diagnosis networks, pedigrees, rules, CNFs), or where many
    questions follow. The file holds the model and its circuit: `minfer run`,
    `query`, `predict`, `mpe` and `sample` read it like any model, and answer by
    the circuit; the last three only where no clique tree fits. Evidence given here
    is compiled in, and stays.

    \b
    Examples:
      minfer compile alarm.minfer -o alarm.circuit
      minfer compile model.cnf -o model.circuit --time-limit 60 --max-gib 2
      minfer compile alarm.minfer -o cvp.circuit -e HR=LOW --free CVP,PCWP
      minfer compile sprinkler.minfer -o small.circuit --draw small.svg
      minfer run alarm.circuit -e CVP=HIGH
      minfer query alarm.circuit PCWP -e CVP=HIGH
    """
    import minfer
    from minfer.io.text import write_bytes
    from minfer.solvers.conflicts import locating

    graph, meter, told = source.graph, Meter(), [""]
    chosen = parse_query(free, graph, "--free")

    def watch(far: Any) -> None:
        told[0] = f"{far.nodes:,} nodes, about {100 * far.share:.2g} %"
        if not meter.live:
            meter(f"compiling: {told[0]}")

    work = partial(
        minfer.compile, graph, chosen, max_gib=max_gib, time_limit=time_limit, progress=watch
    )
    with locating(source.bare, source.seen):
        circuit = wait_for("compiling", work, lambda: told[0] and f", {told[0]}")
    circuit.save(out)
    wrote(out)
    written(draw, lambda path: write_bytes(path, circuit.draw().encode()))  # may be refused
    lines = source.summary(graph, {})
    console = render.console(stderr="-" in (out, draw))
    render.tell(json, source.content(graph, circuit.to_dict()), circuit.face(), lines, console)
