"""Logic, shifts, and instructions on single bits and fields."""

import numpy as np
from instruction import Case
from integer_reference import array, case, edges, pairs, signed, triples, width


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


def in_word(count, bits):
    """Of 32 bits the low byte of a position or length counts, of 64 bits all of it."""
    return min(count & 255 if bits == 32 else count, bits)


def extract(a, position, length, bits, is_signed):
    position, length = in_word(position, bits), in_word(length, bits)
    bit = [(a >> i) & 1 for i in range(bits)]
    sign = bit[min(position + length - 1, bits - 1)] if is_signed and length else 0
    inside = (i < length and position + i < bits for i in range(bits))
    return sum((bit[position + i] if ok else sign) << i for i, ok in enumerate(inside))


def insert(a, b, position, length, bits):
    position, length = in_word(position, bits), in_word(length, bits)
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
    places = [0, 1, 4, 8, 15, 16, 31, 32, 33, 48, 63, 64, 255, 256, 257, 0x80000000]
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


CASES = [*logic(), *shifts(), *bits()]
