"""The ten pages are short, lead on, and are all that a newcomer's five tasks need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from test_docs import ROOT, blocks

DOCS = ROOT / "docs"
#: In the order in which they are read.
TEN = [
    "start", "networks", "rows", "pictures", "rules",
    "learning", "how-far-off", "when-bp-is-wrong", "paper", "speed",
]  # fmt: skip
WORDS, README_WORDS = 900, 750


def words(page: Path) -> int:
    """As ``wc -w`` counts them: code, tables and signs included."""
    return len(page.read_text("utf-8").split())


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8"))


def test_there_are_ten_and_the_first_page_lists_them_in_order():
    assert {p.stem for p in (DOCS / "path").glob("*.md")} == set(TEN)
    first = [link for link in links(DOCS / "index.md") if link.startswith("path/")]
    assert first == [f"path/{name}.md" for name in TEN]
    assert set(first) <= {link.removeprefix("docs/") for link in links(ROOT / "README.md")}


@pytest.mark.parametrize("name", TEN)
def test_a_page_is_short(name):
    assert words(DOCS / "path" / f"{name}.md") <= WORDS


def test_the_readme_is_short():
    assert words(ROOT / "README.md") <= README_WORDS


@pytest.mark.parametrize("name", TEN)
def test_a_page_is_complete_in_itself(name):
    """Its first block of Python imports what it uses, and every page shows code that runs."""
    code = [b for b in blocks(DOCS / "path" / f"{name}.md") if b.language == "python"]
    assert code
    assert re.match(r"(import|from) ", code[0].text)
    assert not any(b.note.startswith("not run") for b in code)


@pytest.mark.parametrize("page", ["README.md", "docs/path/start.md", "docs/path/speed.md"])
def test_there_is_one_story_of_the_first_call(page):
    text = " ".join((ROOT / page).read_text("utf-8").split())
    for part in ("about 8 s", "some 3 minutes", "machine code"):
        assert part in text
    assert set(re.findall(r"[^ ]+ 8 s\b", text)) == {"about 8 s"}


#: Runs pages, and names what was compiled for them that no wheel and no `minfer warmup` holds.
LACKING = """
import sys
from pathlib import Path
import numba, pytest
sys.path.insert(0, sys.argv[1])
import test_docs
from minfer.kernels.compiling import answers, jit
for name in sys.argv[3:]:
    with pytest.MonkeyPatch.context() as patch:
        folder = Path(sys.argv[2], name)
        folder.mkdir()
        test_docs.test_a_page_is_a_script(test_docs.ROOT / "docs" / "path" / name, folder, patch)
held = {k: {tuple(map(numba.typeof, q.arguments())) for q in known}
        for k, known in answers.kept().items()}
used = [(answers._name(k), tuple(types)) for k in jit._KERNELS for types in k.overloads]
print(len(used), [(k, types) for k, types in used if types not in held.get(k, ())])
"""


@pytest.mark.slow
def test_a_wheel_with_machine_code_compiles_nothing_for_these_pages(tmp_path):
    """Wheels hold every recorded call, and these pages make no other."""
    words = [sys.executable, "-c", LACKING, str(Path(__file__).parent), str(tmp_path)]
    ran = subprocess.run(
        [*words, *(f"{name}.md" for name in TEN)], capture_output=True, text=True, timeout=900
    )
    assert ran.returncode == 0, ran.stderr
    used, lacking = ran.stdout.strip().split(" ", 1)
    assert int(used) > 50
    assert lacking == "[]"


def test_every_page_of_reference_is_listed():
    """By the index of reference, or by one of the pages that it lists."""
    folder = DOCS / "reference"
    lists = [folder / "index.md", folder / "recipes" / "index.md"]
    listed = {
        str((page.parent / f"{name}.md").relative_to(DOCS))
        for page in lists
        for tree in re.findall(r"```{toctree}\n(.*?)```", page.read_text("utf-8"), flags=re.S)
        for name in re.findall(r"^(?:.*<)?([\w/-]+)>?$", tree, flags=re.M)
    }
    shown = {
        str((page.parent / link).relative_to(DOCS))
        for page in lists
        for link in links(page)
        if link.endswith(".md") and not link.startswith("..")
    }
    pages = {str(page.relative_to(DOCS)) for page in folder.rglob("*.md")}
    assert listed <= shown, "in the repository, too"
    assert pages - listed == {"reference/index.md"}


def test_the_index_has_some_forty_questions_each_with_a_link():
    rows = re.findall(r"^\| (.*) \|$", (DOCS / "questions.md").read_text("utf-8"), flags=re.M)
    rows = [row for row in rows if not row.startswith("---") and " ... |" not in row]
    asked = [row for row in rows if "](" in row]
    assert 40 <= len(asked) <= 60
    assert len(asked) == len({row.split(" | ")[0] for row in asked})
    assert len(rows) - len(asked) <= 4  # the heads of tables


READ_ELSEWHERE = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("page", READ_ELSEWHERE, ids=lambda page: page.relative_to(ROOT))
def test_links_lead_to_files(page):
    """Sphinx looks after the anchors; the README and bare folders are read elsewhere."""
    for link in links(page):
        path = link.partition("#")[0]
        if path and "://" not in link and not link.startswith("mailto:"):
            assert (page.parent / path).exists(), link
