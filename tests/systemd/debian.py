"""A folder with as much of Debian as systemd and the daemon need: `python -m tests.systemd.debian FOLDER [SUITE]`.

Made once, by debootstrap; later calls leave it as it is. Neither Reprise nor its Python are copied in: /opt/reprise is
an environment whose interpreter, packages and sources are this checkout's, mounted at /srv by `machine.py`.
"""

import subprocess
import sys
from pathlib import Path

MIRROR = "http://deb.debian.org/debian"
SUITE = "trixie"  # with systemd 257, hence Type=notify-reload; bookworm's is 252
PACKAGES = "systemd,systemd-sysv,dbus,python3,curl,procps,openssl,ca-certificates,libgomp1,libstdc++6"
SOURCE, LIBRARIES, PYTHON, MODELS = "/srv/source", "/srv/packages", "/srv/python", "/srv/models"
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_COMMAND = """#!/opt/reprise/bin/python
import sys
from daemon.__main__ import main
sys.exit(main())
"""


def make(folder: Path, suite: str = SUITE) -> None:
    """Raises CalledProcessError."""
    if not (folder / "sbin" / "init").exists():
        command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, str(folder), MIRROR]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    for place in (SOURCE, LIBRARIES, PYTHON, MODELS, "/etc/reprise", "/etc/credstore"):
        (folder / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
    (folder / "etc" / "ld.so.conf.d" / "reprise.conf").write_text(f"{PYTHON}/lib\n")
    environment = folder / "opt" / "reprise"
    packages, programs = environment / "lib" / _VERSION / "site-packages", environment / "bin"
    for each in (packages, programs):
        each.mkdir(parents=True, exist_ok=True)
    (environment / "pyvenv.cfg").write_text(f"home = {PYTHON}/bin\n")
    (packages / "reprise.pth").write_text(f"{SOURCE}\n{LIBRARIES}\n")
    (programs / "python").unlink(missing_ok=True)
    (programs / "python").symlink_to(f"{PYTHON}/bin/{_VERSION}")
    (programs / "reprise").write_text(_COMMAND)
    (programs / "reprise").chmod(0o755)


if __name__ == "__main__":
    make(Path(sys.argv[1]), *sys.argv[2:])
