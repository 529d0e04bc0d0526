#!/usr/bin/env bash
# Makes .venv with the versions of constraints.txt and sees to Java, which Spark needs. `make setup` calls it.
# PYTHON=/path/to/python picks the interpreter; JAVA_HOME picks the Java.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly JAVA_AT_LEAST=17

say() { printf 'setup: %s\n' "$*"; }
stop() { printf 'setup: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

# The first of the given packages that the system has; fails where there is no apt-get or no right to use it.
apt_install_first() {
    command -v apt-get >/dev/null 2>&1 || return 1
    as_root apt-get update -qq >/dev/null 2>&1 || return 1
    local package
    for package in "$@"; do
        apt-cache show "$package" >/dev/null 2>&1 || continue
        say "installing $package from the system's packages"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" \
            >/dev/null 2>&1 && return 0
    done
    return 1
}

is_python_we_support() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1
}

find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        is_python_we_support "$PYTHON" || stop "PYTHON=$PYTHON is not a Python 3.11, 3.12 or 3.13."
        printf '%s\n' "$PYTHON"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11 python; do
        if is_python_we_support "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    stop "deltars needs Python 3.11, 3.12 or 3.13: install one, or run make with PYTHON=/path/to/it."
}

make_venv() {
    local python=$1 package
    # A half-made .venv (no pip, another Python) is not worth mending.
    if is_python_we_support .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1; then
        return
    fi
    rm -rf .venv
    # Debian ships Python without ensurepip, in a separate package.
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        apt_install_first "$package" python3-venv || true
        "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
            stop "$python cannot make virtual environments: install the package $package and run make setup again."
    fi
    say "making .venv with $("$python" --version)"
    "$python" -m venv .venv
}

java_major() {
    # "17.0.15" is 17, "1.8.0_402" is 8; nothing where it does not run.
    "$1" -version 2>&1 | sed -nE 's/.* version "(1\.)?([0-9]+).*/\2/p' | head -n 1 || true
}

check_java() {
    local major found
    if [ -n "${JAVA_HOME:-}" ]; then
        # Spark follows JAVA_HOME whatever the PATH says, so an old one there cannot be helped by installing another.
        major=$(java_major "$JAVA_HOME/bin/java")
        found=${major:+Java $major}
        [ "${major:-0}" -ge "$JAVA_AT_LEAST" ] ||
            stop "JAVA_HOME=$JAVA_HOME holds ${found:-no Java}, and Spark needs $JAVA_AT_LEAST or newer: point JAVA_HOME at one, or unset it."
        return
    fi
    major=$(java_major java)
    [ "${major:-0}" -ge "$JAVA_AT_LEAST" ] && return
    apt_install_first openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless || true
    major=$(java_major java)
    [ "${major:-0}" -ge "$JAVA_AT_LEAST" ] ||
        stop "Spark needs Java $JAVA_AT_LEAST or newer: install it (on Debian the package openjdk-17-jre-headless), or point JAVA_HOME at one, and run make setup again."
}

python=$(find_python)
check_java
make_venv "$python"
say "installing the versions of constraints.txt (a minute or two the first time; pyspark alone is 450 MB)"
# What builds packages goes first (hatchling for deltars, setuptools for pyspark, which comes as source), and builds without
# isolation: so its versions are pinned as well.
install=(.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt)
"${install[@]}" hatchling editables setuptools
"${install[@]}" --no-build-isolation --use-pep517 -e '.[dev]'
say "ready"
