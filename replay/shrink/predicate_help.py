"""Predicates, as the help of `reprise shrink` lists them:

    diverges                          made again in another process, decisions differ; with contents, tokens too
    isolation-differs[:REQUEST]       a request alone has other tokens or digests than in company
    output-contains[@REQUEST]:TEXT    an answer contains the text
    output-lacks[@REQUEST]:TEXT       an answer that came to its end does not
    ttft-above:MS[:REQUEST]           a first token took longer, or never came
    preempted-more-than:N[:REQUEST]
    thrashing, starvation             the core said so
    invariant-broken                  a promise of all recordings (replay/shrink/invariants.py), or a dead engine
    engine-dies
    expr:EXPRESSION                   Python: true, or a request's number (replay/shrink/expressions.py)

REQUEST is a request's number, or its id.
"""
