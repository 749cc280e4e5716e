# shellcheck shell=bash
# A language's train_lm, finetune_hf and pretrain_bert, lazy_mlp and lazy_ddp against those in C. Tests of
# bindings source it after lib.sh.

# compare_programs SOURCE_DIR C_EXAMPLES WORK: losses and files of both are the same, to the byte: over
# tensor-parallel ranks, pipeline stages, copies with ZeRO-1, and across checkpoints, those of C too. The
# caller defines `program NAME OPTION...`. NXD_LONG=1: more layouts and dtypes.
compare_programs() {
  local models=$1/tests/oracles in_c=$2 at=$3/programs
  local sizes=(--steps 4 --hidden 32 --layers 4 --heads 4 --kv-heads 2 --intermediate 48 --seq 32 --batch 2
    --lr 1e-2)
  mkdir -p "$at/c" "$at/own" "$at/model"
  printf 'the cat sat on the mat. %.0s' {1..80} > "$at/text"
  # As 16-bit numbers.
  sed 's/./&\x00/g' "$at/text" > "$at/ids.u16"
  cp "$models/llama_tiny/"{config.json,model.safetensors} "$at/model"
  echo '{"kind": "kept"}' > "$at/model/tokenizer.json"

  run_program() { # c or own, OUT, NAME OPTION...
    local who=$1 out=$2 command=(program "$3")
    [[ $who == own ]] || command=(timeout 300 "$in_c/$3")
    shift 3
    "${command[@]}" "$@" --out "$at/$who/$out" > "$at/$who/$out.log" 2>&1 ||
      { echo "${command[*]} $*"; cat "$at/$who/$out.log"; exit 1; }
  }
  run_both() { # as run_program, but for who
    run_program c "$@"
    run_program own "$@"
  }
  same_files() { # NAME...: of the directories that both wrote to
    local file
    for file in "$@"; do cmp "$at/c/$file" "$at/own/$file"; done
  }
  same_losses() { # OUT STEPS: what both printed
    local who
    for who in c own; do
      sed -nE 's/^(step +[0-9]+\/[0-9]+ +loss +[0-9.]+).*/\1/p' "$at/$who/$1.log" > "$at/$who/$1.losses"
    done
    (($(wc -l < "$at/c/$1.losses") == $2)) || { cat "$at/c/$1.log"; exit 1; }
    same_files "$1.losses"
  }

  run_both tensor train_lm --tp 2 "${sizes[@]}" --text "$at/text" --sample 40
  same_files tensor/loss.csv
  same_losses tensor 4
  cmp <(sed -n '/the model writes/,$p' "$at/c/tensor.log") <(sed -n '/the model writes/,$p' "$at/own/tensor.log")

  # C saves after two steps, and this language goes on.
  local stages=(train_lm --tp 1 --pp 2 --virtual 2 --microbatches 2 "${sizes[@]}" --text "$at/text")
  run_program c stages "${stages[@]}" --save-every 2 --keep 0
  mkdir "$at/own/stages"
  cp -r "$at/c/stages/checkpoints" "$at/own/stages"
  rm -r "$at/own/stages/checkpoints/step-000000000004"
  run_program own stages "${stages[@]}" --resume
  grep -q "going on after step 2" "$at/own/stages.log"
  same_files stages/loss.csv

  if program "${stages[@]}" --virtual 9 --out "$at/bad" > "$at/log" 2>&1; then echo "4 layers as 18 stages"; exit 1; fi
  grep -q "stages: expected 1 to 4.* got 18" "$at/log" || { cat "$at/log"; exit 1; }

  local copies=(train_lm --tp 1 --dp 2 --zero1 --weights "$at/model" --data "$at/ids.u16" --steps 4 --seq 16
    --batch 2)
  run_program c copies "${copies[@]}" --save-every 3
  run_program own copies "${copies[@]}" --save-every 1 --keep 1 --stop-at 3
  diff -r "$at/c/copies/checkpoints" "$at/own/copies/checkpoints"
  run_program own copies "${copies[@]}" --resume
  grep -q "going on after step 3" "$at/own/copies.log"
  same_files copies/loss.csv

  run_both tuned finetune_hf --model "$at/model" --text "$at/text" --tp 2 --steps 4 --batch 2 --seq 16 --lr 3e-3
  same_losses tuned 4
  diff -r "$at/c/tuned" "$at/own/tuned"

  run_both bert pretrain_bert --dp 2 --zero1 --data "$at/ids.u16" --vocab 128 --hidden 32 --layers 1 --heads 2 \
    --intermediate 64 --batch 4 --seq 16 --steps 4 --warmup 1
  same_losses bert 4
  same_files bert/model.safetensors
  local who
  for who in c own; do
    grep "^rank 0 keeps [1-9][0-9]* bytes of the optimizer's state (ZeRO-1 over 2 copies)$" "$at/$who/bert.log" \
      > "$at/$who/bert.state" || { cat "$at/$who/bert.log"; exit 1; }
  done
  same_files bert.state

  if [[ -n ${NXD_LONG:-} ]]; then
    local dtype
    for dtype in bf16 autocast bf16-stochastic; do
      run_both $dtype train_lm --tp 2 --sequence-parallel --dtype $dtype "${sizes[@]}" --text "$at/text" --sample 0
      same_files $dtype/loss.csv
    done
    run_both both train_lm --tp 2 --pp 2 --microbatches 2 "${sizes[@]}" --config "$at/model/config.json" \
      --text "$at/text" --save "$at/saved"
    same_files both/loss.csv
    run_both known pretrain_bert --tp 2 --config "$models/bert_tiny/config.json" --vocab 253 --text "$at/text" \
      --batch 4 --seq 16 --steps 4 --dtype autocast
    same_losses known 4
    diff -r "$at/c/known" "$at/own/known"
  fi
}

