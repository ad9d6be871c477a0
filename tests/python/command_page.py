"""The tables of docs/cli.md, made from the parsers; run as a script, it prints a whole page."""

import argparse

from kiln.cli import make_parser


def commands(parser=None, name="kiln"):
    """(name, parser) of every command and subcommand, in the order of --help."""
    parser = parser or make_parser()
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, child in action.choices.items():
                yield from commands(child, f"{name} {word}")


def flags(parser):
    """The actions of a parser that a person writes, but for --help and subcommands."""
    left_out = (argparse._HelpAction, argparse._SubParsersAction, argparse._VersionAction)
    return [action for action in parser._actions if not isinstance(action, left_out)]


def usage_of(action):
    """ "--m M,...", "file", "--layout nn|nt|tn|tt"."""
    if not action.option_strings:
        return action.metavar or action.dest
    words = action.metavar or ("\\|".join(action.choices) if action.choices else "")
    if isinstance(words, tuple):
        words = " ".join(words)
    takes = action.nargs != 0
    shown = words or (action.dest.upper() if takes else "")
    names = action.option_strings[:1]
    if isinstance(action, argparse.BooleanOptionalAction):
        names = action.option_strings
    return f"{'`, `'.join(names)} {shown}".strip()


def table(parser):
    """The flags of a command as a table of Markdown; empty when it has none."""
    rows = [f"| `{usage_of(action)}` | {action.help} |" for action in flags(parser)]
    return "\n".join(["| flag | |", "|---|---|", *rows]) if rows else ""


def page():
    """Every command with its description, flags and examples."""
    for name, parser in commands():
        yield f"## `{name}`\n\n{parser.description}\n"
        if flags(parser):
            yield f"{table(parser)}\n"
        lines = parser.epilog.split("examples:\n")[1].split("\n\n")[0].splitlines()
        width = max(len(line.strip().split("  ")[0]) for line in lines)
        yield "```sh"
        for line in lines:
            command, _, what = line.strip().partition("  ")
            yield f"{command:{width}}  # {what.strip()}" if what else command
        yield "```\n"


if __name__ == "__main__":
    print("\n".join(page()))
