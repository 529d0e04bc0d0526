"""What went wrong in a history, judged from outside, by nothing but what clients saw.

    find_anomalies(history) ──▶ direct       one transaction's reads against who wrote what: dirty, intermediate,
                            │                fractured and stale reads, values lost, repeated or from nowhere
                            └─▶ cycles       the dependency graph of the committed transactions must have none

    ww   wrote the version after the other's
    wr   read what the other wrote
    rw   did not read what the other wrote: came before it

Which cycles a level forbids:

    strict, serializable    all
    write_serializable      all, where who did not see a blind append does not have to come before it
    snapshot                those with one rw at most. Appends of two transactions are different files there and have
                            no order (no ww); two rw, write skew, are what this level allows
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import networkx as nx

from tests.checker.history import History, Read, Txn

DIRTY_READ = "dirty read (G1a)"
INTERMEDIATE_READ = "intermediate read (G1b)"
CIRCULAR_FLOW = "circular information flow (G1c)"
WRITE_CYCLE = "write cycle (G0)"
FRACTURED_READ = "fractured read"
STALE_READ = "stale read"
UNREPEATABLE_READ = "unrepeatable read"
OWN_WRITE_MISSED = "own write missed"
LOST_UPDATE = "lost update"
SINGLE = "single anti-dependency cycle (G-single)"
WRITE_SKEW = "write skew (G2)"
LOST_WRITE = "lost write"
PHANTOM_VALUE = "value from nowhere"
REPEATED_VALUE = "repeated value"


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: str
    txns: tuple[str, ...]
    story: str


def find_anomalies(history: History) -> list[Anomaly]:
    """One of each kind for each transaction or knot of transactions that shows it; none in a history that is right."""
    cycles = _causal_cycles if history.level == "snapshot" else _dependency_cycles
    return [*_direct(history), *_stale_reads(history), *_final_state(history), *cycles(history)]


def kinds(anomalies: Iterable[Anomaly]) -> set[str]:
    return {anomaly.kind for anomaly in anomalies}


# -- one transaction's reads -----------------------------------------------------------------------------------------


def _direct(history: History) -> Iterator[Anomaly]:
    together = _Together(history)
    for txn in history.txns:
        yield from _within(txn)
        for read in txn.reads:
            yield from _sources(history, txn, read)
        yield from _fractures(history, txn, together)


def _within(txn: Txn) -> Iterator[Anomaly]:
    """Between its own steps a transaction sees its own writes, and no one else's."""
    own: dict[str, set[str]] = {}
    others: dict[str, set[str]] = {}
    for step in txn.steps:
        mine = own.setdefault(step.table, set())
        if not isinstance(step, Read):
            mine.add(step.value)
            continue
        values = set(step.values)
        if missed := mine - values:
            yield Anomaly(OWN_WRITE_MISSED, (txn.id,), f"{txn.id} does not see its own {_list(missed)} in {step.table}")
        if changed := others.setdefault(step.table, values - mine) ^ (values - mine):
            yield Anomaly(UNREPEATABLE_READ, (txn.id,), f"{txn.id} read {step.table} twice: {_list(changed)} differ")


def _sources(history: History, txn: Txn, read: Read) -> Iterator[Anomaly]:
    """What was read must have been written once, by a transaction that committed, and whole."""
    for value, count in Counter(read.values).items():
        if count > 1:
            yield Anomaly(REPEATED_VALUE, (txn.id,), f"{txn.id} read {value} {count} times in {read.table}")
        if (read.table, value) not in history.writer_of:
            yield Anomaly(PHANTOM_VALUE, (txn.id,), f"{txn.id} read {value} in {read.table}, which nobody wrote")
    values = set(read.values)
    for writer in history.seen(txn, read).values():
        if not writer.is_committed:
            yield Anomaly(DIRTY_READ, (txn.id, writer.id), f"{txn.id} read {read.table} of {writer.id}, which aborted")
        elif read.at is not None and writer.committing_at is not None and read.at < writer.committing_at:
            story = f"{txn.id} read {read.table} of {writer.id} before that began to commit"
            yield Anomaly(DIRTY_READ, (txn.id, writer.id), story)
        missing = {step.value for step in writer.appends if step.table == read.table} - values
        if missing:
            story = f"{txn.id} read {read.table} of {writer.id} without its {_list(missing)}"
            yield Anomaly(INTERMEDIATE_READ, (txn.id, writer.id), story)


class _Together(dict[tuple[str, str], list[int]]):
    """For two tables: how far the second is at least, for who has seen the first up to its n-th writer.

    Only the pairs that somebody has read are computed, because a history of rows has thousands of lists.
    """

    def __init__(self, history: History) -> None:
        self._writers = history.writers

    def __missing__(self, pair: tuple[str, str]) -> list[int]:
        table, other = pair
        came_with = (txn.versions.get(other, -1) for txn in self._writers.get(table, ()))
        self[pair] = list(accumulate(came_with, max))
        return self[pair]


