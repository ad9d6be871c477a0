"""Continuous batching: requests join and leave a paged KV cache; prompts and new tokens share a
call. On a GPU a step of new tokens alone is a CUDA graph, replayed with other lengths and pages."""

from types import SimpleNamespace

import torch
from kiln import jit

device = "cuda" if torch.cuda.is_available() else "cpu"
heads, heads_kv, dim, page, seats, most_pages = 4, 2, 32, 8, 3, 5
half, indices = {"device": device, "dtype": torch.float16}, {"device": device, "dtype": torch.int32}
torch.manual_seed(0)
embedding = torch.randn(100, heads * dim, **half)
w_qkv = torch.randn(heads * dim, (heads + 2 * heads_kv) * dim, **half) / 8
k_cache, v_cache = torch.full((2, 12, page, heads_kv, dim), float("nan"), **half)
free = list(range(1, 12))  # pages; page 0 takes what seats without a request write
lengths, table = torch.zeros(seats, **indices), torch.zeros(seats, most_pages, **indices)
one_each = torch.arange(seats + 1, **indices)
tokens, slots = torch.zeros(2, seats, device=device, dtype=torch.long)  # of a step of one each


def layer(tokens, slots, starts, longest):
    """The layer's rows for these tokens, whose keys and values go to `slots` of the cache first."""
    x = embedding[tokens]
    q, k, v = (x @ w_qkv).unflatten(1, (-1, dim)).split((heads, heads_kv, heads_kv), dim=1)
    k_cache.view(-1, heads_kv, dim)[slots] = k
    v_cache.view(-1, heads_kv, dim)[slots] = v
    out = jit.flash_attention_varlen(
        q, k_cache, v_cache, cu_seqlens_q=starts, seqused_k=lengths, block_table=table,
        max_seqlen_q=longest, max_seqlen_k=most_pages * page, causal=True)  # fmt: skip
    return x + out.flatten(1)


def check(request):
    """Against dense attention over the whole sequence at once, in float32."""
    x = embedding[request.tokens[:-1]].float()
    q, k, v = (x @ w_qkv.float()).view(-1, heads + 2 * heads_kv, dim).transpose(0, 1).split(
        (heads, heads_kv, heads_kv))  # fmt: skip
    sdpa = torch.nn.functional.scaled_dot_product_attention
    out = sdpa(q[None], k[None], v[None], is_causal=True, enable_gqa=True)[0]
    want = (x + out.transpose(0, 1).flatten(1))[-len(request.rows) :]
    torch.testing.assert_close(torch.stack(request.rows).float(), want, atol=2e-2, rtol=2e-2)


rows_of_one_each = layer(tokens, slots, one_each, 1)  # loads the kernel, which a capture needs
if device == "cuda":
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        rows_of_one_each = layer(tokens, slots, one_each, 1)

sizes = [(3, 9), (21, 30), (1, 12), (11, 14), (17, 33)]  # tokens of the prompt, and at the end
waiting = [SimpleNamespace(tokens=torch.randint(100, (prompt,)).tolist(), last=last, cached=0,
                           pages=[], rows=[]) for prompt, last in sizes]  # fmt: skip
running, steps = [], {"mixed": 0, "one each": 0}
while running or waiting:
    while waiting and len(running) < seats:
        running.append(waiting.pop(0))
    new, places, starts = [], [], [0]
    for seat, r in enumerate(running):
        while len(r.pages) * page < len(r.tokens):
            r.pages.append(free.pop())
        table[seat, : len(r.pages)] = torch.tensor(r.pages)
        new += r.tokens[r.cached :]
        places += [r.pages[n // page] * page + n % page for n in range(r.cached, len(r.tokens))]
        r.cached = len(r.tokens)
        starts.append(len(new))
    idle = seats - len(running)
    lengths.copy_(torch.tensor([r.cached for r in running] + [0] * idle))
    if len(new) == len(running):  # on a GPU nothing but the contents of tensors changes
        steps["one each"] += 1
        tokens.copy_(torch.tensor(new + [0] * idle))
        slots.copy_(torch.tensor(places + [0] * idle))
        if device == "cuda":
            graph.replay()
        else:
            rows_of_one_each = layer(tokens, slots, one_each, 1)
        rows = rows_of_one_each.clone()
    else:
        steps["mixed"] += 1
        begins = torch.tensor(starts + [len(new)] * idle, **indices)
        ids, to = torch.tensor([new, places], device=device)
        rows = layer(ids, to, begins, 32)[begins[1:].long() - 1]
    for r, row in zip(list(running), rows):
        r.rows.append(row)
        r.tokens.append((row @ embedding.T).argmax().item())
        if len(r.tokens) == r.last:
            check(r)
            free += r.pages
            running.remove(r)
print(f"ok: {len(sizes)} requests agree with dense attention, in steps {steps}")
