"""Compiles what the collected tests need ahead of them, many kernels at a time."""

import concurrent.futures
import os


def run_once(group, device):
    """A failure here is not reported: the test of the same group meets it again, with its name."""
    try:
        with device():
            group.run()
    except Exception as error:
        return error
    return None


def compile_ahead(items, device):
    """Runs the `group` of every test that has one, in parallel threads, each within device()."""
    groups = {
        id(item.callspec.params["group"]): item.callspec.params["group"]
        for item in items
        if hasattr(item, "callspec") and "group" in item.callspec.params
    }
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda group: run_once(group, device), groups.values()))
