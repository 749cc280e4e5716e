# shellcheck shell=bash
# A language's train_lm, finetune_hf and pretrain_bert, lazy_mlp and lazy_ddp against those in C, which
# programs_in_c.sh has run once for all languages. Tests of bindings source it after lib.sh.

# set_programs SOURCE_DIR KEPT: the command lines that C and each language run, over the inputs in KEPT.
set_programs() {
  local inputs=$2
  local sizes=(--steps 4 --hidden 32 --layers 4 --heads 4 --kv-heads 2 --intermediate 48 --seq 32 --batch 2
    --lr 1e-2)
  tensor=(train_lm --tp 2 "${sizes[@]}" --text "$inputs/text" --sample 40)
  stages=(train_lm --tp 1 --pp 2 --virtual 2 --microbatches 2 "${sizes[@]}" --text "$inputs/text")
  slower=("${stages[@]/1e-2/1e-3}")
  copies=(train_lm --tp 1 --dp 2 --zero1 --weights "$inputs/model" --data "$inputs/ids.u16" --steps 4 --seq 16
    --batch 2)
  tuned=(finetune_hf --model "$inputs/model" --text "$inputs/text" --tp 2 --steps 4 --batch 2 --seq 16 --lr 3e-3)
  bert=(pretrain_bert --dp 2 --zero1 --data "$inputs/ids.u16" --vocab 128 --hidden 32 --layers 1 --heads 2
    --intermediate 64 --batch 4 --seq 16 --steps 4 --warmup 1)
  # One step changes nothing: what the model writes tells its first weights, and whether dropout is on.
  written=(train_lm --tp 1 --text "$inputs/text" --steps 1 --lr 1e-30 --batch 2 --seq 32 --sample 40)
  # With NXD_LONG=1, more layouts and dtypes.
  dtypes=(bf16 autocast bf16-stochastic)
  of_dtype=(train_lm --tp 2 --sequence-parallel "${sizes[@]}" --text "$inputs/text" --sample 0)
  both=(train_lm --tp 2 --pp 2 --microbatches 2 --steps 4 --seq 32 --batch 2 --lr 1e-2
    --config "$inputs/model/config.json" --text "$inputs/text")
  known=(pretrain_bert --tp 2 --config "$1/tests/oracles/bert_tiny/config.json" --vocab 253 --text "$inputs/text"
    --batch 4 --seq 16 --steps 4 --dtype autocast)
}

# run_program AT OUT NAME OPTION...: writes to AT/OUT, and what it prints to AT/OUT.log. The caller defines
# `program NAME OPTION...`.
run_program() {
  local out=$1/$2
  shift 2
  program "$@" --out "$out" > "$out.log" 2>&1 || { echo "$*"; cat "$out.log"; exit 1; }
}

# run_in_new AT OUT NAME OPTION...: run_program, whose directory is to be made in one that is not there either.
run_in_new() {
  local at=$1 out=$2
  shift 2
  program "$@" --out "$at/new/$out" > "$at/$out.log" 2>&1 || { echo "$*"; cat "$at/$out.log"; exit 1; }
  mv "$at/new/$out" "$at/$out"
  rmdir "$at/new"
}

# rejects_rate AT NAME OPTION...: of 0, which the library would take for its default, and of none.
rejects_rate() {
  local at=$1 rate
  shift
  for rate in 0 nan; do
    if program "$@" --lr "$rate" --out "$at/rejected" > "$at/rejected.log" 2>&1; then
      echo "$1 took a rate of $rate"
      exit 1
    fi
    grep -qi -- "-lr: expected a rate above 0, got $rate" "$at/rejected.log" || { cat "$at/rejected.log"; exit 1; }
  done
}

# rejects_idle AT REASON NAME OPTION...: has an option that has no effect, with the reason.
rejects_idle() {
  if program "${@:3}" --out "$1/idle" > "$1/idle.log" 2>&1; then echo "${*:3}: expected an error"; exit 1; fi
  grep -Eq -- "-$2" "$1/idle.log" || { cat "$1/idle.log"; exit 1; }
}

# ends_early AT NAME OPTION...: with an error before its first step.
ends_early() {
  if program "${@:2}" > "$1/early.log" 2>&1; then echo "${*:2}: expected an error"; exit 1; fi
  if grep "^step" "$1/early.log"; then echo "${*:2}: trained first"; exit 1; fi
  [[ -s $1/early.log ]]
}

