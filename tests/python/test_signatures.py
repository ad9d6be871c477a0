"""The operations' signatures stand once, in python/operations.pyi: what is generated is fresh, what
is compiled has them, and every value that a type lists is taken."""

import ast
import inspect
import itertools
import shutil

import kiln
import pytest
import signature_model
import signatures
import torch
from kiln import _core, jit, operators

OPERATIONS = {operation.name: operation for operation in signature_model.operations()}
EACH = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda o: o.name)


def copy_of_the_files(folder):
    for name in [signature_model.DESCRIPTION, *signatures.files()]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(signature_model.ROOT / name, folder / name)
    return folder


def test_generated_files_are_what_the_description_says():
    assert signatures.stale() == [], "run `make signatures`"


def test_each_generated_file_says_who_writes_it():
    for name, text in signatures.files().items():
        first = text.splitlines()[0]
        assert "Written by scripts/signatures.py from python/operations.pyi" in first, name


def test_a_file_that_differs_is_missing_or_is_left_over_is_found(tmp_path):
    root = copy_of_the_files(tmp_path)
    assert signatures.stale(root) == []
    changed = root / "python/kiln/jit.py"
    changed.write_text(changed.read_text() + "\n")
    (root / "python/src/generated/gemm.h").unlink()
    (root / "python/src/generated/torch_conv.h").write_text("// of an operation that is gone\n")
    (root / "python/kiln/operators/_traced/conv.py").write_text("# likewise\n")
    assert signatures.stale(root) == [
        "python/kiln/jit.py",
        "python/kiln/operators/_traced/conv.py",
        "python/src/generated/gemm.h",
        "python/src/generated/torch_conv.h",
    ]


def test_another_default_makes_every_file_that_tells_it_stale(tmp_path):
    root = copy_of_the_files(tmp_path)
    description = root / signature_model.DESCRIPTION
    description.write_text(
        description.read_text().replace("alpha: float = 1.0", "alpha: float = 2.0")
    )
    assert signatures.stale(root) == [
        "python/kiln/_explanations.pyi",
        "python/kiln/_operations.pyi",
        "python/kiln/operators/_schemas.py",
        "python/kiln/operators/_traced/gemm.py",
        "python/src/generated/methods.cpp",
    ]


THIRD = """
@operators(scaled_sum=("out",), scaled_sum_out=())
def scaled_sum(
    x: Tensor,
    weight: Tensor | None = None,
    *,
    eps: float = 1e-6,
    residual: Tensor | None = None,
    residual_out: Written | None = None,
    activation: Activation | None = None,
    out: Written | None = None,
    out_dtype: DType | None = None,
) -> Any: ...
"""


def test_a_new_operation_needs_its_entry_alone(tmp_path):
    """Every generated file knows it, none needs a change by hand."""
    description = tmp_path / "operations.pyi"
    text = (signature_model.ROOT / signature_model.DESCRIPTION).read_text()
    description.write_text(text + THIRD)
    files = signatures.files(description)
    assert "python/src/generated/scaled_sum.h" in files
    assert '#include "python/src/docs/scaled_sum.inc"' in files["python/src/generated/methods.cpp"]
    assert "compute_scaled_sum, 1>" in files["python/src/generated/torch_operators.cpp"]
    assert '"scaled_sum",' in files["python/kiln/jit.py"]
    schemas = files["python/kiln/operators/_schemas.py"]
    assert "Tensor(a!)? residual_out=None, Tensor(b!) out) -> ()" in schemas
    ast.parse(schemas)
    traced = files["python/kiln/operators/_traced/scaled_sum.py"]
    assert "from .. import scaled_sum as _scaled_sum" in traced
    ast.parse(traced)
    ast.parse(files["python/kiln/_operations.pyi"])
    ast.parse(files["python/kiln/_explanations.pyi"])


@pytest.mark.parametrize(
    "change, words",
    [
        (("top_left: bool = False", "top_left: bool"), "without a default come first"),
        (("flash_attention_lse=", "flash_attention_both="), "is called flash_attention_lse"),
        (("return_lse: bool", "return_sums: bool"), "asks for no parameter"),
        (('gemm=("out",), gemm_out=()', 'gemm=("out",)'), "goes with Written parameters"),
        (("query_out: Written", "rows_out: Written"), "called as it without _out"),
        (("append_kv=()", "append_kv_out=()"), "the first operator has the operation's name"),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(tmp_path, change, words):
    description = tmp_path / "operations.pyi"
    text = (signature_model.ROOT / signature_model.DESCRIPTION).read_text()
    assert change[0] in text
    description.write_text(text.replace(*change))
    with pytest.raises(ValueError, match=words):
        signature_model.operations(description)


@EACH
def test_what_is_compiled_has_the_signature(operation):
    for function in (getattr(jit, operation.name), getattr(_core, f"explain_{operation.name}")):
        parameters = inspect.signature(function).parameters
        assert list(parameters) == [p.name for p in operation.parameters]
        for described in operation.parameters:
            real = parameters[described.name]
            assert (real.kind == real.KEYWORD_ONLY) == described.is_keyword
            if described.default is None:
                assert real.default is real.empty
            else:
                assert real.default == ast.literal_eval(described.default)


PYTORCHS_OWN = "scaled_dot_product_attention"  # test_sdpa.py compares it with PyTorch's


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - {PYTORCHS_OWN}))
def test_everything_after_the_tensors_is_keyword_only(name):
    operation = OPERATIONS[name]
    assert 0 < len(operation.positional) < len(operation.parameters)
    # What is updated is no result, and stands among the tensors.
    assert all(
        p.is_tensor and (operation.updates or not p.is_written) for p in operation.positional
    )


