"""Every parameter of every public call, found by inspection: a new public name is attacked without being listed here.

deltars.__all__ ──▶ functions, methods of classes ──▶ each with its parameters, keyword options included ──▶ Target

A call gets valid arguments for what it requires (`VALID`), and one hostile one. A class needs a way to get an object of
it (`RECEIVERS`), or it holds values only; a test checks that one of them is true.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, is_typeddict

import pyarrow as pa

import deltars
from tests.hostile.world import World, frame


@dataclass(frozen=True)
class Target:
    """One parameter of one public call."""

    owner: str
    """A class, a module, or nothing."""
    call: str
    parameter: str
    annotation: str

    def __str__(self) -> str:
        return f"{self.owner}.{self.call}({self.parameter})".removeprefix(".")


def _transaction(world: World) -> deltars.Transaction:
    return world.catalog.begin()


def _reader(world: World) -> deltars.SqlTxnLogReader:
    return deltars.SqlTxnLogReader(world.catalog)


def _writer(world: World) -> deltars.SqlTxnLogWriter:
    return deltars.SqlTxnLogWriter(world.catalog)


RECEIVERS: Mapping[str, Callable[[World], Any]] = {
    "Alter": lambda world: world.catalog.table("features").alter,
    "Catalog": lambda world: world.catalog,
    "CatalogSnapshot": lambda world: world.catalog.snapshot(),
    "Changes": lambda world: world.catalog.table("features").changes(1),
    "CommitInfo": lambda world: deltars.CommitInfo,
    "Maintainer": lambda world: world.catalog.maintainer(interval_s=0.01),
    "MergeBuilder": lambda world: _transaction(world).merge("features", frame(), "t.id = s.id"),
    "MultiTableTransaction": _transaction,
    "PrimitiveType": lambda world: deltars.PrimitiveType,
    "Reconciler": lambda world: world.catalog.reconciler(),
    "Scan": lambda world: world.catalog.table("features").scan(),
    "Snapshot": lambda world: world.catalog.table("features").snapshot(),
    "SqlTxnLogReader": _reader,
    "SqlTxnLogWriter": _writer,
    "StructType": lambda world: world.catalog.table("features").schema,
    "Table": lambda world: world.catalog.table("features"),
    "Transaction": _transaction,
    "TransactionResult": lambda world: world.catalog.write("features", frame()),
    "migrate": lambda world: deltars.migrate,
    "observe": lambda world: deltars.observe,
    "": lambda world: deltars,
}
"""How to get an object of each class that has methods."""

NOT_ATTACKED: Mapping[str, str] = {
    "TxnLogReader": "an interface; SqlTxnLogReader implements it",
    "TxnLogWriter": "an interface; SqlTxnLogWriter implements it",
    "SupportsArrowStream": "an interface of frames",
    "EachBatch": "Spark calls it",
    "FileSizes.of": "called by deltars",
    "Finding.of_error": "takes an error of ours",
    "Scan.of": "made by a snapshot",
    "Scan.of_snapshot": "made by a table",
    "observe.watch_pool": "called by the store",
    "observe.emit": "called by deltars",
    "observe.error_fields": "called by exporters, with an error of ours",
    "observe.Stopwatch": "called by deltars",
    ".diagnose": "starts Spark; the tests of the doctor call it",
    "observe.json_logs": "the tests of logs call it: it adds a handler for the rest of the process",
    "Maintainer.run": "runs until it is stopped",
    "Reconciler.run": "runs until it is stopped",
}
"""Calls that take nothing from a user, with the reason."""


def valid(world: World, target: Target, parameter: str, annotation: str) -> Any:
    """Return an argument that the call accepts, for a parameter that it requires."""
    special = _BY_CALL.get((target.call, parameter)) or _BY_NAME.get(parameter) or _by_annotation(annotation)
    if special is None:
        raise LookupError(f"{target}: add a valid argument for {parameter}: {annotation} to surface.py")
    return special(world)


_BY_CALL: Mapping[tuple[str, str], Callable[[World], Any]] = {
    ("rename_table", "name"): lambda world: "renamed",
    ("untag", "name"): lambda world: "first",
    ("tag", "name"): lambda world: "second",
    ("add_columns", "columns"): lambda world: "extra INT",
    ("cluster_by", "columns"): lambda world: "id",
    ("drop_column", "columns"): lambda world: "name",
    ("add_constraint", "name"): lambda world: "positive",
    ("drop_constraint", "name"): lambda world: "positive",
    ("commit", "version"): lambda world: 3,
    ("rebuild", "warehouse"): lambda world: str(world.root / "warehouse"),
    ("import_table", "location"): lambda world: str(world.root / "nothing"),
    ("convert_table", "location"): lambda world: str(world.root / "outside"),
    ("from_dict", "document"): lambda world: {},
    ("from_json", "text"): lambda world: world.catalog.table("features").schema.to_json(),
    ("of", "sizes"): lambda world: [1, 2],
    ("decimal", "precision"): lambda world: 10,
    ("decimal", "scale"): lambda world: 2,
    ("changes", "start"): lambda world: 1,
    ("read", "table"): lambda world: f"{world.uri}/features",
    ("write", "table"): lambda world: "features",
    ("when_not_matched_insert", "values"): lambda world: {"id": "s.id", "name": "s.name"},
    ("enable", "spark"): lambda world: None,
}

_BY_NAME: Mapping[str, Callable[[World], Any]] = {
    "name": lambda world: "fresh",
    "names": lambda world: {"features": "copied"},
    "location": lambda world: str(world.root / "warehouse" / "fresh"),
    "column": lambda world: "name",
    "new_name": lambda world: "label",
    "text": lambda world: "a comment",
    "type": lambda world: "STRING",
    "default": lambda world: "'x'",
    "condition": lambda world: "id > 0",
    "on": lambda world: "t.id = s.id",
    "properties": lambda world: {"owner": "me"},
    "query": lambda world: "SELECT id FROM features",
    "script": lambda world: "SELECT id FROM features",
    "statement": lambda world: "SELECT id FROM features",
    "function": lambda world: lambda tx: tx.write("features", frame()),
    "fn": lambda world: lambda tx, df: None,
    "level": lambda world: "strict",
    "keys": lambda world: "id",
    "sequence_by": lambda world: "id",
    "from_version": lambda world: 0,
    "version": lambda world: 1,
    "table_id": lambda world: world.catalog.table("features").id,
    "txn_id": lambda world: world.catalog.table("features").history()[0].txn_id,
    "actions": lambda world: [],
    "files": lambda world: [],
    "files_of_versions": lambda world: [],
    "operation": lambda world: "WRITE",
    "source": lambda world: frame(),
    "exporter": lambda world: lambda event: None,
    "spark": lambda world: None,
    "since": lambda world: world.catalog.table("features").history()[-1].txn_id,
    "set": lambda world: {"name": "'x'"},
    "values": lambda world: {"id": "7"},
    "older_than": lambda world: timedelta(days=30),
    "catalog": lambda world: world.uri,
}


def _by_annotation(annotation: str) -> Callable[[World], Any] | None:
    kinds: Mapping[str, Callable[[World], Any]] = {
        "TableLike": lambda world: "features",
        "Frame": lambda world: frame(),
        "Expression": lambda world: "id = 7",
        "SchemaLike": lambda world: "id BIGINT",
        "AsOf": lambda world: "first",
        "Assignments": lambda world: {"name": "'x'"},
    }
    return next((make for kind, make in kinds.items() if annotation.startswith(kind)), None)


# -- inspection --------------------------------------------------------------------------------------------------------


def owners() -> Iterator[tuple[str, Any, list[tuple[str, Any]]]]:
    """Yield each public class and module with its public calls; the functions of `deltars` itself as owner ""."""
    functions: list[tuple[str, Any]] = []
    for name in sorted(deltars.__all__):
        value = getattr(deltars, name)
        if inspect.ismodule(value):
            yield (
                name,
                value,
                [
                    (each, getattr(value, each))
                    for each in sorted(value.__all__)
                    if inspect.isfunction(getattr(value, each))
                ],
            )
        elif inspect.isfunction(value):
            functions.append((name, value))
        elif isinstance(value, type) and not issubclass(value, Exception | Enum) and not is_typeddict(value):
            yield name, value, list(_methods(value))
    yield "", deltars, functions


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    for name, member in sorted(inspect.getmembers(cls)):
        home = next((base for base in cls.__mro__ if name in vars(base)), cls)
        if (
            not name.startswith("_")
            and home.__module__.startswith("deltars.")
            and (inspect.isfunction(member) or inspect.ismethod(member))
        ):
            yield name, member


def parameters(function: Callable[..., Any]) -> Iterator[tuple[str, str, bool]]:
    """Yield name, annotation and whether it is required, of each parameter; those of `**options` one by one."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            for name in _options(str(parameter.annotation)):
                yield name, "option", False
        else:
            yield parameter.name, str(parameter.annotation), parameter.default is parameter.empty


