"""Floating-point arithmetic: exact operations against rational numbers, approximations within the
error that the PTX ISA documents."""

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


def approximation(instruction, kind, function, values, tolerance, **options):
    """`function` in f64, rounded to the format."""
    form = FORMATS[kind]
    given = array(kind, values)
    wide = given if kind != "bf16" else (given.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(all="ignore"):
        results = function(wide.astype(np.float64))
        if kind == "bf16":
            expected = np.array(
                [real.encode(form, real.decode(real.F64, int(b))) for b in results.view(np.uint64)],
                dtype=np.uint16,
            )
        else:
            expected = results.astype(FLOATS[form.bits])
    ftz = ".ftz" in instruction
    if ftz:
        bits = expected.view(UNSIGNED[form.bits])
        bits[:] = [real.flush(form, int(b)) for b in bits]
    body = f"{instruction} %o0, %i0;"
    return Case(
        instruction,
        body,
        [given],
        [kind],
        [expected],
        tolerance=tolerance,
        threads=len(values),
        **options,
    )


def sample(low, high, kind="f32", count=240, seed=11):
    """Numbers of a range, evenly spread, behind the zeros and what is not finite."""
    form = FORMATS[kind]
    numbers = np.random.default_rng(seed).uniform(low, high, count)
    special = [0, form.sign, form.infinity, form.infinity | form.sign, form.sign - 1]
    encoded = [real.encode(form, real.decode(real.F64, int(b))) for b in numbers.view(np.uint64)]
    return special + encoded + [form.bias << form.mantissa] * (16 - len(special))


def approximations():
    positive = sample(1e-6, 1e6)
    rows = [
        ("rcp", lambda x: 1 / x, sample(-50, 50), Tolerance(ulp=1)),
        ("sqrt", np.sqrt, positive, Tolerance(rel=2.0**-23, ulp=1)),
        ("rsqrt", lambda x: 1 / np.sqrt(x), positive, Tolerance(rel=2.0**-22.9)),
        ("sin", np.sin, sample(-6.28, 6.28), Tolerance(abs=2.0**-20.5)),
        ("cos", np.cos, sample(-6.28, 6.28), Tolerance(abs=2.0**-20.5)),
        ("lg2", np.log2, sample(0.5, 2), Tolerance(abs=2.0**-22)),
        ("lg2", np.log2, sample(2, 1e9), Tolerance(rel=2.0**-22)),
        ("ex2", np.exp2, sample(-120, 120), Tolerance(rel=2.0**-22)),
        ("ex2", np.exp2, sample(-1, 1), Tolerance(rel=2.0**-22)),
    ]
    for index, (name, function, values, tolerance) in enumerate(rows):
        for ftz in ("", ".ftz"):
            made = approximation(f"{name}.approx{ftz}.f32", "f32", function, values, tolerance)
            again = any(row[0] == name for row in rows[:index])
            yield made if not again else renamed(made, " of another range")
    tanh = Tolerance(rel=2.0**-11)
    yield approximation("tanh.approx.f32", "f32", np.tanh, sample(-6, 6), tanh)
    halves_ = [
        ("ex2.approx.f16", "f16", np.exp2, 2.0**-9.9, {}),
        ("ex2.approx.ftz.bf16", "bf16", np.exp2, 2.0**-7, NEW),
    ]
    for instruction, kind, function, bound, options in halves_:
        values = sample(-10, 10, kind)
        yield approximation(
            instruction, kind, function, values, Tolerance(rel=bound, ulp=1), **options
        )
    values = sample(-4, 4, "f16")
    bound = Tolerance(abs=2.0**-10.987)
    yield approximation("tanh.approx.f16", "f16", np.tanh, values, bound)
    values = sample(-4, 4, "bf16")
    bound = Tolerance(abs=2.0**-8)
    yield approximation("tanh.approx.bf16", "bf16", np.tanh, values, bound, **NEW)
    yield from approximate_pairs()
    yield from quotients()


def approximate_pairs():
    """A pair's halves are what the instruction of one number gives."""
    for name, kind in (("ex2.approx", "f16"), ("tanh.approx", "f16"), ("tanh.approx", "bf16")):
        yield same_in_pairs(name, kind)
    yield same_in_pairs("ex2.approx.ftz", "bf16")


def same_in_pairs(name, kind):
    low = np.array(sample(-6, 6, kind), dtype=np.uint32)
    body = f"""
        .reg .b16 %low, %high;
        .reg .b32 %both, %pair;
        mov.b32 {{%low, %high}}, %i0;
        {name}.{kind} %low, %low;
        {name}.{kind} %high, %high;
        mov.b32 %both, {{%low, %high}};
        {name}.{kind}x2 %pair, %i0;
        xor.b32 %o0, %both, %pair;"""
    options = NEW if kind == "bf16" else {}
    words, zeros = low | low[::-1] << 16, np.zeros(len(low), dtype=np.uint32)
    return Case(f"{name}.{kind}x2", body, [words], ["b32"], [zeros], threads=len(low), **options)


def renamed(made, suffix):
    return Case(
        made.name + suffix,
        made.body,
        made.inputs,
        made.outputs,
        made.expected,
        tolerance=made.tolerance,
        threads=made.threads,
    )


def quotients():
    form = real.F32
    a, b = sample(-1e3, 1e3), sample(-1e3, 1e3, seed=12)[::-1]
    bound = Tolerance(ulp=2)
    for how in ("approx", "full"):
        for ftz in ("", ".ftz"):
            result = styled(form, real.div, "rn", ftz)
            yield case(f"div.{how}{ftz}.f32", "f32", result, [a, b], bound)
    # Of f64 only gross forms are approximated: 20 bits of mantissa.
    c = [real.encode(real.F64, real.decode(form, x)) for x in sample(0.01, 100)[5:]]
    for name, function, bound in (
        ("rcp.approx.ftz.f64", real.rcp, 2.0**-19),
        ("rsqrt.approx.f64", lambda f, x, m: real.rcp(f, real.sqrt(f, x)), 2.0**-51),
    ):
        result = styled(real.F64, function, "rn", ())
        yield case(name, "f64", result, [c], Tolerance(rel=bound))
    # Divisors beyond 2^126 give zero.
    large = array("f32", [real.encode(form, real.Fraction(2) ** 127)] * 16)
    numbers = np.linspace(-3, 3, 16, dtype=np.float32)
    body = "div.approx.f32 %o0, %i0, %i1;"
    zeros = [np.copysign(np.float32(0), numbers)]
    yield Case(
        "div.approx.f32 of large",
        body,
        [numbers, large],
        ["f32"],
        zeros,
        threads=16,
        tolerance=Tolerance(abs=1e-45),
    )


CASES = [*rounded(), *halves(), *extremes(), *signs(), *approximations()]
