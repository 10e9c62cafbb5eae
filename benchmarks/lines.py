"""Lines of the package by directory, now and at an earlier commit: ``python benchmarks/lines.py``.

Features were added in the meantime, so three counts stand beside each other: all lines; those of
files that existed then, new features included; and those of functions and classes that existed
then, by name. What was renamed counts as gone in the last, so the truth about the same features
lies between it and the second.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter, defaultdict

THEN = "27e51a0"
#: Files that moved, by the beginning of their names, and folders that others are a part of.
MOVED = {
    "paper/": "experiments/",
    **{
        f"kernels/{name}.py": f"parsing/kernels/{name}.py"
        for name in ("classify", "decode", "features", "grandparents", "parser", "seeds")
    },
}
PARTS = {"cli/parse": "cli", "queries/map": "queries", "": "(top)"}


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def sources(commit: str) -> dict[str, str]:
    """Texts by path below the package, under the names of today."""
    root = "src/minfer/"
    found = {}
    for path in git("ls-tree", "-r", "--name-only", commit, root).split():
        if path.endswith(".py"):
            name = path.removeprefix(root)
            for old, new in MOVED.items():
                if name.startswith(old):
                    name = new + name.removeprefix(old)
            found[name] = git("show", f"{commit}:{path}")
    return found


def folder(path: str) -> str:
    name = path.rpartition("/")[0]
    return PARTS.get(name, name)


def definitions(text: str) -> Counter[str]:
    """Lines of each function, and of each class without its methods."""
    found: Counter[str] = Counter()

    def length(node: ast.FunctionDef | ast.ClassDef) -> int:
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        return (node.end_lineno or node.lineno) - first + 1

    def visit(body: list[ast.stmt], inside: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                found[inside + node.name] += length(node)
            elif isinstance(node, ast.ClassDef):
                own = [
                    part for part in node.body if isinstance(part, ast.FunctionDef | ast.ClassDef)
                ]
                found[f"class {inside}{node.name}"] += length(node) - sum(map(length, own))
                visit(node.body, f"{inside}{node.name}.")

    visit(ast.parse(text).body, "")
    return found


def main() -> None:
    then, now = sources(sys.argv[1] if len(sys.argv) > 1 else THEN), sources("HEAD")
    rows: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
    names: dict[str, Counter[str]] = defaultdict(Counter)  # now, by folder
    for which, texts in enumerate((then, now)):
        for path, text in texts.items():
            lines, row = len(text.splitlines()), rows[folder(path)]
            row[2 * which] += lines
            row[1] += lines if which and path in then else 0
            if which:
                names[folder(path)] += definitions(text)
    for path, text in then.items():
        here, anywhere = definitions(now.get(path, "")), names[folder(path)]
        for name, lines in definitions(text).items():
            rows[folder(path)][3] += lines
            rows[folder(path)][4] += here[name] or anywhere[name]  # or moved to another file
    print(f"{'':18}{'lines':>8}{'same files':>12}{'all':>8}{'definitions':>14}{'now':>8}")
    for name, row in sorted(rows.items()):
        print(f"{name:18}{row[0]:8,}{row[1]:12,}{row[2]:8,}{row[3]:14,}{row[4]:8,}")


if __name__ == "__main__":
    main()
