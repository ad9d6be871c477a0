"""kiln.integrations.vllm beside the steps: names, what is served, the warm-up. Tests that need vLLM
are skipped without it (docs/engines.md says how to run them)."""

import importlib
import importlib.metadata
import subprocess
import sys
from types import SimpleNamespace

import engine_batch
import kiln
import pytest
import torch
from kiln.integrations import _plans as plans
from kiln.integrations import _vllm_attention as plain
from kiln.integrations import _vllm_kernels as kernels
from kiln.integrations import vllm as bridge
from message_page import check
from vllm_engines import HEAD_DIM, HEADS, HEADS_KV, WIDTH, Plain, Real, common, empty_cache


@pytest.fixture(autouse=True)
def emulated():
    with torch.no_grad(), kiln.device("emulator:sm_80", checks=False):
        yield


WARMED = [
    {},
    {"sliding_window": 9, "logits_soft_cap": 2.0, "sinks": torch.zeros(4)},
    {"alibi_slopes": [1.0] * 4},
    {"kv_cache_dtype": "fp8"},
    {"kv_cache_dtype": "fp8", "head_size": 72},
    {"attn_type": "encoder_decoder"},
    {"attn_type": "encoder_only"},
]


@pytest.mark.parametrize("option", WARMED)
def test_specs_of_the_warm_up_are_those_of_the_calls(option, monkeypatch):
    arguments = {"head_size": HEAD_DIM, **option}
    head_dim = arguments["head_size"]
    batch = engine_batch.Batch(HEADS, HEADS_KV, head_dim)
    specs = {"flash_attention": [], "append_kv": [], "plan_attention": []}

    class Asking:
        @staticmethod
        def flash_attention_varlen(*tensors, **options):
            found = kiln.explain("flash_attention_varlen", *tensors, **options)
            specs["flash_attention"].append(found["spec"])

        @staticmethod
        def plan_attention(*tensors, **options):
            found = kiln.explain("plan_attention", *tensors, **options)
            specs["plan_attention"].append(found["spec"])

        @staticmethod
        def append_kv(*tensors, **options):
            specs["append_kv"].append(kiln.explain("append_kv", *tensors, **options)["spec"])

    for module in (plain, plans):
        monkeypatch.setattr(module, "jit", Asking)
    impl = plain.Impl(HEADS, scale=1.0, num_kv_heads=HEADS_KV, **arguments)
    scale = torch.tensor(1.0)
    layer = SimpleNamespace(_k_scale=scale, _v_scale=scale)
    cache = empty_cache(plain.CACHES[impl.kv_cache_dtype] or torch.bfloat16, False, head_dim)
    slots = torch.zeros(batch.query.shape[0], dtype=torch.int64)
    table = torch.zeros(5, WIDTH, dtype=torch.int32)
    keys, values = (batch.packed(x, False) for x in (batch.keys, batch.values))
    causal = impl.attn_type == "decoder"
    metadata = Plain().builder().build(0, common(Plain(), batch, table, slots, causal))
    impl.do_kv_cache_update(layer, keys, values, cache, slots)
    impl.forward(layer, batch.query, keys, values, cache, metadata, batch.query)
    warmed = kernels.layer_specs(impl, torch.bfloat16)
    assert len(warmed) == sum(map(len, specs.values()))
    for spec in warmed:
        (called,) = specs[spec["op"]]
        for field, value in spec.items():
            same = (
                spec.get("dtype") if field == "cache_dtype" else None
            )  # without one, the queries'
            assert (called.get(field) or same) == (value or same), (field, called)


def test_a_kernel_that_cannot_be_loaded_stops_the_warm_up(monkeypatch):
    loaded = []

    def preload(spec, device):
        loaded.append(spec)
        if spec == "b":
            raise ValueError(spec)

    monkeypatch.setattr(kernels.control, "preload", preload)
    kernels.load_specs("ac")
    assert sorted(loaded) == ["a", "c"]
    with pytest.raises(ValueError, match="b"):
        kernels.load_specs("abc")


def test_vllm_warms_the_specs_of_its_layers(monkeypatch):
    engine = Real()
    warm_up = importlib.import_module("vllm.model_executor.warmup.jit_warmup")
    compiled = []
    monkeypatch.setattr(kernels.control, "preload", lambda spec, device: compiled.append(spec))
    layers = {
        str(number): SimpleNamespace(impl=engine.impl(4, 64, 1.0, 2, sliding_window=window))
        for number, window in enumerate((None, 5, None))
    }
    registry = warm_up.JitWarmupRegistry(None)
    with registry.activate():
        engine.builder(layers, warm_up=True)
        engine.builder(layers, warm_up=True)
    registry.warmup()
    impls = [layer.impl for layer in layers.values()]
    assert sorted(compiled) == list(kernels.spec_texts(impls, torch.bfloat16))
    assert len(compiled) == 5  # causal and window, plans for both, append_kv


