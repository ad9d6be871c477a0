"""Tensors on the CPU for calls on the emulated device."""

import torch


def half(*shape):
    return torch.randn(shape).half()


def integers(*values):
    return torch.tensor(values, dtype=torch.int32)
