"""What decides the reference backend's bits from outside the process, set before torch is imported.

MKL, which multiplies torch's float32 matrices, picks its kernels by CPU and thread count unless MKL_CBWR (conditional
numerical reproducibility) names a code path. It reads the variable once, at its first call. `dispatch.py` sets it when
the reference backend is chosen; this module must not import torch.

AVX2,STRICT: one code path on every CPU with AVX2, whatever the threads and the alignment. Measured on an AMD EPYC
(Zen 5, 2 threads) over the shapes of a 135M model it is also the fastest path: 0.86 ms a layer for 16 rows against
1.24 ms with the variable unset.

OMP_WAIT_POLICY decides no bit but whether threads that wait for each other spin. They must not: the daemon and its
clients want the same cores, and a thread that spins keeps the one it waits for from running. Measured with six busy
processes on two cores: prefill 17 ms a token with PASSIVE, 239 ms without.
Source: oneMKL developer guide, "Obtaining numerically reproducible results".
"""

import os
import sys

_VARIABLE = "MKL_CBWR"
_SETTINGS = {_VARIABLE: "AVX2,STRICT", "OMP_WAIT_POLICY": "PASSIVE"}
_UNSET = "unset"


def fix_numeric_environment() -> None:
    """Choose MKL's code path and how threads wait, unless torch is there already or the operator has chosen."""
    if "torch" not in sys.modules:
        for variable, setting in _SETTINGS.items():
            os.environ.setdefault(variable, setting)


def numeric_environment() -> str:
    """What is in force, for the numerics class: "MKL_CBWR=AVX2,STRICT"."""
    return f"{_VARIABLE}={os.environ.get(_VARIABLE, _UNSET)}"
