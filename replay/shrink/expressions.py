"""`expr:EXPRESSION`: any Python expression over a recording.

It is evaluated on the operator's own machine, with all that Python can do there: no sandbox, so give it none that
somebody else wrote.

    requests   the requests as `recorder/request_span.py` describes them, in order of arrival: `r.request`,
               `r.ttft_ns`, `r.itl_ns`, `r.e2e_ns`, `r.num_preemptions`, `r.outcome`, `r.history` …
    totals     sums over the recording (`recorder/totals.py`)
    entries    its entries; `decisions(Name)` gives (now_ns, decision) of one kind: decisions("RequestPreempted")
    limits     `engine/core/limits.py`
    ms         1,000,000: nanoseconds per millisecond

True means that it fails; so does a whole number, which names the guilty request (0 too), and a list that is not empty.
`next((r.request for r in requests if r.ttft_ns and r.ttft_ns > 500 * ms), False)`
"""

from types import CodeType
from typing import Any

from replay.shrink.evidence import Evidence


def compile_expression(source: str) -> CodeType:
    """Raises SyntaxError."""
    return compile(source, "<expr>", "eval")


def value_of(code: CodeType, evidence: Evidence) -> Any:
    def decisions(name: str) -> list[tuple[int, Any]]:
        return [
            (entry.now_ns, decision)
            for entry in evidence.entries
            for decision in entry.decisions
            if type(decision).__name__ == name
        ]

    timeline = evidence.timeline
    names = {
        "requests": list(timeline.spans.values()),
        "totals": timeline.totals,
        "entries": evidence.entries,
        "decisions": decisions,
        "limits": evidence.limits,
        "ms": 1_000_000,
    }
    return eval(code, names)
