#!/usr/bin/env bash
# Makes build/peers: an environment for the systems that `make bench` compares with and that cannot share .venv.
# Without it the benchmark runs too, and names them as missing.
set -euo pipefail
cd "$(dirname "$0")/.."

# DuckDB's extensions come for their own release of it: ducklake and postgres_scanner are at 1.5.5.
readonly DUCKDB=1.5.5
readonly PACKAGES=(
    "duckdb==$DUCKDB" "duckdb-extension-ducklake==$DUCKDB" "duckdb-extension-postgres-scanner==$DUCKDB"
    "pyiceberg==0.12.0" "psycopg[binary]==3.3.8" "pyarrow==26.0.1" "sqlalchemy==2.1.8"
)

stamp="${PACKAGES[*]}"
[ "$(cat build/peers/.installed 2>/dev/null)" = "$stamp" ] && exit 0
rm -rf build/peers
.venv/bin/python -m venv build/peers
build/peers/bin/python -m pip install --quiet --disable-pip-version-check "${PACKAGES[@]}"
printf '%s' "$stamp" >build/peers/.installed