# compare_lazy_programs C_EXAMPLES WORK RANKS COMMAND...: COMMAND runs a language's lazy_mlp, then its lazy_ddp
# on RANKS ranks. Eagerly, replayed and through the plug-in its losses and counts are those of the programs in
# C to the digit, and the plug-in compiles no program for it that it has not compiled for them.
compare_lazy_programs() {
  local in_c=$1 at=$2/lazy ranks=$3 plugin switch whos who out
  local switches=(NXD_CPU_MODE=1 NXD_XLA_BACKEND=replay)
  shift 3
  mkdir -p "$at"/{c,own}
  if plugin=$(pjrt_plugin); then switches+=("NXD_PJRT_PLUGIN=$plugin"); fi
  run_lazy() { # c or own, COMMAND...
    if [[ $1 == own ]]; then
      "${@:2}"
    else
      timeout 300 "$in_c/lazy_mlp" && NEURON_NUM_DEVICES=$ranks timeout 300 "$in_c/lazy_ddp"
    fi
  }
  for switch in "${switches[@]}"; do
    # C's programs run twice through a plug-in: then all load what C's first run compiled.
    whos=(c own)
    [[ $switch != NXD_PJRT_PLUGIN=* ]] || whos=(c c own)
    for who in "${whos[@]}"; do
      out=$at/$who/${switch%%=*}
      (
        unset NXD_CPU_MODE
        export "${switch?}" NXD_PJRT_FAST_COMPILE=1 PJRT_NPROC=1 TF_CPP_MIN_LOG_LEVEL=1
        export NEURON_COMPILE_CACHE_URL=$at/compiled
        run_lazy $who "$@"
      ) > "$out" 2> "$at/errors" || { echo "$who, $switch: $*"; cat "$out" "$at/errors"; exit 1; }
      if [[ -d $at/compiled ]]; then ls "$at/compiled" > "$at/$who/compiled"; fi
    done
  done
  # Both programs: 40 steps, 10 epochs, and twice the counts of the device.
  (($(wc -l < "$at/c/NXD_CPU_MODE") == 52)) || { cat "$at/c/NXD_CPU_MODE"; exit 1; }
  diff -r "$at/c" "$at/own"
}
