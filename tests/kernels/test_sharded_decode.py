"""A decode whose paged cache lies in two processes, which exchange results through gloo.

cuda/test_sharded_decode.py has the same on two GPUs.
"""

import pytest
import torch.multiprocessing
from sharded_decode_rank import WORLD, compare


@pytest.mark.emulated
def test_two_processes_merge_to_the_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")  # a machine's own name may have no address
    meeting = str(tmp_path / "meeting")
    torch.multiprocessing.spawn(compare, args=("emulator", meeting), nprocs=WORLD)
