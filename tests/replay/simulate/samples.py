"""Traces in the three formats, made up: a few lines as the published ones have them."""

import gzip
import json
import random
from pathlib import Path

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:50.9951690,7,1
2023-11-17 00:00:00.0000001,2048,12
"""
SERVEGEN = """client,window_start_s,rate_rps,gap_cv,arrival_pattern,param1,param2
7,0,0.5,1.0,Gamma,1.0,2.0
7,600,0,0,,0,0
9,0,1.0,1.0,Weibull,1.0,1.0
9,600,1.0,2.0,Gamma,0.25,4.0
"""
_STEPS = list(range(0, 105, 5))
SERVEGEN_LENGTHS = {
    "7": {"0": {"input_tokens": [100 + step for step in _STEPS], "output_tokens": [0] * 10 + [8] * 11}},
    "9": {"0": {"input_tokens": [50] * 21, "output_tokens": [20 + step for step in _STEPS]}},
}
MOONCAKE = [
    {"timestamp": 0, "input_length": 1536, "output_length": 320, "hash_ids": [0, 1, 2]},
    {"timestamp": 3000, "input_length": 1600, "output_length": 33, "hash_ids": [0, 1, 2, 3]},
    {"timestamp": 3000, "input_length": 1000, "output_length": 1, "hash_ids": [0, 4]},
]


def azure(folder: Path) -> Path:
    path = folder / "code.csv.gz"
    path.write_bytes(gzip.compress(AZURE.encode()))
    return path


def mooncake(folder: Path) -> Path:
    path = folder / "conversation.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in MOONCAKE))
    return path


def servegen(folder: Path) -> Path:
    path = folder / "clients.csv"
    path.write_text(SERVEGEN)
    (folder / "clients-lengths.json").write_text(json.dumps(SERVEGEN_LENGTHS))
    return path


def busy_azure(folder: Path, num_requests: int = 120) -> Path:
    """More than a pool of some hundred blocks and the default step cost can serve at once."""
    rng = random.Random(4)
    at_s, lines = 0.0, ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for _ in range(num_requests):
        at_s += rng.expovariate(8)
        prompt, output = rng.randint(20, 300), rng.choice([5, 10, 20, 150])
        lines.append(f"2023-11-16 18:{int(at_s) // 60:02d}:{at_s % 60:010.7f},{prompt},{output}")
    path = folder / "busy.csv"
    path.write_text("\n".join(lines) + "\n")
    return path
