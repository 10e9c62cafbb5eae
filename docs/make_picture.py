"""Draw the README's picture: a noisy drawing, its marginals, and the cleaned drawing.

python docs/make_picture.py        # needs the extra "plot"
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from minfer import BeliefPropagation
from minfer.examples import picture

PAGE = Path(__file__).with_name("picture.png")


def main() -> None:
    drawing = picture()
    solver = BeliefPropagation()
    solver(drawing.graph)  # compile
    m = solver(drawing.graph)
    black = m.probs[1::2].reshape(drawing.clean.shape)
    clean = m.mpm().reshape(drawing.clean.shape)
    wrong = np.abs(black - 0.5) < 0.45
    panels = [
        (drawing.noisy, f"seen: {(drawing.noisy == drawing.clean).mean():.1%} of the pixels right"),
        (black, f"p(black | seen), {wrong.sum()} pixels in doubt"),
        (clean, f"most probable: {(clean == drawing.clean).mean():.1%} right"),
    ]
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), dpi=110)
    for axis, (values, title) in zip(axes, panels):
        axis.imshow(values, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        axis.set_title(title, fontsize=9)
        axis.set_xticks([])
        axis.set_yticks([])
    figure.tight_layout()
    figure.savefig(PAGE, metadata={"Software": None})


if __name__ == "__main__":
    main()
