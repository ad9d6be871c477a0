"""One process of PyTorch's context parallelism with Kiln as its FlashAttention."""

import kiln
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.nn import attention
from torch.nn.attention import SDPBackend, sdpa_kernel


def compare(rank, world, meeting):
    """Raises AssertionError unless this rank's rows are those of PyTorch's kernel by itself.

    meeting: a file that does not exist, through which the processes find each other."""
    import kiln.integrations.torch as provider

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{meeting}", rank=rank, world_size=world)
    try:
        torch.manual_seed(0)
        whole = torch.randn(3, 1, 8, 1024, 64, device="cuda", dtype=torch.bfloat16)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            expected = F.scaled_dot_product_attention(*whole, is_causal=True)
        provider.register()
        attention.activate_flash_attention_impl("KILN")
        kiln.reset_stats()
        q, k, v = (x.clone() for x in whole)
        mesh = init_device_mesh("cuda", (world,))
        shards = context_parallel(mesh, buffers=[q, k, v], buffer_seq_dims=[2, 2, 2])
        # PyTorch replaces the function within its module: an imported name would stay the old one.
        with shards, sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        stats = kiln.stats()
        assert stats["memory_hits"] + stats["misses"] + sum(stats["disk_hits"]) > 0, stats
        # Each rank has one part from the front and one from the end, which balances causal masks.
        parts = expected.chunk(2 * world, dim=2)
        own = torch.cat((parts[rank], parts[2 * world - 1 - rank]), 2)
        torch.testing.assert_close(found.float(), own.float(), atol=2e-2, rtol=2e-2)
    finally:
        dist.destroy_process_group()
