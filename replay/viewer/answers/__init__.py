"""What the viewer answers, each a function of the recording and the parameters, without HTTP.

recording.py    what is looked at
views.py        tiles, strips, marks, arrows
area.py         a selection in figures
step.py         the step inspector
request.py      the request inspector; `waits.py`: why it waited; `contents.py`: its tokens and text
blocks.py       the block map
search.py       finding
commands.py     the same place in a shell
asking.py       the SQL box
compare.py      two recordings as `diff` has them
beside.py       two recordings on one axis
"""

from collections.abc import Callable
from typing import Any

from replay.viewer.answers.area import area
from replay.viewer.answers.blocks import block, blocks
from replay.viewer.answers.commands import command
from replay.viewer.answers.recording import recording
from replay.viewer.answers.request import request
from replay.viewer.answers.search import search
from replay.viewer.answers.step import step
from replay.viewer.answers.views import arrows, counters, marks, timeline
from replay.viewer.parameters import Parameters
from replay.viewer.viewed import Viewed


def answers() -> dict[str, Callable[[Viewed, Parameters], Any]]:
    """Route below api/ → what answers it: bytes for a binary answer, else what becomes JSON."""
    return {
        "recording": recording,
        "timeline": timeline,
        "strips": counters,
        "marks": marks,
        "arrows": arrows,
        "area": area,
        "search": search,
        "command": command,
        "step/{life}/{step}": step,
        "request/{life}/{number}": request,
        "blocks/{life}/{step}": blocks,
        "block/{life}/{block}": block,
    }
