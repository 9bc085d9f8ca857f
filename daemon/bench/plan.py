"""What to measure, as one object, and how it is read from the options, which may contradict each other."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace

from daemon.bench.endpoint import Endpoint, plain_url
from daemon.bench.errors import UnusableOption
from daemon.bench.options import DRIFT
from daemon.bench.prompts import IdRange, Prompt, write_prompts
from daemon.bench.workloads import SHAPES, ClosedLoop, Load, OpenLoop, Workload, plan_workload

_DRIFT_WORKLOAD = "W2"
_SATURATING = ClosedLoop(num_clients=16, num_requests=64)  # a workload with arrivals of its own, in a closed loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    endpoints      one, or two to be compared
    form           of the prompts: see prompts.py
    content_seed   of their words
    num_warmups    tiny requests before each drive, not counted
    timeout_s      for each request
    write          workload, form, content key and range of ids → a prompt for each request
    """

    endpoints: tuple[Endpoint, ...]
    workload: Workload
    form: str
    id_range: IdRange
    content_seed: int
    num_rounds: int
    num_warmups: int
    timeout_s: float
    write: Callable[[Workload, str, object, IdRange], list[Prompt]] = write_prompts

    def with_models(self, models: list[str]) -> "Plan":
        """A model for each endpoint."""
        named = [replace(at, model=model) for at, model in zip(self.endpoints, models, strict=True)]
        return replace(self, endpoints=tuple(named))


def read_plan(args: argparse.Namespace) -> Plan:
    """Raises UnusableOption."""
    name = _DRIFT_WORKLOAD if args.workload == DRIFT else args.workload
    _refuse_contradictions(args)
    load = _read_load(args, SHAPES[name].load)
    workload = plan_workload(name, args.seed, load)
    if not workload.requests:
        raise UnusableOption(f"no request comes in this load ({load}; seed {args.seed}): raise --rate or --duration")
    return Plan(
        endpoints=_read_endpoints(args),
        workload=workload,
        form=args.prompt,
        id_range=args.id_range,
        content_seed=args.content_seed,
        num_rounds=args.rounds or (3 if args.against else 1),
        num_warmups=args.warmup,
        timeout_s=args.timeout,
    )


def _refuse_contradictions(args: argparse.Namespace) -> None:
    if args.workload == DRIFT:
        for option in ("against", "rate", "duration", "rounds"):
            if getattr(args, option):
                raise UnusableOption(
                    f"--{option} does not go with drift: it drives one server, in a closed loop, thrice"
                )
    for option in ("against_model", "against_api_key"):
        if getattr(args, option) and not args.against:
            raise UnusableOption(f"--{option.replace('_', '-')} is about a second server: name that with --against")
    if args.concurrency and (args.rate or args.duration):
        raise UnusableOption("--concurrency makes a closed loop, --rate and --duration are for an open one: choose")
    if args.requests and args.duration:
        raise UnusableOption("--requests and --duration both say when arrivals end: give one of them")


def _read_load(args: argparse.Namespace, own: Load) -> Load:
    """Of the workload's own kind, unless an option is about the other."""
    if args.rate or (isinstance(own, OpenLoop) and not args.concurrency):
        rate = args.rate or (own.rate if isinstance(own, OpenLoop) else 0.0)
        return OpenLoop(rate, None if args.requests else args.duration or 60.0, args.requests)
    if args.duration:
        raise UnusableOption(f"--duration is for an open loop, which {args.workload} is not by itself: add --rate")
    closed = own if isinstance(own, ClosedLoop) else _SATURATING
    return ClosedLoop(args.concurrency or closed.num_clients, args.requests or closed.num_requests)


def _read_endpoints(args: argparse.Namespace) -> tuple[Endpoint, ...]:
    extra = {"return_token_ids": True, **args.extra} if args.workload == DRIFT else args.extra
    asked = [(args.url, args.model, args.api_key)]
    if args.against:
        asked.append((args.against, args.against_model, args.against_api_key))
    return tuple(
        Endpoint(url=plain_url(url), model=model, api_key=key, ignore_eos=not args.no_ignore_eos, extra=extra)
        for url, model, key in asked
    )
