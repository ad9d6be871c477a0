"""Which tests of tests/kernels `make test` runs on the emulated device: nearly all of their time
goes into compiling kernels, and most of these differ by a combination of what others have too.

Half of the functions rest. Of the tests of each other function a cover runs, that is with every
word of the names in brackets that does not rest in one of them at least, and a share of the others.
KILN_TEST_SEED decides all of this. Without it, in the full size and with KILN_TEST_FULL=1, all.
"""

import collections
import os
import zlib

import grid

FUNCTIONS = 2  # one of so many functions runs; with all, this folder took 20 minutes of two cores
SHARE = 8  # one of so many of those that are not in the cover
RESTS = 3  # one of so many words of a function's tests rests: CI has 30 minutes for all suites


def words_of(name):
    """test_it[late-bf16-d64x64] has the words bf16 and d64x64; a schedule is none."""
    _, _, inside = name.partition("[")
    return set(inside.removesuffix("]").split("-")) - {"", *grid.schedules()}


def rests(word, function, seed):
    """Whether a word of the names of a function's tests asks for none with this seed."""
    return zlib.crc32(f"{seed}word{function}-{word}".encode()) % RESTS == 0


def function_runs(nodeid, seed):
    """Whether any test of this function runs with this seed."""
    return zlib.crc32(f"{seed}function{nodeid}".encode()) % FUNCTIONS == 0


def cover(names, counts):
    """Takes the first name that has most new words that count, until none has any; at least one."""
    left = {name: {word for word in words_of(name) if counts(word)} for name in names}
    chosen = []
    while left:
        name = max(left, key=lambda name: len(left[name]))
        new = left.pop(name)
        if not new and chosen:
            break
        chosen.append(name)
        left = {other: words - new for other, words in left.items()}
    return chosen


def chosen(names, seed, share=SHARE):
    """The names of one function's tests that run with this seed."""

    def number(name, of):
        return zlib.crc32(f"{seed}{of}{grid.without_schedule(name)}".encode())

    function, _, _ = min(names).partition("[")

    def counts(word):
        return not rests(word, function, seed)

    first = cover(sorted(names, key=lambda name: (number(name, "cover"), name)), counts)
    return {*first, *(name for name in names if number(name, "share") % share == 0)}


def waiting(items):
    """The items whose turn it is not."""
    seed = os.environ.get("KILN_TEST_SEED")
    if not seed or grid.is_full() or grid.tests_all():
        return set()
    functions = collections.defaultdict(dict)
    for item in items:
        functions[item.nodeid.partition("[")[0]][item.name] = item
    others = set()
    for function, tests in functions.items():
        taken = chosen(tests, seed) if function_runs(function, seed) else ()
        others |= {item for name, item in tests.items() if name not in taken}
    return others
