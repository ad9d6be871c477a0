"""What a user's text may and may not do to a compile, and that the folder never matters."""

import hashlib
import json
import os
import pathlib
import subprocess
import sys

import kiln
import pytest
from kiln import variants

SPEC = {
    "op": "flash_attention", "dtype": "bfloat16", "head_dim": 64, "mask": "causal",
    "block_q": 64,
}  # fmt: skip
COMPILE = """
import json, kiln, sys
report = kiln.prewarm(json.loads(sys.argv[1]), "sm_80", jobs=1)
assert report["compiled"] == 1, report
print(report["kernels"][0]["key"])
"""


def compile_in(folder, cache):
    """Key and digests of the cubins, from a process whose current folder is `folder`."""
    cache.mkdir(mode=0o700)
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, json.dumps(SPEC)],
        cwd=folder, env=dict(os.environ, KILN_CACHE_DIR=str(cache)), text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    cubins = sorted(cache.rglob("*.cubin"))
    return done.stdout, [hashlib.sha256(path.read_bytes()).hexdigest() for path in cubins]


def test_two_folders_one_with_decoy_headers_give_the_same_bytes(tmp_path):
    clean, decoys = tmp_path / "clean", tmp_path / "decoys"
    clean.mkdir()
    templates = pathlib.Path(__file__).parents[2] / "templates"
    for path in [p for p in templates.rglob("*") if p.suffix in (".cuh", ".h")]:
        for root in (decoys, decoys / "kiln"):
            decoy = root / path.relative_to(templates)
            decoy.parent.mkdir(parents=True, exist_ok=True)
            decoy.write_text("#error a header of the current folder was included\n")
    first = compile_in(clean, tmp_path / "cache-1")
    second = compile_in(decoys, tmp_path / "cache-2")
    assert len(first[1]) == 1
    assert first == second


def variant(**fields):
    return {**SPEC, "variant": {"name": "mine", "params": [["cap", "f32"]], **fields}}


@pytest.mark.parametrize(
    "fields, field, text",
    [
        ({"logits": "logit * no_such_name"}, "logits", "no_such_name"),
        ({"mask": "kv <= "}, "mask", "expected an expression"),
        ({"logits": "logit", "mask": "q < missing(kv)"}, "mask", "missing"),
    ],
)
def test_a_bad_expression_points_to_the_users_text(fields, field, text):
    with pytest.raises(kiln.CompileError) as caught:
        kiln.inspect(variant(**fields), "sm_90")
    message = str(caught.value)
    assert text in message, message
    assert any(field in line and "error" in line for line in message.splitlines()), message


@pytest.mark.takes_turns(3)
@pytest.mark.parametrize("head_dim", [64, 128, 192, 256])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_the_rows_for_variants_compile_clean(arch, head_dim):
    spec = variant(logits="cap * tanhf(logit / cap)", mask="(q / 64) == (kv / 64)")
    kernels = kiln.inspect({**spec, "head_dim": head_dim, "block_q": None}, arch)
    assert kernels
    for kernel in kernels:
        assert (kernel["spill_bytes"], kernel["local_bytes"]) == (0, 0), kernel["what"]


@pytest.mark.takes_turns(2)
@pytest.mark.parametrize(
    "make", [lambda: variants.sliding_window(9), lambda: variants.prefix_lm(9),
             lambda: variants.chunked(9), lambda: variants.dilated_window(9, 9)]
)  # fmt: skip
def test_masks_of_the_library_compile_clean_on_wgmma(make):
    """Those that divide by a parameter have spilled: mask_columns() of attention/mask.cuh."""
    unbound, _ = make().__getstate__()
    definition = json.loads(unbound.__getstate__()[0])
    spec = {**SPEC, "head_dim": 128, "mask": "none", "block_q": 128, "block_kv": 128, "stages": 2}
    (kernel,) = kiln.inspect({**spec, "splits": False, "variant": definition}, "sm_90a")
    assert (kernel["spill_bytes"], kernel["local_bytes"]) == (0, 0), kernel["what"]


IN_DOCUMENTS = {"name": "mine", "tensors": [["t0", "i32[*]"]],
                "mask": "(row >= kv) & (t0(row) == t0(kv))"}  # fmt: skip


