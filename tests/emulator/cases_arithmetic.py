"""Integer sums and products. Expected values come from Python's unbounded integers."""

import numpy as np
from instruction import Case
from integer_reference import array, case, edges, pairs, signed, triples, valued, width

LANES = np.arange(32)


def clamp32(x):
    return max(-(1 << 31), min((1 << 31) - 1, x))


def quotient(a, b):
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a, b):
    return -1 if b == 0 else a - quotient(a, b) * b


def sums_and_products():
    for kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
        bits = width(kind)
        two, three = pairs(bits), triples(bits)
        same = [kind] * 3
        yield case(f"add.{kind}", lambda a, b: a + b, two, same, kind)
        yield case(f"sub.{kind}", lambda a, b: a - b, two, same, kind)
        yield case(f"min.{kind}", min, two, same, kind)
        yield case(f"max.{kind}", max, two, same, kind)
        yield case(f"mul.lo.{kind}", lambda a, b: a * b, two, same, kind)
        yield case(f"mul.hi.{kind}", lambda a, b, n=bits: (a * b) >> n, two, same, kind)
        yield case(f"mad.lo.{kind}", lambda a, b, c: a * b + c, three, same, kind)
        yield case(f"mad.hi.{kind}", lambda a, b, c, n=bits: ((a * b) >> n) + c, three, same, kind)
        yield case(f"sad.{kind}", lambda a, b, c: c + abs(a - b), three, same, kind)
        # By zero: all ones, which is the hardware's choice; unknown for 16 bits.
        divisors = two if bits > 16 else [two[0], [b or 5 for b in two[1]]]
        yield case(f"div.{kind}", quotient, divisors, same, kind)
        yield case(f"rem.{kind}", remainder, divisors, same, kind)
        if kind[0] == "s":
            yield case(f"abs.{kind}", abs, two[:1], same, kind)
            yield case(f"neg.{kind}", lambda a: -a, two[:1], same, kind)
        if bits < 64:
            wide = f"{kind[0]}{2 * bits}"
            addend = triples(2 * bits)[2]
            yield case(f"mul.wide.{kind}", lambda a, b: a * b, two, same, wide)
            yield case(
                f"mad.wide.{kind}",
                lambda a, b, c: a * b + c,
                [*two, addend],
                [kind, kind, wide],
                wide,
            )


def saturating():
    two, three = pairs(32), triples(32)
    same = ["s32"] * 3
    yield case("add.sat.s32", lambda a, b: clamp32(a + b), two, same, "s32")
    yield case("sub.sat.s32", lambda a, b: clamp32(a - b), two, same, "s32")
    yield case("mad.hi.sat.s32", lambda a, b, c: clamp32(((a * b) >> 32) + c), three, same, "s32")
    new = {"target": "sm_90", "version": "8.0"}
    yield case("min.relu.s32", lambda a, b: max(0, min(a, b)), two, same, "s32", **new)
    yield case("max.relu.s32", lambda a, b: max(0, a, b), two, same, "s32", **new)


def low24(kind, x):
    x &= 0xFFFFFF
    return signed(x, 24) if kind == "s32" else x


def products24():
    for kind in ("u32", "s32"):
        same = [kind] * 3

        def product(a, b, kind=kind):
            return low24(kind, a) * low24(kind, b)

        two, three = pairs(32), triples(32)
        yield case(f"mul24.lo.{kind}", product, two, same, kind)
        yield case(f"mul24.hi.{kind}", lambda a, b: product(a, b) >> 16, two, same, kind)
        yield case(f"mad24.lo.{kind}", lambda a, b, c: product(a, b) + c, three, same, kind)
        yield case(f"mad24.hi.{kind}", lambda a, b, c: (product(a, b) >> 16) + c, three, same, kind)


def halves(word, kind):
    return [valued(kind[:3], word & 0xFFFF), valued(kind[:3], word >> 16)]


def packed():
    new = {"target": "sm_90", "version": "8.0"}
    words = [
        [a | b << 16 for a, b in zip(*pairs(16))],
        [b | (a ^ 5) << 16 for a, b in zip(*pairs(16))],
    ]
    operations = {"add": lambda a, b: a + b, "min": min, "max": max}
    for kind in ("u16x2", "s16x2"):
        for name, function in operations.items():

            def both(x, y, kind=kind, function=function):
                low, high = map(function, halves(x, kind), halves(y, kind))
                return (low & 0xFFFF) | (high & 0xFFFF) << 16

            yield case(f"{name}.{kind}", both, words, ["b32"] * 2, "b32", **new)


