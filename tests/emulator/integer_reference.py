"""Integers as bits and columns of them: what the cases of integer instructions are made of."""

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


def triples(bits):
    a, b = pairs(bits)
    return [a, b, [edges(bits, 2)[(i * 7) % 16] for i in range(256)]]
