"""What a timeline says as Prometheus families: the daemon's /metrics live, `reprise export --metrics` afterwards.

In reading order:
    families.py   one family of a value, of values by label, of a histogram
    vllm_set.py   the names and labels that dashboards, autoscalers and routers already read
    own_set.py    what nobody else has a name for
"""
