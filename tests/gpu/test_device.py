"""The one test of this folder that is there without a GPU: it says why the others are not."""

import pytest
from presence import REASON


def test_a_cuda_device_is_here():
    if REASON:
        pytest.skip(f"all GPU tests are skipped: {REASON}")
    import kiln
    import torch

    assert torch.cuda.device_count() > 0
    assert kiln.stats()["nvrtc_loaded"] in (True, False)
