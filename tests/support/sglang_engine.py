"""SGLang's own classes around kiln.integrations.sglang: pools, batches, layers, and a stand-in for
the model runner, which needs a model."""

import contextlib
from types import SimpleNamespace

import engine_batch
import torch
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.mem_cache.memory_pool import KVWriteLoc, MHATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
from sglang.srt.model_executor.forward_context import ForwardContext, forward_context
from sglang.srt.runtime_context import get_context

HEADS, HEADS_KV, HEAD_DIM, CONTEXT, SLOTS = 4, 2, 64, 128, 640


@contextlib.contextmanager
def settings(**fields):
    """SGLang's configuration of a process, with some fields of ServerArgs."""
    override = get_context().override_server_args(**fields)
    override.install()
    try:
        yield
    finally:
        override.restore()


def radix_layer(number=0, **options):
    """SGLang's attention layer."""
    options = {"scaling": HEAD_DIM**-0.5, **options}
    return RadixAttention(HEADS, HEAD_DIM, num_kv_heads=HEADS_KV, layer_id=number, **options)


class Engine:
    """Pools of pages and a backend of them. `windows`: whether layer 1 has a pool of its own."""

    def __init__(self, backend, page_size=16, dtype=torch.bfloat16, windows=False, **runner):
        self.page_size = page_size
        self.requests = ReqToTokenPool(12, CONTEXT, "cpu", enable_memory_saver=False)
        pool = dict(page_size=page_size, dtype=dtype, head_num=HEADS_KV, head_dim=HEAD_DIM,
                    device="cpu", enable_memory_saver=False)  # fmt: skip
        self.windows = windows
        if windows:
            self.pool = SWAKVPool(
                size=SLOTS, size_swa=SLOTS, swa_attention_layer_ids=[1],
                full_attention_layer_ids=[0], **pool,
            )  # fmt: skip
            pages = 1 + torch.randperm(SLOTS // page_size)
            slots = pages[:, None] * page_size + torch.arange(page_size)
            mapping = torch.cat([torch.arange(page_size), slots.flatten(), torch.tensor([-1])])
            self.pool.register_mapping(mapping)
        else:
            self.pool = MHATokenToKVPool(size=SLOTS, layer_num=2, **pool)
        self.runner = SimpleNamespace(**{
            "device": "cpu", "page_size": page_size, "req_to_token_pool": self.requests,
            "token_to_kv_pool": self.pool, "use_mla_backend": False, "is_draft_worker": False,
            "sliding_window_size": None, "kv_index_translator": None,
            "model_config": SimpleNamespace(is_encoder_decoder=False, context_len=CONTEXT),
            **runner,
        })  # fmt: skip
        self.free = (1 + torch.randperm(SLOTS // page_size)).tolist()
        self.backend = backend(self.runner)

    def place(self, lengths):
        """Gives requests slots for so many tokens. Returns their rows of the pool."""
        table = engine_batch.pages_of(lengths, self.page_size, self.free, CONTEXT)
        rows = 1 + torch.randperm(self.requests.size)[: len(lengths)]
        for number, (row, length) in enumerate(zip(rows.tolist(), lengths)):
            self.requests.req_to_token[row] = -1  # nothing is read behind the last token
            slots = engine_batch.slots_of(table, self.page_size, number, range(length))
            self.requests.req_to_token[row, :length] = slots.to(torch.int32)
        return rows

    def slots(self, row, positions):
        return self.requests.req_to_token[row, torch.tensor(list(positions), dtype=torch.int64)]

    def write(self, layer, slots, keys, values):
        """What earlier steps have left in the cache."""
        slots = slots.to(torch.int64)
        swa = self.pool.translate_loc_from_full_to_swa(slots) if self.windows else None
        scales = () if layer.k_scale is None else (layer.k_scale, layer.v_scale)
        self.pool.set_kv_buffer(
            layer, KVWriteLoc(slots, swa_loc=swa), keys.clone(), values.clone(), *scales
        )

    def fill(self, layer, rows, keys, values, before):
        for row, k, v, count in zip(rows, keys, values, before):
            if count:
                self.write(layer, self.slots(row, range(count)), k[:count], v[:count])

    def batch(self, mode, rows, seq_lens, out_slots, **fields):
        """SGLang's ForwardBatch. seq_lens as the mode counts them."""
        seq_lens = torch.tensor(seq_lens)
        return ForwardBatch(
            forward_mode=mode, batch_size=len(rows), req_pool_indices=rows, seq_lens=seq_lens,
            input_ids=torch.zeros(len(out_slots), dtype=torch.int64),
            out_cache_loc=out_slots.to(torch.int64), seq_lens_sum=int(seq_lens.sum()), **fields,
        )  # fmt: skip

    def run(self, layer, batch, q, k, v, **options):
        """A layer's forward(), as a model calls it. Returns [tokens, heads, head dim]."""
        with forward_context(ForwardContext(attn_backend=self.backend)):
            self.backend.init_forward_metadata(batch)
            return self.attend(layer, batch, q, k, v, **options)

    def attend(self, layer, batch, q, k, v, **options):
        with forward_context(ForwardContext(attn_backend=self.backend)):
            out = layer(q.flatten(1), k, v, batch, **options)
        return out.view(-1, HEADS, layer.v_head_dim).float()

    def extend(self, layer, given, mode=ForwardMode.EXTEND, hosts=True, **options):
        """Runs engine_batch's requests as one step of prefill, chunks and decodes."""
        rows = self.place(given.lengths)
        self.fill(layer, rows, given.keys, given.values, given.before)
        slots = torch.cat([self.slots(row, range(before, length)) for row, before, length
                           in zip(rows, given.before, given.lengths)])  # fmt: skip
        new = torch.tensor(given.new, dtype=torch.int32)
        fields = {} if not hosts else dict(
            extend_seq_lens_cpu=given.new, seq_lens_cpu=torch.tensor(given.lengths)
        )  # fmt: skip
        batch = self.batch(
            mode, rows, given.lengths, slots, extend_seq_lens=new,
            extend_prefix_lens=torch.tensor(given.before, dtype=torch.int32),
            extend_num_tokens=given.count, **fields,
        )  # fmt: skip
        k, v = (given.packed(x, first=False) for x in (given.keys, given.values))
        return self.run(layer, batch, given.query, k, v, **options)


__all__ = ["AttentionType", "Engine", "ForwardMode", "radix_layer", "settings"]
