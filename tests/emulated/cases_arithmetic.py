"""Integer arithmetic, logic, shifts and bits; floating point is in cases_real.py. Expected values
come from Python's unbounded integers."""

import itertools

import numpy as np
from instruction import Case


def width(kind):
    return int(kind.lstrip("usb"))


def edges(bits, seed=1):
    """16 values: the ends, their neighbours, small ones and random ones."""
    top = 1 << bits
    fixed = [0, 1, 2, 3, 7, top - 1, top - 2, top // 2, top // 2 - 1, top // 2 + 1, top // 4]
    generator = np.random.default_rng(seed)
    return fixed + [int(x) % top for x in generator.integers(0, 1 << 63, 16 - len(fixed))]


def pairs(bits):
    """256 pairs of edges."""
    return [list(column) for column in zip(*itertools.product(edges(bits), repeat=2))]


def array(values, bits):
    return np.array([int(v) % (1 << bits) for v in values], dtype=f"u{bits // 8}")


def signed(value, bits):
    return value - (1 << bits) if value >> (bits - 1) else value


def valued(kind, value):
    """The number that bits stand for."""
    return signed(value, width(kind)) if kind[0] == "s" else value


def case(instruction, function, inputs, kinds, result, tail="", **options):
    """One instruction on columns of bits. `kinds`: the types of the operands as function sees
    them; `result`: that of the destination."""
    operands = "".join(f", %i{i}" for i in range(len(inputs)))
    columns = [[valued(kind, v) for v in column] for kind, column in zip(kinds, inputs)]
    expected = [function(*values) for values in zip(*columns)]
    return Case(
        instruction + tail,
        f"{instruction} %o0{operands}{tail};",
        [array(column, width(kind)) for kind, column in zip(kinds, inputs)],
        ["b" + str(width(result))],
        [array(expected, width(result))],
        threads=len(inputs[0]),
        **options,
    )


def clamp32(x):
    return max(-(1 << 31), min((1 << 31) - 1, x))


def quotient(a, b):
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a, b):
    return -1 if b == 0 else a - quotient(a, b) * b


def triples(bits):
    a, b = pairs(bits)
    return [a, b, [edges(bits, 2)[(i * 7) % 16] for i in range(256)]]


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


def logic():
    for kind in ("b16", "b32", "b64"):
        bits = width(kind)
        two, same = pairs(bits), [kind] * 2
        yield case(f"and.{kind}", lambda a, b: a & b, two, same, kind)
        yield case(f"or.{kind}", lambda a, b: a | b, two, same, kind)
        yield case(f"xor.{kind}", lambda a, b: a ^ b, two, same, kind)
        yield case(f"not.{kind}", lambda a: ~a, two[:1], same, kind)
        yield case(f"cnot.{kind}", lambda a: int(a == 0), two[:1], same, kind)
    a, b, c = triples(32)
    for table in (0x00, 0xFF, 0x80, 0xFE, 0x96, 0xE8, 0xCA, 0xEA, 0x1B):

        def chosen(x, y, z, table=table):
            return sum(
                ((table >> (((x >> i) & 1) * 4 + ((y >> i) & 1) * 2 + ((z >> i) & 1))) & 1) << i
                for i in range(32)
            )

        yield case("lop3.b32", chosen, [a, b, c], ["b32"] * 3, "b32", f", {table:#x}")
    for combine in ("and", "or"):
        q = np.arange(256) % 3 == 0
        results = [x & y & z for x, y, z in zip(a, b, c)]
        set_ = np.array(results) != 0
        yield Case(
            f"lop3.{combine}.b32",
            f"lop3.{combine}.b32 %o0|%o1, %i0, %i1, %i2, 0x80, %i3;",
            [array(a, 32), array(b, 32), array(c, 32), q],
            ["b32", "pred"],
            [array(results, 32), set_ & q if combine == "and" else set_ | q],
            threads=256,
            version="8.2",
        )
    p, q = np.arange(32) % 2 == 0, np.arange(32) % 3 == 0
    body = """
        and.pred %o0, %i0, %i1;
        or.pred %o1, %i0, %i1;
        xor.pred %o2, %i0, %i1;
        not.pred %o3, %i0;"""
    yield Case("and.pred", body, [p, q], ["pred"] * 4, [p & q, p | q, p ^ q, ~p])


SHIFTS = [0, 1, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 0x80000000, 0xFFFFFFFF]


