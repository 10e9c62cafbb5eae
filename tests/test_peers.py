"""The comparison with other libraries: hangs become cells, parts resume, the page is generated."""

import json
import os
import sys
from pathlib import Path

import pytest

from minfer_experiments.pages import write_sections
from processes import all_end, looks_at_processes

FOLDER = Path(__file__).parents[1] / "benchmarks"
if not FOLDER.is_dir():
    pytest.skip("the benchmarks are not here", allow_module_level=True)
sys.path.insert(0, str(FOLDER))
try:
    import networks_page
    import peers
    import peers_page
    import speed
    from peers_claims import CLAIMS, missing
finally:
    sys.path.remove(str(FOLDER))

STAMP = {"date": "2020-01-02", "cpu": "a machine", "python": "3", "code": "abc"}

HANGS = """
import json, subprocess, sys
for line in sys.stdin:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open(sys.argv[1], "w").write(str(child.pid))
    while True:
        pass
"""


@looks_at_processes
def test_a_hang_is_a_result_and_leaves_nothing_running(tmp_path):
    script, child = tmp_path / "hangs.py", tmp_path / "child"
    script.write_text(HANGS)
    core = max(os.sched_getaffinity(0))
    client = peers.Patient(str(child), sys.executable, core, tmp_path / "log", script)
    client.limit = 2.0
    with pytest.raises(speed.ToolFailed, match=r"^one iteration > 2 s$"):
        client.ask("once", iters=1)
    client.close()
    assert all_end([int(child.read_text())])
    assert client.process.returncode is not None


def test_known_parts_are_kept_until_asked_again(tmp_path, capsys):
    store = peers.Store("pgmpy", tmp_path)
    assert store.part("time", lambda: 1, STAMP) == 1
    resumed = peers.Store("pgmpy", tmp_path)
    assert resumed.part("time", lambda: 2, STAMP | {"code": "def"}) == 1
    assert "from 2020-01-02, with other code; --again" in capsys.readouterr().err
    resumed.forget(["time"])
    assert peers.Store("pgmpy", tmp_path).part("time", lambda: 3, STAMP) == 3


def test_the_page_says_what_failed_and_where_its_parts_come_from():
    failed = {"problem": "P3", "tool": "pomegranate", "failed": "one iteration > 180 s"}
    later = STAMP | {"date": "2020-02-01", "code": "def"}
    wins = {"batch": "b", "us_per_sentence": 1.0, "minfer_us": 2.0, "x_minfer": 0.5}
    results = {
        "pomegranate": {
            "about": {"time": STAMP, "input": later},
            "time": {"hello": {}, "bp": [failed], "exact": []},
            "input": {"pomegranate, BP": {"chain": {"died": "no answer in 90 s"}}},
        },
        "torch-struct": {
            "parsing": {
                "rows": [wins | {"difference": d, "minfer_difference": 0} for d in (1e-6, 3e3)]
            }
        },
        "pgmpy": {"claims": {"exact marginals": "gone"}},
    }
    free = {
        "torch-struct": {
            "about": {"parsing": STAMP},
            "parsing": {"rows": [wins | {"x_minfer": 0.75}]},
        }
    }
    page = "\n".join(peers_page.sections(results, loose=free).values())
    assert "| torch-struct | b | 1.00 | 2.00 | 0.500 | 0.750 | 1e-06 | - |" in page
    assert "all threads counted (2020-01-02)" in page
    assert "| P3 | pomegranate | - | one iteration > 180 s |" in page
    assert "**no answer in 90 s**" in page
    assert (
        "Measured 2020-01-02 to 2020-02-01 on a machine, Python 3, with 2 versions of the code"
        in page
    )
    assert "**Faster than minfer:** torch-struct on trees, b (2.0 times)." in page
    assert "Faster, but not the answer: torch-struct on trees, b (2.0 times; its numbers" in page
    assert page.count("**not found**") == 1


def test_the_page_in_the_docs_is_what_the_results_say(tmp_path):
    folder = FOLDER / "results"
    results, loose = (
        {f.stem: json.loads(f.read_text()) for f in sorted(kept.glob("*.json"))}
        for kept in (folder / "peers", folder / "loose" / "peers")
    )
    assert results.keys() >= peers.PEERS.keys()
    networks = json.loads((FOLDER / "results" / "networks.json").read_text())
    docs = FOLDER.parent / "docs" / "reference"
    made = {
        "peers.md": peers_page.sections(results, networks, loose),
        "networks.md": networks_page.sections(networks),
    }
    for name, sections in made.items():
        (tmp_path / name).write_text((docs / name).read_text())
        write_sections(tmp_path / name, sections)
        assert (tmp_path / name).read_text() == (docs / name).read_text()
    found = json.loads((FOLDER / "results" / "speed.json").read_text())
    assert (FOLDER / "results" / "speed.md").read_text() == speed.report(found)


def test_what_the_page_claims_of_minfer_is_there():
    assert missing("minfer") == {}
    assert {p for has in CLAIMS.values() for p in has} <= set(peers_page.FEATURES)
