"""The benchmarks still run: small sizes, no word about their figures."""

import pytest

from tests.bench import (
    check_speed,
    decision_cost,
    oversubscription,
    recorder_cost,
    sampling_cost,
    starvation,
    timeline_cost,
)
from tests.bench.__main__ import SECTIONS, main
from tests.recorder.samples import step_entry


def test_every_figure_can_be_taken() -> None:
    entries = [step_entry(sequence, 4) for sequence in range(20)]
    assert recorder_cost.measure_record_us(entries) > 0
    write_us, num_bytes = recorder_cost.measure_write(entries)
    assert write_us > 0
    assert 50 < num_bytes < 1_000
    assert timeline_cost.measure_apply_us(2) > 0
    assert min(check_speed.measure(2)) > 0
    assert min(decision_cost.measure_decode_us(4, "fair", 20)) > 0
    assert len(sampling_cost.report(1)) == 2 + len(sampling_cost.CASES)
    assert len(starvation.report(50)) > 20
    assert len(oversubscription.report(4)) > len(oversubscription.WATERMARKS)


def test_a_section_can_be_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    assert "check" in out
    assert "timeline cost" not in out


def test_an_unknown_section_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["decisions"])
    assert ended.value.code == 2
    assert f"choose of {', '.join(SECTIONS)}" in capsys.readouterr().err
