"""The measured sections of docs/reference/parsing.md, from the results of benchmarks/parsing.py."""

from __future__ import annotations

from statistics import mean
from typing import Any

from minfer_experiments.pages import table


def sections(results: dict[str, Any]) -> dict[str, str]:
    """What stands between the page's marks, by name."""
    return {name: make(results[name]) for name, make in SECTIONS.items() if name in results}


def accuracy(rows: list[dict[str, Any]]) -> str:
    def row(language: str, tags: str, order: int) -> list[str]:
        found = [
            r for r in rows
            if (r["language"], r["tags"], r["order"]) == (language, tags, order)
        ]  # fmt: skip
        uas = [r["uas"] for r in found]
        return [
            language, tags, {1: "first", 2: "second"}[order],
            f"**{mean(uas):.2f}** ({min(uas):.2f} to {max(uas):.2f})",
            *(f"{mean(r[k] for r in found):.2f}" for k in ("uas_no_punct", "las", "las_no_punct")),
            f"{mean(r['upos'] for r in found):.2f}" if tags == "predicted" else "",
            *(f"{mean(r[k] for r in found):.3f}" for k in ("ece", "fitted_ece")),
        ]  # fmt: skip

    languages = dict.fromkeys(r["language"] for r in rows)
    lines = [row(x, tags, k) for x in languages for tags in ("gold", "predicted") for k in (1, 2)]
    titles = ["", "tags", "order", "UAS", "UAS, no punctuation", "LAS", "LAS, no punctuation"]
    return table([*titles, "UPOS", "ECE", "ECE, calibrated"], lines)


def training(row: dict[str, Any]) -> str:
    return (
        f"EWT (12,544 sentences, 204,577 words), tagger and labeller included: {row['cpu']:.0f} s "
        f"of CPU time, {row['wall']:.0f} s on the clock, at most {row['peak'] / 1e9:.2f} GB of "
        "memory, with kernels compiled."
    )


def equal_accuracy(rows: list[dict[str, Any]]) -> str:
    lines = [
        [
            r["language"], r["method"], f"{r['scored']:.2f}", f"{r['kept']:.2f}",
            f"{r['uas']:.2f}", f"{r['gap']:+.2f} [{r['low']:+.2f}, {r['high']:+.2f}]",
        ]
        for r in rows
    ]  # fmt: skip
    titles = ["", "method", "% of pairs scored", "% kept", "UAS", "against full BP (95 %)"]
    return table(titles, lines)


def speed(rows: list[dict[str, Any]]) -> str:
    names = ("features", "arcs", "seed", "pairs", "BP", "tree", "relations")
    full = {r["slice"]: r for r in rows if r["method"] == "full BP"}

    def ratio(row: dict[str, Any], phases: int) -> str:
        whole = full[row["slice"]]
        return f"{sum(whole['phases'][:phases]) / sum(row['phases'][:phases]):.1f}x"

    lines = [
        [
            f"{r['slice']} ({r['sentences']:,})", r["method"],
            *(f"{1e6 * x / r['sentences']:.0f}" for x in r["phases"]),
            f"{1e6 * r['seconds'] / r['sentences']:.0f}",
            f"{r['words'] / r['seconds']:,.0f}", ratio(r, len(names)), ratio(r, len(names) - 1),
        ]
        for r in rows
    ]  # fmt: skip
    titles = ["sentences", "method", *names, "µs a sentence", "words/s", "over full BP"]
    return table([*titles, "unlabelled"], lines)


def files(rows: list[dict[str, Any]]) -> str:
    lines = [[r["what"], f"{r['words_per_second']:,.0f}"] for r in rows]
    return table(["", "words/s"], lines)


SECTIONS = {
    "accuracy": accuracy,
    "equal accuracy": equal_accuracy,
    "speed": speed,
    "files": files,
    "training": training,
}