@pytest.mark.takes_turns(2)
@pytest.mark.parametrize("head_dim, stages", [(64, 3), (128, 2)])
@pytest.mark.parametrize("form", ["documents", "BlockMask"])
def test_masks_that_read_tensors_leave_registers_to_the_scheduler(head_dim, stages, form):
    """It evaluates them over intervals, and spilled."""
    blocks_text = pytest.importorskip("kiln.flex.blocks_text")
    variant = dict(IN_DOCUMENTS)
    if form == "BlockMask":
        variant["params"] = list(blocks_text.BLOCK_PARAMS.items())
        variant["tensors"] = [["t0", "i32[*]"], *blocks_text.BLOCK_TENSORS.items()]
        variant["file_text"] = blocks_text.template_text({"t0": ""}, (128, 128))
    tile = {"block_q": 192, "block_kv": 64, "stages": stages, "splits": False}
    spec = {**SPEC, "head_dim": head_dim, "mask": "none", **tile, "variant": variant}
    (kernel,) = kiln.inspect(spec, "sm_90a")
    assert (kernel["spill_bytes"], kernel["local_bytes"]) == (0, 0), kernel["what"]
    # Where the documents hide nothing, the causal mask's run of keys is all.
    assert "bool kShowsRuns = true;" in kernel["source"]


@pytest.mark.takes_turns(3)
@pytest.mark.parametrize(
    "mask",
    [
        "kv <= q && q - kv < n",
        "kv <= q || kv < n",
        "(kv <= q || kv < m) && q - kv < n && kv - row >= l && q > m",
    ],
)
@pytest.mark.parametrize("head_dim, block_kv", [(64, 128), (128, 80)])
def test_masks_by_runs_of_keys_have_the_tiles_of_built_in_ones(mask, head_dim, block_kv):
    mine = {"name": "mine", "params": [[name, "i32"] for name in "nml"], "mask": mask}
    spec = {**SPEC, "head_dim": head_dim, "mask": "none", "block_q": 192, "block_kv": block_kv}
    (kernel,) = kiln.inspect({**spec, "splits": False, "variant": mine}, "sm_90a")
    assert (kernel["spill_bytes"], kernel["local_bytes"]) == (0, 0), kernel["what"]


def test_parameters_may_be_called_like_what_the_kernel_uses():
    names = ["keep", "tile", "out", "logits", "mask", "args", "Config"]
    params = [[name, "i32"] for name in names]
    mine = {"name": "mine", "params": params, "mask": f"kv < {' + '.join(names)}"}
    (kernel,) = kiln.inspect({**SPEC, "variant": mine}, "sm_90")
    assert kernel["registers"] > 0


@pytest.mark.parametrize("name", ["int", "default", "q", "kiln", "1st", "a-b", ""])
def test_a_parameter_that_cannot_have_its_name_is_refused(name):
    spec = {**SPEC, "variant": {"name": "mine", "params": [[name, "i32"]], "mask": "kv < 1"}}
    with pytest.raises(ValueError, match="cannot name a parameter"):
        kiln.inspect(spec, "sm_90")


def test_a_bad_epilogue_points_to_the_users_text():
    spec = {"op": "gemm", "epilogue": "acc + no_such_name", "block_m": 64, "block_n": 64}
    with pytest.raises(kiln.CompileError) as caught:
        kiln.inspect(spec, "sm_90")
    lines = [line for line in str(caught.value).splitlines() if "no_such_name" in line]
    assert any("epilogue" in line and "error" in line for line in lines), str(caught.value)


def test_a_bad_variant_file_points_to_its_line():
    text = "struct UserVariant : kiln::VariantDefaults {\n  int x = not_a_name;\n};"
    spec = {**SPEC, "variant": {"name": "mine", "file_text": text}}
    with pytest.raises(kiln.CompileError) as caught:
        kiln.inspect(spec, "sm_90")
    lines = [line for line in str(caught.value).splitlines() if "not_a_name" in line]
    assert any("variant template(2)" in line for line in lines), str(caught.value)


def test_an_error_tells_the_sources_path():
    with pytest.raises(kiln.CompileError) as caught:
        kiln.inspect(variant(logits="no_such_name"), "sm_90")
    assert caught.value.path == "/kiln/kernel.cu"


@pytest.mark.parametrize(
    ("members", "params", "tensors"),
    [
        ("kiln::Slot<int> a, b;", [["a", "i32"]], []),
        ("", [["a", "i32"]], []),
        ("kiln::Slot<int> a;", [], []),
        ("kiln::VariantTensor<float, 2> t;", [], [["t", "f32[kv]"]]),
        ("int a;", [["a", "i32"]], []),
    ],
)
def test_a_variant_file_whose_slots_do_not_match_does_not_compile(members, params, tensors):
    text = f"struct UserVariant : kiln::VariantDefaults {{ {members} }};"
    mine = {"name": "mine", "params": params, "tensors": tensors, "file_text": text}
    with pytest.raises(kiln.CompileError, match="the file's Slots must match params and tensors"):
        kiln.inspect({**SPEC, "variant": mine}, "sm_90")


