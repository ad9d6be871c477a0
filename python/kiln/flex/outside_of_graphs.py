"""A call of jit.flex_attention as torch.compile sees it: one place that breaks the graph.

Imported only while a graph is traced: torch.compiler.disable imports PyTorch's compiler, which
takes seconds.
"""

import torch

from .attention import attention

outside_of_graphs = torch.compiler.disable(attention)