# write_configuration FILE DROPOUT: of a model whose weights are so large that dropout changes its words.
write_configuration() {
  cat > "$1" << END
{"model_type": "gpt2", "vocab_size": 256, "n_positions": 32, "n_embd": 32, "n_layer": 1, "n_head": 2,
 "initializer_range": 1.0, "resid_pdrop": $2, "embd_pdrop": $2, "attn_pdrop": $2}
END
}

# losses_of AT OUT STEPS: the steps and losses that it printed, in AT/OUT.losses.
losses_of() {
  local out=$1/$2
  sed -nE 's/^(step +[0-9]+\/[0-9]+ +loss +[0-9.]+).*/\1/p' "$out.log" > "$out.losses"
  (($(wc -l < "$out.losses") == $3)) || { cat "$out.log"; exit 1; }
}

# same_as_mpirun AT OUT NAME OPTION...: has the losses in AT/OUT.losses also as two ranks that mpirun would have
# started, which it tells them by other variables than RANK.
same_as_mpirun() {
  local at=$1 out=$2 rank ranks=()
  shift 2
  for rank in 0 1; do
    (
      unset RANK WORLD_SIZE
      export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=$rank OMPI_MCA_orte_hnp_uri=$at PMIX_NAMESPACE=$out
      program "$@" --out "$at/$out.mpirun" > "$at/$out.$rank.log" 2>&1
    ) &
    ranks+=($!)
  done
  for rank in "${ranks[@]}"; do wait "$rank" || { echo "$*"; cat "$at/$out".[01].log; exit 1; }; done
  cat "$at/$out".[01].log > "$at/$out.mpirun.log"
  losses_of "$at" "$out.mpirun" 4
  cmp "$at/$out.losses" "$at/$out.mpirun.losses"
}

# text_of AT OUT: the text that the model wrote, in AT/OUT.text.
text_of() { sed -n '/the model writes/,$p' "$1/$2.log" > "$1/$2.text"; }

# state_of AT OUT: how much of the optimizer's state a rank keeps, in AT/OUT.state.
state_of() {
  grep "^rank 0 keeps [1-9][0-9]* bytes of the optimizer's state (ZeRO-1 over 2 copies)$" "$1/$2.log" \
    > "$1/$2.state" || { cat "$1/$2.log"; exit 1; }
}

# keep_programs SOURCE_DIR C_EXAMPLES KEPT: runs those in C; what they write is in KEPT/c, their inputs in KEPT.
keep_programs() {
  local models=$1/tests/oracles in_c=$2 kept=$3 at=$3/c dtype
  local tensor stages slower copies tuned bert written dtypes of_dtype both known
  program() { timeout 300 "$in_c/$1" "${@:2}"; }
  mkdir -p "$at" "$kept/model"
  printf 'the cat sat on the mat. %.0s' {1..80} > "$kept/text"
  # As 16-bit numbers.
  sed 's/./&\x00/g' "$kept/text" > "$kept/ids.u16"
  cp "$models/llama_tiny/"{config.json,model.safetensors} "$kept/model"
  echo '{"kind": "kept"}' > "$kept/model/tokenizer.json"
  echo old > "$kept/model/tf_model.h5"
  set_programs "$1" "$kept"

  run_program "$at" tensor "${tensor[@]}"
  losses_of "$at" tensor 4
  text_of "$at" tensor
  run_program "$at" stages "${stages[@]}" --save-every 2 --keep 0
  mkdir -p "$at/slower/checkpoints"
  cp -r "$at/stages/checkpoints/step-000000000002" "$at/slower/checkpoints"
  run_program "$at" slower "${slower[@]}" --resume
  if cmp -s "$at/slower/loss.csv" "$at/stages/loss.csv"; then echo "train_lm: a new rate changes no loss"; exit 1; fi
  run_program "$at" copies "${copies[@]}" --save-every 3
  run_program "$at" tuned "${tuned[@]}"
  losses_of "$at" tuned 4
  run_program "$at" bert "${bert[@]}"
  losses_of "$at" bert 4
  state_of "$at" bert
  write_configuration "$kept/still.json" 0
  run_program "$at" written "${written[@]}" --config "$kept/still.json"
  text_of "$at" written
  same_as_mpirun "$at" tensor "${tensor[@]}"
  same_as_mpirun "$at" tuned "${tuned[@]}"
  same_as_mpirun "$at" bert "${bert[@]}"
  [[ -n ${NXD_LONG:-} ]] || return 0
  for dtype in "${dtypes[@]}"; do run_program "$at" "$dtype" "${of_dtype[@]}" --dtype "$dtype"; done
  run_program "$at" both "${both[@]}" --save "$at/saved"
  run_program "$at" known "${known[@]}"
  losses_of "$at" known 4
}

