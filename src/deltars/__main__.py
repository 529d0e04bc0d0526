"""`python -m deltars`: the command `deltars`, for an environment that is not activated."""

from deltars.cli import main

main(prog_name="deltars")
