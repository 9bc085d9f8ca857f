"""Text ⇄ tokens, and where a model's files are. Neither weights nor torch: the daemon uses this without a model.

Read in this order: `model_source.py` (a name → files), `model_cache.py` and `file_digests.py` beneath it.
"""
