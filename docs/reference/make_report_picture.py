"""Make the report of a noisy picture and keep what a browser shows, docs/reference/report.png.

python docs/reference/make_report_picture.py        # needs Chromium
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from browser import Browser, find_chromium
from minfer.pictures import base_pictures, gaussian
from minfer.report import denoise_report, write_report

PICTURE = Path(__file__).with_name("report.png")


def main() -> None:
    program = find_chromium()
    if program is None:
        sys.exit("there is no Chromium here (Debian: apt-get install chromium)")
    noisy = gaussian(base_pictures()["house"], 0.45, np.random.default_rng(7))
    page = denoise_report(
        noisy, title="house.png", command="minfer denoise house.png --report house.html"
    )
    with TemporaryDirectory() as folder, Browser(program) as browser, browser.shown():
        path = Path(folder) / "house.html"
        write_report(path, page)
        browser.view(1120, 1010)
        browser.open(path)
        browser.screenshot(PICTURE)
        if found := browser.complaints():
            sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
