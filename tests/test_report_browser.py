"""Reports in a real headless Chromium: they load offline and do what they say.

Skipped where there is no browser (Debian: ``apt-get install chromium``; MINFER_CHROMIUM names
another one); where MINFER_BROWSER_TESTS is 1, as in CI, its absence is a failure.
"""

from __future__ import annotations

import os
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from browser import Browser, find_chromium
from draws import few
from minfer import FactorGraph, MinDivergence, MinJoint
from minfer.parsing import Inference
from minfer.pictures import base_pictures, gaussian
from minfer.report import denoise_report, report, scores_report, write_report
from test_report import EVIL, small_grid

pytestmark = pytest.mark.slow  # a browser's minute; CI has one

if find_chromium() is None and os.environ.get("MINFER_BROWSER_TESTS") != "1":
    pytest.skip("there is no Chromium here", allow_module_level=True)


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
STATE = """(() => {
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
def test_loads_offline_and_silently(browser: Browser, pages: dict[str, Path], kind: str) -> None:
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
def test_the_keyboard_moves_everything(browser: Browser, pages: dict[str, Path], kind: str) -> None:
    browser.view(1100, 800)
    browser.open(pages[kind])
    browser.press("Tab")  # the slider comes first
    assert browser.do("document.activeElement.id") == "slider"
    states = []
    for key in ("Home", "ArrowRight", "End"):
        browser.press(key)
        states.append(browser.do(STATE))
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


def test_a_point_of_the_curve_moves_the_slider(browser: Browser, pages: dict[str, Path]) -> None:
    browser.view(1100, 800)
    browser.open(pages["graph"])
    browser.do("document.querySelector('#time-plot .hit').dispatchEvent(new MouseEvent('click'))")
    assert browser.do("document.getElementById('slider').value") == "0"


def test_pixels_are_read_by_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    browser.view(1100, 800)
    browser.open(pages["picture"])
    browser.do("document.querySelectorAll('canvas')[1].focus()")
    browser.press("ArrowRight")
    text = browser.do("document.getElementById('readout').textContent")
    assert text.startswith("row 12, column 13: probability of white ")


def test_text_has_contrast(browser: Browser, pages: dict[str, Path]) -> None:
    """Every colour that text has, on both backgrounds, at the 4.5 that WCAG AA asks for."""
    inks = ["ink", "muted", "kept", "rigorous", "estimate", "measured", "warn"]
    pairs = [*product(inks, ["page", "card"])]
    for dark in (False, True):
        browser.view(1100, 800, dark)
        browser.open(pages["graph"])
        assert min(browser.contrasts(pairs)) >= 4.5


def test_hostile_names_stay_text(browser: Browser, tmp_path: Path) -> None:
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
