"""A request's entries are found by the index: all that concern it, and far fewer than all there are."""

from replay.viewer.entries_of_request import entries_of_request
from replay.viewer.request_passes import concerned
from replay.viewer.viewed import Viewed


def numbers_of(viewed: Viewed) -> list[int]:
    with viewed.database() as database:
        return [number for (number,) in database.execute("SELECT number FROM requests WHERE life = 1 ORDER BY number")]


def test_every_entry_that_concerns_a_request_is_found(viewed: Viewed) -> None:
    life = viewed.run.lives[0]
    entries = list(life.entries())
    assert numbers_of(viewed)
    for number in numbers_of(viewed):
        expected = [entry for entry in entries if number in concerned(entry)]
        found = list(entries_of_request(viewed, 1, life, number))
        assert [entry for entry in found if number in concerned(entry)] == expected
        assert len({entry.sequence for entry in found}) == len(found)  # each once


def test_what_a_long_wait_lies_between_is_not_read(viewed: Viewed) -> None:
    life = viewed.run.lives[0]
    assert len(list(entries_of_request(viewed, 1, life, numbers_of(viewed)[-1]))) < len(list(life.entries()))
