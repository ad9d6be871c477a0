"""A decode whose paged cache lies on two GPUs, which exchange results through NCCL."""

import pytest
import torch
import torch.multiprocessing
from sharded_decode_rank import WORLD, compare


def test_two_gpus_merge_to_the_whole(tmp_path):
    if torch.cuda.device_count() < WORLD:
        pytest.skip("needs two GPUs")
    torch.multiprocessing.spawn(compare, args=("cuda", str(tmp_path / "meeting")), nprocs=WORLD)
