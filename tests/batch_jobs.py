"""A job without kernels, for tests of the engines: quick to start, slow enough to be killed."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from minfer.batch import Job, run


@dataclass(frozen=True)
class Shout(Job):
    """Words in capitals; a sentence with `boom` is bad. Notes the process of every batch."""

    seconds: float = 0.0
    pids: str = ""

    name = "shout"
    rows = 8
    columns: ClassVar = {"id": pa.string(), "conllu": pa.binary()}
    tables = ("conllu",)
    formats = ("conllu",)

    def settings(self):
        return {"job": self.name}

    def check_columns(self, where, names):
        pass

    def schema(self, format):
        return pa.schema([(name, pa.string()) for name in ("place", "id", "conllu", "error")])

    def start(self, format):
        def function(batch):
            time.sleep(self.seconds)
            if self.pids:
                with open(self.pids, "a") as file:
                    file.write(f"{os.getpid()}\n")
            texts = [text.decode() for text in batch.column("conllu").to_pylist()]
            bad = ["boom" in text for text in texts]
            good = [None if b else text.upper() for b, text in zip(bad, texts)]
            wrong = ["it said boom" if b else None for b in bad]
            none = [None] * len(texts)
            columns = [batch.column("place"), none, good, wrong]
            return pa.record_batch(columns, schema=self.schema(format))

        return function


def write_corpus(path: Path, sentences: int, bad: tuple[int, ...] = (), end: str = "\n") -> None:
    """So many sentences, numbered, of one to five words."""
    with open(path, "w", newline="") as file:
        for k in range(sentences):
            words = [f"word{k}"] + ["boom"] * (k in bad) + ["and"] * (k % 4)
            rows = [f"{i}\t{w}" + "\t_" * 8 + end for i, w in enumerate(words, 1)]
            file.write(f"# sent_id = {k}{end}" + "".join(rows) + end)


if __name__ == "__main__":
    source, out, shard_bytes, workers, seconds, pids = sys.argv[1:]
    run(
        Shout(float(seconds), pids),
        [source],
        out,
        shard_bytes=int(shard_bytes),
        workers=int(workers),
    )
    import resource

    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
