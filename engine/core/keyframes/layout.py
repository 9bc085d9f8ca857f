"""What a frozen state looks like: nested tuples of what msgpack can hold.

    state   (VERSION, steps planned so far, ((class name, (field name …)) …), node of the core)
    node    None, a bool, an int of 64 bits, a float, a str or bytes: itself
            (SAME, n)                        the n-th object, list or dict of the walk once more, counted from 0
            (OBJECT, class, node …)          an instance; `class` counts in the state's classes, nodes as its fields
            (LIST, column)
            (DEQUE, max length or -1, column)
            (DICT, column of keys, column of values), (ORDERED, …) for one whose order is moved about in
            (TUPLE, node …)
            (RECORD, class, node …)          a named tuple
            (CHOICE, class, value)           a member of an enumeration
            (BIG, bytes)                     an int of more than 64 bits, two's complement, little-endian
    column  (ITEMS, node …)
            (1, 2, 4 or 8, bytes)            ints of so many bytes each, unsigned, little-endian
            (DIGESTS, size, bytes)           byte strings of that one size
            (NOTHING,)                       None for each key; only of a dict's values

An operator's own policy has the class name OWN_POLICY: which class that is, the limits say.
"""

VERSION = 1

SAME, OBJECT, LIST, DEQUE, DICT, ORDERED, TUPLE, RECORD, CHOICE, BIG = range(10)
ITEMS, DIGESTS, NOTHING = 0, 9, 10

OWN_POLICY = "own policy"
MAX_BIG_BYTES = 64  # of an int: no figure of the core comes near