def _fractures(history: History, txn: Txn, together: _Together) -> Iterator[Anomaly]:
    """Who saw a transaction in one table saw it in every table, and everything before it in the same one."""
    first_unseen = {read.table: next(history.unseen(txn, read), None) for read in txn.reads}
    for read in txn.reads:
        last = max(
            (w.versions[read.table] for w in history.seen(txn, read).values() if read.table in w.versions), default=-1
        )
        writers = history.writers.get(read.table, [])
        upto = bisect_left(writers, last + 1, key=lambda writer: writer.versions[read.table])
        for other, unseen in first_unseen.items():
            came_with = together[read.table, other][upto - 1] if upto and unseen else -1
            if unseen and came_with >= unseen.versions[other]:
                story = (
                    f"{txn.id} saw {read.table} up to version {last}, with which version {came_with} of {other} came; "
                    f"there it misses version {unseen.versions[other]}"
                )
                yield Anomaly(FRACTURED_READ, (txn.id, unseen.id), story)


def _stale_reads(history: History) -> Iterator[Anomaly]:
    """Whoever begins after another was told of its commit sees it."""
    told = {
        table: sorted((writer.ended_at, writer.versions[table]) for writer in writers if writer.ended_at is not None)
        for table, writers in history.writers.items()
    }
    newest = {table: list(accumulate((version for _, version in ends), max)) for table, ends in told.items()}
    for txn in history.txns:
        for read in txn.reads:
            if txn.began_at is None or not (ends := told.get(read.table)):
                continue
            before = bisect_left(ends, (txn.began_at, -1))
            unseen = next(history.unseen(txn, read), None)
            if before and unseen and unseen.versions[read.table] <= newest[read.table][before - 1]:
                story = f"{txn.id} does not see version {unseen.versions[read.table]} of {read.table}, committed before"
                yield Anomaly(STALE_READ, (txn.id, unseen.id), story)


def _final_state(history: History) -> Iterator[Anomaly]:
    if history.final is None:
        return
    counts = {table: Counter(values) for table, values in history.final.items()}
    for (table, value), writer in history.writer_of.items():
        count = counts[table][value] if table in counts else 0
        if writer.is_committed and count == 0:
            yield Anomaly(LOST_WRITE, (writer.id,), f"{value}, which {writer.id} committed to {table}, is gone")
        if not writer.is_committed and count:
            yield Anomaly(DIRTY_READ, (writer.id,), f"{value} is in {table}, but {writer.id} aborted")
        if count > 1:
            yield Anomaly(REPEATED_VALUE, (writer.id,), f"{value} is in {table} {count} times")
    for table, values in history.final.items():
        for value in values:
            if (table, value) not in history.writer_of:
                yield Anomaly(PHANTOM_VALUE, (), f"{value} is in {table}, and nobody wrote it")


# -- cycles ----------------------------------------------------------------------------------------------------------


def _dependency_cycles(history: History) -> Iterator[Anomaly]:
    ww, wr, rw = _edges(history)
    flow = nx.compose(ww, wr)
    everything = nx.compose(rw, flow)  # an edge of both kinds is told by the stronger
    for knot in nx.strongly_connected_components(everything):
        if len(knot) == 1:
            continue
        inside = flow.subgraph(knot)
        if cycle := _cycle(ww.subgraph(knot)):
            yield _told(WRITE_CYCLE, cycle, everything)
        elif cycle := _cycle(inside):
            yield _told(CIRCULAR_FLOW, cycle, everything)
        elif cycle := _single(inside, rw.subgraph(knot)):
            kind = LOST_UPDATE if _is_lost_update(history, cycle) else SINGLE
            yield _told(kind, cycle, nx.compose(flow, rw.edge_subgraph([(cycle[0], cycle[1])])))
        else:
            yield _told(WRITE_SKEW, _cycle(everything.subgraph(knot)), everything)


def _edges(history: History) -> tuple[nx.DiGraph, nx.DiGraph, nx.DiGraph]:
    """Neighbours only: whoever comes later in a table's order is reached through those between."""
    ww, wr, rw = nx.DiGraph(), nx.DiGraph(), nx.DiGraph()
    ww.add_nodes_from(txn.id for txn in history.committed)
    for table, writers in history.writers.items():
        for before, after in pairwise(writers):
            ww.add_edge(before.id, after.id, label=f"ww {table}")
    ignores_blind = history.level == "write_serializable"
    for txn in history.committed:
        for read in txn.reads:
            seen = [writer for writer in history.seen(txn, read).values() if read.table in writer.versions]
            if seen:
                last = max(seen, key=lambda writer: writer.versions[read.table])
                wr.add_edge(last.id, txn.id, label=f"wr {read.table}")
            for other in history.unseen(txn, read):
                if not (ignores_blind and txn.versions and other.is_blind):
                    rw.add_edge(txn.id, other.id, label=f"rw {read.table}")
                    break
    return ww, wr, rw


