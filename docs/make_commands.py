"""Write docs/commands.md from the help of the commands themselves.

``python docs/make_commands.py`` writes it; with ``--check`` it exits with 1 if it is out of date.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import typer

from minfer.cli import app

PAGE = Path(__file__).with_name("commands.md")

HEAD = """# Commands

<!-- Made by docs/make_commands.py from the help of the commands; edit those, not this page. -->

Data goes to standard output; notes, progress and errors go to standard error. `-` as a file name is
standard input or output. Exit codes:

| code | meaning |
|---|---|
| 0 | answered |
| 1 | a bug in minfer, or `minfer doctor` found something broken |
| 2 | usage: an unknown option, a missing file name, a place where nothing can be written |
| 3 | bad input: a file, model or evidence that is wrong or contradicts itself |
| 4 | refused: the solver cannot handle this model, or it would not fit into memory |
| 5 | not converged, where `--strict` was given |
| 6 | the disk or a quota is full; complete files stay, and a batch resumes from there |
| 130 | interrupted (Ctrl-C) |
| 141 | standard output was closed by the program that read it, as `head` does |
"""


def page() -> str:
    """The whole page."""
    top: Any = typer.main.get_command(app)
    parts = [HEAD, section("minfer", top)]
    for name, command in top.commands.items():
        parts.append(section(f"minfer {name}", command))
        for word, part in getattr(command, "commands", {}).items():
            parts.append(section(f"minfer {name} {word}", part))
    return "\n".join(parts)


def section(title: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = " ".join([title, *map(_argument, arguments), "[OPTIONS]" if options else ""]).strip()
    if hasattr(command, "commands"):
        usage = f"{title} [OPTIONS] COMMAND [ARGUMENTS]"
    lines = [f"## {title}\n", f"```text\n{usage}\n```\n", _text(command.help or "")]
    if arguments:
        lines.append(_table("argument", [(f"`{p.metavar}`", p) for p in arguments]))
    if options:
        lines.append(_table("option", [(_option(p), p) for p in options]))
    return "\n".join(lines)


def _argument(parameter: Any) -> str:
    name = parameter.metavar + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _option(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    if parameter.is_flag:
        return names
    return f"{names} `{parameter.metavar}`".replace("|", "\\|")


def _table(title: str, rows: list[tuple[str, Any]]) -> str:
    lines = [f"| {title} | |", "|---|---|"]
    for name, parameter in rows:
        text = parameter.help or ""
        if parameter.default not in (None, False, ()) and not parameter.required:
            on = parameter.secondary_opts and parameter.default
            shown = parameter.show_default if isinstance(parameter.show_default, str) else None
            default = parameter.opts[0] if on else shown or parameter.default
            text += f" Default: `{default}`."
        lines.append(f"| {name} | {text} |")
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    """Help as Markdown: a paragraph that keeps its lines (\\b) is a list of commands to try."""
    out = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            lines = paragraph.strip("\b\n").splitlines()
            if not lines[0].startswith(" "):
                out.append(lines.pop(0))
            out.append("```sh\n" + "\n".join(line.strip() for line in lines) + "\n```")
        else:
            out.append(" ".join(paragraph.split()))
    return "\n\n".join(out) + "\n"


def main() -> None:
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
        sys.exit("docs/commands.md is out of date: run `python docs/make_commands.py`")


if __name__ == "__main__":
    main()
