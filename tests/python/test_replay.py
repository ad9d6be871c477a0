"""scripts/replay.py: which kernels differ between two sets of keys, and that a changed template
changes the keys of the kernels that include it, and no others."""

import json
import pathlib
import shutil

import pytest
import replay

TEMPLATES = pathlib.Path(__file__).parents[2] / "templates"


def spec(op, **fields):
    return json.dumps({"op": op, **fields}, sort_keys=True)


A, B, C = (spec("gemm", block_m=m) for m in (16, 32, 64))
ATTENTION = spec("flash_attention")


def kinds_of(base, now):
    """Of the only family and arch that base and now have, what is not empty."""
    (kinds,) = replay.compare({"sm_90": base}, {"sm_90": now}).values()
    return {kind: specs for kind, specs in kinds.items() if specs}


def test_each_kind_of_difference():
    assert kinds_of({A: "1", B: "2"}, {A: "1", B: "2"}) == {"unchanged": [A, B]}
    assert kinds_of({A: "1", B: "2"}, {A: "1", B: "3"}) == {"unchanged": [A], "changed": [B]}
    assert kinds_of({A: "1"}, {A: "1", C: "4"}) == {"unchanged": [A], "added": [C]}
    assert kinds_of({A: "1", B: "2"}, {A: "1"}) == {"unchanged": [A], "removed": [B]}


def test_a_kernel_under_another_spec_is_unchanged():
    assert kinds_of({A: "1"}, {B: "1"}) == {"unchanged": [B]}
    assert kinds_of({A: "1"}, {B: "2"}) == {"added": [B], "removed": [A]}
    assert kinds_of({A: "1"}, {A: "1", B: "1"}) == {"unchanged": [A], "added": [B]}


def test_families_and_archs_are_counted_apart():
    base = {"sm_80": {A: "1", ATTENTION: "2"}, "sm_90": {A: "3"}}
    now = {"sm_80": {A: "9", ATTENTION: "2"}, "sm_90": {A: "3"}, "sm_100": {A: "4"}}
    comparison = replay.compare(base, now)
    assert comparison["gemm", "sm_80"]["changed"] == [A]
    assert comparison["gemm", "sm_90"]["unchanged"] == [A]
    assert comparison["gemm", "sm_100"]["added"] == [A]
    assert comparison["flash_attention", "sm_80"]["unchanged"] == [ATTENTION]
    assert replay.touches(comparison)
    assert not replay.touches(replay.compare(now, now))


def test_the_report_shows_the_first_specs():
    many = {spec("gemm", block_m=m): str(m) for m in range(10)}
    lines = replay.report(replay.compare({"sm_90": {}}, {"sm_90": many}))
    assert lines[1].split() == ["gemm", "sm_90", "0", "0", "10", "0"]
    shown = list(many)[: replay.SHOWN]
    assert lines[2:] == ["added, gemm sm_90:", *(f"  {one}" for one in shown), "  and 7 more"]
    assert replay.report(replay.compare({}, {}))[1:] == ["No kernel is touched."]


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    """Keys of a base commit and of this checkout, which main() takes for the real ones."""
    keys = {"base": {"sm_90": {A: "1"}}, "now": {"sm_90": {A: "1"}}}
    answers = {"status": " M templates/base/math.cuh", "rev-parse": "0123456789abcdef"}
    monkeypatch.setattr(replay, "git", lambda command, *rest: answers[command])
    monkeypatch.setattr(replay, "FOLDER", tmp_path)
    monkeypatch.setattr(replay, "keys_of_package", lambda: keys["now"])
    replay.record("0123456789abcdef", keys["base"])
    return keys


def test_the_exit_status(recorded, capsys):
    assert replay.main([]) == replay.main(["--expect-none"]) == 0
    assert "No kernel is touched." in capsys.readouterr().out
    recorded["now"]["sm_90"][A] = "2"
    assert replay.main([]) == 0
    assert replay.main(["--expect-none"]) == 1
    assert "changed, gemm sm_90:" in capsys.readouterr().out


def test_a_changed_template_touches_what_includes_it(tmp_path, monkeypatch):
    monkeypatch.delenv("KILN_TEMPLATE_DIR", raising=False)
    of = {"archs": ("sm_80", "sm_90"), "families": ("gemm", "quantize", "merge_states")}
    base = replay.keys_of_package(**of)
    assert {family for family, _ in replay.compare({}, base)} == set(of["families"])
    changed = tmp_path / "templates"
    shutil.copytree(TEMPLATES, changed)
    path = changed / "gemm" / "sm90" / "schedule.cuh"
    path.write_text(path.read_text() + "// changed\n")
    monkeypatch.setenv("KILN_TEMPLATE_DIR", str(changed))
    comparison = replay.compare(base, replay.keys_of_package(**of))
    touched = {where for where, kinds in comparison.items() if kinds["changed"]}
    assert touched == {("gemm", "sm_90")}
    assert all(json.loads(spec)["cluster"] for spec in comparison["gemm", "sm_90"]["changed"])
    assert not any(kinds[kind] for kinds in comparison.values() for kind in ("added", "removed"))
