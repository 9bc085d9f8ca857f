"""A folder with as much of Debian as systemd and the daemon need: `python -m tests.systemd.debian FOLDER`.

Made once, by debootstrap; later calls leave it as it is. Reprise is not copied in: /opt/reprise is an environment whose
packages and sources are this checkout's, mounted at /srv when it boots (`machine.py`).
"""

import subprocess
import sys
from pathlib import Path

MIRROR = "http://deb.debian.org/debian"
SUITE = "bookworm"  # with Python 3.11, as the checkout's packages want, and systemd 252
PACKAGES = "systemd,systemd-sysv,dbus,python3,curl,procps,ca-certificates,libgomp1,libstdc++6"
SOURCE, LIBRARIES = "/srv/source", "/srv/packages"
_COMMAND = """#!/opt/reprise/bin/python
import sys
from daemon.__main__ import main
sys.exit(main())
"""


def make(folder: Path) -> None:
    """Raises CalledProcessError."""
    if not (folder / "sbin" / "init").exists():
        command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(folder), MIRROR]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    for place in (SOURCE, LIBRARIES, "/srv/models", "/etc/reprise", "/etc/credstore"):
        (folder / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
    if not (folder / "opt" / "reprise").exists():
        venv = ["/usr/bin/python3", "-m", "venv", "--without-pip", "/opt/reprise"]
        subprocess.run(["chroot", str(folder), *venv], check=True)
    (packages,) = (folder / "opt" / "reprise" / "lib").glob("python3.*/site-packages")
    (packages / "reprise.pth").write_text(f"{SOURCE}\n{LIBRARIES}\n")
    command_file = folder / "opt" / "reprise" / "bin" / "reprise"
    command_file.write_text(_COMMAND)
    command_file.chmod(0o755)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
