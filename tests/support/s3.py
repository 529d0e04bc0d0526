"""S3 as moto's server simulates it: conditional puts included, real latencies and failures not."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from uuid import uuid4

SECRET = "very-secret"


@contextmanager
def s3_server() -> Iterator[str]:
    """The endpoint of a server in this process."""
    server = import_module("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def new_bucket(endpoint: str) -> str:
    name = f"lake-{uuid4()}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT")).close()
    return name


def options_for(endpoint: str) -> dict[str, str]:
    return {
        "aws_endpoint": endpoint,
        "aws_allow_http": "true",
        "aws_region": "us-east-1",
        "aws_access_key_id": "nobody",
        "aws_secret_access_key": SECRET,
    }
