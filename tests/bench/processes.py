"""What processes take of the machine, from /proc: memory and CPU time of one and its children."""

import os
from collections.abc import Iterable
from pathlib import Path


def family(pid: int) -> list[int]:
    """The process and its children, and theirs."""
    children = [int(each) for path in Path(f"/proc/{pid}/task").glob("*/children") for each in path.read_text().split()]
    return [pid, *(each for child in children for each in family(child))]


def cpu_ms(pids: Iterable[int]) -> float:
    """User and system time since each began."""
    ticks = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(fields[11]) + int(fields[12]) for fields in ticks) * 1e3 / os.sysconf("SC_CLK_TCK")


def resident_mb(pids: Iterable[int], field: str = "VmRSS") -> float:
    """Together; `field` VmHWM: the most that each has had."""
    return sum(_status_kb(pid, field) for pid in pids) / 1e3


def _status_kb(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    return 0
