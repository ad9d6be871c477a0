"""ld, st, atom, red, fences, prefetches: every space, width and order, and what they refuse."""

import numpy as np
from instruction import Case

LANES = np.arange(32, dtype=np.uint32)
RNG = np.random.default_rng(7)
WORDS = RNG.integers(0, 1 << 32, (32, 4), dtype=np.uint32)
CASES = []


def add(name, body, *rest, **more):
    CASES.append(Case(name, body, *rest, **more))


def own(size):
    """%a: the address of the thread's own `size` bytes of buffer 0."""
    return f".reg .b64 %a; mad.wide.u32 %a, %thread, {size}, %b0;\n"


def loads():
    values = RNG.integers(0, 256, 32 * 8, dtype=np.uint8)
    for type_ in ("u8", "s8", "u16", "s16", "b8", "b16", "u32", "s32", "b32", "b64", "f32"):
        size = int(type_[1:]) // 8
        code = {"s": "i", "f": "f"}.get(type_[0], "u") + str(size)
        data = values.view(code)[:32].copy() if code[0] != "f" else LANES.astype(np.float32)
        bits32 = data.astype(np.int64 if code[0] == "i" else np.uint64) if code[0] != "f" else None
        load = f"{own(size)} ld.global.{type_}"
        if code[0] == "f":
            add("ld.global.f32", f"{load} %o0, [%a];", [], ["f32"], [data], buffers=[data])
            continue
        if size <= 2:
            narrow = bits32.astype(np.uint64).astype(np.uint16)
            add(f"ld.global.{type_} to 16 bits", f"{load} %o0, [%a];", [], ["b16"], [narrow],
                buffers=[data])  # fmt: skip
        if size <= 4:
            word = bits32.astype(np.uint64).astype(np.uint32)
            add(f"ld.global.{type_} to 32 bits", f"{load} %o0, [%a];", [], ["b32"], [word],
                buffers=[data])  # fmt: skip
        double = bits32.astype(np.uint64)
        add(f"ld.global.{type_} to 64 bits", f"{load} %o0, [%a];", [], ["b64"], [double],
            buffers=[data])  # fmt: skip


def vectors():
    add("ld.global.v4.b32", own(16) + "ld.global.v4.b32 {%o0_0, %o0_1, %o0_2, %o0_3}, [%a];",
        [], ["b32[4]"], [WORDS], buffers=[WORDS])  # fmt: skip
    add("ld.global.v2.b64", own(16) + "ld.global.v2.b64 {%o0_0, %o0_1}, [%a];",
        [], ["b64[2]"], [WORDS.view(np.uint64)], buffers=[WORDS])  # fmt: skip
    bytes_ = WORDS.view(np.uint8).reshape(32, 16)[:, :4].copy()
    add("ld.global.v4.u8", own(4) + "ld.global.v4.u8 {%o0_0, %o0_1, %o0_2, %o0_3}, [%a];",
        [], ["b32[4]"], [bytes_.astype(np.uint32)], buffers=[bytes_])  # fmt: skip
    add("ld into its own address register", own(4) + "ld.global.b32 %o0, [%a+4];\n"
        "{ .reg .b64 %x; mov.b64 %x, %a; ld.global.u32 %x, [%x]; cvt.u32.u64 %o1, %x; }",
        [], ["b32", "b32"], [LANES + 6, LANES + 5],
        buffers=[np.arange(5, 38, dtype=np.uint32)])  # fmt: skip
    for hint in ("ca", "cg", "cs", "lu", "cv", "volatile", "relaxed.gpu", "acquire.sys", "weak"):
        form = f"ld.{hint}.global" if hint[0] in "vraw" else f"ld.global.{hint}"
        add(f"{form}.b32", own(4) + f"{form}.b32 %o0, [%a];", [], ["b32"], [LANES],
            buffers=[LANES])  # fmt: skip
    add("ld.global.nc with hints",
        own(8) + "ld.global.nc.L1::no_allocate.L2::128B.v2.b32 {%o0, %o1}, [%a];",
        [], ["b32", "b32"], [LANES * 2, LANES * 2 + 1],
        buffers=[np.arange(64, dtype=np.uint32)])  # fmt: skip
    add("ld.global with a cache policy",
        ".reg .b64 %p; createpolicy.fractional.L2::evict_first.b64 %p, 1.0;\n" + own(4)
        + "ld.global.L2::cache_hint.b32 %o0, [%a], %p;",
        [], ["b32"], [LANES], buffers=[LANES])  # fmt: skip
    add("ldu.global", "ldu.global.b32 %o0, [%b0+8];", [], ["b32"],
        [np.full(32, 2, np.uint32)], buffers=[LANES])  # fmt: skip