def _options(annotation: str) -> list[str]:
    name = annotation.removeprefix("Unpack[").removesuffix("]")
    known = getattr(deltars, name, None)
    return list(getattr(known, "__annotations__", {}))


def targets() -> list[Target]:
    """Return every parameter of every public call."""
    return [
        Target(owner, call, parameter, annotation)
        for owner, _, calls in owners()
        if owner not in NOT_ATTACKED and owner != "MultiTableTransaction"  # the same class as Transaction
        for call, function in calls
        if f"{owner}.{call}" not in NOT_ATTACKED
        for parameter, annotation, _ in parameters(function)
    ]


def call(world: World, target: Target, payload: Any) -> Any:
    """Make the call with one hostile argument, and take what it returns to its end."""
    receiver = RECEIVERS[target.owner](world)
    function = getattr(receiver, target.call)
    given: dict[str, Any] = {}
    for name, annotation, is_required in parameters(function):
        if name == target.parameter:
            given[name] = payload
        elif is_required:
            given[name] = valid(world, target, name, annotation)
    if target.owner == "" and target.call not in ("connect", "rebuild", "diagnose", "enable"):
        given.setdefault("catalog", world.uri) if "catalog" in inspect.signature(function).parameters else None
    result = function(**given)
    return _finished(receiver, result)


def _finished(receiver: Any, result: Any) -> Any:
    """Commit, execute or read what a call has only prepared."""
    if isinstance(result, deltars.MergeBuilder):
        result = result.when_matched_update_all() if not getattr(result, "_clauses", None) else result
        result = result.execute()
    if isinstance(receiver, deltars.Transaction):
        return receiver.commit()
    if isinstance(result, deltars.Transaction):
        result.write("features", frame())
        return result.commit()
    if isinstance(result, deltars.Catalog):
        names = [table.name for table in result.tables()]
        result.close()
        return names
    if isinstance(result, deltars.Changes):
        return result.to_arrow()
    if isinstance(result, pa.RecordBatchReader):
        return result.read_all()
    if isinstance(result, deltars.Scan):
        return result.files
    if inspect.isgenerator(result) or isinstance(result, Iterator):
        return list(result)
    return result
