"""Make a page of the alarm network and keep what a browser shows, docs/reference/explore.png.

python docs/reference/make_explore_picture.py        # needs Chromium and pgmpy
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import minfer
from browser import Browser, find_chromium
from oracle.models import bundled

PICTURE = Path(__file__).with_name("explore.png")


def main() -> None:
    program = find_chromium()
    if program is None:
        sys.exit("there is no Chromium here (Debian: apt-get install chromium)")
    with TemporaryDirectory() as folder, Browser(program) as browser, browser.shown():
        path = Path(folder) / "alarm.html"
        model = bundled("alarm")
        minfer.explore(model, {"CVP": "HIGH", "HRBP": "LOW"}, title="alarm").write(path)
        browser.view(1520, 1000)
        browser.open(path)
        browser.click(f".node[data-v='{model.index('HYPOVOLEMIA')}'] .name")
        browser.click("#ask-information")
        browser.do("new Promise(done => setTimeout(done, 500))")  # bars move
        browser.screenshot(PICTURE)
        if found := browser.complaints():
            sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
