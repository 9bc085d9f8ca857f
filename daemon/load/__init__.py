"""`reprise load`: a trace's arrivals, at their times, against any OpenAI-compatible server; measured as `bench` does.

    prompts.py   what is sent: the trace's own words, or made-up ones whose pieces are shared as the trace says
    command.py   the verb

It joins the readers of `replay/simulate` with the client of `daemon/bench`, and is no part of either.
"""
