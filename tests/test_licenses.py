"""The texts of the licences of all that is shipped are there, and go into wheels and sdists."""

from __future__ import annotations

import tomllib
from importlib.metadata import distribution

from test_docs import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_wheels_hold_all_texts():
    named = {p for pattern in PROJECT["project"]["license-files"] for p in ROOT.glob(pattern)}
    assert named == {ROOT / "LICENSE", *(ROOT / "licenses").glob("*.txt")}
    said = (ROOT / "licenses" / "README.md").read_text("utf-8")
    assert all(f"`{p.name}`" in said for p in named)


def test_sdists_hold_them_too():
    held = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {"LICENSE", "licenses", "SECURITY.md"} <= {*held}
    assert all((ROOT / name).exists() for name in held)


def test_numbas_licence_is_still_this_one():
    """The holder and the conditions, of whichever version is installed."""
    files = distribution("numba").files or []
    found = [f for f in files if f.name == "LICENSE" and "dist-info" in str(f)]
    if found:  # the text, whatever its line ends and blanks
        here = (ROOT / "licenses" / "numba.txt").read_text("utf-8").split()
        assert found[0].read_text().split() == here