def shifts():
    for kind in ("b16", "b32", "b64"):
        bits = width(kind)
        two = [pairs(bits)[0], [SHIFTS[i % 16] for i in range(256)]]
        kinds = [kind, "u32"]
        yield case(f"shl.{kind}", lambda a, n: a << n if n < 64 else 0, two, kinds, kind)
        for letter in "bus":
            typed = kind.replace("b", letter)
            yield case(f"shr.{typed}", lambda a, n: a >> min(n, 64), two, [typed, "u32"], typed)
    a, b = pairs(32)
    three = [a, b, [SHIFTS[(i * 5 + i // 16) % 16] for i in range(256)]]
    for mode, amount in (("clamp", lambda n: min(n, 32)), ("wrap", lambda n: n & 31)):

        def left(x, y, n, amount=amount):
            return ((y << 32 | x) << amount(n)) >> 32

        def right(x, y, n, amount=amount):
            return (y << 32 | x) >> amount(n)

        yield case(f"shf.l.{mode}.b32", left, three, ["b32"] * 3, "b32")
        yield case(f"shf.r.{mode}.b32", right, three, ["b32"] * 3, "b32")


def extract(a, position, length, bits, is_signed):
    position, length = position & 255, length & 255
    bit = [(a >> i) & 1 for i in range(bits)]
    sign = bit[min(position + length - 1, bits - 1)] if is_signed and length else 0
    inside = (i < length and position + i < bits for i in range(bits))
    return sum((bit[position + i] if ok else sign) << i for i, ok in enumerate(inside))


def insert(a, b, position, length, bits):
    position, length = position & 255, length & 255
    for i in range(min(length, max(0, bits - position))):
        place = 1 << (position + i)
        b = b & ~place | (place if (a >> i) & 1 else 0)
    return b


def nth_set(mask, base, offset):
    if offset == 0:
        return base if (mask >> base) & 1 else -1
    step = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [i for i in step if (mask >> i) & 1]
    return found[abs(offset) - 1] if abs(offset) <= len(found) else -1


def bits():
    places = [0, 1, 4, 8, 15, 16, 24, 31, 32, 33, 48, 63, 64, 200, 255, 256]
    positions = [places[i % 16] for i in range(256)]
    lengths = [places[i // 16] for i in range(256)]
    for size in (32, 64):
        kind, words = f"b{size}", pairs(size)[0]
        mixed = [edges(size, 5)[(i * 7 + i // 16 * 3) % 16] for i in range(256)]
        yield case(f"popc.{kind}", lambda a: bin(a).count("1"), [words], [kind], "b32")
        yield case(f"clz.{kind}", lambda a, n=size: n - a.bit_length(), [words], [kind], "b32")
        yield case(
            f"brev.{kind}", lambda a, n=size: int(f"{a:0{n}b}"[::-1], 2), [words], [kind], kind
        )
        for letter in "us":
            typed = f"{letter}{size}"

            def highest(a):
                return (~a if a < 0 else a).bit_length() - 1

            def amount(a, size=size):
                return size - 1 - highest(a) if highest(a) >= 0 else -1

            yield case(f"bfind.{typed}", highest, [words], [typed], "b32")
            yield case(f"bfind.shiftamt.{typed}", amount, [words], [typed], "b32")
            yield case(
                f"bfe.{typed}",
                lambda a, p, n, size=size, is_signed=letter == "s": extract(
                    a, p, n, size, is_signed
                ),
                [mixed, positions, lengths],
                [kind, "b32", "b32"],
                kind,
            )
        yield case(
            f"bfi.{kind}",
            lambda a, b, p, n, size=size: insert(a, b, p, n, size),
            [mixed, words, positions, lengths],
            [kind, kind, "b32", "b32"],
            kind,
        )
    bases = [i % 32 for i in range(256)]
    offsets = [i // 32 - 3 for i in range(256)]
    masks = [edges(32, 5)[(i * 7 + i // 16) % 16] for i in range(256)]
    yield case(
        "fns.b32",
        nth_set,
        [masks, bases, [o % (1 << 32) for o in offsets]],
        ["b32", "b32", "s32"],
        "b32",
    )
    yield from masks_and_extensions(positions, lengths, masks)


def masks_and_extensions(positions, lengths, words):
    def bit_mask(position, length, clamps):
        if clamps and position >= 32:
            return 0
        first = position if clamps else position & 31
        count = min(length, 32) if clamps else length & 31
        return ((1 << count) - 1) << first

    def extend(a, count, is_signed, clamps):
        if clamps and count >= 32:
            return a
        count &= 31
        low = a & ((1 << count) - 1)
        return signed(low, count) if is_signed and count else low

    new = {"version": "7.6"}
    for mode in ("clamp", "wrap"):
        clamps = mode == "clamp"
        yield case(
            f"bmsk.{mode}.b32",
            lambda p, n, clamps=clamps: bit_mask(p, n, clamps),
            [positions, lengths],
            ["b32"] * 2,
            "b32",
            **new,
        )
        for kind in ("u32", "s32"):
            yield case(
                f"szext.{mode}.{kind}",
                lambda a, n, s=kind == "s32", clamps=clamps: extend(a, n, s, clamps),
                [words, positions],
                ["b32"] * 2,
                "b32",
                **new,
            )


CASES = [
    *sums_and_products(),
    *saturating(),
    *products24(),
    *packed(),
    *carries(),
    *dots(),
    *logic(),
    *shifts(),
    *bits(),
]
