#!/usr/bin/env bash
# What run.sh needs beside torch, triton and numpy, for a GPU machine that reaches no network: packages for its Python
# (default 3.12) into gpu-packages/, about 50 MB, which git ignores: carry the folder along. There:
# PYTHONPATH=gpu-packages tests/gpu/run.sh. A model goes along as a file, named by REPRISE_GPU_MODEL.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ -z "${PYTHON:-}" ]; then
  if [ -x .venv/bin/python ]; then PYTHON=.venv/bin/python; else PYTHON=python3; fi
fi
pin() { for name in "$@"; do grep -E "^$name==" constraints.txt || echo "$name"; done; }
rm -rf gpu-packages
# shellcheck disable=SC2046  # names and versions hold no spaces
"$PYTHON" -m pip install --quiet --disable-pip-version-check --target gpu-packages --no-compile --no-deps --only-binary=:all: \
  --python-version "${1:-3.12}" --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
  --platform manylinux2014_x86_64 --platform any \
  $(pin gguf tqdm pyyaml msgpack structlog google-crc32c zstandard safetensors tokenizers huggingface-hub cryptography \
    cffi pycparser jinja2 markupsafe pytest pluggy iniconfig packaging pygments pytest-timeout)
if command -v strip >/dev/null; then find gpu-packages -name '*.so' -exec strip --strip-unneeded {} +; fi
du -sh gpu-packages
