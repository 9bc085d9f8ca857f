"""Questions that people have, as SQL over the index: each runs as it stands, and can be changed in the box.

Times are in milliseconds since the life's opening unless a column says otherwise.
"""

from typing import NamedTuple


class Question(NamedTuple):
    name: str
    title: str
    sql: str


QUESTIONS = (
    Question(
        "longest-wait",
        "Who waited longest, and behind whom",
        """
WITH longest AS (
  SELECT r.life, number, request_id, admitted_ns, queue_ms,
         coalesce(queue_ms, (coalesce(end_ns, last_ns) - arrival_ns) / 1e6) AS waited_ms
  FROM requests r JOIN lives l ON l.life = r.life ORDER BY waited_ms DESC, r.life, number LIMIT 20),
told AS (
  SELECT d.life, d.request, d.kind, d.reason, d.other_request,
         lead(d.now_ns) OVER (PARTITION BY d.life, d.request ORDER BY d.sequence, d.at) - d.now_ns AS lasted
  FROM longest l JOIN decisions d ON d.life = l.life AND d.request = l.number
  WHERE d.kind IN ('RequestDeferred', 'RequestAdmitted', 'RequestFinished')
    AND d.now_ns <= coalesce(l.admitted_ns, d.now_ns)),
mostly AS (
  SELECT life, request, reason, sum(lasted) / 1e6 AS ms,
         row_number() OVER (PARTITION BY life, request ORDER BY sum(lasted) DESC, reason) AS place
  FROM told WHERE kind = 'RequestDeferred' GROUP BY life, request, reason),
front AS (
  SELECT life, request, other_request, sum(lasted) / 1e6 AS ms,
         row_number() OVER (PARTITION BY life, request ORDER BY sum(lasted) DESC, other_request) AS place
  FROM told WHERE kind = 'RequestDeferred' AND other_request >= 0 GROUP BY life, request, other_request)
SELECT l.life, l.number AS request, l.request_id, l.waited_ms,
       CASE WHEN l.queue_ms IS NULL THEN 'never' ELSE 'yes' END AS admitted, m.reason AS mostly_for, m.ms AS for_ms,
       f.other_request AS behind, b.request_id AS behind_id, f.ms AS behind_ms
FROM longest l
LEFT JOIN mostly m ON m.life = l.life AND m.request = l.number AND m.place = 1
LEFT JOIN front f ON f.life = l.life AND f.request = l.number AND f.place = 1
LEFT JOIN requests b ON b.life = l.life AND b.number = f.other_request
ORDER BY l.waited_ms DESC, l.life, l.number""",
    ),
    Question(
        "preempted-by",
        "Who preempted whom, how often, and what it cost",
        """
SELECT p.life, p.beneficiary, b.request_id AS beneficiary_id, p.victim, v.request_id AS victim_id, p.reason,
       count(*) AS times, sum(p.tokens_lost) AS tokens_lost, max(p.chain_length) AS longest_chain
FROM preemptions p
LEFT JOIN requests b ON b.life = p.life AND b.number = p.beneficiary
LEFT JOIN requests v ON v.life = p.life AND v.number = p.victim
GROUP BY p.life, p.beneficiary, p.victim, p.reason
ORDER BY times DESC, tokens_lost DESC, p.life, p.beneficiary, p.victim LIMIT 50""",
    ),
    Question(
        "cascades",
        "Cascades: preemptions that led to preemptions",
        """
SELECT life, chain, max(chain_length) AS preemptions, min(step) AS first_step, max(step) AS last_step,
       sum(tokens_lost) AS tokens_lost, group_concat(victim, ' → ') AS victims
FROM (SELECT * FROM preemptions ORDER BY life, sequence, at)
GROUP BY life, chain HAVING max(chain_length) > 1
ORDER BY preemptions DESC, life, chain LIMIT 50""",
    ),
    Question(
        "waiting-reasons",
        "What requests waited for, by reason",
        """
SELECT reason, count(*) AS times, count(DISTINCT life || ' ' || request) AS requests, avg(needed) AS mean_blocks_needed,
       avg(free) AS mean_blocks_free
FROM decisions WHERE kind = 'RequestDeferred'
GROUP BY reason ORDER BY times DESC, reason""",
    ),
    Question(
        "slowest-first-token",
        "The slowest first tokens, and how much of each was queueing",
        """
SELECT life, number AS request, request_id, tenant, ttft_ms, queue_ms, round(ttft_ms - queue_ms, 6) AS prefill_ms,
       prompt_tokens, cached_tokens, preemptions
FROM requests WHERE ttft_ms IS NOT NULL ORDER BY ttft_ms DESC, life, number LIMIT 20""",
    ),
    Question(
        "longest-gap",
        "The longest gaps between two tokens",
        """
SELECT life, number AS request, request_id, itl_max_ms, itl_p50_ms, tpot_ms, output_tokens, preemptions, swaps
FROM requests WHERE itl_max_ms IS NOT NULL ORDER BY itl_max_ms DESC, life, number LIMIT 20""",
    ),
    Question(
        "slowest-steps",
        "The slowest steps, and where their time went",
        """
SELECT s.life, step, (planned_ns - opened_ns) / 1e6 AS planned_ms, (completed_ns - planned_ns) / 1e6 AS step_ms,
       execute_ns / 1e6 AS execute_ms, sample_ns / 1e6 AS sample_ms, beside_ns / 1e6 AS beside_ms,
       swap_ns / 1e6 AS swap_ms, rows, prefill_tokens, decode_rows
FROM steps s JOIN lives l ON l.life = s.life
WHERE completed_ns IS NOT NULL ORDER BY step_ms DESC, s.life, step LIMIT 20""",
    ),
    Question(
        "beside-it",
        "What ran beside the selected request (change the number)",
        """
SELECT other.request, r.request_id, min(other.from_step) AS from_step, max(other.to_step) AS to_step,
       sum(other.tokens) AS tokens
FROM slices mine
JOIN slices other ON other.life = mine.life AND other.request <> mine.request AND other.kind IN ('prefill', 'decode')
  AND other.from_step <= mine.to_step AND other.to_step >= mine.from_step
LEFT JOIN requests r ON r.life = other.life AND r.number = other.request
WHERE mine.life = 1 AND mine.request = 0 AND mine.kind IN ('prefill', 'decode')
GROUP BY other.request ORDER BY from_step, other.request LIMIT 100""",
    ),
    Question(
        "thrashing",
        "When thrashing began, what ended it, and what it cost",
        """
SELECT m.life, (m.now_ns - opened_ns) / 1e6 AS began_ms, (m.until_ns - opened_ns) / 1e6 AS ended_ms,
       m.step AS began_step, m.detail AS began_on,
       (SELECT 'num_recomputed=' || json_extract(d.detail_json, '$.num_recomputed') || ' num_computed='
        || json_extract(d.detail_json, '$.num_computed') FROM steps s JOIN decisions d ON d.life = s.life
        AND d.sequence = s.sequence AND d.kind = 'ThrashingEnded'
        WHERE s.life = m.life AND s.planned_ns = m.until_ns) AS ended_on,
       (SELECT count(*) FROM preemptions p WHERE p.life = m.life AND p.now_ns BETWEEN m.now_ns
        AND coalesce(m.until_ns, p.now_ns)) AS preemptions,
       (SELECT group_concat(t.detail, '; ') FROM marks t WHERE t.life = m.life AND t.kind = 'throttled'
        AND t.now_ns BETWEEN m.now_ns AND coalesce(m.until_ns, t.now_ns)) AS throttled
FROM marks m JOIN lives l ON l.life = m.life
WHERE m.kind = 'thrashing' ORDER BY m.life, m.now_ns""",
    ),
    Question(
        "tenants",
        "Tenants side by side",
        """
SELECT tenant, count(*) AS requests, sum(prompt_tokens) AS prompt_tokens, sum(output_tokens) AS output_tokens,
       avg(queue_ms) AS mean_queue_ms, avg(ttft_ms) AS mean_ttft_ms, max(ttft_ms) AS max_ttft_ms,
       avg(tpot_ms) AS mean_tpot_ms, sum(preemptions) AS preemptions
FROM requests GROUP BY tenant ORDER BY requests DESC, tenant""",
    ),
    Question(
        "ends",
        "How requests ended",
        """
SELECT coalesce(reason, '(lives)') AS reason, count(*) AS requests, avg(e2e_ms) AS mean_e2e_ms,
       sum(output_tokens) AS output_tokens
FROM requests GROUP BY reason ORDER BY requests DESC, reason""",
    ),
    Question(
        "cache-hits",
        "Whose prompts the prefix cache knew",
        """
SELECT life, number AS request, request_id, tenant, prompt_tokens, cached_tokens,
       1.0 * cached_tokens / prompt_tokens AS share
FROM requests WHERE cached_tokens > 0 ORDER BY cached_tokens DESC, life, number LIMIT 50""",
    ),
    Question(
        "idle-budget",
        "Steps that had budget left while somebody waited",
        """
SELECT s.life, step, (planned_ns - opened_ns) / 1e6 AS planned_ms, budget, budget_left, waiting, running, free_blocks,
       (SELECT d.reason FROM decisions d WHERE d.life = s.life AND d.sequence <= s.sequence
        AND d.kind = 'RequestDeferred' AND d.reason <> 'behind_another' ORDER BY d.sequence DESC, d.at DESC LIMIT 1
       ) AS the_first_waits_for
FROM steps s JOIN lives l ON l.life = s.life
WHERE waiting > 0 AND budget_left > 0 ORDER BY budget_left DESC, s.life, step LIMIT 50""",
    ),
    Question(
        "marks",
        "Everything out of the ordinary",
        """
SELECT m.life, (now_ns - opened_ns) / 1e6 AS at_ms, step, kind,
       CASE WHEN request >= 0 THEN request END AS request, detail
FROM marks m JOIN lives l ON l.life = m.life ORDER BY m.life, now_ns, id LIMIT 500""",
    ),
)
