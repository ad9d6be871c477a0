"""The whole flow of a call on the fake driver of the C++ tests: off, prewarmed, disk hit, memory
hit. Where there is a real driver, tests/kernels/cuda does all this in earnest."""

import json
import os
import subprocess
import sys

import kiln
import pytest

SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from fake_tensors import ExchangeTensor
import kiln
from kiln import jit

q, k = (ExchangeTensor((2, 48, 4, 64), device=(2, 0)) for _ in range(2))
kiln.set_jit("off")
report = {}
try:
    out, lse = jit.flash_attention(q, k, k, causal=True, return_lse=True)
    report["shapes"] = [out.shape, lse.shape]
    report["is_out"] = jit.flash_attention(q, k, k, causal=True, out=q) is q
    report["layer"] = kiln.explain("flash_attention", q, k, k, causal=True)["layer"]
except kiln.CompileDisabled as error:
    report["spec"] = error.spec
report["stats"] = kiln.stats()
print(json.dumps(report))
"""


# A template file with an error in its second line: what a call says about it.
TEMPLATE = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from fake_tensors import ExchangeTensor
import kiln
from kiln import jit

q = ExchangeTensor((2, 48, 4, 64), device=(2, 0))
keys = []
for path in sys.argv[2:]:
    with open(path, "w") as file:
        file.write("struct UserVariant : kiln::VariantDefaults {\\n  int x = not_a_name;\\n};")
    variant = jit.Variant("mine", file=path)
    keys.append(kiln.explain("flash_attention", q, q, q, variant=variant)["key"])
    try:
        jit.flash_attention(q, q, q, variant=variant)
    except kiln.CompileError as error:
        last = {"text": str(error), "log": error.log, "path": error.path}
print(json.dumps({"keys": keys, **last}))
"""
# A launch that the driver refuses: the parts of the error.
REFUSED = """
import json, sys
sys.path.insert(0, sys.argv[1])
from fake_tensors import CudaArray
import kiln
from kiln import jit

q, out = (CudaArray((2, 48, 4, 64), device=9) for _ in range(2))
try:
    jit.flash_attention(q, q, q, out=out)
except kiln.CudaError as error:
    print(json.dumps([str(error), error.call, error.name, error.message]))
"""
# NumPy arrays, which the fake driver's device gets and does nothing with: its memory is zeros at
# first, and results of the caller's keep what they hold.
ARRAYS = """
import json, sys
import kiln, numpy
from kiln import jit

q = numpy.random.default_rng(0).standard_normal((2, 48, 4, 64)).astype(numpy.float16)
wide = numpy.zeros((2, 48, 4, 192), numpy.float16)
report = {}
out, lse = jit.flash_attention(q, wide[..., 64:128], wide[..., ::3][..., :64], return_lse=True)
report["new"] = [out.shape, str(out.dtype), str(lse.dtype), bool((out == 0).all())]
given = numpy.ones_like(q)
report["is_out"] = jit.flash_attention(q, q, q, out=given) is given and bool((given == 1).all())
report["mask"] = jit.scaled_dot_product_attention(q, q, q, numpy.ones((4, 4), bool)).shape
report["device"] = kiln.explain("flash_attention", q, q, q)["device"]


def listen(event):
    try:
        jit.flash_attention(q, q, q)
    except kiln.Error as error:
        report["inner"] = str(error)


with kiln.on_compile(listen):
    jit.rms_norm(q, None)
errors = []
for call in (
    lambda: jit.flash_attention(q, q, q, out=numpy.ones((2, 48, 4, 128), q.dtype)[..., ::2]),
    lambda: jit.gemm(q[0, 0], q[0, 0], trans_b=True, out=wide[0, :4, 0, :4]),
):
    try:
        call()
    except (TypeError, ValueError) as error:
        errors.append(f"{type(error).__name__}: {error}")
report["errors"] = errors
print(json.dumps(report))
"""


@pytest.fixture
def run_script(environment, fake_driver):
    """Runs a script on the fake driver and returns its report."""
    variables = {**environment, "LD_LIBRARY_PATH": fake_driver}

    def run(script=SCRIPT, *arguments):
        command = [sys.executable, "-c", script, os.path.dirname(__file__), *map(str, arguments)]
        return json.loads(subprocess.check_output(command, env=variables))

    return run


no_driver = pytest.mark.skipif(
    kiln.diagnose()["driver"]["found"], reason="a real driver: see tests/kernels/cuda"
)


@no_driver
def test_strict_serving(run_script, kiln_command):
    missed = run_script()
    assert missed["spec"]["mask"] == "causal"
    assert missed["stats"]["misses"] == 1
    assert not missed["stats"]["nvrtc_loaded"]

    text = json.dumps(missed["spec"])
    assert kiln_command("prewarm", "--spec", "-", "--arch", "sm_90", stdin=text).code == 0

    served = run_script()
    assert served["shapes"] == [[2, 48, 4, 64], [2, 4, 48]]
    assert served["is_out"]
    assert served["layer"] == "memory"
    assert served["stats"]["disk_hits"] == [1]
    assert served["stats"]["memory_hits"] == 1
    assert served["stats"]["compiles"] == 0
    assert not served["stats"]["nvrtc_loaded"]


@no_driver
def test_a_template_file_is_named_by_its_path_and_the_key_is_not(run_script, tmp_path):
    one, two = tmp_path / "one.cuh", tmp_path / "two.cuh"
    report = run_script(TEMPLATE, one, two)
    assert report["keys"][0] == report["keys"][1]
    assert report["path"] == str(two)
    for text in (report["text"], report["log"]):
        assert f"{two}(2): error" in text
        assert "variant template" not in text


@no_driver
def test_a_cuda_error_has_parts(run_script):
    text, call, name, message = run_script(REFUSED)
    assert "no CUDA device 9" in text
    assert (call, name) == ("", "")  # no call failed: there is no such device
    assert message == text


@no_driver
def test_numpy_arrays_go_to_the_gpu_and_back(run_script):
    report = run_script(ARRAYS)
    assert report["new"] == [[2, 48, 4, 64], "float16", "float32", True]
    assert report["is_out"]
    assert report["mask"] == [2, 48, 4, 64]
    assert report["device"] == "Fake GPU"
    assert report["inner"] == (
        "flash_attention: is called with NumPy arrays from inside another call with NumPy arrays, "
        "which holds the memory that they are copied through; pass tensors on the GPU, or call it "
        "once the other call has returned"
    )
    assert report["errors"] == [
        f"ValueError: {op}: out must be C-contiguous where a GPU computes NumPy arrays; pass such "
        "an array, or none and copy the result"
        for op in ("flash_attention", "gemm")
    ]
