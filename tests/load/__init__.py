"""Many clients at once, hostile ones, and many requests one after the other: against a daemon in a process of its own.

In reading order:
    raw_client.py        a stream over a bare socket, read as fast as it comes, little by little, or not at all
    health_prober.py     /health asked all the while, from a process of its own
    many_streams.py      running, queued, refused and unread streams at the same time, and the books of them
    hostile_bodies.py    JSON as the API's document allows it, and as nobody should send it
    hostile_sockets.py   bytes that pretend to be HTTP
    fuzz.py              these by seed: no 5xx, no hang, nothing left (`make fuzz`)
    soak.py              ordinary requests by the ten thousand, and the memory as they go (`make soak-http`)
"""
