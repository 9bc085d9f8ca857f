"""The trace viewer's page in a real browser: Debian's Chromium, headless, against real recordings and a real daemon.

`chromium.py` (the browser and what it must not do), `recordings.py` (loads worth looking at), `viewer_server.py` (the
viewer over a recording, in a thread), then the tests. Where no Chromium is installed they skip and say so.
"""
