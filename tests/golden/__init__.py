"""Recordings kept for good: one per format version, and one that must diverge. Whatever changes, they are read.

format-1   live, contents plain: as the first version wrote it
format-2   sealed, contents encrypted; the key in `keys`, which protects nothing but this
diverges   format-2 with one decision changed: `check` must say where
make.py    how those of the current version were made; an older one can never be made again
"""
