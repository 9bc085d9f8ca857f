"""These tests need TRITON_INTERPRET=1 before triton is imported, so a process of their own: others pass them by.

By hand: TRITON_INTERPRET=1 pytest tests/kernels/cuda/interpreted
"""

import os

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["test_*.py"]
