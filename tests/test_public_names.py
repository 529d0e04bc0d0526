"""`import deltars`: light, complete, and wired."""

from __future__ import annotations

import subprocess
import sys

import pytest

import deltars


def _python(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def test_import_loads_no_heavy_library() -> None:
    heavy = ("pyarrow", "sqlalchemy", "pyspark", "msgspec")
    program = f"import sys, deltars; print([name for name in {heavy!r} if name in sys.modules])"
    assert _python(program) == "[]"


def test_every_public_name_is_there_and_listed() -> None:
    assert all(hasattr(deltars, name) for name in deltars.__all__)
    assert set(deltars.__all__) <= set(dir(deltars))
    assert "Catalog" in _python("import deltars; print(dir(deltars))")


def test_a_name_that_is_none_of_ours_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'bigin'"):
        _ = deltars.bigin  # type: ignore[attr-defined]


def test_the_spark_plane_is_there_however_the_package_was_entered() -> None:
    # As in a process that gets its catalog by pickle: nobody there uses a name of `deltars` itself.
    program = "from deltars.transaction.plane import spark_plane; print(type(spark_plane()).__name__)"
    assert _python(program) == "SparkPlane"


def test_writing_arrow_loads_no_pyspark() -> None:
    program = (
        "import sys, pyarrow, deltars\n"
        "from deltars.transaction.plane import plane_for\n"
        "plane_for(pyarrow.table({'id': [1]}))\n"
        "print('pyspark' in sys.modules)"
    )
    assert _python(program) == "False"
