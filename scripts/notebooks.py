"""Notebooks with their outputs: mkdocs shows them as pages, and `python scripts/notebooks.py` runs them again.

docs/notebooks/<name>.ipynb ─▶ notebooks/<name>.md     code, then what it returned
                            ◀─ executed                `run`: outputs without what differs from run to run
"""

from __future__ import annotations

import html
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

NOTEBOOKS = Path(__file__).parent.parent / "docs" / "notebooks"
DIRECTORY = "/home/you/lake"
"""Shown in the place of the directory that a notebook ran in."""

_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_STYLE = re.compile(r"<style.*?</style>\n?", re.DOTALL)


# -- pages -------------------------------------------------------------------------------------------------------------


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook. The notebook itself stays there to be downloaded."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead a link to a notebook to its page."""
    return re.sub(r"(notebooks/[\w-]+)\.ipynb\)", r"\1.md)", markdown)


def page(path: Path) -> str:
    """Return a notebook as Markdown, with the outputs that it was saved with."""
    parts: list[str] = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif cell.cell_type == "code":
            parts.append(f"```python\n{cell.source}\n```")
            parts += [_shown(output) for output in cell.outputs]
    title, *rest = parts
    note = f"This page is a notebook: [download it]({path.name}), and run it in a directory of your own."
    return "\n\n".join([title, note, *rest]) + "\n"


def _shown(output: Any) -> str:
    data = output.get("data", {})
    # Without the frame's own look: tables of the site look alike.
    table = re.sub(r' (?:border|class|style)="[^"]*"|\n\s*', "", data.get("text/html", ""))
    body = table or f"<pre>{html.escape(_text(output))}</pre>"
    return f'<div class="output">\n{body}\n</div>'


def _text(output: Any) -> str:
    return str(output["text"] if output.output_type == "stream" else output["data"]["text/plain"]).rstrip("\n")


# -- outputs -----------------------------------------------------------------------------------------------------------


def run(path: Path, directory: Path) -> Any:
    """Run a notebook in an empty directory, and return it with outputs that are the same on every run."""
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    resources = {"metadata": {"path": str(directory)}}
    client = NotebookClient(notebook, timeout=240, kernel_name="python3", resources=resources, record_timing=False)
    client.execute(env=environment)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = list(_stable(cell.outputs, directory))
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def _stable(outputs: list[Any], directory: Path) -> Iterator[Any]:
    """Yield outputs without warnings and progress, with one name for each directory and each transaction."""

    def without(text: str) -> str:
        return _UUID.sub("0198a1b2-…", _STYLE.sub("", text).replace(str(directory), DIRECTORY))

    for output in outputs:
        if output.output_type == "stream":
            if output.name == "stdout":
                output.text = without(output.text)
                yield output
            continue
        output.data = {kind: without(text) for kind, text in output.data.items() if kind in ("text/plain", "text/html")}
        yield output


def main() -> None:
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        with TemporaryDirectory() as directory:
            nbformat.write(run(path, Path(directory).resolve()), path)


if __name__ == "__main__":
    main()
