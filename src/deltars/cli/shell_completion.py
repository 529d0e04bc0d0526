"""`deltars completion`: prints the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from deltars.cli.options import with_output_options
from deltars.cli.output import Output

SHELLS = ("bash", "zsh", "fish")


@click.command
@click.argument("shell", type=click.Choice(SHELLS))
@with_output_options
@click.pass_context
def completion(context: click.Context, shell: str, output: Output) -> None:
    """Print the completion script for SHELL: bash, zsh or fish.

    \b
    Example:
      deltars completion bash >> ~/.bashrc
      deltars completion fish > ~/.config/fish/completions/deltars.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    output.text("script", kind(context.find_root().command, {}, "deltars", "_DELTARS_COMPLETE").source())
