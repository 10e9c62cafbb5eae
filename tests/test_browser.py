"""Reports and pages to play with in a real headless Chromium: offline, and exact at every click.

Skipped where there is no browser (Debian: ``apt-get install chromium``; MINFER_CHROMIUM names
another one); where MINFER_BROWSER_TESTS is 1, as in CI, its absence is a failure.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Set
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minfer
from browser import Browser, find_chromium
from draws import draws, few, thorough
from minfer import ContradictionError, Exact, FactorGraph, MinDivergence, MinJoint
from minfer.parsing import Inference
from minfer.pictures import base_pictures, gaussian
from minfer.report import denoise_report, report, scores_report, write_report
from oracle import models
from oracle import truth as naive
from test_report import EVIL, small_grid

pytestmark = pytest.mark.slow  # a browser's minute; CI has one

if find_chromium() is None and os.environ.get("MINFER_BROWSER_TESTS") != "1":
    pytest.skip("there is no Chromium here", allow_module_level=True)


@pytest.fixture
def window(browser: Browser) -> Iterator[Browser]:
    """The same with its page in a window, for real clicks; they wait for frames."""
    with browser.shown():
        yield browser


Opened = Callable[..., Path]


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Opened]:
    """Opens the page of a model, at the size of a desk; no page complains."""

    def open_(
        graph: FactorGraph, fragment: str = "", size: tuple[int, int] = (1400, 900), **options: Any
    ) -> Path:
        assert browser.complaints() == []
        browser.view(*size)
        path = written(graph, tmp_path / "page.html", **options)
        browser.open(path, fragment)
        return path

    yield open_
    assert browser.complaints() == []


def written(graph: FactorGraph, path: Path, **options: Any) -> Path:
    minfer.explore(graph, **options).write(path)
    return path


SPRINKLER = FactorGraph.network(
    {"rain": ["no", "yes"], "sprinkler": ["off", "on"], "wet": ["no", "yes"], "slippery": 2},
    {
        "rain": [0.8, 0.2],
        "sprinkler": (["rain"], [[0.6, 0.4], [0.99, 0.01]]),
        "wet": (["rain", "sprinkler"], [[[1, 0], [0.1, 0.9]], [[0.2, 0.8], [0.01, 0.99]]]),
        "slippery": (["wet"], [[1, 0], [0.3, 0.7]]),
    },
)


NONE: frozenset[int] = frozenset()
STATE = """({
  p: minfer.posteriors(), evidence: minfer.evidence(), possible: minfer.possible(),
  done: minfer.done(),
  log: minfer.possible() ? minfer.logProbability() : null,
  alarm: !document.getElementById("alarm").hidden,
})"""


def click(browser: Browser, v: int, s: int) -> None:
    """On a state's bar; of a histogram in the panel."""
    browser.do(
        f"(() => {{ const node = document.querySelectorAll('.node')[{v}];"
        f" const bar = node.querySelectorAll('.state')[{s}]; if (bar) return bar.click();"
        f" node.click(); document.querySelectorAll('#chosen-states .state')[{s}].click(); }})()"
    )


def exact(
    graph: FactorGraph, evidence: dict[int, int], done: Set[int] = NONE
) -> tuple[list[list[float]], float] | None:
    """Marginals by variable and log P(evidence), or None where it is impossible; what is ``done``
    of the evidence is set."""
    graph = graph.with_do({v: evidence[v] for v in done}) if done else graph
    try:
        m = Exact()(graph._observing(evidence))
    except ContradictionError:
        return None
    bare = Exact()(graph._renumbered(_field=None))
    return [m[v].tolist() for v in range(graph.n_variables)], m.log_z - bare.log_z


def check(
    browser: Browser, graph: FactorGraph, evidence: dict[int, int], done: Set[int] = NONE
) -> bool:
    """The page's answer is the exact one; whether the evidence is possible."""
    page, truth = browser.do(STATE), exact(graph, evidence, done)
    assert page["done"] == sorted(done)
    assert page["evidence"] == [evidence.get(v, -1) for v in range(graph.n_variables)]
    assert page["possible"] == (truth is not None)
    assert page["alarm"] == (truth is None)
    if truth is not None:
        for mine, theirs in zip(page["p"], truth[0], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)
        assert page["log"] == pytest.approx(truth[1], abs=1e-9)
    return truth is not None


def play(browser: Browser, graph: FactorGraph, rng: np.random.Generator, clicks: int) -> int:
    """Clicks, checked each; impossible ones are undone. How many were impossible."""
    evidence: dict[int, int] = {}
    done: set[int] = set()
    impossible = 0
    check(browser, graph, evidence)
    for _ in range(clicks):
        v = int(rng.integers(graph.n_variables))
        if graph.n_states[v] < 2:
            continue
        s = int(rng.integers(graph.n_states[v]))
        for _ in range(int(rng.integers(1, 4))):  # seen; set in a network; taken back
            before = dict(evidence), set(done)
            if evidence.get(v) != s:
                evidence[v] = s
            elif graph.directed and v not in done:
                done.add(v)
            else:
                del evidence[v]
                done.discard(v)
            click(browser, v, s)
            if not check(browser, graph, evidence, done):
                impossible += 1
                browser.do("document.querySelector('#alarm button').click()")
                evidence, done = before
                assert check(browser, graph, evidence, done)
    return impossible