# compare_programs SOURCE_DIR KEPT WORK: losses and files of a language's are those of the programs in C, to
# the byte: over tensor-parallel ranks, pipeline stages, copies with ZeRO-1, and across checkpoints, those of C
# too. The caller defines `program NAME OPTION...`. NXD_LONG=1: more layouts and dtypes.
compare_programs() {
  local kept=$2 at=$3/programs dtype
  local tensor stages slower copies tuned bert written dtypes of_dtype both known
  mkdir -p "$at"
  set_programs "$1" "$kept"
  same_files() { # NAME...
    local file
    for file in "$@"; do cmp "$kept/c/$file" "$at/$file"; done
  }

  run_in_new "$at" tensor "${tensor[@]}"
  losses_of "$at" tensor 4
  text_of "$at" tensor
  same_files tensor/loss.csv tensor.losses tensor.text

  # C saved after two steps, and this language goes on.
  mkdir "$at/stages"
  cp -r "$kept/c/stages/checkpoints" "$at/stages"
  rm -r "$at/stages/checkpoints/step-000000000004"
  run_program "$at" stages "${stages[@]}" --resume
  grep -q "going on after step 2" "$at/stages.log"
  same_files stages/loss.csv
  # So does a run with a rate of its own.
  mkdir "$at/slower"
  cp -r "$at/stages/checkpoints" "$at/slower"
  run_program "$at" slower "${slower[@]}" --resume
  same_files slower/loss.csv

  if program "${stages[@]}" --virtual 9 --out "$at/bad" > "$at/log" 2>&1; then echo "4 layers as 18 stages"; exit 1; fi
  grep -q "stages: expected 1 to 4.* got 18" "$at/log" || { cat "$at/log"; exit 1; }

  run_program "$at" copies "${copies[@]}" --save-every 1 --keep 1 --stop-at 3
  diff -r "$kept/c/copies/checkpoints" "$at/copies/checkpoints"
  run_program "$at" copies "${copies[@]}" --resume
  grep -q "going on after step 3" "$at/copies.log"
  same_files copies/loss.csv

  run_in_new "$at" tuned "${tuned[@]}"
  losses_of "$at" tuned 4
  same_files tuned.losses
  diff -r "$kept/c/tuned" "$at/tuned"

  run_in_new "$at" bert "${bert[@]}"
  losses_of "$at" bert 4
  state_of "$at" bert
  same_files bert.losses bert/model.safetensors bert.state
  same_as_mpirun "$at" bert "${bert[@]}"

  # The model writes without dropout.
  write_configuration "$at/dropout.json" 0.5
  run_program "$at" written "${written[@]}" --config "$at/dropout.json"
  text_of "$at" written
  same_files written.text

  rejects_rate "$at" "${tensor[@]}"
  rejects_rate "$at" "${tuned[@]}"
  rejects_rate "$at" "${bert[@]}"

  rejects_idle "$at" "text has no effect beside --?data" "${copies[@]}" --text "$kept/text"
  rejects_idle "$at" "kv-heads has no effect beside --?weights" "${copies[@]}" --kv-heads 2
  rejects_idle "$at" "hidden has no effect beside --?config" "${tensor[@]}" --config "$kept/model/config.json"
  rejects_idle "$at" "virtual has no effect without --?pp or --?microbatches" "${tensor[@]}" --virtual 2
  rejects_idle "$at" "text has no effect beside --?ids" "${tuned[@]}" --ids "$kept/ids.u16"

  # No training is lost to a directory below a file.
  ends_early "$at" "${copies[@]}" --out "$kept/text/out"
  ends_early "$at" "${copies[@]}" --out "$at/early" --save "$kept/text/saved"
  ends_early "$at" "${tuned[@]}" --out "$kept/text/out"
  ends_early "$at" "${bert[@]}" --out "$kept/text/out"
  # How many words a tokenizer has is not known from its ids.
  ends_early "$at" pretrain_bert --data "$kept/ids.u16" --steps 1
  grep -qi -- "expected --\?vocab with --\?data" "$at/early.log" || { cat "$at/early.log"; exit 1; }

  [[ -n ${NXD_LONG:-} ]] || return 0
  for dtype in "${dtypes[@]}"; do
    run_program "$at" "$dtype" "${of_dtype[@]}" --dtype "$dtype"
    same_files "$dtype/loss.csv"
  done
  run_program "$at" both "${both[@]}" --save "$at/saved"
  same_files both/loss.csv
  run_program "$at" known "${known[@]}"
  losses_of "$at" known 4
  same_files known.losses
  diff -r "$kept/c/known" "$at/known"
}

