"""A burst goes on in small portions, in its order, with a turn of the loop between two of them."""

import asyncio

from daemon.mailbox import Accepted, Mailbox
from daemon.pacer import Pacer


def test_so_many_go_on_in_a_turn_and_the_loop_turns_between_them() -> None:
    async def story() -> None:
        pacer, went_on = Pacer(per_turn=3), list[int]()

        async def wait(number: int) -> None:
            await pacer.turn()
            went_on.append(number)

        tasks = [asyncio.create_task(wait(number)) for number in range(10)]
        seen = []
        while len(went_on) < 10:
            await asyncio.sleep(0)
            seen.append(len(went_on))
        await asyncio.gather(*tasks)
        assert went_on == list(range(10))
        assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) <= 3

    asyncio.run(story())


def test_who_waits_no_longer_takes_no_place() -> None:
    async def story() -> None:
        pacer = Pacer(per_turn=1)
        tasks = [asyncio.create_task(pacer.turn()) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.wait(tasks, timeout=10)
        assert [task.cancelled() for task in tasks] == [True, False, False]

    asyncio.run(story())


def test_a_paced_mailbox_gives_all_that_came_until_its_turn() -> None:
    async def story() -> None:
        mailbox = Mailbox()
        mailbox.pacer = Pacer(per_turn=1)
        taking = asyncio.create_task(mailbox.take())
        await asyncio.sleep(0)
        for index in range(3):
            mailbox.put(index, Accepted())
        assert [index for index, _item in await taking] == [0, 1, 2]
        assert await mailbox.take(0.01) == []

    asyncio.run(story())
