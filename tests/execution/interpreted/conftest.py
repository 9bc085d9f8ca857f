"""These tests need TRITON_INTERPRET=1 before triton is imported, so a process of their own: others pass them by.

By hand: TRITON_INTERPRET=1 pytest tests/execution/interpreted
"""

import os

if os.environ.get("TRITON_INTERPRET") == "1":
    from tests.interpreter_speed import replace_once

    replace_once()
    collect_ignore_glob = []
else:
    collect_ignore_glob = ["test_*.py"]
