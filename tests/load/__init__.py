"""Many clients at once, hostile ones, and many requests one after the other: against a daemon in a process of its own.

In reading order:
    raw_client.py      a stream over a bare socket, read as fast as it comes, little by little, or not at all
    health_prober.py   /health asked all the while, from a process of its own
    many_streams.py    running, queued, refused and unread streams at the same time, and the books of them
"""
