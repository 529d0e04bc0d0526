"""The wheel has every file of the packages, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"


def test_wheel_has_every_file_of_the_packages(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", BUILD, str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("deltars-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        [commands] = (archive.read(name).decode() for name in archive.namelist() if name.endswith("entry_points.txt"))
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for package in ("deltars", "pyspark_deltasql")
        for path in (source / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == wanted
    # Spark looks for the format by the name of a package.
    assert "pyspark_deltasql/__init__.py" in held
    assert {"deltars/console/templates/base.html", "deltars/console/static/console.css", "deltars/py.typed"} <= held
    assert "deltars = deltars.cli:main" in commands
