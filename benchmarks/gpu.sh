#!/usr/bin/env bash
# Everything that needs a GPU, in less than 8 minutes on one H200: kernel tests on the device, the kernel bench, block
# sizes, and the decode latency of a Qwen3-8B-shaped model with random weights, without CUDA graphs and with them.
# Installs nothing: it needs torch >= 2.11, triton >= 3.6 and transformers >= 5.17 (with pytest and hypothesis for the
# tests; pytest-xdist compiles in parallel).
#
#   benchmarks/gpu.sh              JSON and logs go to $OUT (default ./out); a table comes last
#   benchmarks/gpu.sh --dry-run    the same steps in small, on a CPU
#
# Exit code: 0 if every part succeeded, else 1; a part that fails or runs out of its time does not stop the others.
set -uo pipefail
cd "$(dirname "$0")/.."

DRY=false
case "${1-}" in
  --dry-run) DRY=true ;;
  "") ;;
  *) echo "usage: benchmarks/gpu.sh [--dry-run]" >&2; exit 2 ;;
esac
OUT=$(realpath -m "${OUT:-out}")
PYTHON=${PYTHON:-python3}
mkdir -p "$OUT"
rm -f "$OUT"/{kernels,blocks,decode,parts}.jsonl
export PYTHONPATH="$PWD:$PWD/kernels:$PWD/envs:$PWD/agents:$PWD/evals" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
export TRITON_CACHE_DIR="${TRITON_CACHE_DIR:-${TMPDIR:-/tmp}/agentkv-triton}"
# Grammars are not used here; the engine imports the library all the same.
if ! "$PYTHON" -c 'import llguidance' 2>/dev/null; then
  mkdir -p "$OUT/stand-in"
  echo 'class LLMatcher: ...' >"$OUT/stand-in/llguidance.py"
  echo 'class LLTokenizer: ...' >>"$OUT/stand-in/llguidance.py"
  export PYTHONPATH="$PYTHONPATH:$OUT/stand-in"
fi

"$PYTHON" - <<'END' || exit 1
import sys
import torch, transformers
try:
    import triton
except ModuleNotFoundError:
    sys.exit("triton is missing")
gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
print(f"torch {torch.__version__}, triton {triton.__version__}, transformers {transformers.__version__}, {gpu}")
END
if ! $DRY && ! "$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  echo "no CUDA device here; try benchmarks/gpu.sh --dry-run" >&2
  exit 1
fi

# part NAME SECONDS COMMAND...: run it under a time limit, keep its output, note how it went.
part() {
  local name=$1 limit=$2 started=$SECONDS code
  shift 2
  echo "== $name"
  timeout --kill-after=5 "$limit" "$@" >"$OUT/$name.log" 2>&1
  code=$?
  tail -n 4 "$OUT/$name.log" | cut -c1-200
  echo "{\"part\": \"$name\", \"exit\": $code, \"seconds\": $((SECONDS - started))}" >>"$OUT/parts.jsonl"
  return $code
}

# json FILE COMMAND...: append standard output to a file.
json() {
  local file=$1
  shift
  "$@" >>"$OUT/$file.jsonl"
}
export -f json
export OUT PYTHON

TESTS=(-m pytest -p no:cacheprovider tests/kernels tests/engine/test_graphs.py)
"$PYTHON" -c 'import xdist' 2>/dev/null && ! $DRY && TESTS+=(-n 12)
if $DRY; then
  TESTS+=(-k "page_boundaries or ema_mass or turned_off_and_on")
  part tests 120 "$PYTHON" "${TESTS[@]}"
  part kernels 120 bash -c 'json kernels "$PYTHON" -m agentkv bench kernels --json --refcheck --slots 256 --batch 1'
  part blocks 120 bash -c 'AGENTKV_BLOCKS=slots=32 json blocks "$PYTHON" -m agentkv bench kernels --json --slots 256 --batch 1'
  part decode 120 bash -c 'json decode "$PYTHON" benchmarks/gpu_decode.py --tiny'
else
  part tests 150 "$PYTHON" "${TESTS[@]}"
  part kernels 120 bash -c 'json kernels "$PYTHON" -m agentkv bench kernels --json --refcheck --group 4 \
    --slots 1024 --slots 4096 --slots 32768 --slots 131072 --plot "$OUT/roofline.png"'
  part decode 150 bash -c 'json decode "$PYTHON" benchmarks/gpu_decode.py'
  part blocks 55 bash -c 'for blocks in slots=64,stages=5,programs=4 slots=64,stages=5,warps=8 slots=32,stages=6 \
    slots=128,stages=5,warps=8 slots=64,stages=8; do echo "{\"blocks\": \"$blocks\"}" >>"$OUT/blocks.jsonl"
    AGENTKV_BLOCKS=$blocks json blocks "$PYTHON" -m agentkv bench kernels --json --group 4 --coded 0 --coded 100 \
    --batch 8 --slots 32768; done'
fi
"$PYTHON" benchmarks/gpu_table.py "$OUT"
