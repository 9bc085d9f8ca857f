"""Tests of `reprise bisect`."""
