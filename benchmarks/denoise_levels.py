"""Denoising as it comes against the best fixed level and a 3x3 median filter.

    python benchmarks/denoise_levels.py                      # pictures of the package alone
    python benchmarks/denoise_levels.py --data DIR           # also the picture files below DIR

Every picture is made black and white (half way between its two shades), 5, 10, 15 and 20 % of its
pixels are flipped, and the wrong pixels are counted: of the noisy picture, of the paper's level,
the mean, with alpha 5, of ``minfer.denoise`` as it comes, of the best fixed level and of the median
filter. *Best fixed level* knows the truth: it is the level of least error, in steps of 0.05, once
with alpha 5 and once with the alpha that the default chose, whichever is better. Small pictures are
flipped several times with other seeds, and errors added up. Of a picture beyond 1024x1024 pixels
the middle is taken, unless ``--whole``.

``.npz`` files below DIR with arrays labels (P, H, W) and noisy (P, N, H, W) are taken as they are,
the first versions of each; the median filter's threshold is then the best one.

Leaves with an error if the default makes more than 1.1 times the errors of the best fixed level
under any of the flips; where it does under the noise of a file it only says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.ndimage import median_filter

from minfer.images.denoising import denoise
from minfer.images.noise_estimate import two_means
from minfer.pictures import base_pictures, flipped, night, read_picture, text_page
from minfer_experiments import pages

SHARES = (0.05, 0.1, 0.15, 0.2)
BAR = 1.1
OLD_ALPHA = 5.0  # what alpha was before it was estimated
STEP = 0.05
OWN = "its own noise"
SMALL, DRAWS = 128 * 128, 20
LARGE = 1024
SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".pgm", ".pbm")


class Case(NamedTuple):
    name: str
    noise: str
    clean: np.ndarray  # bools (H, W)
    noisy: list[np.ndarray]


def drawn() -> dict[str, np.ndarray]:
    """Pictures of the package itself."""
    found = {f"text x{n}": text_page(400, 400, n) for n in (1, 2, 3)}
    found["night"] = night()
    return found | base_pictures()


def files(folder: Path, whole: bool) -> dict[str, np.ndarray]:
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES):
        values = read_picture(path).values
        if not whole:
            top, left = (max(side - LARGE, 0) // 2 for side in values.shape)
            values = values[top : top + LARGE, left : left + LARGE]
        found[path.name] = values > sum(two_means(values)) / 2
    return found


def cases(args: argparse.Namespace) -> Iterator[Case]:
    pictures = drawn()
    if args.data:
        pictures |= files(args.data, args.whole)
    for name, clean in pictures.items():
        if args.only and not any(word in name for word in args.only):
            continue
        draws = DRAWS if clean.size <= SMALL else 1
        for share in args.shares:
            seeds = range(args.seed, args.seed + draws)
            rngs = [np.random.default_rng([seed, round(1000 * share)]) for seed in seeds]
            noisy = [flipped(clean, share, rng).astype(float) for rng in rngs]
            yield Case(name, f"{share:.0%} flips", clean, noisy)
    for path in sorted(args.data.rglob("*.npz")) if args.data and not args.only else ():
        with np.load(path) as file:
            labels, noisy = file["labels"].astype(bool), file["noisy"].astype(float)
        for i, clean in enumerate(labels):
            yield Case(f"{path.stem} {i + 1}", OWN, clean, list(noisy[i, :DRAWS]))


def best_level(case: Case, alphas: list[float]) -> int:
    """Least errors of a fixed level over all noisy versions."""
    low, high = np.quantile(case.noisy[0], [0.02, 0.98])

    def errors(level: float) -> int:
        pairs = zip(case.noisy, alphas)
        return sum(
            int((denoise(x, alpha=a, level=level).clean != case.clean).sum()) for x, a in pairs
        )

    found = {}
    places = list(range(6, 15))  # 0.3 to 0.7 of the way, and on where that is still better
    while places:
        for k in places:
            found[k] = errors(low + (high - low) * STEP * k)
        best = min(found, key=lambda k: found[k])
        places = [k for k in (best - 1, best + 1) if k not in found and 0 < k < 1 / STEP]
    return found[best]


def median_errors(case: Case) -> int:
    smooth = [median_filter(x, 3, mode="nearest") for x in case.noisy]
    if all(set(np.unique(x)) <= {0.0, 1.0} for x in case.noisy):
        levels = np.array([0.5])
    else:
        levels = np.quantile(case.noisy[0], np.arange(0.1, 0.91, 0.05))
    return min(sum(int(((s > one) != case.clean).sum()) for s in smooth) for one in levels)


class Row(NamedTuple):
    """Wrong pixels of a case, in percent, and the settings."""

    name: str
    noise: str
    white: float  # share of the true picture
    noisy: float
    mean: float  # the paper's level, the mean, with alpha 5
    default: float
    best: float  # the better of the next two
    best_old: float  # best fixed level with alpha 5
    best_own: float  # best fixed level with the default's alpha
    median: float
    level: float  # of the default, in the first version
    alpha: float


def measure(case: Case) -> Row:
    ours = [denoise(x) for x in case.noisy]
    shades = [one.shades for one in ours if one.shades is not None]
    old = best_level(case, [OLD_ALPHA] * len(ours))
    own = best_level(case, [one.alpha for one in shades])
    middle = sum(two_means(case.noisy[0])) / 2
    answers = {
        "noisy": [x > middle for x in case.noisy],
        "mean": [denoise(x, alpha=OLD_ALPHA, level=x.mean()).clean for x in case.noisy],
        "default": [one.clean for one in ours],
    }
    wrong = {k: sum(int((a != case.clean).sum()) for a in v) for k, v in answers.items()}
    wrong |= {"best": min(old, own), "best_old": old, "best_own": own}
    wrong["median"] = median_errors(case)
    percent = {k: 100 * n / (case.clean.size * len(ours)) for k, n in wrong.items()}
    return Row(
        case.name, case.noise, float(case.clean.mean()), level=shades[0].level,
        alpha=shades[0].alpha, **percent,
    )  # fmt: skip


def table(rows: list[Row]) -> str:
    """One line a picture, its noises side by side."""
    head = ["picture", "white", "noisy", "mean, alpha 5", "**default**", "best level, alpha 5"]
    head += ["best level, default's alpha", "3x3 median", "default's alpha"]
    body = []
    for name in dict.fromkeys(row.name for row in rows):
        mine = [row for row in rows if row.name == name]
        cells = [name, f"{mine[0].white:.0%}"]
        for field in ("noisy", "mean", "default", "best_old", "best_own", "median"):
            cells.append(" / ".join(f"{getattr(row, field):.3g}" for row in mine))
        cells.append(" / ".join(f"{row.alpha:.2g}" for row in mine))
        body.append(cells)
    return pages.table(head, body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of picture files; skipped where absent")
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--only", nargs="+", help="parts of names of pictures")
    parser.add_argument("--seed", type=int, default=0, help="of the first flips")
    parser.add_argument("--whole", action="store_true", help="do not cut large pictures")
    args = parser.parse_args()
    if args.data and not args.data.is_dir():
        print(f"{args.data}: no such folder; pictures of the package alone", file=sys.stderr)
        args.data = None
    rows = []
    for case in cases(args):
        rows.append(measure(case))
        print(rows[-1], file=sys.stderr, flush=True)
    print(table(rows) + "\n")
    lost = [f"{r.name}, {r.noise}" for r in rows if r.default > r.median]
    print(f"{len(rows)} cases; the median filter is better in {len(lost)}: {'; '.join(lost)}")
    over = [row for row in rows if row.default > BAR * row.best]
    told = "; ".join(f"{r.name}, {r.noise}: {r.default / max(r.best, 1e-9):.2f}" for r in over)
    print(f"more than {BAR:g} times the errors of the best level in {len(over)}: {told}")
    if any(row.noise != OWN for row in over):
        sys.exit(1)


if __name__ == "__main__":
    main()
