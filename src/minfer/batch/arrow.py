"""pyarrow, or a sentence that says how to get it."""

from __future__ import annotations

from minfer.errors import RefusedError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    raise RefusedError(
        "batches need pyarrow, which is not installed: pip install 'minfer[batch]'"
    ) from None

__all__ = ["pa", "pq"]
