"""What is asked of the engine on a GPU: requests with shared prefixes, that come while others run, too many."""

import random

from engine.core.contents import RequestContents
from engine.core.sampling_params import SamplingParams
from engine.protocol import Arrive, Cancel, Message
from tests.gpu.stage import Stage


def load(stage: Stage) -> list[tuple[int, Message]]:
    """(step, message): every request sampled or greedy by turns, every seventh cancelled; the same each time."""
    draw = random.Random(9)
    vocabulary = stage.parameters.shape.vocab_size
    count, prefix, tail, output = (stage.size(*pair) for pair in ((48, 4), (96, 8), (120, 3), (48, 7)))
    prefixes = [tuple(draw.randrange(1, vocabulary) for _ in range(prefix)) for _ in range(stage.size(3, 1))]
    messages: list[tuple[int, Message]] = []
    step = 0
    for number in range(count):
        tokens = (*draw.choice(prefixes), *(draw.randrange(1, vocabulary) for _ in range(draw.randrange(1, tail + 1))))
        sampling = SamplingParams(temperature=0.8 * (number % 2), seed=number, ignore_eos=True)
        arrive = Arrive(number, f"r{number}", "", 0, step, output, sampling, RequestContents(tokens))
        messages.append((step, arrive))
        if number % 7 == 6:
            messages.append((step + 9, Cancel(number, "client")))
        step += draw.randrange(stage.size(3, 2))
    return messages
