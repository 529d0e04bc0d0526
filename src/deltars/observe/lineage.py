"""Committed transactions as OpenLineage events. The only module that imports it.

    commit ──▶ TransactionEnded ──▶ queue ──a thread──▶ START and COMPLETE of a run ──▶ client: HTTP, Kafka, a file …

A run is a transaction, with its id. Its job is the committer; without one, the tables that it writes. A dataset is a
table, named by its location as OpenLineage's integration of Spark names Delta tables, with its name in the catalog as a
symlink. The commit does not wait: events that cannot be delivered are logged and dropped.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.generated.job_type_job import JobTypeJobFacet
from openlineage.client.generated.lifecycle_state_change_dataset import (
    LifecycleStateChange,
    LifecycleStateChangeDatasetFacet,
)
from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet
from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields
from openlineage.client.generated.symlinks_dataset import Identifier, SymlinksDatasetFacet

from deltars.observe.events import Event, Lineage, Outcome, ReadTable, TransactionEnded, WrittenTable
from deltars.redaction import redacted

WAITING = 1_000
"""Most transactions that wait for delivery. Further ones are dropped, so that a dead server costs no memory."""
AT_EXIT_S = 5.0
"""Longest wait at the end of the program for what is not delivered yet."""
PRODUCER = f"urn:deltars:{metadata.version('deltars')}"

_log = logging.getLogger(__name__)


class LineageEvents:
    """Exporter that delivers the lineage of each committed transaction, in a thread of its own."""

    def __init__(self, client: OpenLineageClient | None = None) -> None:
        self._client = OpenLineageClient() if client is None else client
        self._lock = threading.Lock()
        self._waiting: queue.Queue[tuple[TransactionEnded, Lineage]] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        atexit.register(self.flush, AT_EXIT_S)

    def __call__(self, event: Event) -> None:
        if not isinstance(event, TransactionEnded) or event.outcome is not Outcome.COMMITTED or event.lineage is None:
            return
        found = event.lineage()
        with self._lock:
            if self._pid != os.getpid():
                # A forked process has the queue of its parent, without the thread.
                self._waiting, self._thread, self._pid = queue.Queue(WAITING), None, os.getpid()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._deliver, name="deltars-openlineage", daemon=True)
                self._thread.start()
        try:
            self._waiting.put_nowait((event, found))
        except queue.Full:
            _log.warning("OpenLineage events of transaction %s are dropped: %d wait already", event.txn_id, WAITING)

    def flush(self, timeout_s: float = AT_EXIT_S) -> bool:
        """Wait until everything is delivered or dropped. Return whether it was, in this time."""
        deadline = time.monotonic() + timeout_s
        while self._pid == os.getpid() and self._waiting.unfinished_tasks:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return True

    def _deliver(self) -> None:
        waiting = self._waiting
        while True:
            event, found = waiting.get()
            try:
                for made in run_events(event, found):
                    self._client.emit(made)
            except Exception as error:
                # The address of the server may contain a password.
                _log.warning("OpenLineage events of transaction %s are dropped: %s", event.txn_id, redacted(str(error)))
            finally:
                waiting.task_done()


def run_events(event: TransactionEnded, found: Lineage) -> Iterator[RunEvent]:
    """Yield the beginning and the end of the run that a transaction is."""
    catalog = event.source.catalog
    named = found.committer or ",".join(table.name for table in found.written)
    run = Run(runId=str(event.txn_id))
    job = Job(
        namespace=os.environ.get("OPENLINEAGE_NAMESPACE") or catalog,
        name=named,
        facets={"jobType": JobTypeJobFacet(processingType="BATCH", integration="DELTARS", jobType="TRANSACTION")},
    )
    inputs: list[Any] = [_input(table, catalog) for table in found.read]
    outputs: list[Any] = [_output(table, catalog) for table in found.written]
    began = found.committed_at - timedelta(seconds=event.duration_s)
    for state, moment in ((RunState.START, began), (RunState.COMPLETE, found.committed_at)):
        yield RunEvent(
            eventType=state,
            eventTime=moment.isoformat(),
            run=run,
            job=job,
            inputs=inputs,
            outputs=outputs,
            producer=PRODUCER,
        )


def _input(table: ReadTable, catalog: str) -> InputDataset:
    namespace, name = _place(table.location)
    return InputDataset(namespace=namespace, name=name, facets=_facets(table, catalog))


def _output(table: WrittenTable, catalog: str) -> OutputDataset:
    namespace, name = _place(table.location)
    facets = _facets(table, catalog)
    if table.columns:
        fields = [SchemaDatasetFacetFields(name=column, type=type_) for column, type_ in table.columns]
        facets["schema"] = SchemaDatasetFacet(fields=fields)
    change = (
        LifecycleStateChange.DROP if table.version is None
        else LifecycleStateChange.CREATE if table.is_new
        else LifecycleStateChange.OVERWRITE if table.replaces
        else None
    )  # fmt: skip
    if change is not None:
        facets["lifecycleStateChange"] = LifecycleStateChangeDatasetFacet(lifecycleStateChange=change)
    counted = OutputStatisticsOutputDatasetFacet(
        rowCount=table.num_rows, size=table.size_bytes, fileCount=table.num_files
    )
    return OutputDataset(
        namespace=namespace,
        name=name,
        facets=facets,
        outputFacets={} if table.version is None else {"outputStatistics": counted},
    )


def _facets(table: ReadTable | WrittenTable, catalog: str) -> dict[str, Any]:
    symlink = Identifier(namespace=catalog, name=table.name, type="TABLE")
    facets: dict[str, Any] = {"symlinks": SymlinksDatasetFacet(identifiers=[symlink])}
    if table.version is not None:
        facets["version"] = DatasetVersionDatasetFacet(datasetVersion=str(table.version))
    return facets


def _place(location: str) -> tuple[str, str]:
    """Return the namespace and the name of a dataset by OpenLineage's rules: the store, and the path in it."""
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return "file", parts.path.rstrip("/")
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")
