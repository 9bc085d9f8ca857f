"""The verb `reprise load`: a trace and a server in, the table of `reprise bench` out. What it needs is imported then.

Exit codes: 0 done; 1 there is no server, or it gave no whole answer; 2 an option or the trace cannot be used.
"""

import argparse
import sys
from typing import TYPE_CHECKING

from daemon.bench.options import add_content_seed, add_request_options, add_result_options, add_warmup
from replay.simulate.trace_options import TRACE_HELP, add_scales, add_trace, read_arguments, scaled

if TYPE_CHECKING:
    from daemon.bench.plan import Plan
    from daemon.bench.workloads import Workload
    from replay.simulate.arrivals import Arrival

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

MAX_PROMPT_TOKENS = 50_000_000  # of all requests together: they are written before the first is sent


def add_load(subparsers: "Subparsers") -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "load",
        help="drive any OpenAI-compatible server with a trace's arrivals",
        description=f"Send a trace's requests at their times, and measure the answers. {TRACE_HELP}",
        epilog="exit codes: 0 done, 1 no server or no whole answer, 2 an option or the trace cannot be used",
    )
    add_trace(parser)
    server = parser.add_argument_group("server")
    server.add_argument("--against", required=True, metavar="URL", help="the server, with or without /v1")
    server.add_argument("--model", default="", metavar="NAME", help="default: the only one that /v1/models lists")
    server.add_argument("--api-key", default="", metavar="KEY", help="sent as Bearer token")
    add_warmup(server)
    add_scales(parser)
    parser.add_argument(
        "--max-model-len",
        type=int,
        default=8192,
        metavar="N",
        help="outputs are cut so that prompt and output are at most so long (%(default)s)",
    )
    requests = parser.add_argument_group("requests")
    add_request_options(requests)
    add_content_seed(requests)
    add_result_options(parser.add_argument_group("results"))
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from daemon.bench.command import measured
    from engine.core.errors import EngineError

    try:
        return measured("load", args, read_plan)
    except (EngineError, OSError) as error:
        print(f"reprise load: {error}", file=sys.stderr)
        return 2


def read_plan(args: argparse.Namespace) -> "Plan":
    """Raises UnusableTrace, RecordingError, UnusableOption."""
    from daemon.bench.endpoint import Endpoint, plain_url
    from daemon.bench.plan import Plan
    from daemon.load.prompts import trace_prompts
    from replay.simulate.arrivals import fitted

    arrivals = fitted(read_arguments(args), scaled(args, args.max_model_len))
    _check_size(arrivals)
    if args.length_scale != 1 and any(arrival.body is not None for arrival in arrivals):
        print(f"{args.trace}: prompts in the trace's own words keep their length; outputs are scaled", file=sys.stderr)
    url = plain_url(args.against)
    endpoint = Endpoint(
        url=url, model=args.model, api_key=args.api_key, ignore_eos=not args.no_ignore_eos, extra=args.extra
    )
    return Plan(
        endpoints=(endpoint,),
        workload=_workload(args, arrivals),
        form=args.prompt,
        id_range=args.id_range,
        content_seed=args.content_seed,
        num_rounds=1,
        num_warmups=args.warmup,
        timeout_s=args.timeout,
        write=lambda workload, form, key, id_range: trace_prompts(arrivals, form, key, id_range),
    )


def _workload(args: argparse.Namespace, arrivals: "list[Arrival]") -> "Workload":
    from daemon.bench.workloads import PlannedRequest, TraceTimes, Workload

    requests = tuple(
        PlannedRequest(index, "trace", arrival.num_prompt_tokens, arrival.num_output_tokens, arrival.at_ns / 1e9)
        for index, arrival in enumerate(arrivals)
    )
    times = TraceTimes(len(arrivals), arrivals[-1].at_ns / 1e9)
    return Workload(args.trace.name, args.seed, times, 0, requests)


def _check_size(arrivals: "list[Arrival]") -> None:
    from replay.simulate.arrivals import UnusableTrace

    num_tokens = sum(arrival.num_prompt_tokens for arrival in arrivals if arrival.body is None)
    if num_tokens > MAX_PROMPT_TOKENS:
        raise UnusableTrace(
            f"the prompts have {num_tokens:,} tokens, and at most {MAX_PROMPT_TOKENS:,} are written at once: "
            "take fewer with --max-requests, or shorter ones with --length-scale"
        )
