"""Importing: quick, quiet, and without opening anything."""

import inspect
import pickle
import pydoc
import subprocess
import sys

import kiln
import pytest
from kiln import _core, jit

DEFINITIONS = "Variant", "Epilogue"
OPERATIONS = [getattr(jit, name) for name in jit.__all__ if name not in DEFINITIONS]
ENTRIES = [  # C's
    operation for operation in OPERATIONS if operation not in (jit.flex_attention, jit.grouped_mm)
]


def run_python(code, environment):
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )


def test_import_opens_neither_driver_nor_nvrtc_nor_cache(environment, cache_dir):
    code = "import kiln; print(open('/proc/self/maps').read())"
    maps = run_python(code, environment).stdout
    assert "_core" in maps
    assert "libcuda.so" not in maps
    assert "libnvrtc" not in maps
    assert not cache_dir.exists()


def test_import_needs_no_framework(environment):
    code = "import sys, kiln; print(sorted({'torch', 'numpy', 'cupy'} & set(sys.modules)))"
    assert run_python(code, environment).stdout.strip() == "[]"


def test_variants_are_imported_when_they_are_asked_for(environment):
    code = "import sys, kiln; print('kiln.variants' in sys.modules, kiln.variants.softcap(30.0))"
    assert run_python(code, environment).stdout.startswith("False ")
    with pytest.raises(AttributeError, match="module 'kiln' has no 'variant'"):
        _ = kiln.variant


def test_version_is_the_compiled_one():
    assert kiln.__version__ == _core.version()
    assert kiln.__version__.count(".") == 2


def test_signatures():
    attention = inspect.signature(jit.flash_attention).parameters
    assert list(attention)[:3] == ["q", "k", "v"]
    assert attention["window"].default == (-1, -1)
    assert attention["layout"].default == "bshd"
    gemm = inspect.signature(jit.gemm).parameters
    assert list(gemm)[:2] == ["a", "b"]
    assert gemm["accumulator"].default == "float32"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_parameter_of_the_signature_is_taken(operation):
    # An argument that the C side did not know would be an "unexpected keyword argument".
    for name in inspect.signature(operation).parameters:
        with pytest.raises((TypeError, ValueError)) as error:
            operation(**{name: object()})
        assert "unexpected keyword" not in str(error.value)


@pytest.mark.parametrize("operation", ENTRIES)
def test_explain_has_the_signature_of_its_operation(operation):
    explain = getattr(_core, f"explain_{operation.__name__}")
    assert inspect.signature(explain) == inspect.signature(operation)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_pickle_and_have_help(operation):
    assert pickle.loads(pickle.dumps(operation)) is operation
    assert "\n    Raises " in pydoc.plain(pydoc.render_doc(operation))


def test_exceptions_have_one_base():
    for error in (kiln.CompileError, kiln.CudaError, kiln.CompileDisabled):
        assert issubclass(error, kiln.Error)
    assert not issubclass(kiln.Error, ValueError)
