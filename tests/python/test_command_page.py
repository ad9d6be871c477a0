"""docs/cli.md says what the commands say, and their help teaches."""

import pathlib
import shlex

import pytest
from command_page import commands, flags, table
from kiln.cli import make_parser

PAGE = (pathlib.Path(__file__).parents[2] / "docs/cli.md").read_text(encoding="utf-8")
COMMANDS = dict(commands())


def examples(parser):
    """The example commands of a parser's help."""
    text = parser.epilog.split("examples:\n")[1].split("\n\n")[0].replace("\\\n", " ")
    for line in text.splitlines():
        command = line.strip().split("  ")[0]
        if line.strip().endswith("exit codes") or not command:
            continue
        yield line.strip()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_on_the_page_with_its_flags(name):
    heading = f"## `{name}`\n"
    assert heading in PAGE
    section = PAGE.split(heading)[1].split("\n## ")[0]
    assert section.strip().startswith(COMMANDS[name].description)
    expected = table(COMMANDS[name])
    assert expected in section, f"docs/cli.md, {name}: its table must be\n{expected}"


def test_the_page_names_no_other_command():
    named = [line.split("`")[1] for line in PAGE.splitlines() if line.startswith(("## `", "### `"))]
    assert named == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches(name):
    parser = COMMANDS[name]
    assert len(parser.description.split()) >= 20
    assert "examples:\n" in parser.epilog
    for action in flags(parser):
        assert action.help, f"{name} {action.option_strings} has no help"


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_can_be_typed(name):
    found = 0
    for line in examples(COMMANDS[name]):
        words = shlex.split(line.split("  ")[0])
        while "=" in words[0]:  # a variable of the environment
            words = words[1:]
        if words[0] != "kiln":
            continue
        make_parser().parse_args(words[1:])  # exits on a mistake
        found += 1
    assert found >= 1


@pytest.mark.parametrize("name", [name for name, parser in COMMANDS.items() if flags(parser)])
def test_every_command_has_json(name):
    assert "--json" in [option for a in flags(COMMANDS[name]) for option in a.option_strings]


def test_exit_codes_are_documented():
    for code, words in enumerate(
        ["it worked", "a check failed", "usage", "a compile failed", "the environment"]
    ):
        assert f"| {code} | {words}" in PAGE
