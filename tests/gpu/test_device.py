"""The one test of this folder that is there without a GPU: it says why the others are not."""

import pytest
from presence import REASON


def test_a_cuda_device_is_here():
    if REASON:
        pytest.skip(f"all GPU tests are skipped: {REASON}")
    import kiln
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    devices = kiln.diagnose()["devices"]
    assert [device.get("name", device.get("problem")) for device in devices] == names != []
