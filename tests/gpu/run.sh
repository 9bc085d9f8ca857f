#!/usr/bin/env bash
# Everything that must be shown on a GPU, in order of importance, within ten minutes: a table last, gpu.json in $OUT or
# --out. Needs torch for CUDA, triton and this package's dependencies in $PYTHON (default: .venv, else python3).
# REPRISE_GPU_MODEL names another model than the default one. --dry-run proves the script itself without a GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ -z "${PYTHON:-}" ]; then
  if [ -x .venv/bin/python ]; then PYTHON=.venv/bin/python; else PYTHON=python3; fi
fi
exec "$PYTHON" -m tests.gpu "$@"
