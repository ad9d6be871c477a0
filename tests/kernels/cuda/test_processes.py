"""More than one process on one cache: the second compiles nothing and never loads NVRTC."""

import json
import os
import subprocess
import sys

import kiln
import pytest
from attention_case import AttentionCase
from fresh_variant import fresh_variant
from kiln import jit

SECOND = """
import json, sys, torch, kiln
from kiln import jit
torch.manual_seed(0)
q = torch.randn(1, 129, 2, 64, device="cuda").bfloat16()
k = torch.randn(1, 129, 1, 64, device="cuda").bfloat16()
out = jit.flash_attention(q, k, k)
product = jit.gemm(q[0, :, 0], k[0, :, 0].mT)
torch.cuda.synchronize()
assert torch.isfinite(out).all() and torch.isfinite(product).all()
print(json.dumps(kiln.stats() | {"sum": out.double().sum().item()}))
"""


def start(cache, jit_mode, code=SECOND):
    environment = dict(os.environ, KILN_CACHE_DIR=str(cache), KILN_JIT=jit_mode)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process):
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    return json.loads(stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def warm_cache(tmp_path_factory):
    cache = tmp_path_factory.mktemp("warm")
    cache.chmod(0o700)
    first = finish(start(cache, "auto"))
    assert first["compiles"] == 2 and first["nvrtc_loaded"]
    return cache


def test_a_second_process_reads_the_disk_and_needs_no_nvrtc(warm_cache):
    second = finish(start(warm_cache, "off"))
    assert second["compiles"] == 0 and sum(second["disk_hits"]) == 2
    assert not second["nvrtc_loaded"]


def test_with_compiling_off_a_cold_cache_raises(tmp_path):
    process = start(tmp_path, "off")
    _, stderr = process.communicate(timeout=300)
    assert process.returncode != 0
    assert "CompileDisabled" in stderr and "prewarm" in stderr


def test_eight_processes_on_one_empty_cache(tmp_path):
    tmp_path.chmod(0o700)
    reports = [finish(process) for process in [start(tmp_path, "auto") for _ in range(8)]]
    assert len({report["sum"] for report in reports}) == 1
    after = finish(start(tmp_path, "off"))
    assert after["compiles"] == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_cache_still_works(tmp_path):
    tmp_path.chmod(0o500)
    assert finish(start(tmp_path, "auto"))["compiles"] == 2


def test_a_cache_folder_that_is_a_file_still_works(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert finish(start(blocked, "auto"))["compiles"] == 2


def test_explain_says_what_a_call_runs_and_where_it_is():
    q, k, v = AttentionCase(head_dim=24).inputs()
    variant = fresh_variant()(x=1.0)
    before = kiln.explain("flash_attention", q, k, v, variant=variant)
    assert before["layer"] is None and before["spec"]["head_dim"] == 24
    jit.flash_attention(q, k, v, variant=variant)
    after = kiln.explain("flash_attention", q, k, v, variant=variant)
    assert after["layer"] == "memory"
    assert {**after, "layer": None} == before


def test_this_process_counts_memory_hits():
    q, k, v = AttentionCase().inputs()
    jit.flash_attention(q, k, v)
    before = kiln.stats()
    for _ in range(5):
        jit.flash_attention(q, k, v)
    after = kiln.stats()
    assert after["memory_hits"] == before["memory_hits"] + 5
    assert after["misses"] == before["misses"]
