"""The whole of Reprise as its users meet it: a real daemon process, real sockets, the real model, real recordings."""
