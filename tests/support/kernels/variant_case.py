"""One attention call with a variant, and the judgement."""

from attention_case import judge
from kiln import jit


def run(variant, case, logits=None, mask=None, **options):
    """One call with a bound variant, judged against the same hooks in PyTorch."""
    q, k, v = case.inputs()
    out, lse = case.outputs()
    options = {**case.options(), **options}
    jit.flash_attention(
        q, k, v, out=out.view, lse=lse, layout=case.layout, variant=variant, **options
    )
    judge(str(case), q, k, v, out, lse, layout=case.layout, logits=logits, mask=mask, **options)
    return out.view, lse
