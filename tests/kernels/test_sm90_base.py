"""The headers of templates/sm90, a case for each thing that they say: on the emulated device under
both schedules, on a GPU a few times, since the hardware's schedule is another every time."""

import re

import grid
import pytest
import sm90_case
import sm90_products

ORDERS = [("late", 0), ("late", 3), ("eager", 0), ("eager", 7)]
RUNS = 5  # on a GPU
CASES = sm90_case.all_cases()
SOUND = [case for case in CASES if case.fault is None]
BROKEN = [case for case in CASES if case.fault is not None]

NAMES = {"bf16": "bfloat16", "f16": "float16"}


@pytest.fixture(scope="module", autouse=True)
def compiled_cases(request):
    """Many at a time."""
    if grid.on_gpu():
        import cuda_driver

        if not cuda_driver.runs("sm_90a"):
            pytest.skip("this GPU does not run sm_90a")
    how = sm90_case.HARDWARE if grid.on_gpu() else sm90_case.EMULATED
    sm90_case.compile_chosen(request.session.items, *how)


orders = pytest.mark.parametrize(("schedule", "seed"), ORDERS)


@pytest.mark.emulated
@orders
@pytest.mark.parametrize("case", SOUND, ids=repr)
def test_case(case, schedule, seed):
    sm90_case.check(case, sm90_case.run_emulated(case, schedule, seed))


@pytest.mark.cuda
@pytest.mark.parametrize("case", SOUND, ids=repr)
def test_case_on_a_gpu(case):
    for _ in range(RUNS):
        sm90_case.check(case, sm90_case.run_on_gpu(case))


@pytest.mark.emulated
@orders
@pytest.mark.parametrize("case", BROKEN, ids=repr)
def test_a_mistake_is_found(case, schedule, seed):
    import kiln

    with pytest.raises((kiln.EmulatorError, AssertionError)) as failure:
        sm90_case.check(case, sm90_case.run_emulated(case, schedule, seed))
    if case.fault == sm90_case.WRONG_RESULTS:
        assert failure.type is AssertionError
    else:
        assert re.search(case.fault, str(failure.value), re.DOTALL), failure.value
        assert failure.type is kiln.EmulatorError


def instructions(text):
    """What a struct Products does: the products' types, predicates, scales and majors, and how far
    each lies from the first."""
    joined = re.sub(r'"\s*"', "", text)
    step = r"add\.u64 ([ab]), %\d+, (\d+);"
    product = r"mma_async\.sync\.aligned\.(\S+) \{[^}]*\}, [^,]*, [^,]*, (\w+), ([^;]*);"
    found = [tuple(filter(None, parts)) for parts in re.findall(f"{step}|{product}", joined)]
    return [parts for parts in found if parts[1] != "0"]


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("layout", ["nt", "nn", "tt", "tn"])
def test_the_gemm_has_the_products_that_are_tested(dtype, layout):
    import kiln

    tile = {"block_m": 128, "block_n": 256, "block_k": 64, "stages": 4, "cluster": 1}
    spec = {"op": "gemm", "dtype": NAMES[dtype], "layout": layout, **tile}
    (kernel,) = kiln.inspect(spec, "sm_90a")
    rows_k, columns_k = layout[0] == "n", layout[1] == "t"
    tested = sm90_products.products_text((dtype, dtype), 256, rows_k, columns_k, 4)
    shipped = kernel["source"].split("struct Products {")[1].split("finish(")[0]
    assert len(instructions(tested)) == 10  # four products, three times two steps
    assert instructions(shipped) == instructions(tested)