@pytest.mark.drawn
@pytest.mark.parametrize("name", ["alarm", "insurance", "hailfinder", "drawn"])
def test_networks_are_exact_after_every_click(browser: Browser, opened: Opened, name: str) -> None:
    impossible = 0
    for seed in few(range(8), 3) if name == "drawn" else [len(name)]:
        rng = np.random.default_rng(seed)
        drawn = name == "drawn"
        graph = models.network(rng, 3 + 2 * seed, 0.3, exactly=True) if drawn else None
        graph = graph or models.bundled(name)
        opened(graph)
        impossible += play(browser, graph, rng, 12 if drawn else draws(25))
    assert impossible > (5 if thorough() else 1) or name != "drawn"


def test_a_part_with_fixed_evidence_is_exact(browser: Browser, tmp_path: Path) -> None:
    whole = models.bundled("alarm").with_evidence({"CVP": "LOW", "HR": "HIGH"})
    targets = ["LVFAILURE", "PCWP", "CATECHOL"]
    browser.view(1400, 900)
    page = written(whole, tmp_path / "page.html", targets=targets, fix=True)
    browser.open(page)
    names = browser.do("minfer.names")
    assert set(targets) < set(names) < set(whole.names)
    rng = np.random.default_rng(3)
    seen: dict[str, str] = {}
    for _ in range(8):
        truth = Exact()(whole.with_evidence(seen))
        for name, mine in zip(names, browser.do("minfer.posteriors()"), strict=True):
            np.testing.assert_allclose(mine, truth[name], rtol=0, atol=1e-9)
        v = int(rng.integers(len(names)))
        s = int(np.argmax(truth[names[v]]))
        if names[v] in seen or truth[names[v]][s] == 1.0:
            continue
        click(browser, v, s)
        seen[names[v]] = whole.states(names[v])[s]
    assert len(seen) > 2
    assert browser.complaints() == []


@pytest.mark.drawn
@pytest.mark.parametrize("kind", [k for k in models.SMALL if k != "nothing"])
def test_drawn_models_of_all_kinds_are_exact(browser: Browser, opened: Opened, kind: str) -> None:
    tried, wanted = 0, 3 if thorough() else 1
    for seed in range(12):
        rng = np.random.default_rng([seed, 5])
        graph = models.SMALL[kind](rng).graph
        if not graph.n_variables or exact(graph, {}) is None or tried == wanted:
            continue
        tried += 1
        opened(graph)
        play(browser, graph, rng, 6)
    assert tried == wanted


def test_the_shown_percentages_are_the_numbers(browser: Browser, opened: Opened) -> None:
    opened(SPRINKLER, evidence={"wet": "yes"})
    shown = browser.do(
        "[...document.querySelectorAll('#world .state')].map(b => b.getAttribute('aria-label'))"
    )
    m = Exact()(SPRINKLER.with_evidence({"wet": "yes"}))
    expected = [
        f"{name}, {'100%' if p == 1 else '0%' if p == 0 else f'{100 * p:.1f}%'}"
        for v in range(4)
        for name, p in zip(SPRINKLER.states(v), m[v].tolist())
    ]
    assert shown == expected
    text = browser.do("document.getElementById('likelihood').textContent")
    assert f"{np.exp(m.log_z):.4g}" in text


def test_explanation_is_the_best_of_all_assignments(browser: Browser, opened: Opened) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        kind = [*models.SMALL][seed % len(models.SMALL)]
        graph = (
            models.network(rng, 6, 0.3, exactly=True) if seed < 3 else models.SMALL[kind](rng).graph
        )
        if not graph.n_variables or exact(graph, {}) is None:
            continue
        v = int(rng.integers(graph.n_variables))
        likely = int(np.argmin(Exact()(graph)[v] == 0))
        seen = graph.with_evidence({v: likely}) if (graph.n_observed == 0) else graph
        opened(seen)
        states = browser.do("minfer.explanation()")
        best = float(np.max(naive.log_scores(seen)))
        assert float(seen.log_score(states)) == pytest.approx(best, abs=1e-9)
        browser.do("document.getElementById('ask-explanation').click()")
        marked = browser.do("document.querySelectorAll('#world .state.best').length")
        assert marked == graph.n_variables
        told = browser.do("document.querySelector('#reply p').textContent")
        p = np.exp(best - naive.log_z(seen))
        assert float(told.split("probability ")[1].split()[0].replace("−", "-")) == pytest.approx(
            p, rel=0.01
        )


def information(graph: FactorGraph, target: int) -> list[float]:
    """Mutual information with a target in bits, from all assignments."""
    x, p = naive.joint(graph)
    out = []
    for v in range(graph.n_variables):
        joint = np.zeros((int(graph.n_states[v]), int(graph.n_states[target])))
        np.add.at(joint, (x[:, v], x[:, target]), p)
        alone = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
        on = joint > 0
        out.append(float((joint[on] * np.log2(joint[on] / alone[on])).sum()))
    return out


def test_information_is_that_of_all_assignments(browser: Browser, opened: Opened) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        graph = models.network(rng, 6, 0.3, exactly=True)
        likely = int(np.argmax(Exact()(graph)[5]))
        seen = graph.with_evidence({5: likely})
        opened(seen)
        truth = information(seen, 0)
        np.testing.assert_allclose(browser.do("minfer.information(0)"), truth, atol=1e-9)
        browser.do("document.querySelector('.node').click()")
        browser.do("document.getElementById('ask-information').click()")
        first = browser.do("document.querySelector('#reply li .label')?.textContent ?? ''")
        others = [v for v in range(1, 5) if truth[v] > 1e-9]
        assert first == (graph.name(max(others, key=lambda v: truth[v])) if others else "")
        # another target, by the list
        browser.do(
            "(s => { s.value = 2; s.dispatchEvent(new Event('change', {bubbles: true})); })"
            "(document.getElementById('target'))"
        )
        assert browser.do("document.getElementById('target').value") == "2"


