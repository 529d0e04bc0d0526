"""Races of several clients between systems: rounds alternate, and every system is measured in each of them.

    race(entrants, rounds, seconds)
      ├── Crowd        so many processes of benchmarks/clients/…, which stay for all rounds
      └── Pgbench      PostgreSQL's own TPC-B, prepared

What a noisy neighbour slows, it slows for all.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from benchmarks.figures import OURS, RATE, Figure, Side, Target, percentiles_ms
from benchmarks.rig import ServerClock
from tests.support.postgres import PostgresServer

ROOT = Path(__file__).parent.parent
PEERS = ROOT / "build" / "peers" / "bin" / "python"
NO_PEERS = "not installed: run scripts/peers.sh"


@dataclass
class Round:
    """What all clients of a system did in one round."""

    rate: float
    taken: list[float]
    """How long each call took."""
    cpu_s: float
    commits: int
    """What the calls committed: a call may commit a list."""
    failed: int = 0
    server_cpu_s: float | None = None
    errors: list[str] = field(default_factory=list)


class Entrant(Protocol):
    def run(self, seconds: float) -> Round: ...


class Missing(Exception):
    """A system that cannot be measured here; the message says why."""


class Crowd:
    """Clients of one system, a process each."""

    def __init__(self, module: str, specs: Sequence[Mapping[str, Any]], *, python: Path | None = None) -> None:
        if python is not None and not python.exists():
            raise Missing(NO_PEERS)
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed with the clients)
        self._clients: list[subprocess.Popen[str]] = []
        try:
            for at, spec in enumerate(specs):
                self._clients.append(self._start(module, spec, python or Path(sys.executable)))
                # The first makes what the others share.
                if at == 0:
                    self._answer(self._clients[0])
            for client in self._clients[1:]:
                self._answer(client)
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def _start(self, module: str, spec: Mapping[str, Any], python: Path) -> subprocess.Popen[str]:
        client = subprocess.Popen(
            [python, "-m", f"benchmarks.clients.{module}"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._send(client, json.dumps(spec))
        return client

    def _send(self, client: subprocess.Popen[str], line: str) -> None:
        assert client.stdin is not None
        print(line, file=client.stdin, flush=True)

    def _answer(self, client: subprocess.Popen[str]) -> str:
        assert client.stdout is not None
        answer = client.stdout.readline()
        if not answer:
            self._errors.seek(0)
            # The last line says what is wrong; those above it where, on this machine.
            last = self._errors.read().strip().rpartition("\n")[2]
            raise Missing(f"its client ended: {last[:200]}")
        return answer

    def run(self, seconds: float) -> Round:
        for client in self._clients:
            self._send(client, str(seconds))
        seen = [json.loads(self._answer(client)) for client in self._clients]
        return Round(
            sum(one["commits"] / one["seconds"] for one in seen),
            [took for one in seen for took in one["taken"]],
            sum(one["cpu"] for one in seen),
            sum(one["commits"] for one in seen),
            sum(one["failed"] for one in seen),
            errors=[error for one in seen for error in one["error"]],
        )

    def __enter__(self) -> Crowd:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            with suppress(BrokenPipeError):
                assert client.stdin is not None
                client.stdin.close()
        for client in self._clients:
            try:
                client.wait(timeout=60)
            except subprocess.TimeoutExpired:
                client.kill()
                client.wait()
            assert client.stdout is not None
            client.stdout.close()
        self._errors.close()


class Pgbench:
    """PostgreSQL's own benchmark: TPC-B, prepared."""

    def __init__(self, server: PostgresServer, database: str, clients: int) -> None:
        self._server, self._database, self._clients = server, database, clients

    @staticmethod
    def fill(server: PostgresServer, scale: int) -> str:
        """Make a database with pgbench's tables; its name comes back."""
        database = server.create_database("pgbench")
        Pgbench(server, database, 1)._run("-i", "-q", "-s", str(scale))
        return database

    def run(self, seconds: float) -> Round:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryDirectory() as logs:
            options = ("-n", "-M", "prepared", "-c", str(self._clients), "-j", str(min(self._clients, 2)))
            output = self._run(*options, "-T", str(max(1, round(seconds))), "-l", "--log-prefix", f"{logs}/log")
            lines = [line.split() for log in Path(logs).iterdir() for line in log.read_text().splitlines()]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = re.search(r"tps = ([\d.]+)", output)
        assert found is not None, output
        cpu = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
        return Round(float(found[1]), [int(line[2]) / 1e6 for line in lines], cpu, len(lines))

    def _run(self, *arguments: str) -> str:
        command = [str(self._server.bin / "pgbench"), *arguments, self._server.conninfo_of(self._database)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"pgbench failed: {done.stderr}")
        return done.stdout


def race(
    what: str,
    server: PostgresServer | None,
    entrants: Mapping[str, Entrant | Missing],
    *,
    rounds: int,
    seconds: float,
    targets: Sequence[Target] = (),
) -> Figure:
    """Commits a second of every system, in turns; who begins changes from round to round."""
    clock = ServerClock(server) if server else None
    running = {name: entrant for name, entrant in entrants.items() if not isinstance(entrant, Missing)}
    seen: dict[str, list[Round]] = {name: [] for name in running}
    for number in range(rounds):
        turns = list(running.items())
        for name, entrant in turns if number % 2 else reversed(turns):
            before = clock.seconds() if clock else None
            result = entrant.run(seconds)
            after = clock.seconds() if clock else None
            if before is not None and after is not None:
                result.server_cpu_s = after - before
            seen[name].append(result)
    for name, results in seen.items():
        for error in [error for result in results for error in result.errors][:1]:
            print(f"    {what}: {name} failed: {error}", file=sys.stderr)
    missing = {name: str(entrant) for name, entrant in entrants.items() if isinstance(entrant, Missing)}
    return Figure(what, RATE, {name: _side(results) for name, results in seen.items()}, missing, list(targets))


def _side(results: Sequence[Round]) -> Side:
    taken = [took for result in results for took in result.taken]
    commits = sum(result.commits for result in results)
    failed = sum(result.failed for result in results)
    if not taken:
        return Side([0.0] * len(results), failed=failed)
    served = [result.server_cpu_s for result in results if result.server_cpu_s is not None]
    return Side(
        [result.rate for result in results],
        *percentiles_ms(taken),
        client_cpu_ms=sum(result.cpu_s for result in results) * 1000 / commits,
        server_cpu_ms=sum(served) * 1000 / commits if served else None,
        failed=failed,
    )


def entered(resources: ExitStack, module: str, specs: Sequence[Mapping[str, Any]], **options: Any) -> Crowd | Missing:
    """A crowd for as long as `resources` is open. A peer that cannot run is missing; ours must run."""
    try:
        return resources.enter_context(Crowd(module, specs, **options))
    except Missing as missing:
        if module.startswith(OURS):
            raise RuntimeError(str(missing)) from missing
        return missing
