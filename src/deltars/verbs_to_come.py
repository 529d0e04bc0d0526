"""Verbs that people know from Delta and that deltars does not have yet, or has under another name or on another object.

deltars clone features ──▶ cli/root.py ───────────────┐
                                                      ├──▶ VERBS ──▶ NotSupportedYet: what, and what to do today
catalog.table("features").clone() ──▶ RefusesVerbs ───┘
catalog.delete("features", "id = 1") ──▶ RefusesVerbs ──▶ CALLS ──▶ NotSupportedYet: the call that does it
from deltars import DeltaTable ──▶ refuse_import ──▶ NAMES ──▶ NotImportable: the call that does it

When a verb is built, delete its line.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

from deltars.errors import NotImportable, NotSupportedYet


class Verb(NamedTuple):
    """A verb that is not there yet."""

    what: str
    """What it would do, after "cannot"."""
    today: str
    """What works today, in Python."""
    command: str | None = None
    """What works today on the command line, if anything does."""


VERBS = {
    "clone": Verb("clone a table without copying its files", "catalog.copy_table(source, copy) makes a deep copy"),
    "savepoint": Verb("set a savepoint", "begin a transaction for each part that may fail alone"),
}
"""By the name that people try."""

_UPSERT = 'merge(…, rows, on="t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()'
_UPSERT_TABLE = _UPSERT.replace("…, ", "")
_BATCHES = "stream.writeStream.foreachBatch(…) (docs/how-to.md#write-a-stream)"
_SOURCE = 'spark.readStream.format("deltasql").load(uri) (docs/streams.md)'
_CLAUSES = (
    "when_matched_update",
    "when_matched_update_all",
    "when_matched_delete",
    "when_not_matched_insert",
    "when_not_matched_insert_all",
    "when_not_matched_by_source_update",
    "when_not_matched_by_source_delete",
    "with_schema_evolution",
)

CALLS: Mapping[str, Mapping[str, str]] = {
    "Catalog": {
        "stream": "deltars.transactions_stream(spark, tables, catalog=catalog)",
        "transactions_stream": "deltars.transactions_stream(spark, tables, catalog=catalog)",
        "delete": "catalog.table(name).delete(where)",
        "update": "catalog.table(name).update(set, where)",
        "merge": "catalog.table(name).merge(rows, on)",
        "upsert": f"catalog.table(name).{_UPSERT_TABLE}",
        "alter": "catalog.table(name).alter",
        "convert": "catalog.convert_table(location)",
        "convertToDelta": "catalog.convert_table(location)",
        "optimise": "catalog.optimize()",
        "compact": "catalog.optimize()",
        "zorder": "catalog.table(name).optimize(zorder_by=[…])",
        "z_order": "catalog.table(name).optimize(zorder_by=[…])",
        "forName": "catalog.table(name)",
        "forPath": "catalog.import_table(location)",
        "loadTable": "catalog.table(name)",
        "load_table": "catalog.table(name)",
        "listTables": "catalog.tables()",
        "list_tables": "catalog.tables()",
        "tableExists": "catalog.table_exists(name)",
        "createTable": "catalog.create_table(name, schema)",
        "create_table_if_not_exists": "catalog.create_table(name, schema, if_not_exists=True)",
        "dropTable": "catalog.drop_table(name)",
        "purge_table": "catalog.drop_table(name, delete_data=True)",
        "read_table": "catalog.read(name)",
        "to_pandas": "catalog.table(name).to_pandas()",
        "to_arrow": "catalog.table(name).to_arrow()",
        "to_polars": "catalog.table(name).to_polars()",
        "history": "catalog.table(name).history()",
        "table_changes": "catalog.table(name).changes(start, end)",
        "count": "catalog.table(name).count()",
        "append": "catalog.write(name, rows)",
        "overwrite": 'catalog.write(name, rows, "overwrite")',
        "execute": "catalog.sql(statement), or catalog.sql_script(script)",
        "create_tag": "catalog.tag(name)",
        "delete_tag": "catalog.untag(name)",
        "expire_snapshots": "catalog.expire(older_than)",
        "create_namespace": 'catalog.create_table("sales.orders", schema): the first table makes its namespace',
        "list_namespaces": "catalog.namespaces()",
        "list_views": "catalog.tables(): a catalog has no views",
        "describe": "catalog.table(name).detail()",
    },
    "Scan": {
        "to_arrow": "table.to_arrow(where=…, columns=[…])",
        "to_pandas": "table.to_pandas(where=…, columns=[…])",
        "to_polars": "table.to_polars(where=…, columns=[…])",
        "to_duckdb": "table.to_duckdb(name, where=…)",
    },
    "Table": {
        "optimise": "table.optimize()",
        "compact": "table.optimize()",
        "zorder": "table.optimize(zorder_by=[…])",
        "z_order": "table.optimize(zorder_by=[…])",
        "upsert": f"table.{_UPSERT_TABLE}",
        "alias": 'table.merge(rows, on="t.id = s.id", target_alias="t", source_alias="s")',
        "append": "table.write(rows)",
        "overwrite": 'table.write(rows, "overwrite")',
        "truncate": "table.delete()",
        "drop": "catalog.drop_table(table)",
        "rename": "catalog.rename_table(table, name)",
        "columns": "table.schema.names",
        "show": "table.head()",
        "limit": "table.head(10)",
        "filter": 'table.to_pandas(where="id > 1")',
        "where": 'table.to_pandas(where="id > 1")',
        "select": 'table.to_pandas(columns=["id"])',
        "write_stream": _BATCHES,
        "writeStream": _BATCHES,
        "stream": _SOURCE,
        "readStream": _SOURCE,
        "tail": "deltars tail TABLE, or table.history(since=version)",
        "toDF": "table.read()",
        "toPandas": "table.to_pandas()",
        "toArrow": "table.to_arrow()",
        "restoreToVersion": "table.restore(version)",
        "restoreToTimestamp": "table.restore(timestamp=…)",
        "insert": "table.write(rows)",
        "maintain": "catalog.maintain([table])",
        "advise": "catalog.advise([table])",
        "statistics": "catalog.statistics([table])",
        "tag": "catalog.tag(name), which tags the whole catalog",
        "expire_snapshots": "table.expire(older_than)",
        "cdf": "table.changes(start, end)",
        "load_cdf": "table.changes(start, end).to_arrow()",
        "table_changes": "table.changes(start, end).read()",
        "readChangeFeed": "table.changes(start, end).read()",
        "metadata": "table.detail()",
        "file_uris": "table.files()",
        "to_df": "table.read()",
        "to_pyarrow_table": "table.to_arrow()",
        "to_pyarrow_dataset": "table.to_arrow_batch_reader()",
        "to_table": "table.to_arrow()",
        "load_as_version": "table.to_pandas(version=1), or table.snapshot(1)",
        "load_version": "table.to_pandas(version=1), or table.snapshot(1)",
        "load_with_datetime": "table.to_pandas(timestamp=…), or table.snapshot(timestamp=…)",
        "as_of": "table.to_pandas(as_of=…), or table.snapshot(as_of=…)",
        "current_snapshot": "table.snapshot()",
        "snapshots": "table.history()",
        "inspect": "table.history(), table.files() or table.detail(partitions=True)",
        "refresh": "table.version: it is read each time, and so are the rows",
        "update_incremental": "table.version: it is read each time, and so are the rows",
        "dtypes": "table.schema",
        "printSchema": "print(table.schema)",
        "shape": "table.count() and table.schema.names",
        "groupBy": 'table.read().groupBy("day")',
        "groupby": 'table.to_pandas().groupby("day")',
        "join": "table.read().join(other.read(), on)",
        "collect": "table.to_arrow()",
        "iterrows": "table.to_pandas().iterrows()",
        "describe": "table.detail()",
        "isDeltaTable": "catalog.table_exists(name)",
        "is_deltatable": "catalog.table_exists(name)",
        "upgradeTableProtocol": "table.alter.set_properties(…): a property brings the features that it needs",
        "addFeatureSupport": "table.alter.set_properties(…): a property brings the features that it needs",
        "dropFeatureSupport": "table.drop_feature(feature)",
        "add_feature": "table.alter.set_properties(…): a property brings the features that it needs",
        "partitions": "table.detail(partitions=True)",
        "get_add_actions": "table.files()",
        "repair": "table.verify(), which says what is wrong",
        "create_checkpoint": "nothing: checkpoints are published by themselves",
        "transaction": "catalog.begin()",
        "cluster_by": "table.alter.cluster_by(columns)",
        "clusterBy": "table.alter.cluster_by(columns)",
        "rename_column": "table.alter.rename_column(column, new_name)",
        "drop_column": "table.alter.drop_column(column)",
        "add_columns": "table.alter.add_columns(columns)",
    },
    "TransactionResult": {
        "version": 'result.versions["features"]',
    },
    "Alter": {
        "add_column": 'table.alter.add_columns("note STRING")',
        "rename": "table.alter.rename_column(column, new_name)",
        "rename_columns": "table.alter.rename_column(column, new_name)",
        "drop_columns": "table.alter.drop_column([column, …])",
        "change_column": "table.alter.change_type(column, type) or table.alter.move_column(column, after=…)",
        "alter_column": "table.alter.change_type(column, type) or table.alter.move_column(column, after=…)",
        "set_type": "table.alter.change_type(column, type)",
        "drop_not_null": "table.alter.set_nullable(column)",
        "drop_column_not_null": "table.alter.set_nullable(column)",
        "set_table_properties": "table.alter.set_properties({…})",
        "clusterBy": "table.alter.cluster_by(columns)",
        "addColumn": 'table.alter.add_columns("note STRING")',
        "setTableProperties": "table.alter.set_properties({…})",
        "setProperties": "table.alter.set_properties({…})",
        "add_check": "table.alter.add_constraint(name, condition)",
        "set_comment": "table.alter.comment(column, text)",
        "set_table_name": "catalog.rename_table(table, name)",
    },
    "Transaction": {
        "optimize": "table.optimize() after the transaction: it commits several times by itself",
        "tag": "catalog.tag(name) after the transaction",
        "expire": "catalog.expire() after the transaction",
        "upsert": f"tx.{_UPSERT}".replace("…", "table"),
        "vacuum": "catalog.vacuum([table])",
        "table": "tx.read(table)",
        "count": 'tx.to_arrow(table, columns=["id"]).num_rows',
        "append": "tx.write(table, rows)",
        "overwrite": 'tx.write(table, rows, "overwrite")',
        "execute": "tx.sql(statement)",
        "toPandas": "tx.to_pandas(table)",
    },
    "CatalogSnapshot": {
        "count": 'cut.to_arrow(table, columns=["id"]).num_rows',
        "history": "catalog.table(name).history()",
        "write": "catalog.write(name, rows): a cut is only read",
        "toPandas": "cut.to_pandas(table)",
    },
    "Optimized": {
        "executeCompaction": "table.optimize(), which has compacted the files already",
        "executeZOrderBy": "table.optimize(zorder_by=[…]); table.optimize() has compacted the files already",
        "compact": "table.optimize(), which has compacted the files already",
        "z_order": "table.optimize(zorder_by=[…]); table.optimize() has compacted the files already",
        "where": "table.optimize(where); table.optimize() has compacted the files of all rows already",
    },
    "MergeBuilder": {
        "".join([first, *map(str.capitalize, rest)]): f"{'_'.join((first, *rest))}(…)"
        for first, *rest in (clause.split("_") for clause in _CLAUSES)
    },
}
"""The call that does it, by the class of the object and the name that people try on it."""

NAMES: Mapping[str, str] = {
    "DeltaTable": "from deltars.tables import DeltaTable",
    "DeltaTableBuilder": "from deltars.tables import DeltaTableBuilder",
    "DeltaMergeBuilder": "from deltars.tables import DeltaMergeBuilder",
    "DeltaOptimizeBuilder": "from deltars.tables import DeltaOptimizeBuilder",
    "IdentityGenerator": "from deltars.tables import IdentityGenerator",
    "configure_spark_with_delta_pip": "builder.getOrCreate() alone: deltars needs no JAR in Spark",
    "delta": "from deltars.tables import DeltaTable",
    "write_deltalake": "deltars.write(table, rows), or catalog.write(table, rows)",
    "convert_to_deltalake": "deltars.connect(…).convert_table(location)",
    "read_table": "deltars.read(table)",
    "scan_delta": "deltars.table(uri).to_polars()",
    "read_delta": "deltars.table(uri).to_polars()",
    "delete": "deltars.table(uri).delete(where)",
    "update": "deltars.table(uri).update(set, where)",
    "merge": "deltars.table(uri).merge(rows, on)",
    "create_table": "deltars.connect(…).create_table(name, schema)",
    "drop_table": "deltars.connect(…).drop_table(name)",
    "history": "deltars.table(uri).history()",
    "restore": "deltars.table(uri).restore(version)",
    "run": "deltars.connect(…).run(function)",
    "open": "deltars.connect(…)",
    "load_catalog": "deltars.connect(…)",
    "load_table": "catalog = deltars.connect(…), then catalog.table(name), or deltars.table(uri)",
    "SqlCatalog": "deltars.connect(…)",
    "optimize": "deltars.table(uri).optimize()",
    "vacuum": "deltars.table(uri).vacuum()",
    "tag": "deltars.connect(…).tag(name)",
}
"""What to write for a name that people import from `deltars`, as from delta-spark and deltalake."""


_OTHERS = {
    "Catalog": ". A table is opened by its name: catalog.table(name)",
    "CatalogSnapshot": ". A table is read by its name: cut.to_pandas(name), cut.read(name)",
    "Table": ". Columns are read by table.to_pandas(columns=[…]), rows by table.read()",
    "TransactionResult": ". Versions are in result.versions, by the name of the table",
}
"""What to do about a name that nothing is known about. People take tables and columns for attributes or keys."""


def verb_to_come(name: str) -> Verb | None:
    """Return the verb of this name, or None if it is no verb that people know from Delta."""
    return VERBS.get(name)


def refuse_verb(kind: str, name: str) -> None:
    """Raise `NotSupportedYet` for a verb that is not there yet, or has another name than people try on this kind."""
    call = CALLS.get(kind, {}).get(name)
    if call is not None:
        raise NotSupportedYet(f"{kind} has no {name}", hint=f"Write {call}.")
    verb = verb_to_come(name)
    if verb is not None:
        raise NotSupportedYet(f"deltars cannot {verb.what} yet", hint=f"Today: {verb.today}.")


def refuse_import(name: str) -> None:
    """Raise `NotImportable` for a name that people try to import from `deltars`.

    It is no AttributeError: Python would replace one by its own ImportError, without the hint.
    """
    if name in NAMES:
        raise NotImportable(f"deltars has no {name}", hint=f"Write {NAMES[name]}.")
    verb = verb_to_come(name)
    if verb is not None:
        raise NotImportable(f"deltars cannot {verb.what} yet", hint=f"Today: {verb.today}.")


def _meant(kind: type, name: str) -> str:
    close = get_close_matches(name, dir(kind), n=1, cutoff=0.75)
    return f". Did you mean {close[0]}?" if close else _OTHERS.get(kind.__name__, "")


class RefusesVerbs:
    """Base of what a user holds: a verb that is not there yet raises `NotSupportedYet`, an AttributeError."""

    __slots__ = ()

    if not TYPE_CHECKING:  # With __getattr__, a type checker would accept every name.

        def __getattr__(self, name):
            refuse_verb(type(self).__name__, name)
            meant = "" if name.startswith("_") else _meant(type(self), name)
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{meant}", name=name, obj=self
            )

        def __getitem__(self, key):
            kind = type(self).__name__
            raise TypeError(f"{kind!r} object has no keys and no rows to go through{_OTHERS.get(kind, '')}")
