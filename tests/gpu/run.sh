#!/usr/bin/env bash
# Everything that must be shown on a GPU, in order of importance, within ten minutes (--quick: four): a table last,
# gpu.json in $OUT or --out, written anew after every part. Needs torch for CUDA, triton, numpy and pytest in $PYTHON
# (default: .venv, else python3), and of this package's dependencies what `carry.sh` puts into gpu-packages/, which is
# found by itself. No network: REPRISE_GPU_MODEL names a model; without one random weights of its shape are made.
# --dry-run proves the script itself without a GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ -z "${PYTHON:-}" ]; then
  if [ -x .venv/bin/python ]; then PYTHON=.venv/bin/python; else PYTHON=python3; fi
fi
if [ -d gpu-packages ]; then
  export PYTHONPATH="$PWD/tests/gpu/behind${PYTHONPATH:+:$PYTHONPATH}"
fi
exec "$PYTHON" -m tests.gpu "$@"