def stores():
    zeros = np.zeros(32 * 2, np.uint32)
    for kind, register in (("b8", "b32"), ("u16", "b32"), ("b32", "b64"), ("b64", "b64")):
        size = int(kind[1:]) // 8
        value = RNG.integers(0, 1 << 63, 32, dtype=np.uint64).astype(f"u{int(register[1:]) // 8}")
        want = zeros.copy()
        want.view(f"u{size}")[:32] = value.astype(f"u{size}")
        add(f"st.global.{kind} of {register}", own(size) + f"st.global.{kind} [%a], %i0;",
            [value], buffers=[zeros], expected_buffers=[want])  # fmt: skip
    add("st.global.v4.b32 with literals",
        own(16) + "st.global.v4.b32 [%a], {%i0, 7, -1, %i0};", [LANES],
        buffers=[np.zeros((32, 4), np.uint32)],
        expected_buffers=[np.stack([LANES, LANES * 0 + 7, LANES * 0 - 1, LANES], 1)
                          .astype(np.uint32)])  # fmt: skip
    add("st under a guard", own(4) + ".reg .pred %p; setp.lt.u32 %p, %thread, 9;\n"
        "@%p st.global.b32 [%a], 5; @!%p st.global.f32 [%a], 0f3F800000;",
        buffers=[zeros[:32]],
        expected_buffers=[np.where(LANES < 9, 5, 0x3F800000).astype(np.uint32)])  # fmt: skip
    for form in ("st.volatile.global", "st.release.gpu.global", "st.relaxed.sys.global",
                 "st.global.wt", "st.global.cs", "st.global.L1::no_allocate"):  # fmt: skip
        add(f"{form}.b32", own(4) + f"{form}.b32 [%a], %thread;", buffers=[zeros[:32]],
            expected_buffers=[LANES])  # fmt: skip


def spaces():
    exchange = """
      .reg .b32 %s, %t; .reg .b64 %g;
      mov.u32 %s, memory; shl.b32 %t, %thread, 4; add.u32 %t, %t, %s;
      st.shared.v2.b32 [%t], {%i0, %thread};
      st.shared::cta.b16 [%t+8], %i1;
      bar.sync 0;
      xor.b32 %t, %thread, 33; shl.b32 %t, %t, 4; add.u32 %t, %t, %s;
      ld.shared.v2.b32 {%o0, %o1}, [%t];
      cvt.u64.u32 %g, %t; cvta.shared.u64 %g, %g;
      ld.b16 %o2, [%g+8];
    """
    lanes = np.arange(64, dtype=np.uint32)
    halves = (lanes * 1021).astype(np.uint16)
    add("shared memory between warps, generic too", exchange, [lanes * 3, halves],
        ["b32", "b32", "b16"], [(lanes ^ 33) * 3, lanes ^ 33, halves[lanes ^ 33]],
        threads=64, shared=1024)  # fmt: skip
    add("local memory", """
      .local .align 8 .b8 depot[32]; .reg .b64 %l, %g;
      mov.u64 %l, depot; st.local.v2.b32 [%l+8], {%thread, %i0};
      cvta.local.u64 %g, %l; ld.b32 %o0, [%g+12]; ld.local.u32 %o1, [depot+8];
    """, [LANES * 9], ["b32", "b32"], [LANES * 9, LANES])  # fmt: skip
    add("constant and global variables", """
      .reg .b64 %c, %g; mov.u64 %c, table; and.b32 %o1, %thread, 3;
      mad.wide.u32 %c, %o1, 4, %c; ld.const.u32 %o0, [%c];
      ld.const.u64 %g, [where]; ld.global.u32 %o1, [%g]; ld.u32 %o2, [counts+4];
    """, [], ["b32", "b32", "b32"],
        [np.array([10, 20, 30, 40], np.uint32)[LANES & 3], np.full(32, 7, np.uint32),
         np.full(32, 8, np.uint32)],
        module=".const .align 4 .u32 table[4] = {10, 20, 30, 40};\n"
               ".global .align 4 .u32 counts[2] = {7, 8};\n"
               ".const .align 8 .u64 where = generic(counts);")  # fmt: skip
    add("parameters through a register", """
      .reg .b64 %p, %x; mov.b64 %p, buffer0; ld.param.u64 %x, [%p];
      sub.u64 %x, %x, %b0; cvt.u32.u64 %o0, %x;
    """, [], ["b32"], [LANES * 0], buffers=[LANES])  # fmt: skip
    add("a peer's shared memory", """
      .reg .b32 %s, %r, %q, %t; .reg .b64 %g;
      mov.u32 %s, memory; mov.u32 %r, %cluster_ctarank; and.b32 %q, %thread, 31;
      shl.b32 %t, %q, 2; add.u32 %s, %s, %t;
      st.shared.b32 [%s], %thread;
      barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
      xor.b32 %r, %r, 1; mapa.shared::cluster.u32 %t, %s, %r;
      ld.shared::cluster.b32 %o0, [%t];
      cvt.u64.u32 %g, %s; cvta.shared.u64 %g, %g; mapa.u64 %g, %g, %r; ld.b32 %o1, [%g];
      barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
    """, [], ["b32", "b32"], [lanes ^ 32, lanes ^ 32], grid=(2, 1, 1), cluster=(2, 1, 1),
        shared=128, target="sm_90")  # fmt: skip


