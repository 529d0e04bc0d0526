"""Rows of the demo: features of customers, and labels that say whether they left. The same on every run."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def features_of(customers: Sequence[int], batch: int) -> pa.Table:
    spend = [(customer * 37 + batch * 11) % 500 / 2 for customer in customers]
    visits = pa.array([(customer * 3 + batch) % 30 for customer in customers], pa.int32())
    return pa.table({**_keys(customers, batch), "spend_30d": spend, "visits_30d": visits})


def labels_of(customers: Sequence[int], batch: int) -> pa.Table:
    return pa.table({**_keys(customers, batch), "churned": [(c * 7 + batch) % 5 == 0 for c in customers]})


def _keys(customers: Sequence[int], batch: int) -> dict[str, pa.Array]:
    return {"customer": pa.array(customers, pa.int64()), "batch": pa.array([batch] * len(customers), pa.int32())}
