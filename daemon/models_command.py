"""`reprise models list | pull NAME | verify [NAME …] | remove NAME …`: the models on this machine.

NAME is an embedded model's (gemma3-270m), or org/repo or org/repo:file.gguf on the hub; both are what `serve --model`
takes, beside a path. Exit codes: 0 done and sound, 1 it could not be done or a file is damaged, 2 that is no name.
"""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from engine.core.errors import EngineError


class _NoName(EngineError):
    """What was given is not the name of a model."""


def add_models(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("models", help="list, pull, verify and remove models", description=__doc__)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    list_ = verbs.add_parser("list", help="what is here: size, format, architecture, digest, which is the default")
    pull = verbs.add_parser("pull", help="fetch a model, or the newest of it")
    verify = verbs.add_parser("verify", help="read every file again and compare its digest")
    remove = verbs.add_parser("remove", help="delete models' files")
    pull.add_argument("name", metavar="NAME", help="an embedded model's name, org/repo, or org/repo:file.gguf")
    verify.add_argument("name", metavar="NAME", nargs="*", help="default: all that are here")
    remove.add_argument("name", metavar="NAME", nargs="+")
    for verb, run in ((list_, _list), (pull, _pull), (verify, _verify), (remove, _remove)):
        verb.add_argument("--json", action="store_true", help="for programs")
        verb.set_defaults(run=_reporting(run))


def _reporting(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    def reported(parsed: argparse.Namespace) -> int:
        from daemon.logging import set_up_logging

        set_up_logging("error")  # of the parts that serving uses too
        try:
            return run(parsed)
        except EngineError as error:
            print(f"reprise models: {error}", file=sys.stderr)
            return 2 if isinstance(error, _NoName) else 1
        except KeyboardInterrupt:
            return 130

    return reported


def _list(parsed: argparse.Namespace) -> int:
    from engine.text.model_store import StoredModel, stored_models

    def row(model: StoredModel) -> dict[str, Any]:
        return {
            "name": model.name,
            "path": str(model.path) if model.path else None,
            "bytes": model.num_bytes,
            "format": model.format or None,
            "architecture": model.architecture or None,
            "sha256": model.sha256,
            "source": model.source,
            "default": model.is_default,
        }

    rows = [row(model) for model in stored_models()]
    if parsed.json:
        print(json.dumps(rows, indent=2))
        return 0
    lines = [("NAME", "SIZE", "FORMAT", "ARCHITECTURE", "SHA256", "")]
    for model in stored_models():
        notes = ["default"] * model.is_default + ["not pulled"] * (model.path is None)
        kind = (model.format or "-", model.architecture or "-", model.sha256[:12])
        lines.append((model.name, _size(model.num_bytes), *kind, ", ".join(notes)))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print("  ".join([text.ljust(width) for text, width in zip(line, widths, strict=True)]).rstrip())
    return 0


def _pull(parsed: argparse.Namespace) -> int:
    from engine.text.embedded_models import EMBEDDED_MODELS
    from engine.text.model_cache import fetch_embedded_model
    from engine.text.pulled_models import HubName

    def progress(done: int, total: int) -> None:
        if not parsed.json:
            print(f"{parsed.name}: {_size(done)} of {_size(total)}", file=sys.stderr)

    name = HubName.parse(parsed.name)
    if parsed.name in EMBEDDED_MODELS:
        path = fetch_embedded_model(EMBEDDED_MODELS[parsed.name], progress)
        revision = EMBEDDED_MODELS[parsed.name].file_sha256
    elif name is not None:
        from engine.text.hub import pull

        model = pull(name, progress, shows_bars=not parsed.json and sys.stderr.isatty())
        path, revision = model.path, model.revision
    else:
        raise _NoName(
            f"{parsed.name!r} is no name of a model: give one of {', '.join(EMBEDDED_MODELS)}, org/repo, or "
            "org/repo:file.gguf"
        )
    result = {"name": parsed.name, "path": str(path), "revision": revision}
    print(json.dumps(result) if parsed.json else f"{parsed.name} is here: reprise serve --model {parsed.name}")
    return 0


def _verify(parsed: argparse.Namespace) -> int:
    from engine.text.model_store import stored_models, verify_model

    names = parsed.name or [model.name for model in stored_models() if model.path is not None]
    found = {name: verify_model(name) for name in names}
    if parsed.json:
        print(
            json.dumps({name: {str(path): state for path, state in of.items()} for name, of in found.items()}, indent=2)
        )
    else:
        for name, files in found.items():
            bad = [f"{path} is {state}" for path, state in files.items() if state != "ok"]
            remedy = f": {'; '.join(bad)}; `reprise models pull {name}` fetches it again" if bad else ""
            print(f"{'damaged' if bad else 'ok':8}{name}{remedy}")
    return int(any(state != "ok" for files in found.values() for state in files.values()))


def _remove(parsed: argparse.Namespace) -> int:
    from engine.text.model_store import remove_model

    freed = {name: remove_model(name) for name in parsed.name}
    if parsed.json:
        print(json.dumps(freed))
    else:
        for name, num_bytes in freed.items():
            print(f"{name} is removed: {_size(num_bytes)}")
    return 0


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1_000_000:.0f} MB" if num_bytes < 1_000_000_000 else f"{num_bytes / 1_000_000_000:.1f} GB"