def test_variant_files_whose_slots_match_compile():
    for members, params, tensors in [
        ("", [], []),
        (
            "kiln::Slot<int> a; kiln::VariantTensor<float, 2> t;",
            [["a", "i32"]],
            [["t", "f32[h, kv]"]],
        ),
    ]:
        text = f"struct UserVariant : kiln::VariantDefaults {{ {members} }};"
        mine = {"name": "mine", "params": params, "tensors": tensors, "file_text": text}
        assert kiln.inspect({**SPEC, "variant": mine}, "sm_90")


def test_a_variant_file_with_slots_of_its_own_compiles():
    path = pathlib.Path(__file__).parents[2] / "examples" / "gated.cuh"
    params = [["sentence", "i32"], ["gain", "f32"]]
    variant = {"name": "gated", "params": params, "file_text": path.read_text()}
    (kernel,) = kiln.inspect({**SPEC, "variant": variant}, "sm_90")
    assert kernel["registers"] > 0 and kernel["local_bytes"] == 0


SLOPES = {"tensors": [["slope", "f32[h]"], ["bias", "f32[row]"], ["table", "f32[*]"]]}


@pytest.mark.parametrize(
    "logits, causal, tilts",
    [
        ("logit - slope * abs(at.distance)", True, True),
        ("logit - slope * abs(at.distance)", False, False),  # keys behind the query
        ("logit + slope * (kv - q)", False, True),
        ("logit + -(q - kv) * slope / (2 * h + 1.0f) + bias", False, True),
        ("logit + table(h) * static_cast<float>(kv - row)", False, True),
        ("logit + exp2f(-(h + 1) * 0.5f) * abs(kv - q)", True, True),
        ("logit - slope * abs(row - kv)", True, False),  # row is not the query's key
        ("logit + bias * (kv - q)", True, False),  # differs by the row
        ("logit + table(q) * (kv - q)", True, False),
        ("logit + slope * (q - kv) * kv", True, False),
        ("logit + kv / 2", True, False),  # ints
        ("logit + static_cast<bool>(kv - q)", True, False),
        ("logit + static_cast<int>(kv * slope)", True, False),
        ("logit + (kv - 2u)", True, False),  # wraps
        ("logit * slope + (kv - q)", False, True),
        ("2 * (slope * (kv - q) - logit) - logit", False, True),
        ("logit / slope", False, True),
        ("logit + (kv - q) / slope", False, True),
        ("logit + (kv - q) / 2", True, False),  # ints
        ("logit * logit + (kv - q)", True, False),
        ("logit * bias", True, False),
        ("slope * (kv - q)", True, False),
        ("logit + (kv > q ? slope : 0.0f)", True, False),
    ],
)
def test_which_expressions_tilt_logits(logits, causal, tilts):
    spec = {
        **variant(logits=logits, **SLOPES), "mask": "causal" if causal else "none",
        "head_dim": 136, "block_q": 128, "splits": False,
    }  # fmt: skip
    (kernel,) = kiln.inspect(spec, "sm_90", compile=tilts)
    assert ("kTilts = true;" in kernel["source"].split("struct UserVariant")[0]) == tilts
    assert not tilts or kernel["local_bytes"] == 0


@pytest.mark.parametrize(
    "distance, mask, tilts",
    [
        ("q - kv", "q >= kv", True),
        ("kv - q", "kv <= q && q - kv < 100", True),
        ("at.distance", "kv <= q", True),
        ("row - kv", "kv < row", True),
        ("row - kv", "(row >= kv) && (kv % 7 != 3)", True),
        ("row - kv", "q >= kv", False),  # row may be less
        ("q - kv", "row >= kv", False),  # and more
        ("q - kv", "q + 1 >= kv", False),
        ("q - kv", "q - kv >= 2", True),
        ("q - kv", "q - kv >= lag", False),  # lag may be negative
        ("q - kv", "q >= kv || kv < 9", False),
        ("row + row - q - kv", "row + row - q >= kv", False),
    ],
)
def test_which_masks_make_magnitudes_tilt_logits(distance, mask, tilts):
    fields = {"mask": mask, "params": [["lag", "i32"]], **SLOPES}
    spec = {
        **variant(logits=f"logit - slope * static_cast<float>(abs({distance}))", **fields),
        "mask": "none", "head_dim": 136, "block_q": 128, "splits": False,
    }  # fmt: skip
    (kernel,) = kiln.inspect(spec, "sm_90", compile=False)
    own, user = kernel["source"].split("struct UserVariant")
    assert ("kTilts = true;" in own) == tilts
    assert ("kTiltsFromRow = true;" in user) == (tilts and "row" in distance)


