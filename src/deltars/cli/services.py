"""Commands that run until a signal: `deltars mirror run` and `deltars maintain --watch`."""

from __future__ import annotations

import logging
import signal
from types import FrameType
from typing import Protocol

import click

import deltars


class Service(Protocol):
    def run(self) -> None: ...

    def stop(self) -> None: ...


def observe_service(metrics_port: int | None, *, log_json: bool) -> None:
    """Log to stderr, as JSON or as lines, and serve metrics if a port is given."""
    if log_json:
        deltars.observe.json_logs()
    else:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if metrics_port is not None:
        served = deltars.observe.prometheus(port=metrics_port)
        click.echo(f"metrics: http://localhost:{served.port}/metrics", err=True)


def run_until_signal(service: Service, what: str) -> None:
    """Run a service until SIGTERM or SIGINT. `what` says what it does."""

    def stop(number: int, frame: FrameType | None) -> None:
        service.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    click.echo(what, err=True)
    service.run()
