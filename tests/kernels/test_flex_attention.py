"""jit.flex_attention: the callables that FlexAttention is known for, as PyTorch computes them."""

import pytest
import torch
from flex_case import compiles, inputs, run
from grid import on_gpu
from storage import DEVICE
from torch.nn.attention.flex_attention import and_masks, or_masks

pytestmark = pytest.mark.usefixtures("device")

LENGTH, HEADS = 90, 4
if not on_gpu():
    torch.set_num_threads(1)  # tensors are tiny: its threads would only wait for each other


def random(*shape, seed=3, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)


def whole(*values):
    return torch.tensor(values, device=DEVICE)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def relative(score, b, h, q_idx, kv_idx):
    return score + (q_idx - kv_idx) * 0.01


SLOPES = torch.exp2(-2.0 * torch.arange(1, HEADS + 1)).to(DEVICE)


def alibi(score, b, h, q_idx, kv_idx):
    return score + SLOPES[h] * (kv_idx - q_idx)


CAP = torch.tensor(2.0, device=DEVICE)


def softcap(score, b, h, q_idx, kv_idx):
    return CAP * torch.tanh(score / CAP)


def causal_by_infinity(score, b, h, q_idx, kv_idx):
    return torch.where((q_idx > kv_idx) & (score < 1.0), score, -float("inf"))


BIAS = random(1, HEADS, LENGTH, LENGTH, dtype=torch.float16)


def bias_of_rows(score, b, h, q_idx, kv_idx):
    return score + BIAS[0, h][q_idx, kv_idx]


DOCUMENT = torch.arange(LENGTH, device=DEVICE)[None] * torch.tensor([[3], [5]], device=DEVICE) // 90


def same_document(b, h, q_idx, kv_idx):
    return DOCUMENT[b, q_idx] == DOCUMENT[b, kv_idx]


STARTS = whole(0, 30, 60, 90, 120)  # of the documents of the first batch entry


def causal_in_document(b, h, q_idx, kv_idx):
    start = STARTS[DOCUMENT[0][q_idx]]
    is_causal = q_idx - start >= kv_idx - STARTS[DOCUMENT[0, kv_idx]]
    return same_document(b, h, q_idx, kv_idx) & is_causal


def prefix_lm(prefix):
    return or_masks(lambda b, h, q_idx, kv_idx: kv_idx < prefix[b], causal)


def window(size):
    return and_masks(causal, lambda b, h, q_idx, kv_idx: q_idx - kv_idx <= size)


def dilated(b, h, q_idx, kv_idx):
    return ((q_idx - kv_idx) % 3 == 0) & ((q_idx - kv_idx).abs() <= 40)


def neighbourhood(width, reach):
    """Of a picture's pixels, row by row; windows are moved to lie within the picture."""

    def near(b, h, q_idx, kv_idx):
        q_x, q_y = q_idx // width, q_idx % width
        kv_x, kv_y = kv_idx // width, kv_idx % width
        x = q_x.clamp(reach, 8 - reach)
        y = torch.clamp(q_y, min=reach, max=width - 1 - reach)
        return ((x - kv_x).abs() <= reach) & ((y - kv_y).abs() <= reach)

    return near


def of_pictures(first, last):
    """Transfusion: causal text, in which pictures see all of themselves."""

    def same_picture(b, h, q_idx, kv_idx):
        q_inside = (q_idx >= first[b]) & (q_idx < last[b])
        return q_inside & (kv_idx >= first[b]) & ~(kv_idx >= last[b])

    return or_masks(causal, same_picture)


ROTARY_Q = random(2, HEADS, LENGTH, 16, dtype=torch.float16)
ROTARY_KV = random(2, 1, LENGTH, 16, seed=4, dtype=torch.float16)