def _cycle(graph: nx.DiGraph) -> list[Any]:
    """A shortest cycle's nodes, or nothing."""
    if nx.is_directed_acyclic_graph(graph):
        return []
    node = min(next(knot for knot in nx.strongly_connected_components(graph) if len(knot) > 1), key=str)
    ways = (nx.shortest_path(graph, after, node) for after in graph.successors(node) if nx.has_path(graph, after, node))
    return [node, *min(ways, key=len)[:-1]]


def _single(flow: nx.DiGraph, rw: nx.DiGraph) -> list[str]:
    """A cycle with one rw, which leads from the first node to the second."""
    for before, after in rw.edges:
        if nx.has_path(flow, after, before):
            return [before, *nx.shortest_path(flow, after, before)[:-1]]
    return []


def _is_lost_update(history: History, cycle: list[str]) -> bool:
    """Two that both read a table and wrote it, neither seeing the other."""
    first, second = (next(txn for txn in history.committed if txn.id == name) for name in cycle[:2])
    tables = first.versions.keys() & second.versions.keys()
    return any(
        read.table in tables and read.table == other.table
        for read in first.reads
        for other in second.reads
        if second.id not in history.seen(first, read) and first.id not in history.seen(second, other)
    )


def _told(kind: str, cycle: list[str], graph: nx.DiGraph) -> Anomaly:
    edges = pairwise([*cycle, cycle[0]])
    story = cycle[0] + "".join(f" -{graph.edges[before, after]['label']}-> {after}" for before, after in edges)
    return Anomaly(kind, tuple(cycle), story)


def _causal_cycles(history: History) -> Iterator[Anomaly]:
    """Cycles of wr with at most one rw: who saw a transaction saw all that this one had seen.

    Between a table's writers and its readers stands a row of places, one a version, so that the graph stays small.
    """
    flow = nx.DiGraph()
    flow.add_nodes_from(txn.id for txn in history.committed)
    for table, writers in history.writers.items():
        places = [(table, writer.versions[table]) for writer in writers]
        flow.add_edges_from(zip((writer.id for writer in writers), places, strict=True))
        flow.add_edges_from(pairwise(places))
    for txn in history.committed:
        for read in txn.reads:
            versions = [w.versions[read.table] for w in history.seen(txn, read).values() if read.table in w.versions]
            if versions:
                flow.add_edge((read.table, max(versions)), txn.id)
    if cycle := _cycle(flow):
        names = tuple(name for name in cycle if isinstance(name, str))
        yield Anomaly(CIRCULAR_FLOW, names, " -wr-> ".join([*names, names[0]]))
        return
    yield from _gaps_in_the_past(history, flow)


def _gaps_in_the_past(history: History, flow: nx.DiGraph) -> Iterator[Anomaly]:
    """Whoever has in its past a version of a table, or a later one, sees this version."""
    txns = {txn.id: txn for txn in history.committed}
    around = flow.copy()
    for txn in txns.values():
        around.add_edges_from(((table, version), txn.id) for table, version in txn.versions.items())
        for read in txn.reads:
            if unseen := next(history.unseen(txn, read), None):
                around.add_edge(txn.id, unseen.id)
    # A gap closes a circle, so its past is searched there: all pasts of thousands of lists would be too many.
    for knot in nx.strongly_connected_components(around):
        if len(knot) > 1:
            yield from _gaps_within(history, txns, flow.subgraph(knot))


def _gaps_within(history: History, txns: dict[str, Txn], flow: nx.DiGraph) -> Iterator[Anomaly]:
    past: dict[object, dict[str, int]] = {}
    for node in nx.topological_sort(flow):
        known: dict[str, int] = {}
        for before in flow.predecessors(node):
            for table, version in past[before].items():
                known[table] = max(known.get(table, -1), version)
        past[node] = known
        if node not in txns:
            continue
        txn = txns[node]
        for read in txn.reads:
            unseen = next(history.unseen(txn, read), None)
            if unseen and unseen.versions[read.table] <= known.get(read.table, -1):
                story = f"{txn.id} -rw {read.table}-> {unseen.id} -wr-> … -wr-> {txn.id}"
                yield Anomaly(SINGLE, (txn.id, unseen.id), story)
        past[node] = known | {table: max(version, known.get(table, -1)) for table, version in txn.versions.items()}


def _list(values: Iterable[str]) -> str:
    return ", ".join(sorted(values))
