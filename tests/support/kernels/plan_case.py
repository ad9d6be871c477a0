"""A call with a plan that its own arguments make, and its results beside those without."""

import math

import torch
from kiln import jit

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
