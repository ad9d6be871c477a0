"""Output for terminals: coloured verdicts, and progress as one line that is rewritten."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TextIO

_COLOURS = {"good": "32", "caution": "33", "bad": "31"}


class Painted(str):
    """A text with a colour: "good", "caution" or "bad". Tables count only its letters."""

    colour: str

    def __new__(cls, text: str, colour: str) -> Painted:
        painted = super().__new__(cls, text)
        painted.colour = colour
        return painted


def is_terminal(stream: TextIO) -> bool:
    """Whether this stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_colours(stream: TextIO) -> bool:
    """Whether this stream is a terminal and NO_COLOR is not set (https://no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    """The text in its colour if the stream (default: stdout) has colours."""
    if not has_colours(stream or sys.stdout):
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


class Progress:
    """Progress on stderr: done of total, the time left, what was done. On a terminal one line that
    is rewritten, elsewhere a line for each step."""

    def __init__(self, total: int = 0, stream: TextIO | None = None) -> None:
        self.total = total
        self._stream = stream or sys.stderr
        self._rewrites = is_terminal(self._stream)
        self._start = time.monotonic()

    def step(self, done: int, text: str, stays: bool = False) -> None:
        """Shows that `done` steps are done. A line that `stays` is never overwritten."""
        left = (time.monotonic() - self._start) / done * (self.total - done)
        width = len(str(self.total))
        line = f"[{done:{width}}/{self.total}] {time_text(left)} left  {text}"
        if not self._rewrites:
            print(line, file=self._stream, flush=True)
            return
        columns = shutil.get_terminal_size().columns
        shown = line if stays else line[: columns - 1]  # a line that wraps cannot be rewritten
        print(f"\r\x1b[K{shown}", end="\n" if stays else "", file=self._stream, flush=True)

    def close(self) -> None:
        """Erases the line that is being rewritten."""
        if self._rewrites:
            print("\r\x1b[K", end="", file=self._stream, flush=True)


def time_text(seconds: float) -> str:
    """7 to "   7 s", 200 to "3 m 20 s"."""
    whole = round(seconds)
    return f"{whole:4} s" if whole < 120 else f"{whole // 60} m {whole % 60:02} s"
