#!/usr/bin/env bash
# nxdplan prints a table of layouts or one prediction, and refuses what it does not understand.
# usage: test_nxdplan.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
config=$1/bench/configs/llama_512.json
nxdplan=$2/tools/nxdplan
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*"; cat "$work"/out "$work"/err; exit 1; }
run() { "$nxdplan" "$@" > "$work/out" 2> "$work/err"; }
refuses() {
  local code=$1 message=$2 got=0
  shift 2
  run "$@" || got=$?
  [[ $got == "$code" ]] || fail "nxdplan $*: exit $got instead of $code"
  grep -qF -- "$message" "$work/err" || fail "nxdplan $*: no \"$message\""
}

run --help && grep -q -- '--ranks-per-host' "$work/out" || fail help
run --ranks 8 --batch 64 --top 3 "$config" || fail table
[[ $(wc -l < "$work/out") == 4 ]] || fail "a line of titles and three layouts"
awk 'NR > 1 && $1 * $2 * $3 != 8 { exit 1 }' "$work/out" || fail "layouts of eight ranks"
fields=$(awk 'NR == 2 { print NF }' "$work/out")
# Numbers of ranks and gibibytes that are wide stay apart; titles end where their columns do.
run --ranks 65536 --batch 1073741824 --top 40 "$config" || fail "many ranks"
awk -v fields="$fields" 'NR == 1 { dp = index($0, "dp") + 1 }
  NR > 1 && (NF != fields || $1 * $2 * $3 != 65536 || substr($0, dp, 2) !~ /[0-9] /) { exit 1 }' "$work/out" ||
  fail "a row of $fields fields for each layout of many ranks"
run --tp 2 --pp 2 --microbatches 8 --schedule zero-bubble --dtype bf16 --zero "$config" || fail one
grep -q '^step' "$work/out" && grep -q 'bubble' "$work/out" || fail "a prediction"
run --tp 3 --sequence-parallel --sequence 513 "$config" || fail "ranks that do not divide the heads"
run --ranks 2 --top 1 "$1/tests/oracles/bert_tiny/config.json" --sequence 16 || fail "a BERT"
# A figure that is given is not measured; only copies are left to measure then.
run --measure --gemm-f32 100 --gemm-bf16 200 --ranks 2 --top 1 "$config" || fail measure
grep -q 'measured: 100 GFLOP/s f32, 200 bf16' "$work/out" || fail "given figures are kept"

refuses 2 "option '--rank' is ambiguous" --rank 2 "$config"
refuses 2 "unrecognized option '--colour'" --colour "$config"
refuses 2 "option '--tp' requires an argument" "$config" --tp
for number in x 0 -1 1.5 3000000000 99999999999999999999; do
  refuses 2 "--ranks: expected a whole number from 1 to 2147483647, got $number" --ranks=$number "$config"
done
for figure in x 0 -1 1e-10 1e9 nan inf; do
  refuses 2 "--memory: expected a number from 1e-09 to 9e+08, got $figure" --memory=$figure "$config"
  [[ $figure != 1e* ]] || continue
  refuses 2 "--host-latency: expected a number from 1e-100 to 1e+100, got $figure" --host-latency=$figure "$config"
done
refuses 2 '--dtype: expected f32 or bf16' --dtype f64 "$config"
refuses 2 '--schedule: expected 1f1b, interleaved, gpipe or zero-bubble' --schedule zero_bubble "$config"
refuses 2 'no configuration was given'
refuses 2 'expected one configuration' "$config" "$config"
for option in '--ranks 4' '--batch 64' '--top 3' '--max-virtual 2'; do
  read -ra arguments <<< "$option"
  refuses 2 "${option% *} is of the search, and --tp asks for one layout" "${arguments[@]}" --tp 2 "$config"
  refuses 2 "${option% *} is of the search, and --zero asks for one layout" --zero "${arguments[@]}" "$config"
done
refuses 1 'No such file' "$work/missing.json"
refuses 1 'sequence_length: expected at most 268435456, got 2147483647' --sequence 2147483647 "$config"
refuses 1 'sequence_length: expected at most the 1024 positions of the model, got 1025' \
  --sequence 1025 "$1/bench/configs/gpt2_124m.json"
