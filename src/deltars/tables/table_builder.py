"""DeltaTableBuilder: a table described column by column, then created or replaced."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, LongType, StructField, StructType

from deltars.catalog.table_path import find_at, free_name, location_at
from deltars.enabled.options import new_table_properties
from deltars.errors import TableExists
from deltars.log.new_table import NO_VERSION
from deltars.protocol import as_schema
from deltars.session import CatalogSession
from deltars.tables.binding import (
    BoundTable,
    block_transaction,
    imports_paths,
    name_in,
    path_in,
    session_of,
    shown_path,
)
from deltars.tables.exceptions import (
    DeltaAnalysisException,
    DeltaUnsupportedOperationException,
    deltas_errors,
    refuse,
    spark_error,
)
from deltars.transaction import Transaction, commit_new_table

if TYPE_CHECKING:
    from deltars.tables.delta_table import DeltaTable

Verb: TypeAlias = Literal["create", "createIfNotExists", "replace", "createOrReplace"]

_GENERATION = "delta.generationExpression"


@dataclass
class IdentityGenerator:
    """Numbers that an identity column counts: from `start`, in steps of `step`."""

    start: int = 1
    step: int = 1


class DeltaTableBuilder:
    """Made by `DeltaTable.create()` and its like. Each method returns this builder; `execute` makes the table."""

    def __init__(self, spark: SparkSession, verb: Verb, tx: Transaction | None = None) -> None:
        self._spark = spark
        self._verb = verb
        self._given = self._tx = tx
        self._name: str | None = None
        self._location: str | None = None
        self._comment: str | None = None
        self._columns: list[StructField] = []
        self._partition_by: tuple[str, ...] = ()
        self._cluster_by: tuple[str, ...] = ()
        self._properties: dict[str, str] = {}

    def tableName(self, identifier: str) -> DeltaTableBuilder:  # noqa: N802
        """Name the table."""
        if type(identifier) is not str:
            _refuse_type("Identifier must be str.", [identifier])
        path = path_in(identifier)
        if path is not None:
            return self.location(path)
        self._name = identifier
        return self

    def location(self, location: str) -> DeltaTableBuilder:
        """Place the table's files in this directory. Without a name, the table is named after it."""
        if type(location) is not str:
            _refuse_type("Location must be str.", [location])
        self._location = location
        return self

    def comment(self, comment: str) -> DeltaTableBuilder:
        """Describe the table."""
        if type(comment) is not str:
            _refuse_type("Table comment must be str.", [comment])
        self._comment = comment
        return self

    def addColumn(  # noqa: N802
        self,
        colName: str,  # noqa: N803
        dataType: str | DataType,  # noqa: N803
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,  # noqa: N803
        generatedByDefaultAs: IdentityGenerator | None = None,  # noqa: N803
        comment: str | None = None,
    ) -> DeltaTableBuilder:
        """Add a column, which may be computed from others or count by itself."""
        if type(colName) is not str:
            _refuse_type("Column name must be str.", [colName])
        if type(dataType) is not str and not isinstance(dataType, DataType):
            _refuse_type("Column data type must be str or DataType.", [dataType])
        kind = dataType if isinstance(dataType, DataType) else self._parsed(dataType)
        if type(nullable) is not bool:
            _refuse_type("Column nullable must be bool.", [nullable])
        metadata = _generation(colName, kind, generatedAlwaysAs, generatedByDefaultAs)
        if comment is not None:
            if type(comment) is not str:
                _refuse_type("Column comment must be str.", [comment])
            metadata["comment"] = comment
        self._columns.append(StructField(colName, kind, nullable, metadata))
        return self

    def addColumns(self, cols: StructType | list[StructField]) -> DeltaTableBuilder:  # noqa: N802
        """Add the columns of a schema."""
        given: Any = cols
        if isinstance(given, list):
            for column in given:
                if type(column) is not StructField:
                    _refuse_type("Column in existing schema must be StructField.", [column])
            given = StructType(given)
        if type(given) is not StructType:
            _refuse_type("Schema must be StructType or a list of StructField.", [given])
        self._columns += given.fields
        return self

    def partitionedBy(self, *cols: str | list[str] | tuple[str, ...]) -> DeltaTableBuilder:  # noqa: N802
        """Partition the table by these columns."""
        self._partition_by = _names(cols, "Partitioning column must be str.")
        return self

    def clusterBy(self, *cols: str | list[str] | tuple[str, ...]) -> DeltaTableBuilder:  # noqa: N802
        """Cluster the table by these columns."""
        self._cluster_by = _names(cols, "Clustering column must be str.")
        return self

    def property(self, key: str, value: str) -> DeltaTableBuilder:
        """Set a property of the table."""
        if type(key) is not str or type(value) is not str:
            _refuse_type("Key and value of property must be string.", [key, value])
        self._properties[key] = value
        return self

    def execute(self) -> DeltaTable:
        """Create or replace the table, and return it."""
        from deltars.tables.delta_table import DeltaTable

        with deltas_errors():
            return DeltaTable(self._made())

    # -- making the table --------------------------------------------------------------------------------------------

    def _made(self) -> BoundTable:
        if self._name is None and self._location is None:
            raise refuse(
                "DELTA_CREATE_TABLE_MISSING_TABLE_NAME_OR_LOCATION", "Table name or location has to be specified."
            )
        if self._partition_by and self._cluster_by:
            raise refuse(
                "DELTA_CLUSTER_BY_WITH_PARTITIONED_BY",
                "Clustering and partitioning cannot both be specified. Please remove partitionedBy if you want to"
                " create a Delta table with clustering.",
            )
        self._check_columns()
        self._tx = self._given or block_transaction(self._spark)
        session = session_of(self._spark, self._tx)
        name, exists = self._place(session)
        if exists and self._verb == "create":
            raise self._exists(name)
        if not exists and self._verb == "replace":
            raise self._missing(name)
        if exists and self._verb == "createIfNotExists":
            return self._bound(session, name)
        location = None if self._location is None else location_at(self._location)
        arguments: dict[str, Any] = {
            # A replaced table keeps its location.
            "location": location,
            "partition_by": self._partition_by,
            "cluster_by": self._cluster_by,
            "properties": new_table_properties({}, self._spark.conf.getAll) | self._properties,
            "description": self._comment,
            "if_not_exists": self._verb == "createIfNotExists",
            "replace": exists,
        }
        schema = as_schema(StructType(self._columns))
        try:
            if self._tx is not None:
                self._tx.create_table(name, schema, **arguments)
            else:
                commit_new_table(session, name, schema, committer=None, **arguments)
        except TableExists as error:
            if "import_table" in (error.hint or ""):
                raise  # a table that another catalog, or none, has
            raise self._exists(name) from error
        return self._bound(session, name)

    def _place(self, session: CatalogSession) -> tuple[str, bool]:
        """Return the name of the table, and whether it exists."""
        if self._name is not None:
            name = name_in(self._name)
            return name, _exists(session, name, self._tx)
        assert self._location is not None
        found = find_at(session, self._location)
        if found is None and imports_paths(self._spark):
            found = _imported(session, self._location)
        if found is None:
            return free_name(session, self._location), False
        return found.name, found.current_version != NO_VERSION

    def _bound(self, session: CatalogSession, name: str) -> BoundTable:
        table_id = session.find(name).table_id if self._tx is None else self._tx._view_for(name).readable(name).table_id
        shown = name.rpartition(".")[2]
        return BoundTable(self._spark, session, table_id, shown, self._given, is_named=self._name is not None)

    def _shown(self, name: str) -> str:
        if self._name is None and self._location is not None:
            return shown_path(self._location)
        return f"`default`.`{name}`" if "." not in name else f"`{name.replace('.', '`.`')}`"

    def _exists(self, name: str) -> Exception:
        return refuse(
            "TABLE_OR_VIEW_ALREADY_EXISTS",
            f"Cannot create table or view {self._shown(name)} because it already exists.\nChoose a different name, drop"
            " or replace the existing object, or add the IF NOT EXISTS clause to tolerate pre-existing objects."
            " SQLSTATE: 42P07",
            table=name,
        )

    def _missing(self, name: str) -> Exception:
        return refuse(
            "TABLE_OR_VIEW_NOT_FOUND",
            f"The table or view {self._shown(name)} cannot be found. Verify the spelling and correctness of the schema"
            " and catalog. SQLSTATE: 42P01",
            table=name,
        )

    # -- columns -----------------------------------------------------------------------------------------------------

    def _check_columns(self) -> None:
        seen: set[str] = set()
        for column in self._columns:
            if column.name.lower() in seen:
                raise refuse(
                    "COLUMN_ALREADY_EXISTS",
                    f"The column `{column.name.lower()}` already exists. Choose another name or rename the existing"
                    " column. SQLSTATE: 42711",
                )
            seen.add(column.name.lower())
        for name in self._partition_by:
            if name.lower() not in seen:
                shown = "".join(
                    f" |-- {column.name}: {column.dataType.typeName()} (nullable = {str(column.nullable).lower()})\n"
                    for column in self._columns
                )
                raise DeltaAnalysisException(f"Couldn't find column {name} in:\nroot\n{shown}", field="partitionedBy")
        if self._partition_by and {name.lower() for name in self._partition_by} == seen:
            raise refuse(
                "ALL_PARTITION_COLUMNS_NOT_ALLOWED",
                "Cannot use all columns for partition columns. SQLSTATE: KD005",
            )

    def _parsed(self, text: str) -> DataType:
        """Return a type. Spark parses it, and refuses what is none."""
        return self._spark.createDataFrame([], f"`c` {text}").schema.fields[0].dataType


