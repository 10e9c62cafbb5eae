"""How true probabilities are, of anything that comes true or not.

Cases are sorted into bins by the probability they were given. Of those in a bin, the share that
came true should be the mean probability:

    ECE   = sum_b n_b / n |right_b - mean_b|        (expected calibration error)
    Brier = mean (p_i - right_i)^2

Both are 0 for who is certain and always right; the first also for who knows exactly how often it is
wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.notebook import Face, Right
from minfer.basics.words import counted, plain
from minfer.pictures import write_figure
from minfer.plots import binned, pyplot


@dataclass(frozen=True, eq=False)
class Calibration:
    """Probabilities against what was right."""

    edges: NDArray[np.float64]  # (B + 1,) of the bins, from 0 to 1
    counts: NDArray[np.int64]  # (B,) cases in each
    probs: NDArray[np.float64]  # (B,) mean probability, NaN in an empty bin
    right: NDArray[np.float64]  # (B,) share that is right, likewise
    ece: float
    brier: float
    of: str = "case"  # what is counted
    chosen: str = "answers"  # what the probabilities are of

    def face(self) -> Face:
        """A row for each bin."""
        rows: list[tuple[object, ...]] = []
        for k, count in enumerate(self.counts.tolist()):
            told: tuple[object, ...] = ("", "", "")
            if count:
                bar = "#" * round(20 * self.right[k])
                told = Right(f"{self.probs[k]:.3f}"), Right(f"{self.right[k]:.3f}"), bar
            rows.append((f"{self.edges[k]:.1f} to {self.edges[k + 1]:.1f}", count, *told))
        return Face(str(self), ("probability", f"{self.of}s", "mean", "right", ""), rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        numbers = dict(vars(self))
        del numbers["of"], numbers["chosen"]
        return plain(numbers)

    def draw(self, path: str) -> None:
        """A reliability plot: the share that is right against the probability, counts below."""
        plt = pyplot("the figure needs", headless=True)
        figure, (top, low) = plt.subplots(
            2, 1, figsize=(5, 6), dpi=110, sharex=True, height_ratios=(3, 1)
        )
        full = self.counts > 0
        top.plot([0, 1], [0, 1], color="grey", linewidth=1, label="true probabilities")
        top.plot(self.probs[full], self.right[full], "o-", color="tab:blue", label=self.chosen)
        title = f"ECE {self.ece:.4f}, Brier {self.brier:.4f}"
        top.set(ylabel="share right", title=title, ylim=(0, 1.02))
        top.legend(frameon=False)
        width = self.edges[1] - self.edges[0]
        low.bar(self.edges[:-1] + width / 2, self.counts, width=0.9 * width, color="tab:blue")
        low.set(xlabel="probability", ylabel=f"{self.of}s", yscale="log", xlim=(0, 1.02))
        for axis in (top, low):
            axis.grid(alpha=0.3)
        figure.tight_layout()
        write_figure(path, figure)
        plt.close(figure)

    def __str__(self) -> str:
        cases = counted(int(self.counts.sum()), self.of)
        return f"ECE {self.ece:.4f}, Brier {self.brier:.4f} ({cases})"


def calibration(
    probs: ArrayLike, right: ArrayLike, bins: int = 10, of: str = "case", chosen: str = "answers"
) -> Calibration:
    """Compare probabilities (N,) with what came true (N,).

    >>> print(calibration([0.8, 0.8, 0.8, 0.8, 0.8], [1, 1, 1, 1, 0]))
    ECE 0.0000, Brier 0.1600 (5 cases)
    """
    p, came, counts, mean, share, error = binned(probs, right, bins)
    brier = float(((p - came) ** 2).mean())
    return Calibration(np.linspace(0, 1, bins + 1), counts, mean, share, error, brier, of, chosen)