# with_lazy SWITCH COMPILED COMMAND...: runs a program of the device on a backend, a variable and its value.
with_lazy() {
  (
    unset NXD_CPU_MODE
    export "${1?}" NEURON_COMPILE_CACHE_URL=$2 NXD_PJRT_FAST_COMPILE=1 PJRT_NPROC=1 TF_CPP_MIN_LOG_LEVEL=1
    "${@:3}"
  )
}

# lazy_switches: what with_lazy takes, one a line: eagerly, replayed, and through the plug-in.
lazy_switches() {
  local plugin
  printf '%s\n' NXD_CPU_MODE=1 NXD_XLA_BACKEND=replay
  if plugin=$(pjrt_plugin); then echo "NXD_PJRT_PLUGIN=$plugin"; fi
}

# keep_lazy_programs C_EXAMPLES KEPT: what lazy_mlp, and lazy_ddp on one and on two ranks, print in C, in
# KEPT/lazy/SWITCH.RANKS, and in KEPT/compiled the programs that the plug-in compiled for them.
keep_lazy_programs() {
  local in_c=$1 kept=$2 switch switches ranks turn name
  mkdir -p "$kept/lazy"
  mapfile -t switches < <(lazy_switches)
  for switch in "${switches[@]}"; do
    name=$kept/lazy/${switch%%=*}
    # Twice through a plug-in: then all load what the first run compiled.
    for turn in first second; do
      [[ $turn == first || $switch == NXD_PJRT_PLUGIN=* ]] || continue
      with_lazy "$switch" "$kept/compiled" timeout 300 "$in_c/lazy_mlp" > "$name.mlp"
      for ranks in 1 2; do
        NEURON_NUM_DEVICES=$ranks with_lazy "$switch" "$kept/compiled" timeout 300 "$in_c/lazy_ddp" > "$name.ddp"
        cat "$name.mlp" "$name.ddp" > "$name.$ranks"
      done
    done
    rm "$name.mlp" "$name.ddp"
  done
  # Both programs: 40 steps, 10 epochs, and twice the counts of the device.
  (($(wc -l < "$kept/lazy/NXD_CPU_MODE.1") == 52)) || { cat "$kept/lazy/NXD_CPU_MODE.1"; exit 1; }
}

# compare_lazy_programs KEPT WORK RANKS COMMAND...: COMMAND runs a language's lazy_mlp, then its lazy_ddp
# on RANKS ranks. Eagerly, replayed and through the plug-in its losses and counts are those of the programs in
# C to the digit, and the plug-in compiles no program for it that it has not compiled for them.
compare_lazy_programs() {
  local kept=$1 at=$2/lazy ranks=$3 switch switches out
  shift 3
  mapfile -t switches < <(lazy_switches)
  mkdir -p "$at"
  [[ ! -d $kept/compiled ]] || cp -r "$kept/compiled" "$at/compiled"
  for switch in "${switches[@]}"; do
    out=$at/${switch%%=*}
    with_lazy "$switch" "$at/compiled" "$@" > "$out" 2> "$at/errors" ||
      { echo "$switch: $*"; cat "$out" "$at/errors"; exit 1; }
    diff "$kept/lazy/${switch%%=*}.$ranks" "$out"
  done
  [[ ! -d $kept/compiled ]] || diff <(ls "$kept/compiled") <(ls "$at/compiled")
}