def _generation(
    name: str, kind: DataType, always: str | IdentityGenerator | None, by_default: IdentityGenerator | None
) -> dict[str, Any]:
    """Return the column's metadata that says how its values are made."""
    if always is not None and by_default is not None:
        raise ValueError("generatedByDefaultAs and generatedAlwaysAs cannot both be set.", [by_default, always])
    if always is not None:
        if type(always) is str:
            return {_GENERATION: always}
        if not isinstance(always, IdentityGenerator):
            _refuse_type("Generated always as expression must be str or IdentityGenerator.", [always])
        return _identity(name, kind, always, by_default=False)
    if by_default is None:
        return {}
    if not isinstance(by_default, IdentityGenerator):
        _refuse_type("Generated by default expression must be IdentityGenerator.", [by_default])
    return _identity(name, kind, by_default, by_default=True)


def _identity(name: str, kind: DataType, generator: IdentityGenerator, *, by_default: bool) -> dict[str, Any]:
    if generator.step == 0:
        raise ValueError("Column identity generation requires step to be non-zero.")
    if not isinstance(kind, LongType):
        raise spark_error(
            DeltaUnsupportedOperationException,
            "DELTA_IDENTITY_COLUMNS_UNSUPPORTED_DATA_TYPE",
            f"DataType {kind.typeName()} is not supported for IDENTITY columns.",
            field=name,
        )
    return {
        "delta.identity.start": generator.start,
        "delta.identity.step": generator.step,
        "delta.identity.allowExplicitInsert": by_default,
    }


def _exists(session: CatalogSession, name: str, tx: Transaction | None) -> bool:
    if tx is not None:
        return tx._view_for(name).find(name) is not None
    found = session.registry.find(name)
    return found is not None and found.current_version != NO_VERSION


def _imported(session: CatalogSession, path: str) -> Any:
    from deltars.catalog.table_path import table_at
    from deltars.errors import NotADeltaTable

    try:
        return table_at(session, path, imports=True)
    except NotADeltaTable:
        return None


def _names(cols: tuple[Any, ...], words: str) -> tuple[str, ...]:
    given = cols[0] if len(cols) == 1 and isinstance(cols[0], (list, tuple)) else cols
    for name in given:
        if type(name) is not str:
            _refuse_type(words, [name])
    return tuple(given)


def _refuse_type(words: str, values: Iterable[object]) -> NoReturn:
    raise TypeError(words + "".join(f" Found {value} with type {type(value)}" for value in values))