refuses 1 'world_size: expected 1 to 65536' --ranks 65537 "$config"
refuses 1 '9 ranks and num_kv_heads 4 need num_heads of at least 12, got 8' --tp 9 "$config"
refuses 1 'memory_bytes: expected at least' --memory 0.01 "$config"
echo '{"model_type": "t5"}' > "$work/t5.json"
refuses 1 "$work/t5.json: config_json: model_type" "$work/t5.json"
echo '{}' > "$work/none.json"
refuses 1 'model_type: expected the name of a family, got no such field' "$work/none.json"
printf '{"model_type": "llama"}\0and more' > "$work/cut.json"
refuses 1 'cut.json: expected text, got a byte that is 0' "$work/cut.json"
# The page has what is predicted now, with the figures that it names: of the row with a title the first number, as
# AWK picks it out of the first line.
page() {
  local title=$1 pick=$2 says predicted
  shift 2
  says=$(awk -F '|' -v title=" $title " '$2 == title { print $3 + 0 }' "$page")
  run "$@" || fail "the page's $title"
  predicted=$(awk "NR == 1 { printf \"%.0f\", $pick }" "$work/out")
  [[ $says == "$predicted" ]] || fail "docs/planner.md: $title: $says is predicted, the tool says $predicted"
}
page=$1/docs/planner.md
share='$(NF - 5)'
figures=(--gemm-f32 104 --gemm-bf16 204 --memory-bandwidth 36.5 --host-bandwidth 18.2 --microbatch-size 4)
page 'F32, TP 1' "$share" "${figures[@]}" --tp 1 "$config"
page 'F32, TP 2' "$share" "${figures[@]}" --tp 2 "$config"
page 'F32, TP 2, sequence parallel' "$share" "${figures[@]}" --tp 2 --sequence-parallel "$config"
page 'BF16, TP 1' "$share" "${figures[@]}" --dtype bf16 --tp 1 "$config"
page 'BF16, TP 2' "$share" "${figures[@]}" --dtype bf16 --tp 2 "$config"
page 'F32, DP 2' "$share" "${figures[@]}" --dp 2 "$config"
page 'F32, DP 2, ZeRO-1' "$share" "${figures[@]}" --dp 2 --zero "$config"
page 'F32, GPT-2 124M, 4 x 64 tokens, two threads (208 GFLOP/s)' "$share" "${figures[@]}" --gemm-f32 208 \
  --sequence 64 "$1/bench/configs/gpt2_124m.json"
figures=(--gemm-f32 105 --microbatches 8)
page 'one rank' '1000 * $2' "${figures[@]}" "$config"
page '1F1B, even cuts' '1000 * $2' "${figures[@]}" --pp 2 "$config"
page '1F1B, cuts by cost' '1000 * $2' "${figures[@]}" --pp 2 --partition cost "$config"
page 'interleaved, 2 chunks, by cost' '1000 * $2' "${figures[@]}" --pp 2 --virtual 2 --partition cost "$config"
page 'zero bubble, by cost' '1000 * $2' "${figures[@]}" --pp 2 --schedule zero-bubble --partition cost "$config"
page 'GPipe, by cost' '1000 * $2' "${figures[@]}" --pp 2 --schedule gpipe --partition cost "$config"
# More rows than there are layouts take no memory.
run --ranks 64 --top 100000 "$config" && cp "$work/out" "$work/all" || fail "all layouts"
(ulimit -v 4000000 && run --ranks 64 --top 2147483647 "$config") || fail "rows without end"
cmp -s "$work/all" "$work/out" || fail "the same rows, however many are wanted"
# Output that is lost is no success.
on_full_disk() {
  local got=0
  "$nxdplan" "$@" > /dev/full 2> "$work/err" || got=$?
  [[ $got == 1 ]] && grep -q 'nxdplan: cannot write' "$work/err" || fail "nxdplan $*: exit $got on a full disk"
}
on_full_disk --ranks 2 "$config"
on_full_disk --tp 2 "$config"
on_full_disk --help
for tool in nxdrun nxdconvert nxdtokenize; do
  if "$2/tools/$tool" --help > /dev/full 2> "$work/err"; then fail "$tool --help: no failure on a full disk"; fi
done
echo "nxdplan: tables, predictions and refusals"
