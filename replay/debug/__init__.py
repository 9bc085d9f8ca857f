"""`reprise debug`: time travel in the terminal, over the time machine.

Read in this order: `command.py` (the verb, and scripts of commands), `session.py` (`Session`: where it stands, and one
command after the other), `answer.py` (what a command gives back), `commands.py` (which there are), `moving.py` (there
and back), `breakpoints.py` (what makes it stop), `expressions.py` (conditions, in Python), `looking.py` (the state),
`asking.py` (why, who, through which chain), `around.py` (entries near here) and `prompt.py` (the interactive line).
"""
