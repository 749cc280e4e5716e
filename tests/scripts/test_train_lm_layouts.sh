#!/usr/bin/env bash
# The main example on real processes: with the microbatches of one run, any number of stages gives the
# same losses and the same file of weights, bit for bit; other layouts agree to rounding. A run that is
# stopped and gone on from its newest checkpoint ends as one without a break. A model that is fine-tuned
# in a Hugging Face directory's form is read again.
# usage: test_train_lm_layouts.sh SOURCE_DIR BUILD_DIR     77: this build has no examples
set -euo pipefail
. "$(dirname "$0")/lib.sh"
program=$2/examples/c/train_lm
need_built "$program"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=60000
head -c 20000 "$0" /etc/services /etc/protocols 2> /dev/null > "$work/text"

corpus=(--text "$work/text")
train() {
  local name=$1
  shift
  timeout 300 "$program" --steps 8 --hidden 64 --layers 5 --heads 4 --kv-heads 2 --intermediate 96 --seq 32 \
    --sample 0 "${corpus[@]}" --out "$work/$name" --save "$work/$name.safetensors" "$@" > "$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
}

# Without a text it reads those of the system, also where directories do not tell which entries are files.
if [[ -d /usr/share/common-licenses ]]; then
  cc -shared -fPIC "$1/tests/scripts/no_entry_types.c" -o "$work/no_entry_types.so" -ldl
  LD_PRELOAD=$work/no_entry_types.so timeout 300 "$program" --tp 1 --steps 1 --hidden 32 --layers 1 --heads 2 \
    --kv-heads 2 --intermediate 32 --seq 32 --sample 0 --out "$work/system" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
fi
# A vocabulary of more than bytes trains on them, and has no words to write.
sed 's/"vocab_size": [0-9]*/"vocab_size": 300/' "$1/tests/oracles/llama_tiny/config.json" > "$work/config.json"
timeout 300 "$program" --config "$work/config.json" --tp 1 --steps 1 --seq 32 --text "$work/text" --out "$work/wide" \
  > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }

# A rate of 0 would be the library's own one.
for rate in 0 -1 1e-400 nan; do rejects_options --lr "$rate"; done
grep -q "train_lm: --lr: expected a number above 0 and up to 1e9, got nan" "$work/log"
for number in 0 1.5 1e10 nan; do rejects_options --steps "$number"; done
grep -q "train_lm: --steps: expected a whole number of at least 1 and up to 1e9, got nan" "$work/log"

# An option that another one leaves without effect.
rejects_idle() { # OPTION OTHER OPTIONS...
  rejects_options "${@:3}"
  grep -q "^train_lm: --$1 has no effect beside --$2$" "$work/log" || { cat "$work/log"; exit 1; }
}
rejects_idle text data --data "$work/text" --text "$work/text"
for size in hidden layers heads kv-heads intermediate; do
  rejects_idle $size config --$size 4 --config "$work/config.json"
  rejects_idle $size weights --weights "$work" --$size 4
done
rejects_options --tp 2 --virtual 2
grep -q "^train_lm: --virtual has no effect without --pp or --microbatches$" "$work/log"

# The directory and its parents are made before the first step; a name that cannot be one fails there, on
# all ranks.
sizes=(--hidden 48 --layers 1 --heads 6 --kv-heads 3 --intermediate 48)
small=(--tp 1 "${sizes[@]}" --seq 32 --batch 2 --text "$work/text")
timeout 300 "$program" "${small[@]}" --steps 1 --sample 0 --out "$work/new/parents/out" --save "$work/new/parents/too/new.safetensors" \
  > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
[[ -s $work/new/parents/out/loss.csv && -s $work/new/parents/too/new.safetensors ]]
# ends_early SAID OPTIONS...: before a step.
ends_early() {
  if timeout 300 "$program" "${small[@]}" --tp 2 --heads 4 --kv-heads 2 --steps 1 "${@:2}" > "$work/log" 2>&1; then
    echo "${*:2}: expected an error"
    exit 1
  fi
  grep -q "$1" "$work/log" || { cat "$work/log"; exit 1; }
  if grep "^step" "$work/log"; then exit 1; fi
}
for name in text text/below; do
  ends_early "cannot write to the directory $work/$name: Not a directory" --out "$work/$name"
done
ends_early "cannot write to the directory $work/text: Not a directory" --out "$work/save" --save "$work/text/file"
ends_early "cannot read $work: Is a directory" --out "$work/save" --text "$work"

