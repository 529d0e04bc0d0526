"""What a commit and a read need, imported and used once, for a process that is then forked again and again."""

from __future__ import annotations

import tempfile

import psycopg  # noqa: F401
import pyarrow as pa
import sqlalchemy.dialects.postgresql.psycopg  # noqa: F401

import deltars


def rehearse() -> None:
    with (
        tempfile.TemporaryDirectory() as place,
        deltars.connect(f"deltasql://sqlite/{place}/lake.db", warehouse=f"{place}/lake", migrate=True) as lake,
    ):
        rows = pa.table({"id": [1, 2, 3]})
        lake.write("t", rows)
        table = lake.table("t")
        with lake.begin() as tx:
            tx.write("t", rows)
            tx.delete("t", "id = 1")
            tx.files("t", "id = 2")
        table.to_arrow()
        file = deltars.AddFile(path="f", partition_values={}, size=1, modification_time=1, data_change=True)
        deltars.SqlTxnLogWriter(lake).commit(table.id, table.version + 1, [file], operation="WRITE")


rehearse()
