"""Colours and progress: on a terminal, and elsewhere."""

import io
import os
import pty
import subprocess
import sys

import pytest
from kiln.cli import terminal


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_colours_only_where_somebody_looks(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert terminal.paint("ok", "good", Terminal()) == "\x1b[32mok\x1b[0m"
    assert terminal.paint("ok", "good", io.StringIO()) == "ok"
    monkeypatch.setenv("TERM", "dumb")
    assert terminal.paint("ok", "good", Terminal()) == "ok"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.paint("ok", "good", Terminal()) == "ok"


def on_a_terminal(environment, *arguments):
    """stdout of `kiln ARGUMENTS`, run on a terminal."""
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "kiln", *arguments]
    run = subprocess.Popen(command, env=environment, stdout=child, stderr=subprocess.PIPE)
    os.close(child)
    out = b""
    while True:
        try:
            part = os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
        out += part
    run.communicate(timeout=60)
    os.close(parent)
    return out.decode()


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_command_on_a_terminal(environment, no_color):
    variables = {**environment, "TERM": "xterm", "NO_COLOR": no_color}
    assert ("\x1b[32mok" in on_a_terminal(variables, "doctor")) == (not no_color)
    assert "\x1b" not in on_a_terminal(variables, "doctor", "--json")


def test_progress_rewrites_one_line_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    progress = terminal.Progress(3, stream)
    progress.step(1, "one")
    progress.step(2, "two failed", stays=True)
    progress.step(3, "x" * 500)
    progress.close()
    text = stream.getvalue()
    assert text.count("\n") == 1 and "two failed\n" in text
    assert text.count("\r\x1b[K") == 4 and text.endswith("\r\x1b[K")
    assert max(map(len, text.split("\r\x1b[K"))) < 500  # a line that wraps cannot be rewritten


def test_progress_elsewhere_is_lines():
    stream = io.StringIO()
    progress = terminal.Progress(12, stream)
    progress.step(1, "one")
    progress.step(12, "twelve")
    progress.close()
    first, last = stream.getvalue().splitlines()
    assert first.startswith("[ 1/12] ") and first.endswith("left  one")
    assert last == "[12/12]    0 s left  twelve"


def test_times():
    assert terminal.time_text(7.2) == "   7 s"
    assert terminal.time_text(200) == "3 m 20 s"


def test_a_painted_cell_is_as_wide_as_its_letters(capsys):
    from kiln.cli.output import print_table

    print_table(["state", "n"], [[terminal.Painted("ok", "good"), 1], ["missing", 2]])
    assert capsys.readouterr().out == "state    n\nok       1\nmissing  2\n"