def test_every_operation_is_described():
    assert (
        sorted([*OPERATIONS, "Epilogue", "Variant", "flex_attention", "grouped_mm"]) == jit.__all__
    )  # one is Python
    assert {schema.operation for schema in operators.SCHEMAS} == set(OPERATIONS)


def listed(operation, name):
    """The words that a parameter's type lists."""
    (parameter,) = (p for p in OPERATIONS[operation].parameters if p.name == name)
    return ast.literal_eval(parameter.type.python.partition("Literal")[2])


HALF = torch.float16
# An option of words, one that it does not take, and what must be beside it.
WORDS = [
    ("flash_attention", "layout", "sbhd", {}),
    ("gemm", "activation", "tanh", {}),
    ("gemm", "gate", "quarters", {"activation": "swiglu"}),
    ("gemm", "accumulator", "bfloat16", {}),
    ("gemm", "precision", "high", {}),
    ("gemm", "pdl", "always", {}),
]


@pytest.mark.parametrize("operation, name, other, beside", WORDS)
def test_the_words_of_a_type_are_those_that_are_taken(operation, name, other, beside):
    tensors = [torch.ones(1, 8, 8, 16, dtype=HALF)] * 3
    if operation == "gemm":
        tensors = [torch.ones(64, 64, dtype=HALF)] * 2
    with kiln.device("emulator:sm_90a"):
        for word in listed(operation, name):
            given = tensors
            if name == "precision":  # each is for inputs of its own
                dtype = {"tf32": torch.float32, "fast": torch.float8_e4m3fn}[word]
                given = [tensors[0].to(dtype), tensors[1].to(dtype).t()]
            kiln.explain(operation, *given, **beside, **{name: word})
        with pytest.raises(ValueError) as refused:
            kiln.explain(operation, *tensors, **beside, **{name: other})
    for word in listed(operation, name):
        assert word in str(refused.value), "the message lists what is taken"


# --------------------------------------------------- shapes and dtypes of results, told twice: in
# C++ for calls, in Python for fake tensors


def both(operator, *tensors, **options):
    """(shape, dtype, stride unless empty) of each result, of the real call and the fake kernel."""
    real = getattr(torch.ops.kiln, operator)(*tensors, **options)
    meta = [t.to("meta") for t in tensors]
    schema = next(s for s in operators.SCHEMAS if s.name == operator)
    fake = operators._fake(schema)(*meta, **options)
    pairs = [x if isinstance(x, tuple) else (x,) for x in (real, fake)]
    return [[(t.shape, t.dtype, t.numel() and t.stride()) for t in results] for results in pairs]


@pytest.mark.parametrize("layout", listed("flash_attention", "layout"))
@pytest.mark.parametrize("sizes", [(1, 8, 4, 16), (2, 3, 2, 8), (3, 1, 6, 24), (2, 0, 4, 8)])
def test_shapes_of_attention(layout, sizes):
    batch, rows, heads, dim = sizes

    def tensor(rows, heads, dim):
        axes = (rows, heads) if layout == "bshd" else (heads, rows)
        return torch.ones(batch, *axes, dim, dtype=HALF)

    k, v = tensor(5, heads // 2, dim), tensor(5, heads // 2, dim + 8)
    with kiln.device("emulator:sm_90a"), torch.no_grad():
        real, fake = both("flash_attention_lse", tensor(rows, heads, dim), k, v, layout=layout)
    assert real == fake
    assert real[1][0] == (batch, heads, rows)


@pytest.mark.parametrize("sizes", [(7, 4, 16), (1, 2, 8), (0, 4, 8)])
def test_shapes_of_attention_with_lengths(sizes):
    tokens, heads, dim = sizes
    starts = torch.tensor([0, tokens], dtype=torch.int32)
    keys = [torch.ones(5, heads // 2, dim + more, dtype=HALF) for more in (0, 8)]
    q = torch.ones(tokens, heads, dim, dtype=HALF)
    options = {"cu_seqlens_q": starts, "max_seqlen_q": tokens, "max_seqlen_k": 5}
    lengths = {"cu_seqlens_k": torch.tensor([0, 5], dtype=torch.int32)}
    cache = [x[None] for x in keys]
    with kiln.device("emulator:sm_90a"), torch.no_grad():
        real, fake = both("flash_attention_varlen_lse", q, *keys, **options, **lengths)
        assert real == fake
        assert real[1][0] == (heads, tokens)
        used = {"cache_seqlens": torch.tensor([3], dtype=torch.int32)}
        real, fake = both("flash_attention_with_kvcache_lse", q[None], *cache, **used)
        assert real == fake
        assert real[1][0] == (1, heads, tokens)


DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2]
ASKED = [None, HALF, torch.bfloat16, torch.float32]
GRID = list(itertools.product(DTYPES, ASKED, [None, "swiglu"]))


@pytest.mark.parametrize("dtype, asked, activation", GRID)
def test_dtypes_and_shapes_of_products(dtype, asked, activation):
    options = {"out_dtype": asked, "activation": activation, "precision": None}
    if dtype == torch.float32:
        options["precision"] = "tf32"
    a, b = torch.ones(2, 8, 32).to(dtype), torch.ones(48, 32).to(dtype).t()
    with kiln.device("emulator:sm_90a"), torch.no_grad():
        real, fake = both("gemm", a, b, **options)
    assert real == fake
