"""The command `reprise`: `serve` is here, the other verbs come from replay/ and bench/ when they are asked for.

Exit codes of `serve`: 0 stopped in order, 1 the engine could not be kept alive or the model not be served, 2 an option
cannot be used.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from importlib.metadata import version
from typing import Any

from daemon.config import DaemonConfig, default_text, flag_name
from daemon.config_sources import InvalidOption, config_path, read_configured, unknown_variables
from engine.core.errors import EngineError
from engine.text.model_source import DEFAULT_MODEL

NOT_IN_HELP = ("inject",)  # for tests


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="reprise", description="Serve a language model and replay what was served.")
    parser.add_argument("--version", action="version", version=f"reprise {version('reprise')}")
    subparsers = parser.add_subparsers(metavar="VERB", required=True)
    _add_serve(subparsers)
    if not given or given[0] != "serve":  # serving needs nothing of the other verbs, nor what they import
        from daemon.bench.command import add_bench
        from daemon.config_command import add_config
        from daemon.load.command import add_load
        from daemon.models_command import add_models
        from daemon.reload_command import add_reload
        from daemon.systemd.install import add_install_unit
        from replay.__main__ import add_verbs

        add_verbs(subparsers)
        add_bench(subparsers)
        add_load(subparsers)
        for add in (add_config, add_reload, add_install_unit, add_models):
            add(subparsers)
        _add_doctor(subparsers)
    parsed = parser.parse_args(given)
    code: int = parsed.run(parsed)
    return code


def _add_serve(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "serve",
        help="serve a model over HTTP",
        description="Serve a model over HTTP, recording every decision.",
        epilog="Each option can also be given as environment variable REPRISE_NAME or in the TOML file; a flag wins "
        "over the environment, the environment over the file.",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--config", metavar="FILE.toml", help="a TOML file with options under their flags' names")
    for option in fields(DaemonConfig):
        default = default_text(option)
        meaning = option.metadata["meaning"] + (f" (default: {default})" if default else "")
        kind: dict[str, Any] = {"metavar": option.metadata["unit"]}
        if isinstance(option.default, bool):
            kind = {"action": argparse.BooleanOptionalAction}
        elif isinstance(option.default, tuple):
            kind["nargs"] = "+"
        shown = argparse.SUPPRESS if option.name in NOT_IN_HELP else meaning.replace("%", "%%")
        parser.add_argument(f"--{flag_name(option)}", help=shown, **kind)
    parser.set_defaults(run=_serve)


def _add_doctor(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="what this machine can run, and whether the bits hold here",
        description="Load the model as the engine would and prove that company, chunking, placement and threads "
        "change no bit on this machine. Exit codes: 0 they do not, 1 they do, 2 it cannot be loaded, or "
        "--gpu finds no GPU.",
    )
    parser.add_argument("--model", default=DEFAULT_MODEL, help="as for serve (default: %(default)s)")
    parser.add_argument("--backend", default="auto", help="as for serve (default: %(default)s)")
    parser.add_argument("--dtype", default="auto", help="as for serve (default: %(default)s)")
    parser.add_argument("--num-threads", type=int, default=0, help="0: the usable cores")
    parser.add_argument(
        "--gpu", action="store_true", help="look at the GPU, measure its memory and matrix products, and compare on it"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=_doctor)


def _doctor(parsed: argparse.Namespace) -> int:
    from engine.doctor import run

    try:
        return run(parsed)
    except EngineError as error:
        print(f"reprise doctor: {error}", file=sys.stderr)
        return 2


def _serve(parsed: argparse.Namespace) -> int:
    import structlog
    import uvloop

    from daemon.logging import set_up_logging
    from daemon.server import serve
    from engine.text.model_source import resolve_model

    flags = {name: value for name, value in vars(parsed).items() if name not in ("run", "config")}
    toml_path = config_path(getattr(parsed, "config", None), os.environ)
    try:
        configured = read_configured(flags, os.environ, toml_path)
    except InvalidOption as error:
        print(f"reprise serve: {error}", file=sys.stderr)
        return 2
    config = configured.config
    set_up_logging(config.log_level)
    for variable in unknown_variables(os.environ):
        structlog.get_logger().warning("environment variable is no option and is ignored", variable=variable)
    try:
        source = resolve_model(config.model)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(serve(configured, source, lambda: read_configured(flags, os.environ, toml_path)))
    except EngineError as error:
        print(f"reprise serve: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before the signal handlers stood
        return 130


if __name__ == "__main__":
    sys.exit(main())
