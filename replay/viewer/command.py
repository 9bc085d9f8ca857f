"""`reprise view REC`: a page on this machine, or one file to attach to a report."""

import argparse
import asyncio
import contextlib
import json
import webbrowser
from pathlib import Path

from engine.clock import SystemClock
from replay.refusal import CannotCompare

SIDE_BY_SIDE = "#beside=1&group=difference&rowHeight=26&panel=compare"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=0, metavar="PORT", help="of 127.0.0.1; 0 takes a free one")
    parser.add_argument("--no-open", action="store_true", help="print the address and open no browser")
    parser.add_argument("other", type=Path, nargs="?", metavar="OTHER", help="another recording beside it, on one axis")
    parser.add_argument("--compare", type=Path, metavar="OTHER", help="the same as a second recording")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write one self-contained page instead; it opens without a network"
    )


def run(args: argparse.Namespace) -> int:
    """Raises CannotCompare, RecordingError, OSError."""
    if not 0 <= args.port <= 65_535:
        raise CannotCompare(f"--port is {args.port}", "give 0 to 65535")
    if args.other and args.compare:
        raise CannotCompare("two other recordings are named, OTHER and --compare", "give one of them")
    if args.html is not None:
        if args.other or args.compare:
            raise CannotCompare("--html writes one recording", "leave the other away, or leave --html away")
        return _write(args)
    return _serve(args)


def _serve(args: argparse.Namespace) -> int:
    from replay.viewer.application import Viewer
    from replay.viewer.serving import serve_here
    from replay.viewer.viewed import Viewed

    clock = SystemClock()
    beside = args.other or args.compare
    other = Viewed.open(beside, clock) if beside is not None else None
    viewer = Viewer(Viewed.open(args.recording, clock), other)

    def announce(url: str) -> None:
        url += SIDE_BY_SIDE if other is not None else ""
        shown = {"verb": "view", "recording": str(args.recording), "url": url}
        print(json.dumps(shown) if args.json else f"{url}\n(the address is the key: whoever has it sees the recording)")
        print(end="", flush=True)
        if not args.no_open:
            webbrowser.open(url)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve_here(viewer, args.port, announce))
    return 0


def _write(args: argparse.Namespace) -> int:
    from replay.viewer.single_file import write_page

    written = write_page(args.recording, args.html)
    values = {"verb": "view", "recording": str(args.recording), **written._asdict()}
    if args.json:
        print(json.dumps(values, indent=2, default=str))
        return 0
    print(f"{written.path}: {written.num_bytes:,} bytes")
    for line in written.left_out:
        print(f"  left out: {line}")
    return 0
