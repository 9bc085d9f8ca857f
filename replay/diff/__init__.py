"""`diff`: two recordings side by side, aligned by request. Read in this order:

side.py         one of the two: its requests, each with its span, its digests and its tokens
alignment.py    who is who: by request id, else by order of arrival; records with the other side's numbers
first.py        the first record that differs, and the first that does something else
requests.py     each pair of requests: tokens and latencies
diff.py         the verb: what was compared, and the verdict
report.py       … as text and JSON
"""
