"""Whether the GPU tests can run here: REASON says why not, None = they can."""


def _reason():
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    return None if torch.cuda.is_available() else "PyTorch finds no CUDA device"


REASON = _reason()
