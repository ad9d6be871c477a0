"""Steps of kiln.integrations.sglang in CUDA graphs: what is captured follows the tables that it was
captured with. SGLang is not needed."""

import engine_batch
import pytest
import torch
from kiln.integrations import _sglang_attention as plain
from storage import DEVICE

HEADS, HEADS_KV, HEAD_DIM, CONTEXT, PAGE, ROWS = 8, 2, 128, 512, 16, 6


def textbook(query, keys, values, visible):
    """Attention of [queries, heads, head dim]; visible: [queries, keys]."""
    outs = [
        engine_batch._one(q[None].float(), keys[sees].float(), values[sees].float(), False)
        for q, sees in zip(query, visible)
    ]
    return torch.cat(outs)


class Tables:
    """What an engine writes between replays."""

    def __init__(self, queries):
        self.queries = queries
        slots = 1 + torch.randperm(ROWS * CONTEXT // PAGE)
        first = slots.view(ROWS, -1, 1) * PAGE + torch.arange(PAGE)
        self.req_to_token = first.view(ROWS, CONTEXT).to(DEVICE, torch.int32)
        size = ((ROWS * CONTEXT // PAGE + 1) * PAGE, HEADS_KV, HEAD_DIM)
        self.keys, self.values = torch.randn(2, *size, dtype=torch.bfloat16, device=DEVICE)
        self.rows = torch.zeros(4, dtype=torch.int64, device=DEVICE)
        self.lengths = torch.ones(4, dtype=torch.int64, device=DEVICE)
        self.drafts = torch.ones(4, queries, queries, dtype=torch.bool, device=DEVICE)
        self.query = torch.zeros(4 * queries, HEADS, HEAD_DIM, dtype=torch.bfloat16, device=DEVICE)

    def draw(self, seed):
        torch.manual_seed(seed)
        self.rows.copy_(torch.randperm(ROWS)[:4])
        self.lengths.copy_(torch.randint(self.queries, CONTEXT + 1, (4,)))
        tree = torch.rand(4, self.queries, self.queries) < 0.5
        self.drafts.copy_(tree | torch.eye(self.queries, dtype=torch.bool))
        self.query.copy_(torch.randn(self.query.shape))

    def expected(self, has_tree):
        outs = []
        for i in range(4):
            length = int(self.lengths[i])
            slots = self.req_to_token[self.rows[i], :length].long()
            sees = torch.ones(self.queries, length, dtype=torch.bool, device=DEVICE)
            own = self.drafts[i] if has_tree else self.drafts[i].new_ones(sees.shape[0], 1).expand(
                -1, self.queries).tril()  # fmt: skip
            sees[:, length - self.queries :] = own
            query = self.query[i * self.queries : (i + 1) * self.queries].cpu()
            parts = (x[slots].cpu() for x in (self.keys, self.values))
            outs.append(textbook(query, *parts, sees.cpu()))
        return torch.cat(outs)


@pytest.mark.parametrize("queries, has_tree", [(1, False), (5, False), (6, True)])
def test_a_graph_follows_the_tables(queries, has_tree):
    tables = Tables(queries)
    keys = plain.Keys(
        torch.zeros(4, dtype=torch.int32, device=DEVICE),
        torch.zeros(4, CONTEXT // PAGE, dtype=torch.int32, device=DEVICE),
    )
    words = torch.zeros(4, queries, dtype=torch.int64, device=DEVICE) if has_tree else None
    step = plain.Step(keys, queries=queries, tokens=4 * queries, words=words)
    options = {"scale": HEAD_DIM**-0.5, "window": (-1, -1)}
    layer = plain.Layer(HEADS, HEADS_KV, HEAD_DIM, HEAD_DIM, options=options)
    out = torch.empty_like(tables.query)
    caches = tuple(x.unflatten(0, (-1, PAGE)) for x in (tables.keys, tables.values))

    def run():
        table = plain.pages_of(tables.req_to_token, tables.rows, PAGE, CONTEXT)
        plain.refill(step, plain.Keys(tables.lengths.to(torch.int32), table), tables.drafts)
        plain.attend(layer, step, tables.query, None, None, caches, out)

    tables.draw(0)
    run()  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    for seed in range(1, 4):
        tables.draw(seed)
        graph.replay()
        worst = (out.float().cpu() - tables.expected(has_tree)).abs().max().item()
        assert worst < 0.03, f"seed {seed}: off by {worst}"
