"""An example worth copying: denoising with a learned CRF, against weights set by hand.

    python -m minfer_experiments.learned_denoising                  # a table
    python -m minfer_experiments.learned_denoising -o learned.png   # and a picture

Drawings under bimodal noise: each colour is one of two shades, and the two colours overlap, so no
threshold does well. A pixel's features are 1 and the 3x3 patch around it; neighbours look at how
much they differ. Ten noisy pictures of some drawings train, unseen drawings test. By hand: the
model of ``minfer denoise``, with level and strength estimated from each picture.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.images.denoising import denoise
from minfer.learn.grid import GridCRF
from minfer.learn.objectives import MarginalLoss
from minfer.pictures import base_pictures, bimodal
from minfer.solvers.trw import TreeReweighted

#: Two pixels may be alike, or differ by more than so much.
STEPS = (0.1, 0.2, 0.3, 0.4)


class Found(NamedTuple):
    """A test picture, and what was made of it."""

    clean: NDArray[np.bool_]
    noisy: NDArray[np.float64]
    by_hand: NDArray[np.bool_]
    learned: NDArray[np.bool_]


def patches(picture: NDArray) -> NDArray[np.float64]:
    """The 3x3 patch around each pixel, (H, W, 9)."""
    height, width = picture.shape
    wide = np.pad(picture, 1, mode="edge")
    return np.stack([wide[a : a + height, b : b + width] for a in range(3) for b in range(3)], -1)


def neighbours(left: NDArray, right: NDArray, above: NDArray) -> NDArray[np.float64]:
    """1, and whether two pixels differ by more than so much."""
    step = np.abs(left - right)[:, 4]
    return np.stack([np.ones(len(step)), *(step > t for t in STEPS)], axis=1)


def middle(picture: NDArray, side: int | None) -> NDArray:
    """A square from the middle, where drawings have both colours; all of it if ``side`` is None."""
    if side is None:
        return picture
    top, left = (max(n - side, 0) // 2 for n in picture.shape)
    return picture[top : top + side, left : left + side]


def learned_denoising(
    n_train: int = 10, epochs: int = 60, seed: int = 0, side: int | None = None
) -> tuple[GridCRF, list[Found]]:
    """Train on half of the drawings, test on the others; ``side`` cuts their middle out."""
    drawings = [middle(one, side) for one in base_pictures().values()]
    half = len(drawings) // 2
    train = [(drawings[k % half], np.random.default_rng([seed, k])) for k in range(n_train)]
    x = [patches(bimodal(clean, rng)) for clean, rng in train]
    y = [clean.astype(int) for clean, _ in train]
    crf = GridCRF(
        MarginalLoss(TreeReweighted(tol=1e-5)), edges=neighbours, method="adam", epochs=epochs,
        learning_rate=0.3,
    ).fit(x, y, evaluate_every=epochs)  # fmt: skip
    found = []
    for k, clean in enumerate(drawings[half:]):
        noisy = bimodal(clean, np.random.default_rng([seed, 1000 + k]))
        learned = crf.predict([patches(noisy)])[0] == 1
        found.append(Found(clean, noisy, denoise(noisy).clean, learned))
    return crf, found


def main() -> None:
    """The example as a command."""
    parser = argparse.ArgumentParser(description="denoising: a learned CRF against one set by hand")
    parser.add_argument("-o", "--out", help="a picture to write")
    parser.add_argument("--epochs", type=int, default=60, help="passes over the pictures")
    parser.add_argument("--train", type=int, default=10, help="pictures to train with")
    parser.add_argument("--side", type=int, help="cut out the middle, so many pixels wide and high")
    args = parser.parse_args()
    for name, least in (("train", 1), ("epochs", 1), ("side", 8)):
        if (value := getattr(args, name)) is not None and value < least:
            parser.error(f"--{name} must be at least {least}, not {value}")
    crf, found = learned_denoising(args.train, args.epochs, side=args.side)
    print(f"{'pixels wrong':<16}{'by hand':>10}{'learned':>10}")
    for k, one in enumerate(found):
        wrong = [float((one.clean != other).mean()) for other in (one.by_hand, one.learned)]
        print(f"drawing {k:<8}{wrong[0]:>10.2%}{wrong[1]:>10.2%}")
    print(f"\n{crf.fitted_!r}\n" + "\n".join(f"{n:<12}{w:8.3f}" for n, w in crf.coef_.items()))
    if args.out:
        draw(found, args.out)


def draw(found: list[Found], path: str) -> None:
    """Each test picture: seen, by hand, learned."""
    from minfer.pictures import write_figure
    from minfer.plots import pyplot

    plt = pyplot(headless=True)
    figure, axes = plt.subplots(len(found), 3, figsize=(7, 2.4 * len(found)), squeeze=False)
    for row, one in zip(axes, found):
        for ax, name in zip(row, ("noisy", "by_hand", "learned")):
            shown = getattr(one, name)
            wrong = "" if name == "noisy" else f": {(shown != one.clean).mean():.1%} wrong"
            ax.imshow(shown, cmap="gray")
            ax.set_title(name.replace("_", " ") + wrong, fontsize=9)
            ax.set_axis_off()
    figure.tight_layout()
    figure.set_dpi(110)
    write_figure(path, figure)
    plt.close(figure)


if __name__ == "__main__":
    main()
