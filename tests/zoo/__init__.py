"""The bug zoo: planted interaction bugs of kinds seen in public, and how the tools find each.

bug.py            what a bug is; `in_memory.py`, `in_decisions.py`: the bugs; `bugs.py`: all of them
loads.py          what clients send in the course of a seed
tiny_model.py     a model with weights for those in execution
serving.py        a load served by the real loop, core, recorder and runner, on virtual time
trees.py          a copy of the tree with a bug in it
examine.py        one bug met, found, repeated and made small, within such a tree
stories.py        its one-page story; those of the last whole run are in `stories/`
__main__.py       `make zoo`: all of them, and the table
"""
