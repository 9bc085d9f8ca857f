"""Tests of recording and reading back."""
