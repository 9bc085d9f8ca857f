"""Keyframes: the whole state of a core as plain values, from which an equal core is made again.

In reading order: `layout.py` (what a frozen state looks like), `classes.py` (of which classes it may consist, and what
is left out of it), `columns.py` (long sequences as bytes), `freezing.py` (`freeze`), `thawing.py` (`thaw`),
`comparing.py` (where two states differ, by the names of the fields).

The walk goes over all that can be reached from the core, so that no new field is forgotten: one that cannot be frozen
is an error that names it. A state that comes from a file makes nothing but objects of the core's own classes, none of
whose code is run before the state is whole. It must not know files, nor when a keyframe is wanted.
"""