def test_evidence_of_the_model_is_set_and_can_be_taken_back(
    window: Browser, opened: Opened
) -> None:
    opened(SPRINKLER.with_evidence({"wet": "yes"}))
    assert check(window, SPRINKLER, {2: 1})
    window.click(".chip")
    assert check(window, SPRINKLER, {})
    window.reload()
    assert window.do("location.hash") == "#none"
    assert check(window, SPRINKLER, {})


def test_soft_evidence_is_part_of_the_model(browser: Browser, opened: Opened) -> None:
    graph = SPRINKLER.with_soft_evidence({"wet": [0.3, 0.9], "rain": [0.0, 0.5]})
    opened(graph)
    assert check(browser, graph, {})
    click(browser, 1, 1)
    assert check(browser, graph, {1: 1})
    click(browser, 0, 0)  # excluded
    assert not check(browser, graph, {0: 0, 1: 1})
    assert "rain = no" in browser.do("document.getElementById('alarm').textContent")


SOFTEN = """((v, numbers) => {
  document.querySelectorAll(".node")[v].click();
  const inputs = document.querySelectorAll("#soft-inputs input");
  numbers.forEach((x, s) => { inputs[s].value = x; });
  inputs[0].dispatchEvent(new Event("change", { bubbles: true }));
})"""


def soften(browser: Browser, v: int, *numbers: float | str) -> None:
    browser.do(f"{SOFTEN}({v}, {json.dumps(numbers)})")


