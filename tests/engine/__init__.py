"""Tests of the loop and of what goes over the wire."""
