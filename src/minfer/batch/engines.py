"""A job's function in the shapes that other engines call.

Each loads the model and warms the kernels once per process that uses it. The engines themselves
are not imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import pyarrow as pa

from minfer.batch.jobs import BatchFunction, Job

_started = lru_cache(maxsize=4)(lambda job, format: job.start(format))


class over_table:
    """Arrow table in, Arrow table out: Ray Data's ``map_batches``, Dask's partitions.

    An instance pickles as its job; the function is started where it is first called.
    """

    def __init__(self, job: Job, format: str = "parquet") -> None:
        self.job, self.format = job, format

    def __call__(self, table: pa.Table) -> pa.Table:
        function: BatchFunction = _started(self.job, self.format)
        batches = table.combine_chunks().to_batches()
        schema = self.job.schema(self.format)
        return pa.Table.from_batches([function(batch) for batch in batches], schema)


def map_in_arrow(
    job: Job, format: str = "parquet"
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Record batches in, record batches out: the function that Spark's ``mapInArrow`` takes."""

    def function(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from map(_started(job, format), batches)

    return function
