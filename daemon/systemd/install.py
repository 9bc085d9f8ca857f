"""`reprise install-unit`: the unit, its socket and drop-ins, with this installation's paths, where systemd reads them.

Nothing is started: what to do next is printed. It writes files only; --dry-run prints them instead.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent
SYSTEM_FOLDER = Path("/etc/systemd/system")
NOTIFY_RELOAD_SINCE = 253
NEWEST = 10_000  # assumed where systemd does not say its version: a unit for elsewhere
_TEMPLATE_COMMAND = "/opt/reprise/bin/reprise"
_HIDDEN = ("/home", "/root", "/tmp", "/var/tmp")  # from the service: ProtectHome, PrivateTmp
# what a user's manager cannot do, or has other paths for
_NOT_FOR_USERS = re.compile(
    r"^(DynamicUser|Private\w+|Protect\w+|DevicePolicy|CapabilityBoundingSet|AmbientCapabilities|RestrictNamespaces"
    r"|RemoveIPC|WorkingDirectory|Environment|LimitNOFILE|LoadCredential|KeyringMode|Wants|After)=.*\n",
    re.MULTILINE,
)


def add_install_unit(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "install-unit",
        help="install the daemon as a service of systemd",
        description="Write reprise.service and reprise.socket with the paths of this installation. "
        "daemon/systemd/RUNBOOK.md goes on from there. Exit codes: 0 done, 1 it cannot be written.",
    )
    parser.add_argument("--user", action="store_true", help="for this user's manager, without what only root's can do")
    parser.add_argument("--gpu", action="store_true", help="with the drop-in that lets an NVIDIA GPU through")
    parser.add_argument("--dry-run", action="store_true", help="print the files, write nothing")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    command = installed_command()
    files = unit_files(command, systemd_version(), for_user=parsed.user, with_gpu=parsed.gpu)
    folder = user_folder(os.environ) if parsed.user else SYSTEM_FOLDER
    for name, text in files.items():
        if parsed.dry_run:
            print(f"# {folder / name}\n{text}")
            continue
        try:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, "utf-8")
        except OSError as error:
            print(f"reprise install-unit: {folder / name}: {error.strerror}; as root, or with --user?", file=sys.stderr)
            return 1
        print(f"written: {folder / name}")
    if not parsed.user and any(command.is_relative_to(hidden) for hidden in _HIDDEN):
        print(f"warning: the service does not see {command}: install Reprise elsewhere, as in /opt", file=sys.stderr)
    if not parsed.dry_run:
        manager = "systemctl --user" if parsed.user else "systemctl"
        print(f"next: {manager} daemon-reload && {manager} enable --now reprise.service")
    return 0


def unit_files(command: Path, version: int, *, for_user: bool = False, with_gpu: bool = False) -> dict[str, str]:
    """Path below systemd's folder → content, for a systemd of that version."""
    service = (FOLDER / "reprise.service").read_text("utf-8").replace(_TEMPLATE_COMMAND, str(command))
    service = service.partition("\n")[2]  # the remark for who reads the template
    if version < NOTIFY_RELOAD_SINCE:
        service = service.replace("Type=notify-reload\n", "Type=notify\nExecReload=/bin/kill -HUP $MAINPID\n")
    if for_user:
        service = _NOT_FOR_USERS.sub("", service).replace("multi-user.target", "default.target")
    files = {"reprise.service": service, "reprise.socket": (FOLDER / "reprise.socket").read_text("utf-8")}
    if with_gpu:
        files["reprise.service.d/gpu.conf"] = (FOLDER / "gpu.conf").read_text("utf-8")
    return files


def installed_command() -> Path:
    """`reprise` beside the interpreter that runs this."""
    return Path(sys.executable).parent / "reprise"


def systemd_version() -> int:
    """Of the systemd that is installed here; NEWEST where there is none."""
    path = shutil.which("systemd-analyze")
    if path is None:
        return NEWEST
    told = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    found = re.search(r"systemd (\d+)", told)
    return int(found[1]) if found else NEWEST


def user_folder(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "systemd" / "user"
