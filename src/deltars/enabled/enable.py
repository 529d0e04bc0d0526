"""`enable` and `disable`: make a Spark session's own verbs know a catalog.

deltars.enable(spark, "lake.db")
df.write.format("delta").save("/lake/orders")     ──▶ spark/verbs/wrapping.py ──▶ CatalogVerbs ──▶ tx.write
spark.sql("SELECT … FROM orders")                                             └─ what is not ours ──▶ Spark
"""

from __future__ import annotations

import logging
from os import PathLike
from typing import TYPE_CHECKING, Any

from deltars.arguments import check_flags, checks_call
from deltars.catalog.catalog import Catalog
from deltars.catalog.connection import connect, shared_catalog
from deltars.errors import ConfigError, ValidationError, brief

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


@checks_call
def enable(
    spark: SparkSession | None = None,
    catalog: Catalog | str | PathLike[str] | None = None,
    *,
    import_paths: bool = False,
) -> Catalog:
    """Make a Spark session's own verbs know a catalog, until `disable`. Return the catalog.

    `df.write`, `df.writeTo`, `spark.read`, `spark.table`, `spark.sql` and `spark.catalog` then work on tables of the
    catalog: for the formats "delta" and "deltasql", for names that the catalog has, and for directories of its tables.
    Everything else goes to Spark. Inside `with deltars.begin():` they are part of that transaction.

    `spark` is the active session by default, and `catalog` is that of `connect`. Other sessions are not affected.
    `import_paths`, or the session's setting `spark.deltars.importPaths`, imports a Delta table that the catalog does
    not have when a program names its directory; by default that is an error.
    """
    check_flags(import_paths=import_paths)
    wrapping = _wrapping()
    from deltars.enabled.catalog_verbs import CatalogVerbs
    from deltars.spark.session import running_session

    session = running_session(spark)
    if isinstance(catalog, Catalog):
        opened = catalog
    else:
        opened = shared_catalog(catalog) if catalog is None or isinstance(catalog, str) else connect(catalog)
    wrapping.enable_session(session, CatalogVerbs(opened, import_paths=import_paths))
    _log.info("the Spark session's verbs know the catalog %s", opened.uri)
    return opened


@checks_call
def disable(spark: SparkSession | None = None) -> None:
    """Give a Spark session's verbs back to Spark. A session that is not enabled stays as it is.

    After the last session, Spark's classes have their own methods again.
    """
    wrapping = _wrapping()
    from deltars.spark.session import active_session

    session = active_session() if spark is None else spark
    if not hasattr(session, "createDataFrame"):
        raise ValidationError(f"spark must be a SparkSession, got {brief(session)}", field="spark")
    wrapping.disable_session(session)


def enabled_catalog(spark: Any) -> Catalog | None:
    """Return the catalog that a Spark session is enabled for, or None."""
    found = _wrapping().enabled_verbs(spark)
    return None if found is None else found.catalog


def _wrapping() -> Any:
    """Return the module that wraps Spark's classes. pyspark is an extra, so it is imported on the first call."""
    try:
        from deltars.spark.verbs import wrapping
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Spark sessions need {(error.name or 'pyspark').partition('.')[0]}, which is not installed",
            hint="pip install 'deltars[spark]'.",
        ) from error
    return wrapping
