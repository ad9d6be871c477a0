"""Functions that stand for those of kiln.jit where PyTorch traces: one module for each."""
