"""The messages that docs/troubleshooting.md lists, and whether an error is one of them."""

import pathlib
import re

PAGE = (pathlib.Path(__file__).parents[2] / "docs/troubleshooting.md").read_text(encoding="utf-8")


def page_patterns():
    """Every message of the page as a regular expression; what varies is an ellipsis there."""
    for span in re.findall(r"`([^`]+)`", PAGE):
        if len(re.findall(r"[A-Za-z]{2,}", span)) >= 4:  # "must be …, got …" matches anything
            parts = span.replace("\\|", "|").strip("… ").split("…")
            yield re.compile(".*".join(re.escape(part.strip()) for part in parts), re.DOTALL)


PATTERNS = list(page_patterns())


def check(error, kind, text):
    assert isinstance(error, kind), repr(error)
    message = str(error)
    assert text in message, message
    bare = message.replace("`", "")
    assert any(pattern.search(bare) for pattern in PATTERNS), f"not on the page: {message}"
