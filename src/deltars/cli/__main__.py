"""`python -m deltars.cli`: the same as `deltars`."""

from deltars.cli import main

main(prog_name="deltars")
