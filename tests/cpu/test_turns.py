"""The choice of the tests of kernels that `make test` runs: it covers, and seeds differ."""

import itertools

import pytest
import turn_marker
import turns

GRID = [
    f"test_it[{schedule}-{dtype}-d{dim}-{mask}]"
    for schedule, dtype, dim, mask in itertools.product(
        ("late", "eager"), ("bf16", "f16"), (64, 128, 256), ("full", "causal", "window", "sinks")
    )
]


def words(names):
    return set().union(*(turns.words_of(name) for name in names))


def test_words_are_those_in_brackets_without_a_schedule():
    assert turns.words_of("test_it[late-bf16-d64x64]") == {"bf16", "d64x64"}
    assert turns.words_of("test_it[eager]") == turns.words_of("test_it") == set()


@pytest.mark.parametrize("seed", ["0", "1", "452fe2ad1d36"])
def test_every_word_that_does_not_rest_is_in_a_test_that_runs(seed):
    chosen = turns.chosen(GRID, seed)
    assert words(chosen) >= {word for word in words(GRID) if not turns.rests(word, "test_it", seed)}
    assert len(chosen) < len(GRID) / 2
    assert chosen == turns.chosen(GRID[::-1], seed)


def test_tests_without_common_words_run_if_their_word_does_not_rest():
    names = [f"test_it[late-case{i}]" for i in range(90)]
    chosen = turns.chosen(names, "0")
    awake = {name for name in names if not turns.rests(*turns.words_of(name), "test_it", "0")}
    assert awake < chosen < set(names)
    assert 50 <= len(awake) <= 70
    assert turns.chosen(["test_it"], "0") == {"test_it"}
    assert turns.chosen(["test_it[late]"], "0") == {"test_it[late]"}


def test_every_test_gets_its_turn():
    seeds = [str(seed) for seed in range(80)]
    assert set().union(*(turns.chosen(GRID, seed) for seed in seeds)) == set(GRID)
    assert len({frozenset(turns.chosen(GRID, seed)) for seed in seeds}) > 70


def test_every_function_gets_its_turn():
    names = [f"tests/kernels/test_{i}.py::test_it" for i in range(60)]
    seeds = [str(seed) for seed in range(40)]
    runs = [{name for name in names if turns.function_runs(name, seed)} for seed in seeds]
    assert set().union(*runs) == set(names)
    assert all(15 <= len(some) <= 45 for some in runs)


class Item:
    """A test as pytest has it, with or without the marker."""

    def __init__(self, nodeid, of):
        self.nodeid, self.of = nodeid, of

    def get_closest_marker(self, name):
        assert name == "takes_turns"
        return pytest.mark.takes_turns(self.of).mark if self.of else None


def test_a_part_of_a_marked_function_runs(monkeypatch):
    plain = [Item(f"t.py::test_all[{i}]", None) for i in range(5)]
    marked = [Item(f"t.py::test_some[{i}]", 3) for i in range(7)]
    single = [Item("t.py::test_one", 4)]
    monkeypatch.setenv("KILN_TEST_FULL", "0")
    served = set()
    for seed in range(40):
        monkeypatch.setenv("KILN_TEST_SEED", str(seed))
        waiting = turn_marker.waiting([*plain, *marked, *single])
        assert len(waiting) == 4 and waiting < set(marked)
        assert waiting == turn_marker.waiting([*single, *marked[::-1], *plain])
        served |= set(marked) - waiting
    assert served == set(marked)
    monkeypatch.setenv("KILN_TEST_FULL", "1")
    assert not turn_marker.waiting(marked)
    monkeypatch.delenv("KILN_TEST_SEED")
    monkeypatch.setenv("KILN_TEST_FULL", "0")
    assert not turn_marker.waiting(marked)