def atomics():
    a = RNG.integers(0, 1 << 32, 32, dtype=np.uint32)
    b = RNG.integers(0, 1 << 32, 32, dtype=np.uint32)
    a[:8] = [0, 5, 6, 7, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 3]
    b[:8] = [9, 5, 5, 9, 0, 1, 1, 0xFFFFFFFF]
    s, t = a.view(np.int32), b.view(np.int32)
    table = {
        "and.b32": a & b, "or.b32": a | b, "xor.b32": a ^ b, "exch.b32": b, "add.u32": a + b,
        "add.s32": a + b, "min.u32": np.minimum(a, b), "max.u32": np.maximum(a, b),
        "min.s32": np.minimum(s, t).view(np.uint32), "max.s32": np.maximum(s, t).view(np.uint32),
        "inc.u32": np.where(a >= b, 0, a + 1).astype(np.uint32),
        "dec.u32": np.where((a == 0) | (a > b), b, a - 1).astype(np.uint32),
    }  # fmt: skip
    for op, want in table.items():
        add(f"atom.global.{op}", own(4) + f"atom.global.{op} %o0, [%a], %i0;", [b], ["b32"], [a],
            buffers=[a], expected_buffers=[want])  # fmt: skip
        if not op.startswith("exch"):
            add(f"red.{op}", own(4) + f"red.relaxed.gpu.global.{op} [%a], %i0;", [b],
                buffers=[a], expected_buffers=[want])  # fmt: skip
    w, v = WORDS.view(np.uint64)[:, 0].copy(), WORDS.view(np.uint64)[:, 1].copy()
    x, y = w.view(np.int64), v.view(np.int64)
    for op, want in {
        "and.b64": w & v, "or.b64": w | v, "xor.b64": w ^ v, "exch.b64": v, "add.u64": w + v,
        "min.u64": np.minimum(w, v), "max.u64": np.maximum(w, v),
        "min.s64": np.minimum(x, y).view(np.uint64), "max.s64": np.maximum(x, y).view(np.uint64),
    }.items():  # fmt: skip
        add(f"atom.{op}", own(8) + f"atom.{op} %o0, [%a], %i0;", [v], ["b64"], [w], buffers=[w],
            expected_buffers=[want])  # fmt: skip
    c = np.where(LANES % 2 == 0, a, a ^ 1).astype(np.uint32)
    add("atom.cas.b32", own(4) + "atom.acq_rel.gpu.global.cas.b32 %o0, [%a], %i0, %i1;", [c, b],
        ["b32"], [a], buffers=[a],
        expected_buffers=[np.where(c == a, b, a).astype(np.uint32)])  # fmt: skip
    h, k, n = (array.astype(np.uint16) for array in (a, c, b))
    add("atom.cas.b16", own(2) + "atom.global.cas.b16 %o0, [%a], %i0, %i1;", [k, n], ["b16"], [h],
        buffers=[h], expected_buffers=[np.where(k == h, n, h).astype(np.uint16)])  # fmt: skip
    add("lanes of one address", """
      atom.global.add.u32 %o0, [%b0], 2; red.global.add.u32 [%b0+4], %thread;
    """, [], ["b32"], None, buffers=[np.zeros(2, np.uint32)],
        expected_buffers=[np.array([64, 496], np.uint32)])  # fmt: skip
    add("atomics of shared memory", """
      .reg .pred %p; .reg .b32 %z;
      setp.eq.u32 %p, %thread, 0; mov.b32 %z, 0;
      @%p st.shared.v2.b32 [memory], {%z, %z};
      bar.sync 0; atom.shared.add.u32 %z, [memory], 1; red.shared.or.b32 [memory+4], %thread;
      bar.sync 0; ld.shared.v2.b32 {%o0, %o1}, [memory];
    """, [], ["b32", "b32"], [np.full(96, 96, np.uint32), np.full(96, 127, np.uint32)],
        threads=96, shared=16)  # fmt: skip


