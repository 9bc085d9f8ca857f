"""The CPU backend: a small C++ library of ours, entered once per step.

Read in this order: `src/lanes.h` (sixteen lanes, the same bits on every instruction set), `src/weights.h` (tiles of
weights, in the large pages of `src/weight_memory.h`), `src/linear.h`, `src/attention.h`, `src/decoder.h` (a whole step;
`src/decoder_step.h` what its phases share, `src/traced_step.cpp` the same under somebody's eyes), `src/block_digest.h`
(a KV block's contents as a number), `src/sampling.h`, `src/likeliest.h` and `src/log_probabilities.h` (tokens drawn
from its logits), `src/scored_rows.cpp` (a prompt's rows asked about tokens), `src/team.h` (threads that nobody waits
for); then `build_library.py` (how the library is compiled), `library.py` (loads it), `weights.py` (hands it a model's),
`draws.py` and `scores.py` (rows to draw or to ask, as it takes them), `tap_callback.py` (who looks on) and `backend.py`
(the backend).

It may import nothing else of ours than `kernels`. Without a compiled library importing it is fine; loading is refused
with the reason.
"""
