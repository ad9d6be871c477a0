"""Every row of every config table through NVRTC: no spill, no local memory, no ptxas complaint.

The archs of one family differ in little but the target, so the whole list is compiled for sm_90
only; one of each other family gets all of it in bf16 and tf32. Every row is compiled for every arch
in every dtype, in one form at least.
"""

import json

import kiln
import pytest

# Largest shared memory of a CTA, in KiB.
SHARED_LIMITS = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_100": 227, "sm_120": 99}
EVERYTHING = {"sm_90"}
ONE_HALF_TYPE = {"sm_80", "sm_100", "sm_120"}  # sm_86 and sm_89: sm_80's code, sm_120's tiles
# The properties of the plainest form of a kernel; head dims and tiles stay free.
PLAIN = {
    "flash_attention": {
        "mask": "causal", "softcap": False, "alibi": False, "sinks": None,
        "aligned": True,
    },
    "gemm": {
        "layout": "nt", "accumulator": "float32", "bias": None, "residual": None,
        "activation": "none", "loads": "vectors", "scale_a": "none", "scale_b": "none",
    },
}  # fmt: skip
TILE = {
    "flash_attention": ("block_q", "block_kv", "warps", "stages", "splits"),
    "gemm": ("block_m", "block_n", "block_k", "stages", "cluster", "splits"),
}


def is_plain(spec):
    return all(spec[key] == value for key, value in PLAIN[spec["op"]].items())


def chosen(arch):
    specs = kiln.enumerate_specs(arch)
    if arch in EVERYTHING:
        return specs
    if arch in ONE_HALF_TYPE:
        some = [spec for spec in specs if spec["dtype"] != "float16" or is_plain(spec)]
    else:
        some = [spec for spec in specs if is_plain(spec)]
    # A row that serves no plain kernel (code at every logit, copies through registers) once too.
    served = rows(some)
    others = {row_of(spec): spec for spec in specs if row_of(spec) not in served}
    return some + list(others.values())


def row_of(s):
    return (s["op"], s["dtype"], *(s[key] for key in TILE[s["op"]]))


def rows(specs):
    return {row_of(spec) for spec in specs}


@pytest.mark.parametrize("arch", SHARED_LIMITS)
def test_the_choice_covers_every_row_and_dtype(arch):
    everything, some = kiln.enumerate_specs(arch), chosen(arch)
    assert len(everything) > 100
    assert rows(some) == rows(everything)
    bf16 = [spec for spec in everything if spec["dtype"] == "bfloat16"]
    if arch in EVERYTHING | ONE_HALF_TYPE:
        assert [spec for spec in some if spec["dtype"] == "bfloat16"] == bf16


@pytest.mark.parametrize("arch", SHARED_LIMITS)
def test_every_row_compiles_clean(arch):
    report = kiln.prewarm(chosen(arch), arch)
    assert report["failed"] == []
    assert report["compiled"] + report["cached"] == report["total"] > 0
    faults = [fault for kernel in report["kernels"] for fault in faults_of(kernel["spec"], arch)]
    assert not faults, "\n".join(faults)


def faults_of(spec, arch):
    (kernel,) = kiln.inspect(spec, arch)
    assert kernel["cached"], f"{kernel['what']} was compiled twice"
    shared = kernel["dynamic_shared_bytes"] + kernel["shared_bytes"]
    found = {
        f"{kernel['spill_bytes']} bytes spilled": kernel["spill_bytes"] > 0,
        f"{kernel['local_bytes']} bytes of local memory": kernel["local_bytes"] > 0,
        f"ptxas says {kernel['warnings']}": kernel["warnings"] != [],
        f"{shared} bytes of shared memory": shared > SHARED_LIMITS[arch] * 1024,
        f"{kernel['registers']} registers": not 0 < kernel["registers"] <= 255,
    }
    return [f"{arch}, {kernel['what']}: {text}" for text, bad in found.items() if bad]


def test_a_spec_survives_its_own_json():
    spec = kiln.enumerate_specs("sm_90")[0]
    (kernel,) = kiln.inspect(json.dumps(spec), "sm_90a")
    assert kernel["spec"] == spec
