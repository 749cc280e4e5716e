#!/usr/bin/env bash
# Every row of docs/from_nxd.md has a call that compiles against the headers, and names a function
# that the libraries export.
# usage: test_from_nxd.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Rows of the tables whose second column is a call, each with its line of the page.
awk -F ' *[|] *' '/^\| `/ { print NR "\t" $3 }' "$source/docs/from_nxd.md" > "$work/rows"
rows=$(wc -l < "$work/rows")
((rows >= 50)) || { echo "from_nxd.md: expected 50 rows or more, found $rows"; exit 1; }
if grep -vP '^\d+\t`nxd_\w+\(.*\);`$' "$work/rows"; then
  echo "from_nxd.md: these rows have no call of libnxd"
  exit 1
fi
{
  cat << 'C'
#include "nxd.h"

static nxd_status_t ignored;
static nxd_status_t by_place(const char* name, const int64_t* shape, size_t ndim, int64_t first,
                             double* values, size_t count, void* user_data) {
  for (size_t i = 0; i < count; ++i) values[i] = (double)first;
  return name && shape && ndim && !user_data ? NXD_OK : NXD_ERROR_USER;
}
static nxd_status_t pad_hook(nxd_module_t* module, int64_t heads, int64_t padded, void* user_data) {
  return module && padded >= heads && !user_data ? NXD_OK : NXD_ERROR_USER;
}
static nxd_status_t closure(void* args) { return args ? NXD_OK : NXD_ERROR_USER; }

void every_row(nxd_context_t* ctx, nxd_module_t* module, nxd_tensor_t* x, nxd_tensor_t* logits,
               nxd_tensor_t* labels, nxd_pp_t* pp, nxd_ddp_t* ddp, nxd_optimizer_t* optimizer,
               nxd_axis_t axis);
void every_row(nxd_context_t* ctx, nxd_module_t* module, nxd_tensor_t* x, nxd_tensor_t* logits,
               nxd_tensor_t* labels, nxd_pp_t* pp, nxd_ddp_t* ddp, nxd_optimizer_t* optimizer,
               nxd_axis_t axis) {
  nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
  nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
  const nxd_linear_options_t uneven = {.struct_size = sizeof uneven, .pad = 1};
  nxd_qkv_options_t qkv = NXD_QKV_OPTIONS_INIT;
  nxd_cross_entropy_options_t loss_options = NXD_CROSS_ENTROPY_OPTIONS_INIT;
  nxd_pp_options_t pipeline = NXD_PP_OPTIONS_INIT;
  const nxd_pp_options_t by_path = {.struct_size = sizeof by_path, .loss_path = "losses.lm"};
  nxd_ddp_options_t ddp_options = NXD_DDP_OPTIONS_INIT;
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
  nxd_lr_schedule_options_t schedule = NXD_LR_SCHEDULE_OPTIONS_INIT;
  nxd_spawn_options_t spawn = NXD_SPAWN_OPTIONS_INIT;
  nxd_group_t* group = 0;
  nxd_checkpoint_t* checkpoint = 0;
  nxd_training_state_t* state = 0;
  nxd_job_t* job = 0;
  nxd_data_loader_t* loader = 0;
  nxd_device_loader_t* device_loader = 0;
  nxd_device_loader_options_t feeding = NXD_DEVICE_LOADER_OPTIONS_INIT;
  nxd_payloads_t* payloads = 0;
  nxd_save_options_t saving = NXD_SAVE_OPTIONS_INIT;
  nxd_serialization_t* serialization = 0;
  nxd_parameter_t* parameter = 0;
  nxd_module_t* outer = 0;
  nxd_tensor_t *y = 0, *loss = 0, *inputs[] = {x, labels};
  nxd_device_t device = NXD_DEVICE_CPU;
  const char* names[] = {"layers.0"};
  int32_t number = 0, ranks[8];
  int64_t indices[8], step = 0;
  size_t size = 0;
  void* args = 0;
  double value = 0, losses[8];
C
  while IFS=$'\t' read -r line call; do
    call=${call#\`}
    call=${call%\`}
    printf '#line %s "docs/from_nxd.md"\n  ignored = (nxd_status_t)%s\n' "$line" "$call"
  done < "$work/rows"
  printf '  (void)ignored;\n}\n'
} > "$work/rows.c"
"${CC:-cc}" -std=c11 -Wall -Wextra -Werror -I"$source/include" -c "$work/rows.c" -o "$work/rows.o"
echo "$rows rows compile"
