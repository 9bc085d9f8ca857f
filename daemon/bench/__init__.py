"""`reprise bench`: load for any OpenAI-compatible server, measured from the client's side. It knows nothing of ours.

In reading order:
    workloads.py       W1 to W4: lengths and arrivals, drawn from a seed
    prompts.py         their words, as a text, token ids or a chat
    words.py           the words
    draws.py           the one source of what is drawn
    endpoint.py        a server, its model, a request's body
    client.py          one request measured
    events.py          one event of its stream
    drive.py           a workload against one server: closed loop, open loop
    statistics.py      answers → figures; TTFT, ITL, TPOT and percentiles are defined there only
    rounds.py          drives of one or two servers in turn
    bandwidth.py       the memory's speed, beside each drive
    drift.py           the same requests in company and alone: what differs
    report.py          tables; json_report.py the same for programs; saved_answers.py every answer
    progress.py        a bar on a terminal
    options.py         the options; plan.py what they mean together; command.py the verb
    errors.py          why nothing could be measured
"""
