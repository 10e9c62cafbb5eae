"""Draw the README's picture: a noisy drawing, the denoised one, and the factors that were kept.

python docs/make_picture.py        # needs the extra "plot"
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from minfer import BeliefPropagation, MinJoint
from minfer.images.denoising import FACTOR_COST, denoise, picture_model
from minfer.pictures import base_pictures, gaussian

PAGE = Path(__file__).with_name("picture.png")


def main() -> None:
    clean = base_pictures()["house"]
    noisy = gaussian(clean, 0.45, np.random.default_rng(7))
    paper = {"alpha": 5.0, "level": noisy.mean()}
    found = denoise(noisy, objective=MinJoint(FACTOR_COST), **paper)
    full = BeliefPropagation(tol=1e-8)(picture_model(noisy, **paper)[0])
    off = np.abs(found.result.marginals.probs - full.probs).mean()
    seen = ((noisy > noisy.mean()) == clean).mean()
    panels = [
        (np.clip(noisy, -0.5, 1.5), f"noisy: {seen:.1%} of the pixels right", "gray"),
        (found.clean, f"denoised: {(found.clean == clean).mean():.1%} right", "gray"),
        (
            found.kept,
            f"kept: {found.result.kept_share:.0%} of the pairs (error {off:.0e})",
            "viridis",
        ),
    ]
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), dpi=110)
    for axis, (values, title, colours) in zip(axes, panels):
        axis.imshow(values, cmap=colours, interpolation="nearest")
        axis.set_title(title, fontsize=9)
        axis.set_xticks([])
        axis.set_yticks([])
    figure.tight_layout()
    figure.savefig(PAGE, metadata={"Software": None})


if __name__ == "__main__":
    main()
