"""Where pip may have put NVIDIA's wheels: the folders of sys.path that hold a folder `nvidia`."""

from __future__ import annotations

import os
import sys


def nvidia_folders() -> list[str]:
    """The folders in order, for the search for NVRTC at the first compile."""
    return [path for path in sys.path if path and os.path.isdir(os.path.join(path, "nvidia"))]