@pytest.mark.parametrize(("text", "splits"), [("0", 0), ("1", 1)])
def test_vllm_may_ask_for_results_that_do_not_depend_on_the_batch(monkeypatch, text, splits):
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", text)
    batch = engine_batch.Batch(HEADS, HEADS_KV, HEAD_DIM)
    engine = Real()
    assert engine.builder().build(0, common(engine, batch, None, None)).num_splits == splits


def names(registry):
    enum = registry.AttentionBackendEnum
    return list(enum), set(vars(enum)), dict(registry._ATTN_OVERRIDES)


def test_vllm_knows_both_names_until_they_are_taken_back():
    pytest.importorskip("vllm", reason="vLLM is not installed")
    registry = importlib.import_module("vllm.v1.attention.backends.registry")
    before = names(registry)
    bridge.register()
    bridge.register()
    enum = registry.AttentionBackendEnum
    for name in ("KILN", "CUSTOM"):
        assert enum[name].get_class().get_name() == name
    bridge.unregister()
    bridge.unregister()
    assert names(registry) == before
    registry.register_backend(enum.CUSTOM, "some.other.Backend")
    bridge.plugin()
    assert enum.CUSTOM.get_path() == "some.other.Backend" and "KILN" in enum.__members__
    bridge.unregister()
    assert enum.CUSTOM.get_path() == "some.other.Backend"
    enum.CUSTOM.clear_override()
    assert names(registry) == before


def test_vllm_loads_the_entry_point_and_takes_the_name(monkeypatch):
    plugins = pytest.importorskip("vllm.plugins", reason="vLLM is not installed")
    settings = importlib.import_module("vllm.config")
    registry = importlib.import_module("vllm.v1.attention.backends.registry")
    before = names(registry)
    monkeypatch.setattr(plugins, "plugins_loaded", False)
    monkeypatch.setenv("VLLM_PLUGINS", "kiln")
    plugins.load_general_plugins()
    chosen = settings.AttentionConfig(backend="kiln").backend
    assert chosen is registry.AttentionBackendEnum.KILN
    bridge.unregister()
    assert names(registry) == before


def test_vllm_is_told_what_is_served():
    backend = Real().backend.KilnAttentionBackend
    capability = importlib.import_module("vllm.platforms.interface").DeviceCapability
    asked = {
        "head_size": 128,
        "dtype": torch.bfloat16,
        "kv_cache_dtype": "fp8",
        "block_size": 16,
        "use_mla": False,
        "has_sink": True,
        "use_sparse": False,
        "use_mm_prefix": False,
        "use_per_head_quant_scales": True,
        "device_capability": capability(9, 0),
        "attn_type": "decoder",
        "has_sliding_window": True,
        "use_non_causal": True,
        "use_batch_invariant": True,
        "use_adaptive_verification": True,
        "use_dcp": True,
    }
    assert backend.validate_configuration(**asked) == []
    for change in (
        {"head_size": 100},
        {"dtype": torch.float32},
        {"kv_cache_dtype": "float16"},
        {"kv_cache_dtype": "int8_per_token_head"},
        {"block_size": 4},
        {"use_mla": True},
        {"use_mm_prefix": True},
        {"device_capability": capability(7, 5)},
        {"use_pcp": True},
        {"use_rswa": True},
    ):
        assert backend.validate_configuration(**{**asked, **change}), change
    assert backend.get_preferred_block_size(16) == 32
    assert backend.get_preferred_block_size(64) == 64


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


WITHOUT = "import sys; sys.modules['vllm'] = None; from kiln.integrations import vllm as bridge; "


def test_importing_the_bridge_imports_no_framework():
    code = "import sys, kiln.integrations.vllm; print({'torch', 'vllm'} & set(sys.modules))"
    assert run_python(code).stdout == "set()\n"


def test_without_vllm_the_plugin_warns_and_register_raises():
    run = run_python(WITHOUT + "bridge.plugin()")
    assert run.returncode == 0 and "Kiln is no attention backend" in run.stderr
    run = run_python(WITHOUT + "bridge.register()")
    check(ImportError(run.stderr), ImportError, "vLLM's attention backends cannot be imported")


def test_the_package_names_the_entry_point():
    (entry,) = (
        found
        for found in importlib.metadata.distribution("kiln").entry_points
        if found.group == "vllm.general_plugins"
    )
    assert entry.name == "kiln" and entry.load() is bridge.plugin
