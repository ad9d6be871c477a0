#!/usr/bin/env python3
"""Writes docs/api.md, the manual of kiln's public names, from the installed package's docstrings.

scripts/api_page.py          (make docs; tests/python/test_pages.py fails while the page is stale)
"""

from __future__ import annotations

import inspect
import pathlib
import re
import textwrap

import kiln
import kiln.integrations.torch
from kiln import jit, variants
from kiln.compat import flash_attn

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "api.md"
WIDTH = 100
ENTRY = re.compile(r"(\S.*?) {2,}(\S.*)")  # "name  what it is" in a docstring's list
NAMES = re.compile(r"\w+(, \w+)*")  # those too long for this, on a line of their own

OPENING = """\
# Python API

<!-- Made by scripts/api_page.py from the docstrings: change these, then run `make docs`. -->

Every example below runs as it stands, on the emulated device where there is no GPU. `help()` shows
the same texts. [troubleshooting.md](troubleshooting.md) explains the messages of errors;
[cpp.md](cpp.md) is about C++ and C.
"""


def page():
    """The text of docs/api.md."""
    public = {name: getattr(kiln, name) for name in kiln.__all__ if name != "jit"}
    errors = {n: x for n, x in public.items() if isinstance(x, type) and issubclass(x, Exception)}
    rest = {name: thing for name, thing in public.items() if name not in errors}
    sections = {
        "Operations": {f"jit.{name}": getattr(jit, name) for name in jit.__all__},
        "Around the operations": {f"kiln.{name}": thing for name, thing in rest.items()},
        "Variants": {f"variants.{name}": getattr(variants, name) for name in variants.__all__},
        "By other names": {
            **{f"compat.flash_attn.{n}": getattr(flash_attn, n) for n in flash_attn.__all__},
            "integrations.torch.register": kiln.integrations.torch.register,
        },
        "Errors": {f"kiln.{name}": thing for name, thing in errors.items()},
    }
    parts = [OPENING, *(_contents(title, things) for title, things in sections.items())]
    for title, things in sections.items():
        parts.append(f"\n## {title}\n")
        parts += [_entry(name, thing) for name, thing in things.items()]
    return "".join(parts)


def anchor(heading):
    """The name that a heading gets in a link, as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def _contents(title, things):
    rows = [
        f"| [`{name}`](#{anchor(name)}) | {_cell(_first_sentence(thing))} |\n"
        for name, thing in things.items()
    ]
    return f"\n| {title} | |\n|---|---|\n" + "".join(rows)


def _first_sentence(thing):
    paragraph = " ".join(_paragraphs(thing)[0])
    return re.split(r"(?<=[.])\s|:$", paragraph)[0]


def _entry(name, thing):
    body = [_render(lines) for lines in _paragraphs(thing)]
    return f"\n### {name}\n\n```py\n{_signature(name, thing)}\n```\n\n" + "\n".join(body)


def _signature(name, thing):
    if isinstance(thing, type) and issubclass(thing, Exception):
        return f"class {name}({thing.__bases__[0].__name__})"
    text = f"{name}{_parameters(thing)}"
    if len(text) <= WIDTH:
        return text
    return "\n".join(textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_on_hyphens=False))


def _parameters(thing):
    try:
        signature = inspect.signature(thing)
    except ValueError:  # a class of pybind11's, whose __init__ opens with its own
        inside = re.findall(r"\(self: [\w.]+, (.*)\) ->", thing.__init__.__doc__)[0]
        return f"({re.sub(r': [^,=]+?(?= =|,|$)', '', inside).replace(' = ', '=')})"
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def _paragraphs(thing):
    """The docstring's paragraphs, as lists of lines."""
    text = inspect.cleandoc(thing.__doc__)
    return [lines.splitlines() for lines in re.split(r"\n\s*\n", text)]


def _render(lines):
    if lines[0].lstrip().startswith(">>>"):
        return "```pycon\n" + textwrap.dedent("\n".join(lines)) + "\n```\n"
    if ENTRY.fullmatch(lines[0]):
        return _table(lines)
    return "\n".join(map(_escape, lines)) + "\n"


def _table(lines):
    rows = []
    for line in lines:
        found = None if line.startswith(" ") else ENTRY.fullmatch(line)
        if found:
            rows.append([found.group(1), found.group(2)])
        elif NAMES.fullmatch(line):
            rows.append([line, ""])
        else:
            rows[-1][1] += " " + line.strip()
    body = [f"| `{name}` | {_cell(text.strip())} |\n" for name, text in rows]
    return "| | |\n|---|---|\n" + "".join(body)


def _cell(text):
    return _escape(text).replace("|", "\\|")


def _escape(text):
    """Text in which Markdown sees no emphasis and no tag, with links to the pages of docs/; what is
    in `backticks` stays."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*<])", r"\\\1", part) for part in parts[::2]]
    return re.sub(r"\bdocs/(\w+\.md)", r"[docs/\1](\1)", "`".join(parts))


def main():
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.relative_to(PAGE.parents[1]))


if __name__ == "__main__":
    main()
