"""``minfer doctor``: is this installation in order?"""

from __future__ import annotations

import typer

from minfer.cli import render
from minfer.cli.generate import command, option


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
