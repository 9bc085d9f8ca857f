"""The daemon: HTTP in front, the engine process behind, one command line. It holds no model.

In reading order:
    __main__.py           the command `reprise`: serve here, the replay verbs from replay/
    config.py             every option, its unit and default; `option_values.py` reads one value
    config_sources.py     where a value is taken from; `config_view.py` all of them shown, secrets masked
    server.py             start-up; `signals.py`, `drain.py` the orderly end, `reload.py` new options
    systemd/              as a service: what the manager is told, hands over, and is given to install
    deploy/               as a container: the file it is built from, a Kubernetes example
    config_command.py, reload_command.py   `reprise config`, `reprise reload`; `running.py`: how they find a daemon
    models_command.py     `reprise models`: what is on this machine, pulled, verified, removed
    application.py        routes; `listening.py`, `accepting.py` sockets; `middleware.py` what all requests pass
    tls.py, cors.py       certificates, and pages of other sites
    connections.py        how many clients may be connected; `garbage.py`: when memory is tidied
    generation.py         a body of the API → `turn.py`: one call, from asking the engine to the last byte
    request_body.py, json_body.py   a body as it comes; a JSON object
    openai_api.py, fields.py, chat_messages.py, refused_fields.py, request_ids.py   that → question.py
    chat_rendering.py, shown_text.py, gateway_headers.py   the prompt's making, the answer's text, headers
    structure.py          what an answer must read: schemas and grammars; `tools.py` functions that it may call
    grammar_maker.py      a grammar of that, made and tried in a process of its own, `grammar_child.py`
    responses_request.py, responses_bodies.py   the other way to ask a chat: /v1/responses
    openapi.py            /openapi.json, by field_table.py: every field's type and bounds
    tokenization.py       /tokenize and /detokenize
    api_keys.py           who may ask, and the tenant each key stands for; `tenant_limits.py` how much at once
    urgency.py            what of a question and its key the scheduling policies are told
    prompt_encoder.py     text → token ids
    call.py, mailbox.py, live_requests.py   what waits for which of the engine's decisions; `pacer.py` bursts of it
    choice_plan.py        how many choices a prompt has, their seeds, which of them wait for which
    choices.py, answer.py, call_reader.py, response_bodies.py, streaming.py   decisions and tokens → deltas → events
    slow_readers.py       who takes nothing of a whole answer is let go
    answer_form.py        which of these a question wants
    prompt_logprobs.py    log-probabilities of a prompt, in OpenAI's shape and in vLLM's; `token_spelling.py`
    answer_stream.py      these under ids, from anywhere on
    resumption.py         a client comes back: `resumables.py` all streams that may be asked for again,
                          `resumable.py` one, `resume_journal.py` what the next daemon needs of them
    missing_endpoints.py, malformed_http.py   what is not here, and what is no request
    errors.py             what goes wrong for a client: status, message, code; `refusals.py` counts them
    engine_client.py      the engine as all of this sees it; `service.py` is what handlers share
    supervisor.py         starts, watches and restarts the engine process; `engine_child.py`, `engine_connection.py`
    handover.py           what becomes of the live requests when it dies
    probes.py, health.py, progress.py, recorder_totals.py   health, readiness, models
    telemetry/            metrics and spans; `trace_context.py` whose trace a request belongs to
    incidents.py          what is recorded now, kept with a note
    viewer.py             /viewer: `viewer_token.py` who may see it, `viewer_child.py` the process that answers
    run_directory.py      where this run is recorded
    bench/, load/         clients that measure any server: drawn loads, and those of traces
    logging.py            log lines
"""
