"""The pages: every link and anchor leads somewhere, every path in backticks exists, and what `make
docs` writes is what it would write now."""

import functools
import pathlib
import re

import api_page
import pytest
import results_figure

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(p for d in ("docs", "bench", "examples") for p in ROOT.glob(f"{d}/**/*.md")),
    ]
)
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

ROOMS = "bench|cache|cmake|docs|examples|jit|python|runtime|scripts|templates|tests"
PATH = re.compile(rf"`((?:{ROOMS})/[\w./*-]*)`")
LINK = re.compile(r"\]\(([^()\s]+)\)|<img [^>]*src=\"([^\"]+)\"")
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def prose(page):
    """A page's text without its code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


@functools.cache
def anchors(page):
    """The anchors of a page's headings; GitHub numbers those that occur again."""
    found = []
    for heading in re.findall(r"^#+ (.*)", prose(page), re.MULTILINE):
        name = api_page.anchor(heading)
        found.append(f"{name}-{found.count(name)}" if name in found else name)
    return found


def faults_of_links(page, text):
    """Links of `text`, as if it stood in `page`, that lead nowhere."""
    for link, image in LINK.findall(text):
        target, _, anchor = (link or image).partition("#")
        if re.match(r"[a-z]+:", target):
            continue  # elsewhere
        path = (page.parent / target).resolve() if target else page
        if not path.exists():
            yield f"{page.name} links to {target}, which does not exist"
        elif anchor and anchor not in anchors(path):
            yield f"{page.name} links to {target}#{anchor}; no heading there has that anchor"


def faults_of_paths(page, text):
    """Paths of the repository in backticks that do not exist."""
    for path in PATH.findall(text):
        if not any(ROOT.glob(path.rstrip("/"))):
            yield f"{page.name} names {path}, which does not exist"


@EACH_PAGE
def test_links_and_paths_lead_somewhere(page):
    faults = [*faults_of_links(page, prose(page)), *faults_of_paths(page, prose(page))]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "text",
    ["[a](none.md)", "[a](docs/env.md#none)", "[a](#none)", '<img alt="a" src="docs/none.svg">'],
)
def test_a_dead_link_is_found(text):
    assert list(faults_of_links(ROOT / "README.md", text))


def test_a_path_that_is_none_is_found():
    assert list(faults_of_paths(ROOT / "README.md", "see `examples/99_none.py`"))
    assert not list(faults_of_paths(ROOT / "README.md", "see `tests/emulator/cases_*.py`"))


def test_the_index_lists_every_page():
    linked = re.findall(r"\]\((\w+\.md)\)", (ROOT / "docs/README.md").read_text(encoding="utf-8"))
    there = {page.name for page in ROOT.glob("docs/*.md")} - {"README.md"}
    assert set(linked) >= there and len(linked) == len(set(linked))


def test_the_page_of_figures_lists_every_page_of_a_kind():
    text = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"^\| \[\w+\.md\]\(performance/(\w+\.md)\)", text, re.MULTILINE))
    assert linked == {page.name for page in ROOT.glob("docs/performance/*.md")}


def test_the_api_page_is_what_make_docs_writes():
    assert api_page.PAGE.read_text(encoding="utf-8") == api_page.page(), "stale: run make docs"


def test_the_figure_is_what_make_docs_writes():
    drawn = results_figure.FIGURE.read_text(encoding="utf-8")
    assert drawn == results_figure.draw(results_figure.pages()), "stale: run make docs"


def test_the_figure_shows_the_figures_of_the_pages():
    page = results_figure.pages()
    drawn = results_figure.draw(page)
    hopper = page[page.index("| Hopper, 512 to 16k |") :]
    cudnn = re.search(r"^\| D128 causal \| [\d.]+ \| ([\d.]+) \|", hopper, re.MULTILINE)[1]
    assert f"<title>D128 causal, cuDNN: {float(cudnn)}</title>" in drawn
    (triton,) = re.findall(r"^\| layers M = 256 \|.*\| ([\d.]+) \| [^|]*\|$", page, re.MULTILINE)
    assert f"<title>layers M = 256, Triton: {float(triton)}</title>" in drawn
    assert drawn.count("<circle") > 50
