"""Every lane of the benchmark, by name. A lane that is not here is not run."""

from __future__ import annotations

from benchmarks import (
    activity,
    bulk,
    commits,
    growth,
    imports,
    maintenance,
    mirror,
    observe,
    reading,
    row_changes,
    scale,
    spark,
    spark_scale,
    streams,
    transactions,
    vacuum,
)
from benchmarks.lane import Lane

_MODULES = (
    commits,
    activity,
    transactions,
    bulk,
    imports,
    reading,
    growth,
    scale,
    mirror,
    observe,
    spark,
    streams,
    row_changes,
    maintenance,
    vacuum,
    spark_scale,
)

LANES: dict[str, Lane] = {lane.name: lane for module in _MODULES for lane in module.LANES}
