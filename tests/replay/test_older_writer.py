"""A recording of a version that knew fewer fields is compared in those it knew."""

from engine.core.decisions import PreemptMode, PreemptReason, RequestFinished, RequestPreempted
from recorder.header import current_schema
from replay.older_writer import as_written

PREEMPTED = RequestPreempted(1, 0, PreemptReason.OUT_OF_BLOCKS, PreemptMode.RECOMPUTE, 2, 3, 4, 5)


def test_fields_that_the_writer_did_not_know_hold_their_default() -> None:
    schema = current_schema()
    schema[104] = ["RequestPreempted", list(RequestPreempted._fields[:7])]
    (seen,) = as_written(schema)([PREEMPTED])
    assert seen == PREEMPTED._replace(chain_length=0)
    assert type(seen) is RequestPreempted


def test_a_writer_of_today_is_compared_in_all_fields() -> None:
    assert as_written(current_schema())([PREEMPTED]) == (PREEMPTED,)


def test_a_kind_that_the_writer_did_not_know_stays_as_it_is() -> None:
    schema = current_schema()
    del schema[107]
    finished = RequestFinished(1, "stop", 1, 1, 0, 0, 1)  # type: ignore[arg-type]
    assert as_written(schema)([finished]) == (finished,)
