#!/usr/bin/env bash
# A rank's memory is what the planner predicts, within 10 %: small models, in several layouts.
# usage: test_planner_memory.sh SOURCE_DIR BUILD_DIR     77: no benchmarks in this build
set -euo pipefail
. "$(dirname "$0")/lib.sh"
bench=$2/bench/bench_step
run=$2/tools/nxdrun
need_built "$bench"
need_built "$run"
export NXD_TIMEOUT_MS=60000 OMP_NUM_THREADS=1
# Large products' copies of operands come from malloc. The holes that they leave there differ by the
# processor and by luck: 0 to 60 MB of the small models below. Mappings of their own leave none.
export MALLOC_MMAP_THRESHOLD_=1048576
sizes=(--hidden 384 --layers 4 --heads 6 --kv-heads 3 --intermediate 1056 --vocab 6000
  --sequence 320)

# The system gives a mapping huge pages when it has some, so that a rank's memory differs by a few
# per cent from run to run: the nearest of three counts.
check() {
  local out off
  for _ in 1 2 3; do
    out=$(timeout 300 "$@") || { echo "FAILED: $*"; exit 1; }
    off=$(sed -n 's/^predicted.*(\(.*\) %).*/\1/p' <<< "$out")
    if awk -v off="$off" 'BEGIN { exit !(off != "" && off >= -10 && off <= 10) }'; then
      echo "${*:2}: $off %"
      return
    fi
  done
  echo "FAILED: $*: predicted memory is off by $off %"
  echo "$out"
  exit 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/bert.json" << 'END'
{"model_type": "bert", "hidden_size": 384, "num_hidden_layers": 4, "num_attention_heads": 6,
 "intermediate_size": 1536, "vocab_size": 6000, "max_position_embeddings": 512,
 "type_vocab_size": 2, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0,
 "hidden_act": "gelu"}
END

# Activations and gradients have blocks of the same sizes, and share them.
check "$bench" --memory "${sizes[@]}" --sequence 384 --batch 1
check "$bench" --memory "${sizes[@]}" --batch 2 --tp 2 --sequence-parallel --recompute
check "$bench" --memory "${sizes[@]}" --batch 2 --pp 2 --microbatches 4
check "$bench" --memory --config "$work/bert.json" --sequence 320 --batch 1
# Gradients, and with ZeRO parameters, lie in buckets.
check "$run" -n 2 "$bench" --memory "${sizes[@]}" --batch 1 --zero1
check "$run" -n 2 "$bench" --memory "${sizes[@]}" --batch 1 --ddp --dtype bf16
