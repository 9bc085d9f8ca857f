"""A recording against this build: the first decision that differs, else the first token or digest; then beneath it.

`check` and `execute` find the step. The version that recorded is not here, so what can be executed twice is the request
in company and alone, as `isolate --prove` does: it tells whether this build disagrees with itself, or only with the
record.
"""

from dataclasses import replace
from pathlib import Path

from recorder.errors import NoContents
from replay.check import check
from replay.divergence import EmittedToken
from replay.environment import agree
from replay.execute import execute
from replay.history import LifeHistory
from replay.isolation_report import Subject
from replay.lives import Run
from replay.model_runs.open_model import OpenRunner, Overrides, open_recorded_model
from replay.model_runs.prove import prove_difference
from replay.player import MakeCore
from replay.proof import Proof
from replay.refusal import CannotCompare
from replay.verdict import Verdict


def bisect_this_build(
    path: Path,
    *,
    overrides: Overrides = Overrides(),  # noqa: B008  # immutable
    allow_numeric_drift: bool = False,
    open_runner: OpenRunner | None = None,
    make_core: MakeCore | None = None,
) -> Verdict:
    """The first difference between what was recorded and what this build does. Without contents: of decisions only.

    Raises what `check` and `execute` raise.
    """
    checked = check(path, make_core)
    if checked.divergences or checked.refusal is not None:
        return replace(checked, verb="bisect")
    try:
        executed = execute(path, overrides=overrides, allow_numeric_drift=allow_numeric_drift, open_runner=open_runner)
    except NoContents as error:
        note = f"every decision is equal; tokens were not computed: {error}"
        return replace(checked, verb="bisect", notes=(*checked.notes, note))
    found = executed.divergences[0] if executed.divergences else None
    if found is not None and isinstance(found.expected, EmittedToken) and not allow_numeric_drift:
        proof = _beneath(path, found.expected, found.place.sequence, overrides, open_runner or open_recorded_model)
        executed = replace(executed, divergences=(replace(found, proof=proof),))
    return replace(executed, verb="bisect", figures={"decisions": checked.figures["decisions"], **executed.figures})


def _beneath(
    path: Path, token: EmittedToken, sequence: int, overrides: Overrides, open_runner: OpenRunner
) -> Proof | None:
    """The request of the first unequal token, in company and alone, both on this build."""
    for life in Run.open(path).lives:
        refusals: list[CannotCompare] = []
        contents = life.contents()
        history = LifeHistory(life.comparable_entries(refusals.append), contents)
        request = history.requests.get(token.request)
        moments = request.moments if request is not None else []
        index = next((index for index, moment in enumerate(moments) if moment.sequence == sequence), None)
        if request is None or index is None:
            continue
        opened = open_runner(life.header, overrides)
        agreement = agree(life.header, opened.numerics_class, opened.environment, allow_drift=False)
        subject = Subject(life, history, contents, request)
        try:
            return prove_difference(subject, contents.prompts[token.request], index, opened.runner, agreement)
        except CannotCompare as refusal:
            return Proof(None, None, f"what lies beneath cannot be had: {refusal.reason}")
    return None
