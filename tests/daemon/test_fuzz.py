"""Hostile requests by seed, the first few hundred of what `make fuzz` sends, each the same whenever it is made."""

from pathlib import Path

from tests.load.fuzz import attack_of, fuzz

SEED, NUM_REQUESTS = 1, 250


def test_hostile_requests_are_answered_without_5xx_and_leave_nothing_behind(tmp_path: Path) -> None:
    told = fuzz(tmp_path, SEED, range(NUM_REQUESTS))
    assert "200:" in told[0], "some of them are good enough to be worked on"


def test_each_is_made_from_its_number_alone() -> None:
    schemas = {"/v1/completions": {"properties": {"prompt": {"type": "string"}}, "required": ["prompt"]}}
    attacks = [attack_of(SEED, number, schemas) for number in range(50)]
    assert attacks[49] == attack_of(SEED, 49, schemas)
    assert len({attack.pieces for attack in attacks}) > 30
