"""Model files → parameters: `load.py` is the one door, `gguf.py` and `safetensors.py` read one kind of file each,
`file_map.py` is a file as memory. What a model must have is `../model.py`'s."""
