"""The service under a real systemd that is process 1, in a small Debian booted beside this system: `make systemd-boot`.

In reading order:
    debian.py        the folder that is booted: Debian with systemd and Python, Reprise where a service may look
    machine.py       it booted by systemd-nspawn, and commands run in it
    test_service.py, test_upgrades.py   what RUNBOOK.md says, done there

Without root, debootstrap and systemd-nspawn, or the folder, its tests skip and say so.
"""
