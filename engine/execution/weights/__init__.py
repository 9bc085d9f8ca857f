"""Model files → parameters. `model_files.py` says what a reader must find, `gguf.py` and `safetensors.py` find it,
`assemble.py` checks and orders it, `load.py` is the one door."""
