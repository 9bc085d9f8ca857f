"""The engine: decides (`core/`), executes (`execution/`), and ties the two together (`loop.py`, `process.py`).

`steps_ahead.py` runs steps with the next one planned meanwhile; `grammar_desk.py` lets arrivals wait for their grammars
beside the loop; `self_audit.py` has finished requests computed again, alone, while there is nothing else to do.
`protocol.py` is what it says to the daemon, `text/` is what both need to turn text into token ids and back,
`own_policy.py` loads an operator's own scheduling policy; `injection.py` names faults on purpose, which
`injected_faults.py` brings into a running engine; `config.py`, `clock.py` and `log.py` are what they sound
like; `journal.py` takes log lines to journald with their fields; `doctor.py` proves on a machine that bits hold.
"""