def real_atomics():
    x = RNG.standard_normal((32, 4)).astype(np.float32)
    y = RNG.standard_normal((32, 4)).astype(np.float32)
    add("atom.add.f32", own(4) + "atom.global.add.f32 %o0, [%a], %i0;", [y[:, 0]], ["f32"],
        [x[:, 0]], buffers=[x[:, 0].copy()], expected_buffers=[x[:, 0] + y[:, 0]])  # fmt: skip
    tiny = np.array([1e-40, -1e-40] * 16, np.float32)
    add("atom.add.f32 flushes in global memory", own(4) + "red.global.add.f32 [%a], %i0;", [tiny],
        buffers=[tiny * 0], expected_buffers=[tiny * 0])  # fmt: skip
    for n in (2, 4):
        registers = ", ".join(f"%i0_{i}" for i in range(n))
        add(f"red.add.v{n}.f32 flushes",
            own(4 * n) + f"red.global.add.v{n}.f32 [%a], {{{registers}}};",
            [np.stack([tiny] * n, 1)], buffers=[np.zeros((32, n), np.float32)],
            expected_buffers=[np.zeros((32, n), np.float32)],
            target="sm_90", version="8.1")  # fmt: skip
    add("atom.add.f32 keeps subnormals in shared memory", """
      .reg .b32 %s; mov.u32 %s, memory; mad.lo.u32 %s, %thread, 4, %s;
      st.shared.b32 [%s], %i0; red.shared.add.f32 [%s], %i0; ld.shared.b32 %o0, [%s];
    """, [tiny], ["f32"], [tiny + tiny], shared=128)  # fmt: skip
    d = x.astype(np.float64)[:, 0]
    add("atom.add.f64", own(8) + "atom.global.add.f64 %o0, [%a], %i0;", [d * 3], ["f64"], [d],
        buffers=[d], expected_buffers=[d + d * 3])  # fmt: skip
    h, k = x.astype(np.float16), y.astype(np.float16)
    sums = (h.astype(np.float32) + k.astype(np.float32)).astype(np.float16)
    add("atom.add.noftz.f16x2", own(4) + "atom.global.add.noftz.f16x2 %o0, [%a], %i0;",
        [k[:, :2].copy().view(np.uint32)[:, 0]], ["b32"], [h[:, :2].copy().view(np.uint32)[:, 0]],
        buffers=[h[:, :2].copy()], expected_buffers=[sums[:, :2].copy()])  # fmt: skip
    add("red.add.noftz.f16", own(2) + "red.global.add.noftz.f16 [%a], %i0;",
        [k[:, 0].copy()], buffers=[h[:, 0].copy()],
        expected_buffers=[sums[:, 0].copy()])  # fmt: skip
    bx = (x.view(np.uint32) >> 16).astype(np.uint16)
    by = (y.view(np.uint32) >> 16).astype(np.uint16)
    exact = widened(bx) + widened(by)
    add("red.add.noftz.bf16x2", own(4) + "red.global.add.noftz.bf16x2 [%a], %i0;",
        [by[:, :2].copy().view(np.uint32)[:, 0]], buffers=[bx[:, :2].copy()],
        expected_buffers=[to_bf16(exact)[:, :2].copy()], target="sm_90")  # fmt: skip
    for op, n in (("red", 4), ("red", 2)):
        registers = ", ".join(f"%i0_{i}" for i in range(n))
        add(f"{op}.global.add.v{n}.f32",
            own(4 * n) + f"{op}.global.add.v{n}.f32 [%a], {{{registers}}};", [y[:, :n].copy()],
            buffers=[x[:, :n].copy()], expected_buffers=[x[:, :n] + y[:, :n]],
            target="sm_90", version="8.1")  # fmt: skip
    add("atom.global.add.v2.f32",
        own(8) + "atom.global.add.v2.f32 {%o0_0, %o0_1}, [%a], {%i0_0, %i0_1};",
        [y[:, :2].copy()], ["f32[2]"], [x[:, :2]], buffers=[x[:, :2].copy()],
        expected_buffers=[x[:, :2] + y[:, :2]], target="sm_90", version="8.1")  # fmt: skip


def widened(bf16):
    return (bf16.astype(np.uint32) << 16).view(np.float32)


