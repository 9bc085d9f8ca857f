"""Model files → parameters: `load.py` is the one door; `gguf.py` with `gguf_hyperparameters.py` and `safetensors.py`
with `folder_config.py` read one kind of file each, `file_map.py` is a file as memory. What a model must have is
`../model.py`'s."""
