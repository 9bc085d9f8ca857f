"""`reprise config check [FILE]` and `reprise config show`: what a daemon started now would be started with.

Both read what the daemon reads: the environment, and the file given, $REPRISE_CONFIG's, or /etc/reprise/reprise.toml.
Exit codes: 0 it can be used, 2 it cannot, and every fault is named.
"""

import argparse
import json
import os
import sys

from daemon.api_keys import ApiKeys
from daemon.config_sources import SERVICE_FILE, Configured, config_path, nearest, read_configured, unknown_variables
from daemon.config_view import as_text, config_table
from engine.core.errors import EngineError
from engine.text.template_file import read_chat_template


def add_config(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("config", help="check or show the configuration", description=__doc__)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    check = verbs.add_parser("check", help="can a daemon be started with it?")
    show = verbs.add_parser("show", help="every option, its value, and where that comes from")
    show.add_argument("--json", action="store_true", help="for programs")
    for verb, run in ((check, _check), (show, _show)):
        verb.add_argument("file", nargs="?", metavar="FILE.toml", help="in place of the one a daemon would read")
        verb.set_defaults(run=run)


def _check(parsed: argparse.Namespace) -> int:
    configured = _read(parsed.file)
    if configured is None:
        return 2
    for variable in unknown_variables(os.environ):
        near = nearest(variable.removeprefix("REPRISE_"))
        hint = f": did you mean REPRISE_{near.upper().replace('-', '_')}?" if near else ""
        print(f"environment {variable} is no option and is ignored{hint}", file=sys.stderr)
    print(f"ok: {configured.path or 'no file'}, {len(configured.sources)} options given, the others at their defaults")
    return 0


def _show(parsed: argparse.Namespace) -> int:
    configured = _read(parsed.file)
    if configured is None:
        return 2
    table = config_table(configured)
    print(json.dumps(table, indent=2) if parsed.json else as_text(table))
    return 0


def _read(given: str | None) -> Configured | None:
    """None, and the faults are printed, where it cannot be used; key file and template are read too."""
    path = config_path(given, os.environ) or (str(SERVICE_FILE) if SERVICE_FILE.exists() else "")
    try:
        configured = read_configured({}, os.environ, path)
        ApiKeys.configured(configured.config.api_key, configured.config.api_key_file)
        read_chat_template(configured.config.chat_template)
    except EngineError as error:
        print(error, file=sys.stderr)
        return None
    return configured
