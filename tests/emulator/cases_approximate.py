"""The approximate functions, within the bounds that PTX gives."""

import numpy as np
import real_reference as real
from cases_real import FLOATS, FORMATS, NEW, UNSIGNED, array, case, styled
from instruction import Case, Tolerance


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
    yield from large_angles()
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


def turns(x):
    """The angle as the hardware has it: times the f32 next to 1/2pi, cut to f32 and to 2^-25."""
    product = x * float.fromhex("0x1.45f306p-3")
    cut = product.astype(np.float32).astype(np.float64)
    too_far = np.abs(cut) > np.abs(product)
    cut = np.where(too_far, np.nextafter(cut.astype(np.float32), np.float32(0)), cut)
    return np.trunc(cut * 2.0**25) * 2.0**-25 % 1.0 * 2 * np.pi


def large_angles():
    bound = Tolerance(abs=2.0**-21)
    for name, function in (("sin", np.sin), ("cos", np.cos)):
        values = sample(-(2.0**22), 2.0**22)[5:]
        made = approximation(
            f"{name}.approx.f32", "f32", lambda x, f=function: f(turns(x)), values, bound
        )
        yield renamed(made, " of large angles")


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


CASES = [*approximations()]
