"""The options of `reprise bench`, each by itself; `plan.py` says what they mean together. Importing it costs little."""

import argparse
import json
import math
from typing import Any

from daemon.bench.prompts import FORMS, IdRange
from daemon.bench.workloads import SHAPES

DRIFT = "drift"


def add_options(parser: argparse.ArgumentParser) -> None:
    """A default that depends on other options is None here."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _WORKLOADS_HELP
    parser.add_argument("workload", choices=[*SHAPES, DRIFT], metavar="|".join([*SHAPES, DRIFT]), help="see below")
    _add_servers(parser.add_argument_group("servers"))
    _add_load(parser.add_argument_group("load"))
    add_request_options(parser.add_argument_group("requests"))
    add_result_options(parser.add_argument_group("results"))


_Group = argparse._ArgumentGroup


def add_result_options(group: _Group) -> None:
    group.add_argument("--json", metavar="FILE", help="the figures as one JSON object; -: to stdout, without a table")
    group.add_argument("--save", metavar="FILE.jsonl", help="each answer with its times, one JSON object a line")


def _add_servers(group: _Group) -> None:
    group.add_argument("--url", default="http://127.0.0.1:8000", help="the server, with or without /v1 (%(default)s)")
    group.add_argument("--model", default="", metavar="NAME", help="default: the only one that /v1/models lists")
    group.add_argument("--api-key", default="", metavar="KEY", help="sent as Bearer token")
    group.add_argument("--against", default="", metavar="URL", help="a second server, driven in turn with the first")
    group.add_argument("--against-model", default="", metavar="NAME", help="the second server's model")
    group.add_argument("--against-api-key", default="", metavar="KEY", help="the second server's key")


def _add_load(group: _Group) -> None:
    group.add_argument("--concurrency", type=_count, metavar="N", help="a closed loop of so many clients")
    group.add_argument("--rate", type=_positive, metavar="R", help="an open loop: Poisson arrivals, so many a second")
    group.add_argument("--requests", type=_count, metavar="N", help="how many in all")
    group.add_argument("--duration", type=_positive, metavar="S", help="seconds of arrivals of an open loop (60)")
    add_warmup(group)
    group.add_argument("--rounds", type=_count, metavar="N", help="repeat with new words (1; with --against 3)")
    group.add_argument("--seed", type=int, default=1, metavar="N", help="of lengths and arrivals (1)")
    add_content_seed(group)


def add_warmup(group: _Group) -> None:
    group.add_argument("--warmup", type=_number, default=1, metavar="N", help="tiny requests before each drive (1)")


def add_content_seed(group: _Group) -> None:
    group.add_argument("--content-seed", type=int, default=1, metavar="N", help="of the prompts' words (1)")


def add_request_options(group: _Group) -> None:
    ids = IdRange()
    group.add_argument("--prompt", choices=FORMS, default="text", help="a text, token ids, or chat messages (text)")
    group.add_argument(
        "--id-range",
        type=_id_range,
        default=ids,
        metavar="FIRST-LAST",
        help=f"with --prompt ids: what they are drawn from ({ids.first}-{ids.last})",
    )
    group.add_argument("--no-ignore-eos", action="store_true", help="do not ask that answers go on to max_tokens")
    group.add_argument("--extra", type=_fields, default={}, metavar="JSON", help="more fields; a null takes one away")
    group.add_argument("--timeout", type=_positive, default=170.0, metavar="S", help="for each request (170)")


_WORKLOADS_HELP = "\n".join(
    ["workloads:"]
    + [f"  {name}     {shape.meaning} ({shape.load})" for name, shape in SHAPES.items()]
    + [f"  {DRIFT}  W2 twice, then its requests one at a time: how many greedy answers differ"]
    + ["", "exit codes: 0 done, 1 no server or no whole answer or drift, 2 an option cannot be used"]
)


def _count(text: str) -> int:
    return _whole(text, 1)


def _number(text: str) -> int:
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
    return value


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def _id_range(text: str) -> IdRange:
    try:
        first, last = map(int, text.split("-"))
    except ValueError:
        first, last = 1, 0
    if not first <= last:
        raise argparse.ArgumentTypeError(f"{text!r} is no range of token ids: give it as FIRST-LAST, for example 0-999")
    return IdRange(first, last)


def _fields(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object: give it as '{{\"field\": value}}'")
    return fields
