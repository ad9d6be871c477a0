"""An attention variant as a template file in your own folder: gated.cuh, beside this script."""

import pathlib

import torch
from kiln import jit

# The parameters fill the struct's slots, in order.
gated = jit.Variant(
    "gated",
    params={"sentence": "i32", "gain": "f32"},
    file=pathlib.Path(__file__).with_name("gated.cuh"),
)

device = "cuda" if torch.cuda.is_available() else "cpu"
length, heads, sentence, gain = 300, 4, 50, 0.25
q, k, v = torch.randn(3, 2, length, heads, 64, device=device, dtype=torch.float16)
out = jit.flash_attention(q, k, v, variant=gated(sentence=sentence, gain=gain))

which = torch.arange(length, device=device) // sentence
factor = torch.where(torch.arange(heads, device=device) % 2 == 0, 1.0, gain)
q32, k32, v32 = (x.float().transpose(1, 2) for x in (q, k, v))
reference = torch.nn.functional.scaled_dot_product_attention(
    q32 * factor[:, None, None], k32, v32, attn_mask=which[:, None] == which[None]
)
torch.testing.assert_close(out.float(), reference.transpose(1, 2), rtol=5e-3, atol=5e-3)
print("ok: the variant file agrees with PyTorch")
