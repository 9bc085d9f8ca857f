"""Text ⇄ tokens, and where a model's files are. Neither weights nor torch: the daemon uses this without a model.

Read in this order: `model_source.py` (a name → files; beneath it `embedded_models.py`, `model_cache.py`,
`pulled_models.py` and `file_digests.py`; `hub.py` pulls, `model_store.py` lists what is here),
`text_model.py` (what the daemon uses), `vocabulary.py` (what every kind of model file must give), its two makers
`gguf_vocabulary.py` (with `gguf_metadata.py`, `gguf_tokenizer.py`) and `folder_vocabulary.py`, `token_bytes.py`,
`chat_template.py` (with `template_environment.py`, `template_file.py` and `open_turn.py`), for answers as they
come `detokenizer.py` and
`stop_strings.py`, and for what they must read `grammar.py` (`grammar_order.py`: made elsewhere; `grammar_table.py`:
followed). How models write calls of functions: `tool_format.py`, with `tool_prompt.py` and `tool_grammar.py`; how they
are asked to fill a gap: `infill.py`.
"""
