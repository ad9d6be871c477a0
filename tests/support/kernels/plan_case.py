"""A call with a plan that its own arguments make, and its results beside those without."""

import math

import kiln
import pytest
import torch
from kiln import jit
from storage import DEVICE

# Options of a call that say nothing to its plan.
OF_CALLS = ("scale", "sinks", "q_scale", "k_scale", "v_scale")


def planned_words(call):
    """The arguments that a call of VarlenCase shares with its plan."""
    return {name: word for name, word in call.keywords.items() if name not in OF_CALLS}


def plan_of(call, **changes):
    return jit.plan_attention(call.q, call.k, call.v, **{**planned_words(call), **changes})


def bits(call):
    """What the call has left in out and lse, NaN of rows that nobody writes included."""
    out = call.out.view.contiguous().view(torch.uint8)
    return torch.cat([out.flatten(), call.lse.contiguous().view(torch.uint8).flatten()])


def check_planned(case, plan=None):
    """Runs a case without a plan and with one: judges both, compares all bits."""
    given = case.inputs()
    compare_planned(case.call(given), given, plan)


def compare_planned(call, given, plan=None):
    call.run()
    call.judge(given)
    expected = bits(call).clone()
    call.out.buffer.fill_(math.nan)
    call.lse.fill_(math.nan)
    made = plan_of(call, plan=plan)
    assert plan is None or made is plan
    call.keywords["plan"] = made
    call.run()
    call.judge(given)
    assert torch.equal(bits(call), expected), f"{call.case}: other bits with a plan"


def check_trap(call, other):
    """A call with the plan of another one, or with a plan of zeros, ends in a trap."""
    of_another = plan_of(other)
    long_enough = torch.zeros([1 << 16], dtype=torch.int32, device=DEVICE)
    long_enough[: len(of_another)] = of_another
    for plan in (long_enough, torch.zeros_like(long_enough)):
        call.keywords["plan"] = plan
        with pytest.raises(kiln.EmulatorError, match="the kernel executed trap"):
            call.run()
