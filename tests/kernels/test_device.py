"""The one test that is there without a GPU to say why those that need it are not."""

import grid
import pytest


def test_a_cuda_device_is_here():
    if not grid.on_gpu():
        why = grid.why_no_gpu() or "--device emulator"
        pytest.skip(f"the kernels ran on the emulated device alone: {why}")
    import kiln
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    devices = kiln.diagnose()["devices"]
    assert [device.get("name", device.get("problem")) for device in devices] == names != []
