"""Lines of Python at two commits, gone and moved: ``python benchmarks/lines.py [COMMIT [END]]``.

A line of the commit *vanished* if its file no longer has it; of those, one *moved* if the same line
came up in another file, anywhere in the three folders, and all others are *gone*. Lines are
compared without what surrounds them; short ones (blank, ``else:``, ``)``), which say nothing, count
as their file's others do. Without an END the work tree is read as it is. The house was rebuilt from
43a85c0 to 0a394966, to which the limits belong; what can be done since came on top.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Where lines began to be counted, and the most that there may be.
THEN = "43a85c0"
LIMITS = {"src": 83_500, "tests": 37_500, "benchmarks": 12_000}
#: Shorter lines are no sign of anything.
SHORT = 12


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def at(commit: str) -> dict[str, Counter[str]]:
    """The lines of every file of a commit."""
    paths = git("ls-tree", "-r", "--name-only", commit, *LIMITS).split()
    return {p: counted(git("show", f"{commit}:{p}")) for p in paths if p.endswith(".py")}


def now() -> dict[str, Counter[str]]:
    paths = git("ls-files", "--cached", "--others", "--exclude-standard", *LIMITS).split()
    found = [p for p in paths if p.endswith(".py") and (ROOT / p).exists()]
    return {p: counted((ROOT / p).read_text("utf-8")) for p in found}


def counted(text: str) -> Counter[str]:
    return Counter(map(str.strip, text.splitlines()))


def moved(before: dict[str, Counter[str]], after: dict[str, Counter[str]]) -> dict[str, int]:
    """How many of each file's vanished lines came up elsewhere."""
    none: Counter[str] = Counter()
    new: Counter[str] = sum((after[p] - before.get(p, none) for p in after), none)
    found = {}
    for path, lines in before.items():
        lost = lines - after.get(path, none)
        told = Counter({line: n for line, n in lost.items() if len(line) >= SHORT})
        same = told & new
        new -= same
        share = same.total() / max(told.total(), 1)
        found[path] = round(share * lost.total())
    return found


def main() -> None:
    commit = sys.argv[1] if len(sys.argv) > 1 else THEN
    end = sys.argv[2] if len(sys.argv) > 2 else ""
    before, after = at(commit), at(end) if end else now()
    elsewhere = moved(before, after)
    heads = (commit[:8], end[:8] or "now", "at most", "vanished", "moved", "gone")
    print(f"{'':12}" + "".join(f"{head:>10}" for head in heads))
    rows = []
    for folder, limit in LIMITS.items():
        mine = [p for p in before if p.startswith(f"{folder}/")]
        here = [lines for p, lines in after.items() if p.startswith(f"{folder}/")]
        lost = sum((before[p] - after.get(p, Counter())).total() for p in mine)
        gone = lost - sum(elsewhere[p] for p in mine)
        then = sum(before[p].total() for p in mine)
        rows.append((then, sum(x.total() for x in here), limit, lost, lost - gone, gone))
    rows.append(tuple(map(sum, zip(*rows))))
    for name, row in zip([*LIMITS, "all"], rows):
        print(f"{name:12}" + "".join(f"{x:10,}" for x in row))


if __name__ == "__main__":
    main()
