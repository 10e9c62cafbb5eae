"""The paper, in reading order: seeds, gains, objectives, bound, infer."""