def to_bf16(values):
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def no_results():
    for line in ("fence.acq_rel.cta;", "fence.sc.gpu;", "membar.cta;", "membar.gl;", "membar.sys;",
                 "fence.proxy.alias;", "prefetch.global.L2 [%b0];", "prefetch.L1 [%b0];",
                 "prefetch.global.L2::evict_last [%b0];", "prefetchu.L1 [%b0];",
                 "applypriority.global.L2::evict_normal [%b0], 128;"):  # fmt: skip
        add(line, f"{line}\nmov.b32 %o0, %thread;", [], ["b32"], [LANES],
            buffers=[np.zeros(64, np.uint32)])  # fmt: skip
    for line in ("fence.proxy.async;", "fence.proxy.async.shared::cta;",
                 "fence.proxy.async.global;", "fence.mbarrier_init.release.cluster;",
                 "fence.acq_rel.cluster;", "fence.proxy.tensormap::generic.release.gpu;",
                 "fence.proxy.tensormap::generic.acquire.gpu [%b0], 128;"):  # fmt: skip
        add(line, f"{line}\nmov.b32 %o0, %thread;", [], ["b32"], [LANES],
            buffers=[np.zeros(64, np.uint32)], target="sm_90", version="8.3")  # fmt: skip


def faults():
    def refuses(name, body, fault, **more):
        add(name, body, [], ["b32"], fault=fault, emulator_only=True, **more)

    few = [np.zeros(20, np.uint32)]
    refuses("a load behind its buffer", own(4) + "ld.global.b32 %o0, [%a];",
            "read of 4 bytes at global address", buffers=few)  # fmt: skip
    refuses("a load behind its buffer: by how much", own(4) + "ld.global.b32 %o0, [%a];",
            "ends 4 bytes behind the end of", buffers=few)  # fmt: skip
    refuses("a load behind its buffer: which lane", own(4) + "ld.global.b32 %o0, [%a];",
            "lane 20", buffers=few)  # fmt: skip
    refuses("a misaligned load", own(4) + "ld.global.v2.b32 {%o0, _}, [%a];",
            "must be a multiple of 8", buffers=[LANES, LANES])  # fmt: skip
    refuses("a store to constant memory",
            ".reg .b64 %g; mov.u64 %g, table; cvta.const.u64 %g, %g; st.b32 [%g], 1;",
            "'table' is read-only", module=".const .align 4 .u32 table[4] = {1};")  # fmt: skip
    refuses("shared memory below the system's share",
            ".reg .b32 %s; mov.b32 %s, 16; ld.shared.b32 %o0, [%s];",
            "which the system keeps")  # fmt: skip
    refuses("shared memory that nobody wrote", "ld.shared.b32 %o0, [memory+8];",
            "'memory' + 0x8", shared=64)  # fmt: skip
    share = ".reg .b32 %s; mov.u32 %s, memory; mad.lo.u32 %s, %thread, 4, %s;\n"
    swap = "xor.b32 %s, %s, 128; ld.shared.b32 %o0, [%s];"
    refuses("a missing barrier between warps", share + "st.shared.b32 [%s], %thread;\n" + swap,
            "nobody has written it", shared=256, threads=64)  # fmt: skip
    refuses("a write before others have read", share + "st.shared.b32 [%s], %thread; bar.sync 0;\n"
            + swap + "xor.b32 %s, %s, 128; st.shared.b32 [%s], 0;", "race on shared memory",
            shared=256, threads=64)  # fmt: skip
    refuses("local memory overrun",
            ".local .align 4 .b8 depot[16]; .reg .b64 %l; mov.u64 %l, depot;"
            "ld.local.b32 %o0, [%l+16];", "16 bytes of local memory")  # fmt: skip
    refuses("a peer's shared memory as one's own", """
      .reg .b32 %s, %r; mov.u32 %s, memory; st.shared.b32 [%s], 1;
      barrier.cluster.arrive; barrier.cluster.wait;
      mapa.shared::cluster.u32 %s, %s, 1; ld.shared.b32 %o0, [%s];
    """, "not .shared::cluster", grid=(2, 1, 1), cluster=(2, 1, 1), shared=16,
            target="sm_90")  # fmt: skip
    refuses("an unknown modifier", "ld.global.sometimes.b32 %o0, [%b0];",
            "does not model ld.global.sometimes.b32", buffers=few)  # fmt: skip
    refuses("multimem", "multimem.ld_reduce.global.add.u32 %o0, [%b0];",
            "does not model multimem", buffers=few, target="sm_90")  # fmt: skip


for family in (loads, vectors, stores, spaces, atomics, real_atomics, no_results, faults):
    family()