@pytest.mark.parametrize("seed", range(3))
def test_likelihoods_are_set_in_the_page(browser: Browser, opened: Opened, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = models.network(rng, 6, 0.3, exactly=True)
    path = opened(graph)
    softly: dict[int, list[float]] = {}
    for v in (0, 3, 5):
        if graph.n_states[v] < 2:
            continue
        softly[v] = rng.random(int(graph.n_states[v])).round(3).tolist()
        soften(browser, v, *softly[v])
        given = dict[int | str, Any](softly.items())
        every = minfer.query(graph, evidence=given)
        page = browser.do(STATE)
        for mine, theirs in zip(page["p"], every, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)
        assert page["log"] == pytest.approx(every.log_evidence, abs=1e-9)
    fragment = browser.do("location.hash")
    browser.open(path, fragment)
    assert browser.do("minfer.soft()") == {str(v): told for v, told in softly.items()}
    assert browser.do(STATE)["p"] == page["p"]
    browser.do("document.getElementById('clear').click()")
    assert check(browser, graph, {})


def test_soft_evidence_gives_way_and_is_taken_back(browser: Browser, opened: Opened) -> None:
    path = opened(SPRINKLER)
    click(browser, 2, 1)
    soften(browser, 2, 0.3, 0.9)  # in place of what was observed
    assert browser.do("minfer.soft()") == {"2": [0.3, 0.9]}
    assert browser.do("location.hash") == "#wet=:0.3:0.9"
    assert browser.do("document.querySelector('.chip').textContent") == "wet ~ no 0.3, yes 0.9×"
    assert "soft evidence" in browser.do("document.querySelectorAll('.node')[2].ariaLabel")
    soften(browser, 2, 0, "")
    assert not browser.do("document.getElementById('soft-wrong').hidden")
    assert browser.do("minfer.soft()") == {"2": [0.3, 0.9]}
    click(browser, 2, 0)
    assert check(browser, SPRINKLER, {2: 0})
    soften(browser, 2, 0.3, 0.9)
    browser.do("document.querySelector('.chip').click()")
    assert check(browser, SPRINKLER, {})
    soften(browser, 2, 2, 2)  # says nothing
    assert browser.do("minfer.soft()") == {}
    soften(browser, 2, 1, 0)
    click(browser, 3, 1)
    alarm = browser.do("document.getElementById('alarm').textContent")
    assert "slippery = 1 and wet ~ no 1, yes 0 together" in alarm
    browser.do("document.querySelector('#alarm button').click()")
    assert browser.do("minfer.possible()")
    for fragment, why in (
        ("#wet=:1", "wet takes 2 likelihoods"),
        ("#wet=:1:x", "wet takes 2 likelihoods"),
        ("#wet=:0:0", "wet takes 2 likelihoods"),
        ("#wet=:1:2&wet=no", "wet has soft evidence already"),
    ):
        browser.open(path, fragment)
        assert why in browser.do(UNUSED)["lines"][0]


def test_a_second_click_sets_and_a_third_takes_back(browser: Browser, opened: Opened) -> None:
    path = opened(SPRINKLER)
    for done in (set[int](), {2}):
        click(browser, 2, 1)
        assert check(browser, SPRINKLER, {2: 1}, done)
    assert browser.do("location.hash") == "#wet:=yes"
    assert browser.do("document.querySelector('.chip').textContent") == "do(wet = yes)×"
    assert browser.do("document.querySelectorAll('.node')[2].ariaLabel") == "wet: set to yes"
    assert browser.do("document.getElementById('told').textContent").startswith("wet yes set")
    assert browser.do("document.querySelectorAll('.edge.cut').length") == 2  # its parents'
    click(browser, 2, 0)  # set to another state
    assert check(browser, SPRINKLER, {2: 0}, {2})
    click(browser, 0, 1)
    assert check(browser, SPRINKLER, {0: 1, 2: 0}, {2})
    assert "P(evidence | do(…))" in browser.do("document.getElementById('likelihood').textContent")
    click(browser, 3, 1)  # which a wet street alone can be
    assert not check(browser, SPRINKLER, {0: 1, 2: 0, 3: 1}, {2})
    assert "do(wet = no)" in browser.do("document.getElementById('alarm').textContent")
    browser.do("document.querySelector('#alarm button').click()")
    assert check(browser, SPRINKLER, {0: 1, 2: 0}, {2})
    fragment = browser.do("location.hash")
    browser.open(path, fragment)
    assert check(browser, SPRINKLER, {0: 1, 2: 0}, {2})
    click(browser, 2, 0)
    assert check(browser, SPRINKLER, {0: 1})
    browser.press("u")
    assert check(browser, SPRINKLER, {0: 1, 2: 0}, {2})
    soften(browser, 2, 0.3, 0.9)  # in its place
    assert browser.do("minfer.done()") == []
    browser.do("document.getElementById('clear').click()")
    assert check(browser, SPRINKLER, {})
    for fragment, evidence, done, lines in (
        ("#rain:=yes,wet=yes", {0: 1, 2: 1}, {0}, []),
        ("#rain:=yes,rain=yes", {0: 1}, {0}, ["rain=yes: rain is yes already"]),
        ("#rain:=maybe", {}, set(), ["rain:=maybe: the states of rain are no, yes"]),
        ("#snow:=yes", {}, set(), ["snow:=yes: there is no variable snow: here"]),
    ):
        browser.open(path, fragment)
        assert check(browser, SPRINKLER, evidence, done)
        assert browser.do(UNUSED)["lines"] == lines


def test_a_page_that_opens_with_what_is_set(browser: Browser, opened: Opened) -> None:
    path = opened(SPRINKLER, do={"sprinkler": "on"}, evidence={"wet": "yes"})
    assert check(browser, SPRINKLER, {1: 1, 2: 1}, {1})
    browser.do("document.getElementById('clear').click()")
    browser.reload()
    assert browser.do("location.hash") == "#none"
    assert check(browser, SPRINKLER, {})
    set_ = SPRINKLER.with_do({"sprinkler": "on"})
    opened(SPRINKLER, do={"sprinkler": "on"}, fix=True)
    assert "do(sprinkler=on)" in browser.do("document.getElementById('chips').textContent")
    click(browser, 2, 1)
    assert check(browser, set_, {2: 1})
    sure = FactorGraph.network(
        {"a": 2, "b": 2, "c": 2},
        {"a": [1, 0], "b": ("a", np.eye(2)), "c": (["a", "b"], [[[0.2, 0.8]] * 2] * 2)},
    )  # what is certain can be set otherwise
    opened(sure)
    click(browser, 0, 1)
    assert not check(browser, sure, {0: 1})
    click(browser, 0, 1)
    assert check(browser, sure, {0: 1}, {0})
    opened(FactorGraph.grid(np.zeros((2, 2)), 1.0), "#x0:=1")  # here a second click takes back
    assert browser.do(UNUSED)["lines"] == ["x0:=1: x0 cannot be set here"]
    click(browser, 0, 1)
    click(browser, 0, 1)
    assert browser.do("minfer.evidence()") == [-1] * 4
    soft = {"sprinkler": [0.2, 0.8]}
    opened(SPRINKLER, evidence=soft)  # nor what has soft evidence built in
    for _ in range(2):
        click(browser, 1, 1)
    assert browser.do("minfer.done()") == []
    for _ in range(2):
        click(browser, 0, 1)
    assert check(browser, SPRINKLER.with_soft_evidence(soft), {0: 1}, {0})
    assert path.exists()


TABLE = """[...document.querySelectorAll("#chosen-table tr")].map(row =>
  [...row.children].map(cell => cell.textContent).concat(row.classList.contains("holds")))"""


def test_the_table_of_the_chosen_card_is_shown(browser: Browser, opened: Opened) -> None:
    opened(SPRINKLER)
    click(browser, 1, 1)
    browser.do("document.querySelectorAll('.node')[2].click()")
    title = browser.do("document.getElementById('chosen-table-title').textContent")
    assert title == "P(wet | rain, sprinkler)"
    assert browser.do(TABLE) == [
        ["rain", "sprinkler", "no", "yes", False],
        ["no", "off", "1", "0", False],
        ["no", "on", "0.1", "0.9", True],
        ["yes", "off", "0.2", "0.8", False],
        ["yes", "on", "0.01", "0.99", True],
    ]
    browser.do("document.querySelectorAll('.node')[0].click()")
    assert browser.do(TABLE) == [["no", "yes", False], ["0.8", "0.2", False]]
    opened(FactorGraph.grid(np.zeros((2, 2)), 1.0))
    browser.do("document.querySelectorAll('.node')[0].click()")
    assert browser.do("document.getElementById('chosen-table-of').hidden")


def test_impossible_evidence_names_the_clash_and_goes_back(window: Browser, opened: Opened) -> None:
    opened(SPRINKLER)
    click(window, 3, 1)  # slippery
    click(window, 1, 1)
    before = window.do(STATE)
    click(window, 2, 0)  # but not wet
    assert not check(window, SPRINKLER, {1: 1, 2: 0, 3: 1})
    text = window.do("document.getElementById('alarm').textContent")
    assert "wet = no and slippery = 1" in text
    assert "sprinkler" not in text
    window.click("#alarm button")
    assert window.do(STATE) == before
    click(window, 2, 0)
    window.do("[...document.querySelectorAll('#alarm button')].at(-1).click()")
    assert check(window, SPRINKLER, {1: 1, 2: 0})


def test_evidence_far_below_what_numbers_hold(browser: Browser, opened: Opened) -> None:
    """P(e) about 1e-600: neither impossible nor zero."""
    n = 60
    states: dict[str, Any] = {"a": 2, **{f"b{k}": 2 for k in range(n)}}
    rows = [[1 - 1e-10, 1e-10], [1 - 3e-11, 3e-11]]
    tables = {"a": [0.5, 0.5], **{f"b{k}": (["a"], rows) for k in range(n)}}
    graph = FactorGraph.network(states, tables)
    opened(graph, evidence={f"b{k}": 1 for k in range(n)})
    assert check(browser, graph, dict.fromkeys(range(1, n + 1), 1))
    assert "e−6" in browser.do("document.getElementById('likelihood').textContent")


ODD = ["a & b=c", "100 %", "~3", "#x?y", "naïve 雨", "__proto__", "constructor", "<b>", '"',
       "a/b\\", "x,y", "=", ","]  # fmt: skip


def test_the_address_keeps_the_evidence(browser: Browser, opened: Opened) -> None:
    rng = np.random.default_rng(0)
    states = {name: [*rng.permutation(ODD)[:3].tolist(), "ok"] for name in ODD}
    tables: dict[str, Any] = {name: rng.dirichlet(np.ones(4)) for name in ODD}
    for a, b in pairwise(ODD):
        tables[b] = ([a], rng.dirichlet(np.ones(4), size=4))
    graph = FactorGraph.network(states, tables)
    path = opened(graph)
    evidence = {v: int(rng.integers(4)) for v in range(len(ODD))}
    for v, s in evidence.items():
        click(browser, v, s)
    assert check(browser, graph, evidence)
    fragment, state = browser.do("location.hash"), browser.do(STATE)
    browser.open(path, fragment)  # as someone else would who got the address
    assert browser.do(STATE) == state
    assert browser.do(UNUSED)["hidden"]
    browser.reload()
    assert browser.do(STATE) == state


def test_back_takes_back(browser: Browser, opened: Opened) -> None:
    path = opened(SPRINKLER)
    click(browser, 0, 1)
    click(browser, 2, 1)
    assert browser.do("location.hash") == "#rain=yes&wet=yes"
    browser.do("new Promise(r => { addEventListener('hashchange', r); history.back(); })")
    assert check(browser, SPRINKLER, {0: 1})
    browser.do("new Promise(r => { addEventListener('hashchange', r); location.hash = 'wet=no'; })")
    assert check(browser, SPRINKLER, {2: 0})
    for fragment in ("#=", "#~9=~9&~x=1"):
        browser.open(path, fragment)
        assert check(browser, SPRINKLER, {})
    browser.view(390, 800)  # the next observation takes away what was said of an address
    browser.open(path, "#" + "&".join(f"nobody{k}=1" for k in range(9)))
    found = browser.do(UNUSED)
    assert found["shown"]
    assert found["lines"][-1] == "and 4 more"
    assert len(found["lines"]) == 6
    click(browser, 0, 1)
    assert browser.do(UNUSED)["hidden"]
    browser.do("new Promise(r => { addEventListener('hashchange', r); location.hash = 'a=b'; })")
    assert browser.do(UNUSED)["lines"] == ["a=b: there is no variable a here"]


UNUSED = """({
  hidden: document.getElementById("unused").hidden,
  shown: document.getElementById("unused").getBoundingClientRect().height > 20,
  lines: [...document.querySelectorAll("#unused li")].map(x => x.textContent),
})"""


@pytest.mark.parametrize(
    ("fragment", "evidence", "lines"),
    [
        ("#rain=yes,wet=yes", {0: 1, 2: 1}, []),
        ("#rain", {}, ["rain: it is not name=state"]),
        ("#rain=yes&rain=no", {0: 1}, ["rain=no: rain is yes already"]),
        ("#rain=yes,rain=yes", {0: 1}, []),
        ("#rain=%E0%A4%A", {}, ["rain=%E0%A4%A: the states of rain are no, yes"]),
        (
            "#rain=yes,wet=soaked,<b>=1",
            {0: 1},
            ["wet=soaked: the states of wet are no, yes", "<b>=1: there is no variable <b> here"],
        ),
        ("#", {}, []),
    ],
)
def test_what_of_the_address_was_not_used_is_said(
    browser: Browser, opened: Opened, fragment: str, evidence: dict[int, int], lines: list[str]
) -> None:
    opened(SPRINKLER, fragment)
    assert check(browser, SPRINKLER, evidence)
    found = browser.do(UNUSED)
    assert found["lines"] == lines
    assert found["hidden"] == (not lines)
    assert found["shown"] == bool(lines)


def test_the_keyboard_does_everything(browser: Browser, opened: Opened) -> None:
    opened(SPRINKLER)
    here = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.id"
    browser.press("/")
    assert browser.do(here) == "search"
    for letter in "wet":
        browser.press(letter)
    assert browser.do("document.querySelectorAll('.node.miss').length") == 3
    browser.press("Enter")
    assert browser.do(here).startswith("wet: ")
    browser.press("2")
    assert check(browser, SPRINKLER, {2: 1})
    browser.press("ArrowUp")  # to a parent
    assert browser.do(here).split(":")[0] in ("rain", "sprinkler")
    browser.do("document.querySelectorAll('.node')[0].focus()")
    browser.press("Tab")  # the next card, not its states
    assert browser.do(here).startswith("sprinkler: ")
    browser.press("Enter")
    assert browser.do(here).startswith("o")  # on or off
    browser.press("ArrowDown")
    browser.press("ArrowUp")
    browser.press("ArrowUp")
    assert browser.do(here).startswith("off, ")
    browser.press("Enter")
    assert check(browser, SPRINKLER, {1: 0, 2: 1})
    browser.press("Escape")
    assert browser.do(here).startswith("sprinkler: ")
    assert check(browser, SPRINKLER, {1: 0, 2: 1})
    browser.press("Escape")
    assert check(browser, SPRINKLER, {2: 1})
    browser.press("Escape")
    assert check(browser, SPRINKLER, {})
    browser.press("u")
    assert check(browser, SPRINKLER, {2: 1})
    browser.press("9")  # no such state
    assert check(browser, SPRINKLER, {2: 1})


SCALE = "Number(document.getElementById('world').style.transform.match(/scale\\((.*)\\)/)[1])"


def test_wheel_drag_and_pinch(window: Browser, opened: Opened) -> None:
    opened(SPRINKLER)
    box = "(b => [b.x + b.width / 2, b.y + b.height / 2])({}.getBoundingClientRect())"
    bar = box.format("document.querySelector('#world .state')")
    x, y = window.do(bar)
    before = window.do(SCALE)
    window.mouse("wheel", x, y, deltaX=0, deltaY=-200)
    window.do("new Promise(requestAnimationFrame)")
    assert window.do(SCALE) > before
    np.testing.assert_allclose(window.do(bar), (x, y), atol=6)  # what is under the cursor stays
    x, y = window.do(bar)
    window.mouse("moved", x, y)
    window.mouse("pressed", x, y)
    for k in range(1, 6):
        window.mouse("moved", x + 12 * k, y + 8 * k, buttons=1)
    window.mouse("released", x + 60, y + 40)
    np.testing.assert_allclose(window.do(bar), (x + 60, y + 40), atol=1)
    assert check(window, SPRINKLER, {})  # a drag is not a click
    window.click("#world .state")
    assert check(window, SPRINKLER, {0: 0})
    window.click("#fit")
    assert window.do(SCALE) == pytest.approx(before)
    before = window.do(SCALE)
    for kind, gap in (("touchStart", 40), ("touchMove", 60), ("touchMove", 80)):
        points = [{"x": 600 - gap, "y": 300, "id": 0}, {"x": 600 + gap, "y": 300, "id": 1}]
        window.send("Input.dispatchTouchEvent", type=kind, touchPoints=points)
    window.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    assert window.do(SCALE) == pytest.approx(2 * before, rel=0.2)
    for view in ("list", "map"):
        window.click(f"#as-{view}")
        pressed = "[...document.querySelectorAll('[aria-pressed=true]')].map(b => b.id)"
        assert f"as-{view}" in window.do(pressed)


def many_states() -> FactorGraph:
    rng = np.random.default_rng(3)
    return FactorGraph.network(
        {"many": 40, "few": ["a name that is long enough to be cut somewhere", "b"]},
        {"many": rng.dirichlet(np.ones(40)), "few": (["many"], rng.dirichlet([1, 1], size=40))},
    )


@pytest.mark.drawn
@pytest.mark.parametrize("view", ["map", "list"])
def test_no_window_scrolls_sideways(browser: Browser, tmp_path: Path, view: str) -> None:
    pages = {
        "sprinkler": SPRINKLER,
        "many": many_states(),
        "grid": FactorGraph.grid(np.zeros((5, 6)), 0.5),
        "network": models.network(np.random.default_rng(4), 40, 0.3, exactly=True),
    }
    windows = ((1200, 800, False), (360, 640, False), (640, 360, True))
    for (name, graph), (width, height, dark) in few(product(pages.items(), windows), 6):
        path = written(graph, tmp_path / f"{name}.html", title="A rather long title " * 5)
        browser.view(width, height, dark)
        browser.open(path)
        browser.do(f"document.getElementById('as-{view}').click()")
        browser.do("document.querySelector('.node').click()")
        click(browser, 1, 0)
        for question in ("explanation", "information"):
            browser.do(f"document.getElementById('ask-{question}').click()")
            wide = browser.do(
                "Math.max(document.documentElement.scrollWidth - innerWidth, "
                "...['panel', 'stage'].map(i => document.getElementById(i))"
                ".map(e => e.scrollWidth - e.clientWidth)"
                f".slice(0, {2 if view == 'list' else 1}))"
            )
            assert wide <= 0, f"{name} scrolls sideways by {wide} at {width}"
        assert browser.complaints() == []
        assert browser.requests() == [path.as_uri()]


def test_cards_do_not_overlap_and_the_whole_fits(browser: Browser, opened: Opened) -> None:
    rng = np.random.default_rng(7)
    for graph in (
        models.network(rng, 50, 0.3, exactly=True),
        models.tables(rng).graph,
        many_states(),
    ):
        opened(graph, size=(390, 800))
        boxes = np.array(browser.do(
            "[...document.querySelectorAll('.node')].map(n => n.getBoundingClientRect())"
            ".map(b => [b.left, b.top, b.right, b.bottom])"
        ))  # fmt: skip
        stage = browser.do(
            "(b => [b.left, b.top, b.right, b.bottom])"
            "(document.getElementById('stage').getBoundingClientRect())"
        )
        assert (boxes[:, :2] >= np.array(stage[:2])).all()
        assert (boxes[:, 2:] <= np.array(stage[2:])).all()
        for a in range(len(boxes)):
            for b in range(a):
                apart = (boxes[a, :2] >= boxes[b, 2:]) | (boxes[b, :2] >= boxes[a, 2:])
                assert apart.any(), (a, b)


def test_text_has_contrast(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    """Every colour that text has, on every ground it stands on, at the 4.5 of WCAG AA."""
    report_inks = ["ink", "muted", "kept", "rigorous", "estimate", "measured", "warn"]
    pairs = [*product(("ink", "muted", "accent", "seen", "best", "warn"), ("page", "card"))]
    pairs += [("ink", "belief"), ("ink", "seen-fill"), ("ink", "seen-soft"), ("seen", "seen-soft"),
              ("muted", "seen-soft")]  # fmt: skip
    for path, on_it in (
        (pages["graph"], [*product(report_inks, ["page", "card"])]),
        (written(SPRINKLER, tmp_path / "page.html"), pairs),
    ):
        grounds = []
        for dark in (False, True):
            browser.view(1100, 800, dark)
            browser.open(path)
            for pair, found in zip(on_it, browser.contrasts(on_it), strict=True):
                assert found >= 4.5, (dark, pair, found)
            grounds.append(browser.do("getComputedStyle(document.body).backgroundColor"))
        assert grounds[0] != grounds[1]


def test_everything_has_a_name(browser: Browser, opened: Opened) -> None:
    opened(SPRINKLER)
    click(browser, 0, 1)
    tree = browser.send("Accessibility.getFullAXTree")["nodes"]
    kinds = {"button", "textbox", "searchbox", "combobox", "group", "link"}
    for node in tree:
        if node.get("role", {}).get("value") in kinds and not node["ignored"]:
            assert node.get("name", {}).get("value"), node
    pressed = browser.do("document.querySelectorAll('#world [aria-pressed=true]').length")
    assert pressed == 1
    assert "rain yes observed" in browser.do("document.getElementById('told').textContent")


def test_hostile_names_stay_text(browser: Browser, tmp_path: Path) -> None:
    names = [
        *EVIL,
        "</script><img src=x onerror=alert(1)>",
        "javascript:alert(1)",
        "\ud800",
        "{{data}}",
    ]
    names = list(dict.fromkeys(names))
    rng = np.random.default_rng(1)
    tables: dict[str, Any] = {names[0]: rng.dirichlet(np.ones(len(names)))}
    for a, b in pairwise(names):
        tables[b] = ([a], rng.dirichlet(np.ones(len(names)), size=len(names)))
    graph = FactorGraph.network(dict.fromkeys(names, names), tables)
    path = written(graph, tmp_path / "evil.html", title=EVIL[0])
    browser.view(1400, 900)
    browser.open(path)
    scripts = browser.do("document.querySelectorAll('script').length")
    for v in range(len(names)):
        click(browser, v, v)
    for question in ("explanation", "information"):
        browser.do(f"document.getElementById('ask-{question}').click()")
    assert check(browser, graph, {v: v for v in range(len(names))})
    fragment = browser.do("location.hash")
    browser.open(path, fragment)
    assert check(browser, graph, {v: v for v in range(len(names))})
    assert browser.complaints() == []
    assert browser.requests() == [path.as_uri()]
    assert browser.do("document.querySelectorAll('script').length") == scripts == 2
    assert browser.do("document.querySelectorAll('img').length") == 0
    shown = "[...document.querySelectorAll('.node .name > :first-child')].map(x => x.textContent)"
    whole = [name for name in names if name != "\ud800"]
    assert [name for name in browser.do(shown) if name in whole] == whole
    assert browser.do("document.querySelector('h1').textContent") == EVIL[0]


def test_in_a_notebook(browser: Browser, tmp_path: Path) -> None:
    inline = minfer.explore(SPRINKLER, title="sprinkler")._repr_html_()
    path = tmp_path / "notebook.html"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{inline}</body>", "utf-8")
    browser.view(1000, 800)
    browser.open(path)
    state = "document.querySelectorAll('.node')[2].querySelectorAll('.state')[1]"
    found = browser.inside(f"({state}.click(), minfer.posteriors())")
    truth = exact(SPRINKLER, {2: 1})
    assert truth is not None
    for mine, theirs in zip(found, truth[0], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-9)
    assert browser.complaints() == []


def test_soft_and_built_in_evidence_is_shown(browser: Browser, tmp_path: Path) -> None:
    soft = SPRINKLER.with_soft_evidence({"slippery": [0.7, 0.2]})
    browser.open(written(soft, tmp_path / "soft.html"))
    panel = "document.getElementById('observed').innerText"
    said = browser.do(panel)
    p = minfer.query(SPRINKLER, "rain", {"slippery": [0.7, 0.2]}).log_evidence
    assert "slippery ~ 0: 0.7, 1: 0.2" in said
    assert "None yet" not in said
    assert f"{np.exp(p):.4g}" in said
    assert browser.do("document.getElementById('clear').hidden")  # nothing that could be cleared
    click(browser, 0, 1)
    check(browser, soft, {0: 1})
    assert "rain = yes" in browser.do(panel)
    browser.open(written(SPRINKLER, tmp_path / "fixed.html", evidence={"rain": "yes"}, fix=True))
    said = browser.do(panel)
    assert "rain = yes" in said
    assert "P(evidence)\n0.2" in said.replace("\t", "\n")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One report of each kind."""
    rng = np.random.default_rng(2)
    n = 9
    cube = (n, n, n)
    made = {
        "graph": report(small_grid(4), MinDivergence(6), title="grid"),
        "certified": report(
            FactorGraph.grid(2 * rng.normal(size=(6, 6)), 1.5), MinJoint(0.05), certify=20.0
        ),
        "picture": denoise_report(gaussian(base_pictures(24)["house"], 0.4, rng)),
        "blocks": denoise_report(gaussian(base_pictures(140)["house"], 0.4, rng), steps=3),
        "labels": denoise_report(rng.random((12, 9)), labels=3, steps=3),
        "sentence": scores_report(
            ["The", "old", "man", "saw", "birds", "by", "the", "lake"],
            rng.normal(size=(n, n)),
            sib=rng.normal(size=cube),
            gp=rng.normal(size=cube),
            inference=Inference(objective=MinJoint(0.05)),
            gold=[3, 3, 4, 0, 4, 8, 8, 4],
        ),
    }
    folder = tmp_path_factory.mktemp("reports")
    for name, text in made.items():
        write_report(folder / f"{name}.html", text)
    return {name: folder / f"{name}.html" for name in made}


KINDS = ("graph", "certified", "picture", "blocks", "labels", "sentence")
REPORT = """(() => {
  const canvas = document.querySelector("canvas");
  return {
    value: document.getElementById("value").textContent,
    kept: document.getElementById("kept").textContent,
    spoken: document.getElementById("slider").getAttribute("aria-valuetext"),
    cards: document.getElementById("cards").textContent,
    rows: document.querySelector("#rows tbody").textContent,
    drawing: canvas ? canvas.toDataURL() : document.querySelector("#drawing svg").outerHTML,
    plots: [...document.querySelectorAll(".plot > svg")].map((svg) => svg.outerHTML),
  };
})()"""


def number(text: str) -> int:
    return int(text.split()[0].replace(",", ""))


@pytest.mark.drawn
@pytest.mark.parametrize("kind", KINDS)
def test_reports_load_offline_and_silently(
    browser: Browser, pages: dict[str, Path], kind: str
) -> None:
    for width, dark in few([(1200, True), (1200, False), (360, False)], 2):
        browser.view(width, 800, dark)
        browser.open(pages[kind])
        last = browser.do("document.getElementById('slider').max")
        for step in range(int(last) + 1):  # every setting is shown once
            browser.do(
                f"(s => {{ s.value = {step}; s.dispatchEvent(new Event('input')); }})"
                "(document.getElementById('slider'))"
            )
        assert browser.complaints() == []
        assert browser.requests() == [pages[kind].as_uri()]
        wide = browser.do("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, f"scrolls sideways by {wide} at {width}"
        assert browser.do("window.innerWidth") == width


@pytest.mark.parametrize("kind", KINDS)
def test_the_keyboard_moves_all_of_a_report(
    browser: Browser, pages: dict[str, Path], kind: str
) -> None:
    browser.view(1100, 800)
    browser.open(pages[kind])
    browser.press("Tab")  # the slider comes first
    assert browser.do("document.activeElement.id") == "slider"
    states = []
    for key in ("Home", "ArrowRight", "End"):
        browser.press(key)
        states.append(browser.do(REPORT))
    first, second, last = states
    kept = [number(state["kept"]) for state in states]
    assert kept[0] == 0
    assert kept[0] < kept[1] <= kept[2]
    for name in ("value", "kept", "spoken", "cards", "drawing", "rows"):
        assert first[name] != last[name], name
    assert first["value"] != second["value"]
    assert all(a != b for a, b in zip(first["plots"], last["plots"]))
    assert last["kept"] in last["spoken"]
    assert browser.complaints() == []


def test_a_point_moves_the_slider_and_pixels_are_read_by_keyboard(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.view(1100, 800)
    browser.open(pages["graph"])
    browser.do("document.querySelector('#time-plot .hit').dispatchEvent(new MouseEvent('click'))")
    assert browser.do("document.getElementById('slider').value") == "0"
    browser.open(pages["picture"])
    browser.do("document.querySelectorAll('canvas')[1].focus()")
    browser.press("ArrowRight")
    text = browser.do("document.getElementById('readout').textContent")
    assert text.startswith("row 12, column 13: probability of white ")


def test_hostile_names_stay_text_in_reports(browser: Browser, tmp_path: Path) -> None:
    names = [*EVIL, "javascript:alert(1)"]
    tables = {(a, b): np.eye(2) for a, b in pairwise(names)}
    model = FactorGraph.named(dict.fromkeys(names, 2), tables)
    path = tmp_path / "evil.html"
    write_report(path, report(model, title=EVIL[0], command=EVIL[1], steps=3))
    browser.view(1100, 800)
    browser.open(path)
    assert browser.complaints() == []
    assert browser.do("document.querySelectorAll('script').length") == 2
    assert browser.do("document.querySelectorAll('img').length") == 0
    shown = browser.do("[...document.querySelectorAll('#rows tbody th')].map(x => x.textContent)")
    assert shown == names
    assert browser.do("document.querySelector('h1').textContent") == EVIL[0]
    assert browser.do("document.getElementById('command').textContent") == EVIL[1]
