#!/usr/bin/env bash
# Writes constraints.txt: the exact version of everything in .venv, and nothing about where it came from.
set -euo pipefail
cd "$(dirname "$0")/.."

installed=$(.venv/bin/python -m pip freeze --disable-pip-version-check --all --exclude pip --exclude-editable)
if strays=$(grep -vE '^[A-Za-z0-9._-]+==[^ @]+$' <<<"$installed"); then
    printf 'constraints: these are not plain versions from an index; install them by name first:\n%s\n' "$strays" >&2
    exit 1
fi
{
    echo '# The exact versions that `make setup` installs. Regenerate after upgrading something in .venv: make constraints'
    LC_ALL=C sort -f <<<"$installed"
} >constraints.txt.new
mv constraints.txt.new constraints.txt