# Variants of a list, in the place of which a file may do what it does not mention.
LINEAR = {"name": "linear", "logits": "logit + slope * (kv - q)", **SLOPES}
PAIRS = {"name": "pairs", "tensors": [["ids", "i32[kv]"]], "mask": "ids != 1"}
DOUBLED = {"name": "doubled", "logits": "logit * logit"}
HIDES = "{ static constexpr bool kMasks = true, kIndexesByKey = false; };"
FILE = {"name": "file", "file_text": f"struct UserVariant : kiln::VariantDefaults {HIDES}"}
HEIR = {"name": "heir", "file_text": f"struct UserVariant : kiln::DefaultHooks<int> {HIDES}"}


@pytest.mark.parametrize(
    "variants, alibi, tilts",
    [
        ([LINEAR, PAIRS], False, True),
        ([FILE, LINEAR], False, True),
        ([LINEAR, LINEAR], True, True),
        ([PAIRS], True, True),
        ([PAIRS, FILE], True, True),
        ([PAIRS, FILE], False, False),
        ([LINEAR, HEIR], False, False),
        ([LINEAR, DOUBLED], False, False),
        ([DOUBLED], True, False),
    ],
)
def test_which_lists_tilt_logits(variants, alibi, tilts):
    spec = {
        **SPEC, "variant": variants, "alibi": alibi, "mask": "causal", "head_dim": 136,
        "block_q": 128, "splits": False,
    }  # fmt: skip
    (kernel,) = kiln.inspect(spec, "sm_90", compile=False)
    assert ("kTilts = true;" in kernel["source"].split("struct UserVariant")[0]) == tilts


@pytest.mark.parametrize(
    "logits, factors",
    [
        ("cap * tanh(logit / cap)", ("logit / cap", "cap *")),
        ("tanh(-0.5 * (float)logit) * -2", ("- 0.5f * ( float ) logit", "* - 2")),
        (
            "(n / cap) * +tanhf((logit * max(n, 2) / cap))",
            ("logit * max ( n , 2 ) / cap", "n / cap"),
        ),
        ("tanh(logit)", ("logit", "")),
        ("table(3) * tanh(logit / table(0))", ("logit / table ( 0 )", "table ( 3 ) *")),
        ("table(h) * tanh(logit)", None),
        ("tanh(logit * h)", None),  # differs by the head
        ("cap * tanh(logit / at.q)", None),
        ("len_kv * tanh(logit)", None),  # by the sequence
        ("slope * tanh(logit / cap)", None),
        ("cap * tanh(logit / cap) + 1", None),
        ("cap * tanh(logit / cap + 1)", None),
        ("cap * tanh(cap / logit)", None),
        ("cap / tanh(logit)", None),
        ("tanh(cap) * tanh(logit)", None),
        ("tanh(tanh(logit))", None),
        ("logit * tanh(logit)", None),
        ("int(tanh(logit))", None),
        ("2 * tanh(int(logit))", None),
        ("expf(cap) * tanh(logit)", None),
        ("::tanh(logit)", None),  # CUDA's own, in double
        ("kiln::tanh_fast(logit)", None),
        ("kv < 2 ? tanh(logit) : 0.0f", None),
    ],
)
def test_which_expressions_are_a_cap(logits, factors):
    params = [["cap", "f32"], ["n", "i32"]]
    given = variant(logits=logits, params=params, tensors=SLOPES["tensors"])
    source = kiln.inspect(given, "sm_90", compile=False)[0]["source"]
    assert ("cap_before(" in source) == (factors is not None)
    assert ("kIndexesByKey = false;" in source) == (factors is not None)
    for factor in factors or ():
        assert factor in source


def test_the_text_of_an_expression_changes_the_key_and_its_label_does_not():
    keys = [
        kiln.inspect(variant(logits=logits, name=name), "sm_90", compile=False)[0]["key"]
        for name, logits in [("a", "cap * logit"), ("b", "cap * logit"), ("a", "cap + logit")]
    ]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    "change, word",
    [
        ({"head_dim": 60}, "head_dim"),
        ({"head_dim": 264}, "head_dim"),
        ({"mask": "sliding"}, "mask"),
        ({"dtype": "float32"}, "dtype"),
        ({"block_q": 48}, "tile"),
        ({"no_such_field": 1}, "no_such_field"),
        ({"op": "convolution"}, "op"),
    ],
)
def test_a_bad_spec_is_refused_by_name(change, word):
    with pytest.raises(ValueError, match=word):
        kiln.inspect({**SPEC, **change}, "sm_90")


@pytest.mark.parametrize("arch", ["sm_75", "sm_9", "hopper", "sm_90b", ""])
def test_a_wrong_arch_lists_the_right_ones(arch):
    with pytest.raises(ValueError, match="sm_90"):
        kiln.inspect(SPEC, arch)


def test_a_suffixed_arch_is_the_plain_one_for_portable_templates():
    plain, suffixed = (kiln.inspect(SPEC, arch, compile=False)[0] for arch in ("sm_90", "sm_90a"))
    assert plain["key"] == suffixed["key"]
