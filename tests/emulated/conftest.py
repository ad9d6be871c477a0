"""Lets the tests of this folder import the helpers beside them, in every import mode."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
