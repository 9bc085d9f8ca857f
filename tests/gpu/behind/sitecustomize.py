"""Packages that were carried along come behind those that are installed: `run.sh` puts this folder on PYTHONPATH.

Every Python of the run imports it at its start, the tests' and the sanitizer's too.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "gpu-packages"))
