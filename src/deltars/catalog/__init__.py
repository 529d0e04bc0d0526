"""What a user holds: a catalog, its tables, and snapshots of all tables at one moment."""

from typing import TYPE_CHECKING

from deltars.late_names import late_names

if TYPE_CHECKING:
    from deltars.catalog import migrate
    from deltars.catalog.activity import (
        ConflictDetail,
        LineageEdge,
        RecordedRead,
        TransactionSummary,
        lineage_of,
        lost_races,
        recent_transactions,
    )
    from deltars.catalog.catalog import Catalog
    from deltars.catalog.changes import (
        Changes,
        TransactionChanges,
        VersionOrMoment,
        catalog_changes,
        changes_between,
        changes_of_table,
    )
    from deltars.catalog.charts import line_html
    from deltars.catalog.connection import begin, connect, read, sql, write
    from deltars.catalog.convert import convert_directory
    from deltars.catalog.copies import Copy, copy_tables
    from deltars.catalog.expire import Expired, expire_history, purge_dropped
    from deltars.catalog.feature_drop import drop_feature
    from deltars.catalog.growth import table_growth
    from deltars.catalog.handover import adopt, import_table, release
    from deltars.catalog.lanes_html import recent_lanes
    from deltars.catalog.listings import DRAWN_VERSIONS, growth_html
    from deltars.catalog.log_acceptance import LogComparison, accept_log, compare_log
    from deltars.catalog.maintenance import (
        Maintainer,
        MaintenanceOutcome,
        MaintenanceReport,
        MaintenanceResult,
        advise_tables,
        read_statistics,
    )
    from deltars.catalog.restore import Restored, restore_table, restore_tables
    from deltars.catalog.row_count import count_rows, recorded_rows
    from deltars.catalog.snapshot import CatalogSnapshot
    from deltars.catalog.statements import run_script, run_statement
    from deltars.catalog.table import Table
    from deltars.catalog.table_detail import ColumnDetail, PartitionDetail, TableDetail, detail_of
    from deltars.catalog.table_diff import FileChange, TableChange, TableDiff, difference
    from deltars.catalog.tags import create_tag, delete_tag, refuse_tagged
    from deltars.catalog.transactions import TableCommitDetail, TransactionDetail, transaction_detail
    from deltars.catalog.vacuum import CatalogVacuumed, SkippedVacuum, VacuumOptions, vacuum_table, vacuum_tables
else:
    __getattr__ = late_names(
        __name__,
        {
            "activity": (
                "ConflictDetail LineageEdge RecordedRead TransactionSummary lineage_of lost_races recent_transactions"
            ),
            "catalog": "Catalog",
            "changes": ("Changes TransactionChanges VersionOrMoment catalog_changes changes_between changes_of_table"),
            "charts": "line_html",
            "lanes_html": "recent_lanes",
            "listings": "DRAWN_VERSIONS growth_html",
            "connection": "begin connect read sql write",
            "convert": "convert_directory",
            "copies": "Copy copy_tables",
            "expire": "Expired expire_history purge_dropped",
            "feature_drop": "drop_feature",
            "growth": "table_growth",
            "handover": "adopt import_table release",
            "log_acceptance": "LogComparison accept_log compare_log",
            "maintenance": (
                "Maintainer MaintenanceOutcome MaintenanceReport MaintenanceResult advise_tables read_statistics"
            ),
            "migrate": "migrate",
            "restore": "Restored restore_table restore_tables",
            "row_count": "count_rows recorded_rows",
            "snapshot": "CatalogSnapshot",
            "statements": "run_script run_statement",
            "table": "Table",
            "table_detail": "ColumnDetail PartitionDetail TableDetail detail_of",
            "table_diff": "FileChange TableChange TableDiff difference",
            "tags": "create_tag delete_tag refuse_tagged",
            "transactions": "TableCommitDetail TransactionDetail transaction_detail",
            "vacuum": "CatalogVacuumed SkippedVacuum VacuumOptions vacuum_table vacuum_tables",
        },
    )