def rotary_part(score, b, h, q_idx, kv_idx):
    """Latent attention has a second product, whose keys all heads share."""
    return score + 0.125 * torch.dot(ROTARY_Q[b, h, q_idx], ROTARY_KV[b, h // HEADS, kv_idx])


def gelu_in_place_of_softmax(score, b, h, q_idx, kv_idx):
    return torch.log(torch.nn.functional.gelu(score) + 1.0)


CHOSEN = torch.stack([torch.randperm(9, generator=torch.Generator().manual_seed(i))[:3]
                      for i in range(2 * HEADS * 9)]).view(2, HEADS, 9, 3).to(DEVICE)  # fmt: skip


def chosen_tiles(b, h, q_idx, kv_idx):
    """Each tile of ten queries sees three tiles of keys, as in sparse attention to video."""
    return (CHOSEN[b, h, q_idx // 10] == (kv_idx // 10).unsqueeze(-1)).any(dim=-1)


SCORES = [relative, alibi, softcap, causal_by_infinity, bias_of_rows, rotary_part,
          gelu_in_place_of_softmax]  # fmt: skip
MASKS = {
    "causal": causal,
    "document": same_document,
    "causal_in_document": causal_in_document,
    "prefix_lm": prefix_lm(whole(20, 41)),
    "window": window(17),
    "dilated": dilated,
    "natten": neighbourhood(10, 2),
    "transfusion": of_pictures(whole(10, 33), whole(50, 34)),
    "chosen_tiles": chosen_tiles,
    "any_of_three": lambda b, h, q, kv: torch.stack([q == kv, q - kv > 9, kv < 5]).any(dim=0),
    "pictures_in_window": and_masks(of_pictures(whole(10, 33), whole(50, 34)), window(30)),
}


@pytest.mark.parametrize("score_mod", SCORES)
def test_scores(score_mod):
    run(inputs(), score_mod)


@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    run(inputs(len_q=LENGTH, len_kv=LENGTH), None, MASKS[name])


def test_a_score_and_a_mask_of_other_lengths_and_types():
    """Positions of queries count from the first key, in PyTorch as here. Rows see nothing where
    the mask and the score together hide all."""
    tensors = inputs(len_q=37, len_kv=90, dim=128, dtype=torch.bfloat16)
    run(tensors, causal_by_infinity, lambda b, h, q_idx, kv_idx: q_idx - kv_idx < 5)
    out = run(tensors, causal_by_infinity, lambda b, h, q_idx, kv_idx: q_idx < 9)
    assert (out[:, :, 9:] == 0).all()


def test_nothing_to_do():
    run(inputs())
    run(inputs(batch=1, heads=2), None, lambda b, h, q_idx, kv_idx: kv_idx >= 0)


def test_what_is_captured_is_read_at_every_call():
    """Numbers in a closure, a default and a global, and tensors of other shapes and contents."""
    tensors = inputs()
    table = random(40)

    def call(reach, table, strength):
        def score_mod(score, b, h, q_idx, kv_idx, weight=strength):
            return score + table[(q_idx - kv_idx).abs() % reach] * weight

        run(tensors, score_mod, lambda b, h, q_idx, kv_idx: (q_idx - kv_idx).abs() <= reach)

    call(30, table, 0.3)
    first = compiles()
    call(21, table, -1.7)
    call(33, random(77, seed=9)[::2], 0.4)
    table *= 2
    call(30, table, 0.3)
    table.data = random(35, seed=5)
    call(30, table, 0.3)
    assert compiles() == first


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.reach = 20
        self.register_buffer("bias", random(HEADS))

    def score_mod(self, score, b, h, q_idx, kv_idx):
        return score + (self.bias * 2)[h] * (q_idx - kv_idx) / self.reach


def test_a_method_is_traced_at_every_call():
    tensors, model = inputs(), Model()
    run(tensors, model.score_mod)
    first = compiles()
    model.reach = 7
    model.bias = random(HEADS, seed=8)
    run(tensors, model.score_mod)
    assert compiles() == first
