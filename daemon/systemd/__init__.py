"""The daemon as a service of systemd: what it tells and is handed, and how it is installed. Elsewhere all is silent.

In reading order:
    RUNBOOK.md        an operator's first hour, and the nights after
    reprise.service   the unit; reprise.socket: the address that outlives a restart; gpu.conf: what a GPU needs
    install.py        `reprise install-unit`: these with this installation's paths, in systemd's folders
    notices.py        one datagram a message: ready, reloading, stopping, watchdog, status
    life.py           which message when, from the state of the daemon and the progress of the engine's loop
    sockets.py        listening sockets that systemd has opened
"""
