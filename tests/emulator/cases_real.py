"""Floating-point arithmetic of one rounding, against rational numbers."""

import itertools

import numpy as np
import real_reference as real
from instruction import Case, Tolerance

NEW = {"target": "sm_90", "version": "8.0"}
FORMATS = {"f32": real.F32, "f64": real.F64, "f16": real.F16, "bf16": real.BF16}
UNSIGNED = {16: np.uint16, 32: np.uint32, 64: np.uint64}
FLOATS = {16: np.float16, 32: np.float32, 64: np.float64}


def edges(form, seed=1):
    """16 numbers: zeros, the ends of every range, infinities, NaN, and random ones near 1."""
    one, sign = form.bias << form.mantissa, form.sign
    least_normal = 1 << form.mantissa
    fixed = [0, sign, one, one | sign, one + 1, 1, least_normal - 1, least_normal | sign]
    fixed += [form.infinity - 1, form.infinity | sign, form.infinity, form.sign - 1]
    generator = np.random.default_rng(seed)
    near = [int(x) for x in generator.integers(0, 1 << (form.mantissa + 2), 4)]
    return fixed + [one - (1 << form.mantissa) + x | (sign if x & 1 else 0) for x in near]


def random(form, seed, count=128):
    """Any bits at all, so of any exponent."""
    generator = np.random.default_rng(seed)
    return [int(x) % (1 << form.bits) for x in generator.integers(0, 1 << 63, count)]


def pairs(form):
    a, b = (list(column) for column in zip(*itertools.product(edges(form), repeat=2)))
    return [a + random(form, 5), b + random(form, 6)]


def triples(form):
    """Half of the addends nearly cancel the product."""
    a, b = pairs(form)
    thirds = edges(form, 2)
    c = [thirds[(i * 7) % 16] for i in range(256)]
    c += [
        (real.mul(form, x, y) ^ form.sign) + i % 3 - 1 if i % 2 else x
        for i, (x, y) in enumerate(zip(a[256:], b[256:]))
    ]
    for index, row in enumerate(nearly_ties(form)):
        a[-1 - index], b[-1 - index], c[-1 - index] = row
    return [a, b, [x % (1 << form.bits) for x in c]]


