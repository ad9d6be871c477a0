"""The marker `takes_turns(n)`: of each function that has it, one test in n runs, and at least one.
KILN_TEST_SEED decides which. Without it, or with KILN_TEST_FULL=1, all of them run.

It is for tests of which each takes seconds of compiling: CI has 30 minutes for all suites.
"""

import collections
import os
import zlib


def waiting(items):
    """The items whose turn it is not."""
    seed = os.environ.get("KILN_TEST_SEED")
    if not seed or os.environ.get("KILN_TEST_FULL") == "1":
        return set()
    functions = collections.defaultdict(list)
    for item in items:
        if item.get_closest_marker("takes_turns") is not None:
            functions[item.nodeid.partition("[")[0]].append(item)
    others = set()
    for tests in functions.values():
        (of,) = tests[0].get_closest_marker("takes_turns").args
        tests.sort(key=lambda item: zlib.crc32(f"{seed}turn{item.nodeid}".encode()))
        others.update(tests[-(-len(tests) // of) :])
    return others


def leave_out_waiting(config, items):
    """For pytest_collection_modifyitems."""
    others = waiting(items)
    config.hook.pytest_deselected(items=list(others))
    items[:] = [item for item in items if item not in others]