# Words are drawn without dropout: at a rate that changes no weight, those of a model that has none.
writes() { # NAME OPTIONS...
  timeout 300 "$program" --seq 32 --batch 2 --text "$work/text" --steps 1 --lr 1e-30 --sample 200 \
    --out "$work/words" "${@:2}" > "$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
  sed -n '/the model writes/,$p' "$work/log" > "$work/$1.words"
  # A byte of 0 ends them early.
  (($(wc -c < "$work/$1.words") > 60)) || { cat "$work/log"; exit 1; }
}
for dropout in 0.0 0.5; do
  sed -E -e 's/"vocab_size": [0-9]*/"vocab_size": 256/' -e 's/"initializer_range": [0-9.]*/"initializer_range": 0.5/' \
    -e "s/(_pdrop\": )[0-9.]*/\1$dropout/" "$1/tests/oracles/gpt2_tiny/config.json" > "$work/$dropout.json"
  writes "$dropout" --tp 1 --config "$work/$dropout.json"
done
cmp "$work/0.0.words" "$work/0.5.words"
# Three ranks round the vocabulary of 256 up, and draw none of the words beyond it.
writes alone --tp 1 "${sizes[@]}"
writes three --tp 3 "${sizes[@]}"
cmp "$work/alone.words" "$work/three.words"

# Losses of a run that diverges, which have no place in the picture, are left out of it.
train diverged --tp 1 --lr 1e9
grep -q "nan" "$work/diverged/loss.csv" || { cat "$work/diverged/loss.csv"; exit 1; }
(($(grep -Ec "^<polyline .* points='[0-9.,]+ ([0-9.,]+ )*'/>$" "$work/diverged/loss.svg") == 2)) ||
  { cat "$work/diverged/loss.svg"; exit 1; }

train whole --tp 1 --microbatches 4
train two --tp 1 --pp 2 --microbatches 4
train three --tp 1 --pp 3 --microbatches 4
train plain --tp 2
train both --tp 2 --pp 2 --microbatches 2
train copies --tp 1 --pp 2 --dp 2 --microbatches 2 --batch 4 --zero1
train virtual --tp 1 --pp 2 --virtual 2 --microbatches 4
train saved --tp 2 --save-every 3 --keep 1 --stop-at 7
[[ $(ls "$work/saved/checkpoints") == step-000000000006 ]] || { ls -la "$work/saved/checkpoints"; exit 1; }
for name in moved still slow longer; do cp -r "$work/saved" "$work/$name"; done
# A run that goes on has the rate and the schedule of its own options, not those of the one that saved it.
train still --tp 2 --resume --stop-at 6
train slow --tp 2 --resume --lr 1e-30
cmp "$work/still.safetensors" "$work/slow.safetensors"
train longer --tp 2 --resume --steps 100 --stop-at 8
# To go on to a step before that one keeps the losses so far.
train saved --tp 2 --resume --stop-at 2
diff <(head -n 7 "$work/plain/loss.csv") "$work/saved/loss.csv"
train saved --tp 2 --resume
cmp "$work/plain/loss.csv" "$work/saved/loss.csv"
cmp "$work/plain.safetensors" "$work/saved.safetensors"
if cmp -s "$work/plain.safetensors" "$work/longer.safetensors"; then echo "100 steps: the rates of 8"; exit 1; fi
train moved --tp 1 --pp 2 --microbatches 2 --resume --save-every 2
grep -q "going on after step 6" "$work/log" || { cat "$work/log"; exit 1; }
# The place in a file of tokens is kept too, whatever the number of copies.
cp "$work/text" "$work/text.txt"
corpus=(--data "$work/text.txt")
train tokens --tp 1
train kept --tp 1 --pp 2 --microbatches 2 --save-every 4 --stop-at 5
train kept --tp 2 --dp 2 --batch 4 --zero1 --resume
for name in two three; do
  cmp "$work/whole/loss.csv" "$work/$name/loss.csv"
  cmp "$work/whole.safetensors" "$work/$name.safetensors"
done
python3 - "$work" whole plain both copies virtual moved <<'PY'
import csv, sys
work, names = sys.argv[1], sys.argv[2:]
runs = {}
for name in [*names, "tokens", "kept"]:
    with open(f"{work}/{name}/loss.csv", encoding="ascii") as file:
        runs[name] = [float(row[-1]) for row in list(csv.reader(file))[1:]]
first = runs[names[0]]
if len(first) != 8 or not first[-1] < first[0] - 0.2:
    sys.exit(f"losses do not fall: {first}")
for name, first in [(name, first) for name in names[1:]] + [("kept", runs["tokens"])]:
    worst = max(abs(a - b) for a, b in zip(runs[name], first))
    print(f"{name}: {runs[name][0]:.6f} to {runs[name][-1]:.6f}, largest difference {worst:.2g}")
    if not worst <= 2e-4:
        sys.exit("the losses depend on the layout")
PY