def nearly_ties(form):
    """Sums so close below and above a tie that rounding twice goes wrong."""
    m, one = form.mantissa, form.bias << form.mantissa
    unit = 1 << m
    for k in range(m // 2, m + 1):
        # 2^-(m+1) · (1 ± 2^-k)(1 -+ 2^-k) beside an odd 1 + 2^-m and an even 1 + 2^-(m-1).
        a, b = one - (m + 1) * unit + (1 << (m - k)), one - (1 << (m + 1 - k))
        yield a, b, one + 1
        yield a, b | form.sign, (one + 1) | form.sign
        yield a, one + (1 << (m - k)), one + 2


def array(kind, bits):
    form = FORMATS[kind]
    raw = np.array(bits, dtype=UNSIGNED[form.bits])
    return raw if kind == "bf16" else raw.view(FLOATS[form.bits])


def case(instruction, kind, function, inputs, tolerance=None, **options):
    operands = "".join(f", %i{i}" for i in range(len(inputs)))
    expected = [function(*values) for values in zip(*inputs)]
    return Case(
        instruction,
        f"{instruction} %o0{operands};",
        [array(kind, column) for column in inputs],
        [kind],
        [array(kind, expected)],
        tolerance=tolerance or Tolerance(),
        threads=len(inputs[0]),
        **options,
    )


OPERATIONS = {
    "add": (real.add, 2),
    "sub": (real.sub, 2),
    "mul": (real.mul, 2),
    "fma": (real.fma, 3),
    "div": (real.div, 2),
    "rcp": (real.rcp, 1),
    "sqrt": (real.sqrt, 1),
}


def styled(form, function, mode, modifiers):
    """The function with .ftz on its operands and result, .sat and .relu on its result."""

    def result(*values):
        if "ftz" in modifiers:
            values = [real.flush(form, v) for v in values]
        bits = function(form, *values, mode + "ftz" * ("ftz" in modifiers))
        if "sat" in modifiers:
            bits = real.saturate(form, bits)
        return real.relu(form, bits) if "relu" in modifiers else bits

    return result


def rounded():
    for kind in ("f32", "f64"):
        form = FORMATS[kind]
        inputs = {1: [random(form, 7, 112) + edges(form)], 2: pairs(form), 3: triples(form)}
        for (name, (function, arity)), mode in itertools.product(
            OPERATIONS.items(), ("rn", "rz", "rm", "rp")
        ):
            styles = [()]
            if kind == "f32":
                styles.append(("ftz",))
                if name in ("add", "sub", "mul", "fma"):
                    styles.append(("sat",))
            for style in styles:
                instruction = ".".join([name, mode, *style, kind])
                yield case(instruction, kind, styled(form, function, mode, style), inputs[arity])


def halves():
    for kind in ("f16", "bf16"):
        form = FORMATS[kind]
        inputs = {2: pairs(form), 3: triples(form)}
        for name in ("add", "sub", "mul", "fma"):
            function, arity = OPERATIONS[name]
            styles = [()]
            if kind == "f16":
                styles += [("ftz",), ("sat",), ("ftz", "sat")]
            if name == "fma":
                styles.append(("relu",))
            options = {} if kind == "f16" or name == "fma" else NEW
            for style in styles:
                result = styled(form, function, "rn", style)
                instruction = ".".join([name, "rn", *style, kind])
                yield case(instruction, kind, result, inputs[arity], **options)
                yield paired(instruction + "x2", kind, result, inputs[arity], options)
        for name in ("abs", "neg"):
            bits = [b for b in edges(form) if b != form.sign - 1]  # of NaN: unspecified
            bits += bits[:1] * (16 - len(bits))
            change = (
                (lambda b, f=form: b & ~f.sign) if name == "abs" else (lambda b, f=form: b ^ f.sign)
            )
            yield case(f"{name}.{kind}", kind, change, [bits])
            yield paired(f"{name}.{kind}x2", kind, change, [bits], {})


def paired(instruction, kind, function, inputs, options):
    """Of pairs: the numbers, and above them the same numbers in the opposite order."""
    operands = "".join(f", %i{i}" for i in range(len(inputs)))

    def joined(column):
        low = np.array(column, dtype=np.uint32)
        return low | low[::-1] << 16

    results = [function(*values) for values in zip(*inputs)]
    return Case(
        instruction,
        f"{instruction} %o0{operands};",
        [joined(column) for column in inputs],
        ["b32"],
        [joined(results)],
        threads=len(results),
        **options,
    )


def extreme(form, name, a, b, propagate=False, xorsign=False):
    x, y = real.decode(form, a), real.decode(form, b)
    sign = (a ^ b) & form.sign
    nan = form.sign - 1
    if (x == real.NAN and y == real.NAN) or (propagate and real.NAN in (x, y)):
        return nan
    if xorsign:
        a, b = a & ~form.sign, b & ~form.sign
        x, y = real.decode(form, a), real.decode(form, b)
    if real.NAN in (x, y):
        result = b if x == real.NAN else a
    elif x == y:
        result = min(a, b) if name == "max" else max(a, b)  # of the zeros, +0 is the larger
    else:
        result = a if (x < y) == (name == "min") else b
    return result | sign if xorsign else result


def extremes():
    for name, kind in itertools.product(("min", "max"), ("f32", "f64", "f16", "bf16")):
        form = FORMATS[kind]
        if kind == "f64":
            yield case(
                f"{name}.f64", kind, lambda a, b, n=name: extreme(real.F64, n, a, b), pairs(form)
            )
            continue
        for propagate, xorsign, ftz in itertools.product((False, True), repeat=3):
            if ftz and kind == "bf16":
                continue
            words = [name, "ftz" * ftz, "NaN" * propagate, "xorsign.abs" * xorsign, kind]
            instruction = ".".join(word for word in words if word)

            def result(a, b, f=form, n=name, p=propagate, x=xorsign, ftz=ftz):
                if ftz:
                    a, b = real.flush(f, a), real.flush(f, b)
                return extreme(f, n, a, b, p, x)

            options = NEW if xorsign else {}
            yield case(instruction, kind, result, pairs(form), **options)
            if kind != "f32":
                yield paired(instruction + "x2", kind, result, pairs(form), options)


def signs():
    for kind in ("f32", "f64"):
        form = FORMATS[kind]
        a, b = pairs(form)
        sign = form.sign
        yield case(f"copysign.{kind}", kind, lambda x, y, s=sign: (x & s) | (y & ~s), [a, b])
        yield case(f"abs.{kind}", kind, lambda x, s=sign: x & ~s, [edges(form)])
        yield case(f"neg.{kind}", kind, lambda x, s=sign: x ^ s, [edges(form)])
        values = [real.decode(form, x) for x in edges(form)]
        infinite = np.array([v in (np.inf, -np.inf) for v in values])
        nan = np.array([v == real.NAN for v in values])
        tiny = np.array([real.is_subnormal(form, x) for x in edges(form)])
        properties = {
            "finite": ~infinite & ~nan,
            "infinite": infinite,
            "number": ~nan,
            "notanumber": nan,
            "normal": ~infinite & ~nan & ~tiny,
            "subnormal": tiny,
        }
        for name, want in properties.items():
            instruction = f"testp.{name}.{kind}"
            body = f"{instruction} %o0, %i0;"
            yield Case(instruction, body, [array(kind, edges(form))], ["pred"], [want], threads=16)


CASES = [*rounded(), *halves(), *extremes(), *signs()]
