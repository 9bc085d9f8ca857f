"""The tables. All times are the recording's monotonic nanoseconds, as `now_ns` of its entries; sequences are entries'.

A row stands for one life of an engine process, counted from 1. `step` is the step of which a row tells, or the step
that was to be planned next when it happened: in the entry that plans step 7 all is step 7, and so is what happened
between the plan of step 6 and it. Rows of one table and one sequence are in the order of `id`. A row with `is_open` is
told as far as the recording goes, and again when more of it is known.

lives          (life, opened_ns, opened_wall_ns, first_sequence, policy, num_kv_blocks, block_size,
               max_num_batched_tokens, max_num_seqs, limits_json, last_sequence, last_ns): of its last entry
requests       (life, number): the life in which it arrived first. `end_ns` and `reason` NULL while it lives; times in
               milliseconds as `reprise show --request` has them; `sequence` of its arrival
steps          (life, step): `sequence` planned it, `completed_sequence` has its result, both times NULL until then.
               beside_ns: completed − planned − execute − sample; hit_blocks: found in the prefix cache by those that
               it admitted; budget: tokens that a step may have; running, waiting, free_blocks, budget_left after
               planning
slices         what a request was at: queued, prefill (one for each row of a step), decode (a run of rows until it was
               preempted or ended; detail: rows of it), preempted, swapped (detail: the reason). to_step is the last
               step of prefill and decode, of the others the step that ended it
decisions      all but StepPlanned and TokensEmitted. kind: the decision's name; at: its place in its entry;
               other_request: for whom, behind whom; detail_json: all fields by name
preemptions    victim, beneficiary, reason, mode …
marks          kind: thrashing (until_ns NULL while it lasts), throttled, starvation, demoted, policy, mismatch, audit,
               restart, drain, error, gap
block_events   allocated, hit: `request` holds it from here on; released: it gives it up and others hold it still;
               freed: it gives it up and nobody holds it; evicted: what it held is given up for `request`; written:
               `request` wrote into it in each step from `step` to `to_step`, swapped in or computed
reasons        how often a decision of that kind was made for that reason, and when first
keyframes      the core's state before the entry of `sequence`, with `step` the first not planned yet
meta           version, key, resume (where indexing goes on)
"""

VERSION = 2

TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lives (
    life INTEGER PRIMARY KEY, opened_ns INTEGER, opened_wall_ns INTEGER, first_sequence INTEGER, policy TEXT,
    num_kv_blocks INTEGER, block_size INTEGER, max_num_batched_tokens INTEGER, max_num_seqs INTEGER, limits_json TEXT,
    last_sequence INTEGER, last_ns INTEGER
);
CREATE TABLE IF NOT EXISTS requests (
    life INTEGER, number INTEGER, request_id TEXT, tenant TEXT, priority INTEGER, sequence INTEGER, arrival_ns INTEGER,
    admitted_ns INTEGER, first_token_ns INTEGER, last_token_ns INTEGER, end_ns INTEGER, reason TEXT,
    prompt_tokens INTEGER, output_tokens INTEGER, cached_tokens INTEGER, preemptions INTEGER, swaps INTEGER,
    ttft_ms REAL, tpot_ms REAL, itl_p50_ms REAL, itl_max_ms REAL, queue_ms REAL, e2e_ms REAL,
    PRIMARY KEY (life, number)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS requests_by_id ON requests (request_id);
CREATE INDEX IF NOT EXISTS requests_by_time ON requests (life, arrival_ns);
CREATE INDEX IF NOT EXISTS requests_by_sequence ON requests (life, sequence);
CREATE TABLE IF NOT EXISTS steps (
    life INTEGER, step INTEGER, sequence INTEGER, completed_sequence INTEGER, planned_ns INTEGER, completed_ns INTEGER,
    execute_ns INTEGER, sample_ns INTEGER, swap_ns INTEGER, beside_ns INTEGER, rows INTEGER, prefill_tokens INTEGER,
    decode_rows INTEGER, budget INTEGER, budget_left INTEGER, running INTEGER, waiting INTEGER, free_blocks INTEGER,
    hit_blocks INTEGER, evicted_blocks INTEGER, policy TEXT,
    PRIMARY KEY (life, step)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS steps_by_time ON steps (life, planned_ns);
CREATE INDEX IF NOT EXISTS steps_by_sequence ON steps (life, sequence);
CREATE TABLE IF NOT EXISTS slices (
    id INTEGER PRIMARY KEY, life INTEGER, request INTEGER, kind TEXT, from_ns INTEGER, to_ns INTEGER,
    from_step INTEGER, to_step INTEGER, tokens INTEGER, detail TEXT, is_open INTEGER
);
CREATE TABLE IF NOT EXISTS decisions (
    life INTEGER, sequence INTEGER, at INTEGER, now_ns INTEGER, step INTEGER, kind TEXT, request INTEGER,
    other_request INTEGER, reason TEXT, needed INTEGER, free INTEGER, detail_json TEXT,
    PRIMARY KEY (life, sequence, at)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reasons (
    life INTEGER, kind TEXT, reason TEXT, count INTEGER, first_ns INTEGER, first_step INTEGER,
    PRIMARY KEY (life, kind, reason)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS preemptions (
    life INTEGER, sequence INTEGER, at INTEGER, now_ns INTEGER, step INTEGER, victim INTEGER, beneficiary INTEGER,
    reason TEXT, mode TEXT, tokens_lost INTEGER, blocks_freed INTEGER, chain INTEGER, chain_length INTEGER,
    PRIMARY KEY (life, sequence, at)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS preemptions_by_time ON preemptions (life, now_ns, victim);
CREATE INDEX IF NOT EXISTS preemptions_by_victim ON preemptions (life, victim);
CREATE INDEX IF NOT EXISTS preemptions_by_chain ON preemptions (life, chain);
CREATE TABLE IF NOT EXISTS marks (
    id INTEGER PRIMARY KEY, life INTEGER, sequence INTEGER, now_ns INTEGER, until_ns INTEGER, step INTEGER, kind TEXT,
    request INTEGER, detail TEXT
);
CREATE INDEX IF NOT EXISTS marks_by_time ON marks (life, now_ns);
CREATE TABLE IF NOT EXISTS block_events (
    id INTEGER PRIMARY KEY, life INTEGER, block INTEGER, sequence INTEGER, step INTEGER, to_step INTEGER, kind TEXT,
    request INTEGER, is_open INTEGER
);
CREATE INDEX IF NOT EXISTS block_events_by_step ON block_events (life, step);
CREATE TABLE IF NOT EXISTS keyframes (
    life INTEGER, sequence INTEGER, step INTEGER, now_ns INTEGER, PRIMARY KEY (life, sequence)
) WITHOUT ROWID;
"""

OPEN_INDEXES = """
CREATE INDEX IF NOT EXISTS open_slices ON slices (id) WHERE is_open;
CREATE INDEX IF NOT EXISTS open_block_events ON block_events (id) WHERE is_open;
"""

# Their keys come in no order, so a long recording is indexed in half the time when they are made at its end.
LATE_INDEXES = """
CREATE INDEX IF NOT EXISTS slices_by_request ON slices (life, request, from_ns);
CREATE INDEX IF NOT EXISTS decisions_by_request ON decisions (life, request, sequence);
CREATE INDEX IF NOT EXISTS block_events_by_block ON block_events (life, block, sequence);
"""
