"""PyTorch's context parallelism with Kiln as its FlashAttention, on two GPUs."""

import pytest
import torch
import torch.multiprocessing
from context_parallel_rank import compare


def test_two_ranks_have_the_rows_of_the_whole(tmp_path):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    torch.multiprocessing.spawn(compare, args=(2, str(tmp_path / "meeting")), nprocs=2)
