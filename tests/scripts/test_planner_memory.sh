#!/usr/bin/env bash
# A rank's memory is what the planner predicts, within 10 %: small models, in several layouts; with
# NXD_LONG=1 in more.
# usage: test_planner_memory.sh SOURCE_DIR BUILD_DIR     77: no benchmarks in this build
set -euo pipefail
. "$(dirname "$0")/lib.sh"
bench=$2/bench/bench_step
run=$2/tools/nxdrun
need_built "$bench"
need_built "$run"
export NXD_TIMEOUT_MS=60000 OMP_NUM_THREADS=1
# As malloc is by default: large products' copies of operands come from it.
unset MALLOC_MMAP_THRESHOLD_ MALLOC_TRIM_THRESHOLD_ MALLOC_TOP_PAD_ GLIBC_TUNABLES
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
cat > "$work/gpt2.json" << 'END'
{"model_type": "gpt2", "n_embd": 384, "n_layer": 4, "n_head": 6, "n_inner": 1536,
 "vocab_size": 6000, "n_positions": 512, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0,
 "activation_function": "gelu_new"}
END
cat > "$work/gpt_neox.json" << 'END'
{"model_type": "gpt_neox", "hidden_size": 384, "num_hidden_layers": 4, "num_attention_heads": 6,
 "intermediate_size": 1536, "vocab_size": 6000, "max_position_embeddings": 512,
 "rotary_pct": 0.25, "hidden_act": "gelu", "use_parallel_residual": true, "hidden_dropout": 0,
 "attention_dropout": 0, "layer_norm_eps": 1e-5, "tie_word_embeddings": false}
END
llama() { check "$run" -n "$1" "$bench" --memory "${sizes[@]}" "${@:2}"; }
other() {
  check "$run" -n "$1" "$bench" --memory --config "$work/$2.json" --sequence 320 "${@:3}"
}

# Activations and gradients have blocks of the same sizes, and share them.
llama 1 --sequence 384 --batch 1
# Tied weights: gradients of the embedding and the head, and their sum.
other 2 gpt2 --batch 2 --zero1
llama 2 --batch 2 --tp 2 --sequence-parallel --recompute
# The last stage has the head's products in each microbatch.
stages=(--batch 2 --pp 2 --microbatches 4)
llama 2 "${stages[@]}" --schedule zero-bubble
# Gradients, and with ZeRO parameters, lie in buckets; blocks of the latter, and of other stages'
# parameters, are given back.
llama 2 --batch 1 --ddp --dtype bf16
llama 4 "${stages[@]}" --zero1 --recompute

[[ ${NXD_LONG:-0} == 1 ]] || exit 0
llama 1 --batch 2 --dtype bf16
llama 2 "${stages[@]}" --dtype bf16
other 1 bert --batch 1
other 1 gpt_neox --batch 2
llama 2 "${stages[@]}"
other 2 gpt2 "${stages[@]}"
llama 2 --batch 1 --zero1
llama 4 "${stages[@]}" --zero1
other 4 bert "${stages[@]}" --zero1
