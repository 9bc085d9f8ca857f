"""The kernels for NVIDIA GPUs, in Triton: one operation per file, each with its shapes, its order and its reference.

Read in this order: `launch.py` (where tensors live, how a kernel is started, what is compiled to be checked) and
`interpreter.py` (triton's interpreter, corrected); then the operations in the order of a layer: `embedding.py`,
`rms_norm.py`, `rotary_kv.py` (with `kv_number.py`: how a number lies in KV memory), `attention_plan.py` (which keys
each query reads, and which program does it), `attention.py` (with `attention_split.py`, its arithmetic,
`attention_merge.py`, and `attention_tuning.py`: which tiles), `silu_mul.py`. KV memory beside a step:
`block_digest.py`, `block_copy.py` (within the device, and to the host and back), `slots.py`; `kv_memory.py` (all of it,
as the interface asks for it).

Matrix products: `planes.py` (GGUF blocks taken apart), `tiles.py` (what decides the order of a sum, and what its
speed), `weights.py` (matrices packed on the device), `weight_tile.py` (a packed weight's numbers in registers),
`linear.py`; `linear_variants.py` is what of it is compiled to be checked. `autotune.py` (the fastest tiles among those
of equal bits), `device_bench.py` (tiles run and timed; `device_time.py`), `tile_cache.py` (choices kept on disk),
`tuned_weights.py` (a model's weights with theirs). Then `head.py` (logits, and what a greedy draw needs of them).

Draws: `draw_requests.py` (what rows ask, as arrays; `row_flags.py`), `logit_changes.py`, `top_k.py` and `whole_draw.py`
(the kernels), `draws.py` (their launches), `candidate_draws.py` (which token follows, shown to be that of all logits)
and `draw_answers.py` (the draws; what had to be read whole).

A step: `decoder_weights.py` (a model's matrices packed, `tuning.py` their tiles), `workspace.py` (tensors between the
kernels), `step.py` (all launches in order, in pieces; `watch.py`: who looks on), `staging.py` (one copy each way),
`step_arrays.py` (what travels, padded), `graphs.py` (launches as one), `prepared.py` (all of it, per padded size),
`running.py` (steps one after the other), `watching.py` (a step shown to a tap), `scores.py` (rows of prompts),
`device_memory.py` (what is left for keys and values), `probes.py`, `numerics.py` (what decides the bits), `backend.py`
(the whole, as `kernels/backend.py` asks for it).

Two rules hold for every file. What an output row is computed from, and in which order, depends on that row alone: a
program owns whole rows, sums go over lengths fixed by the model, and nothing is added up by atomics. And a kernel is
compiled for a model, never for a batch: lengths and strides are constants, counts are `do_not_specialize`. (A matrix
product may have one tile for few rows and another for many, of one order and, as is shown at load, of equal bits.)

Nothing else of ours is imported but `kernels`; and nobody imports this package but `kernels/dispatch.py`, when it is
asked for, since it needs triton.
"""