def carries():
    """Sums of three and two words; the flag survives what does not write it."""
    generator = np.random.default_rng(3)
    words = generator.integers(0, 1 << 32, (2, 256, 3), dtype=np.uint64)
    words[generator.random((2, 256, 3)) < 0.3] = 0xFFFFFFFF
    words[generator.random((2, 256, 3)) < 0.3] = 0
    numbers = [
        [sum(int(w) << (32 * i) for i, w in enumerate(row)) for row in side] for side in words
    ]
    inputs = [side.astype(np.uint32) for side in words]
    for name, sign in (("add", 1), ("sub", -1)):
        results = [(a + sign * b) % (1 << 96) for a, b in zip(*numbers)]
        body = f"""
            {name}.cc.u32 %o0_0, %i0_0, %i1_0;
            {name}c.cc.u32 %o0_1, %i0_1, %i1_1;
            {name}c.u32 %o0_2, %i0_2, %i1_2;"""
        expected = [[(x >> (32 * i)) & 0xFFFFFFFF for i in range(3)] for x in results]
        yield Case(
            f"{name}.cc.u32",
            body,
            inputs,
            ["u32[3]"],
            [np.array(expected, dtype=np.uint32)],
            threads=256,
        )
    a, b = pairs(64)
    body = """
        .reg .b64 %zero;
        mov.b64 %zero, 0;
        add.cc.u64 %o0, %i0, %i1;
        addc.u64 %o1, %zero, %zero;
        sub.cc.u64 %o2, %i0, %i1;
        subc.u64 %o3, %zero, %zero;"""
    wide = [[x + y for x, y in zip(a, b)], [(x + y) >> 64 for x, y in zip(a, b)]]
    wide += [[x - y for x, y in zip(a, b)], [-(x < y) for x, y in zip(a, b)]]
    yield Case(
        "add.cc.u64",
        body,
        [array(a, 64), array(b, 64)],
        ["u64"] * 4,
        [array(column, 64) for column in wide],
        threads=256,
    )
    a, b, c = triples(32)
    d = [edges(32, 4)[(i * 11) % 16] for i in range(256)]
    for kind in ("u32", "s32"):
        body = f"""
            mad.lo.cc.{kind} %o0, %i0, %i1, %i2;
            madc.hi.{kind} %o1, %i0, %i1, %i3;"""
        sums = [valued(kind, x) * valued(kind, y) + z + (w << 32) for x, y, z, w in zip(a, b, c, d)]
        yield Case(
            f"mad.cc.{kind}",
            body,
            [array(column, 32) for column in (a, b, c, d)],
            ["u32", "u32"],
            [array(sums, 32), array([s >> 32 for s in sums], 32)],
            threads=256,
        )


def dots():
    a, b, c = triples(32)
    for left in ("u32", "s32"):
        for right in ("u32", "s32"):

            def parts(word, kind, bits, count, first=0):
                fields = [(word >> (bits * (first + i))) & ((1 << bits) - 1) for i in range(count)]
                return [signed(f, bits) if kind == "s32" else f for f in fields]

            def dot4(x, y, z, left=left, right=right):
                return z + sum(p * q for p, q in zip(parts(x, left, 8, 4), parts(y, right, 8, 4)))

            def dot2(x, y, z, first=0, left=left, right=right):
                halves_ = parts(x, left, 16, 2)
                return z + sum(p * q for p, q in zip(halves_, parts(y, right, 8, 2, first)))

            same = ["b32"] * 3
            yield case(f"dp4a.{left}.{right}", dot4, [a, b, c], same, "b32")
            yield case(f"dp2a.lo.{left}.{right}", dot2, [a, b, c], same, "b32")
            yield case(
                f"dp2a.hi.{left}.{right}",
                lambda x, y, z, dot2=dot2: dot2(x, y, z, 2),
                [a, b, c],
                same,
                "b32",
            )


def guarded():
    """Lanes whose guard fails keep what they have; the destination is a source too."""
    a, b, guard = np.arange(32, dtype=np.uint32), np.arange(32, dtype=np.uint32) * 5, LANES % 3 == 0
    for name, function in (("add.u32", np.add), ("mul.lo.u32", np.multiply)):
        body = f"mov.b32 %o0, %i0; @%i2 {name} %o0, %o0, %i1; @!%i2 {name} %o0, %i1, %o0;"
        yield Case(f"{name} guarded", body, [a, b, guard], ["u32"], [function(a, b)])
    body = "mov.b32 %o0, %i0; @%i2 sub.u32 %o0, %o0, %i1;"
    yield Case("sub.u32 guarded", body, [a, b, guard], ["u32"], [np.where(guard, a - b, a)])


def refused():
    """What is not modelled is named, not run as something else."""
    for instruction in (
        "add.sat.u32 %o0, %o0, 1",
        "mul.u32 %o0, %o0, 1",
        "mul24.wide.u32 %o0, %o0, 1",
        "shl.s32 %o0, %o0, 1",
        "div.f32 %o0, %o0, %o0",
        "fma.f32 %o0, %o0, %o0, %o0",
        "add.rna.f32 %o0, %o0, %o0",
        "sin.f32 %o0, %o0",
        "fma.rn.oob.f16x2 %o0, %o0, %o0, %o0",
    ):
        yield Case(
            f"refused: {instruction}",
            f"mov.b32 %o0, 0; {instruction};",
            [],
            ["b32"],
            fault=f"does not model {instruction.split()[0]}",
            emulator_only=True,
        )


CASES = [
    *guarded(),
    *refused(),
    *sums_and_products(),
    *saturating(),
    *products24(),
    *packed(),
    *carries(),
    *dots(),
]
