#!/usr/bin/env bash
# candle trains over libnxd_core in a process without libtorch: tensor-parallel, data-parallel with
# ZeRO-1, and both have the losses of candle alone. A gradient that one rank lacks is an error on all,
# and so is a tensor in another order than C's.
# usage: test_framework_candle.sh SOURCE_DIR BUILD_DIR
#   NXD_LONG=1: builds candle, for minutes; 77 without it, or where it cannot be fetched
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
[[ ${NXD_LONG:-0} == 1 ]] || skip "building candle takes minutes" "set NXD_LONG=1"
need_commands cargo pkg-config
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
DESTDIR='' cmake --install "$build" --prefix "$work/prefix" > "$work/log"
pc=$(find "$work/prefix" -name nxd-core.pc)
export PKG_CONFIG_PATH=${pc%/*} CARGO_TARGET_DIR=$build/frameworks/candle
cp -r "$source/examples/candle" "$work/candle"
manifest=$work/candle/Cargo.toml
sed -i "s|\.\./\.\./bindings|$source/bindings|" "$manifest"
mkdir "$work/candle/src/bin"
cat > "$work/candle/src/bin/unbound.rs" << 'END'
#[allow(dead_code)]
#[path = "../nxd_candle.rs"]
mod nxd_candle;
use candle_core::{DType, Device, Result, Tensor, Var};
use nxd::{AdamwOptions, Context, ParallelOptions, Placement};
use nxd_candle::{row_linear, to_candle, AdamW, Shared};

fn main() -> Result<()> {
    let ctx: &'static Context = Box::leak(Box::new(Context::create().map_err(to_candle)?));
    ctx.init_model_parallel(&Default::default()).map_err(to_candle)?;
    let rank = ctx.rank().map_err(to_candle)?;
    let var = || Var::from_tensor(&Tensor::ones(4, DType::F32, &Device::Cpu)?);
    let params = [var()?, var()?];
    let placements = [Placement::Replicated; 2];
    let mut adamw = AdamW::new(Shared(ctx), &params, &placements, &AdamwOptions::default())?;
    let (first, both) = (params[0].sum_all()?, params[0].mul(&params[1])?.sum_all()?);
    let error = adamw.step(&if rank == 1 { first } else { both.clone() }.backward()?).unwrap_err();
    let why = if rank == 1 { "parameter 1 has no gradient" } else { "scale" };
    assert!(error.to_string().contains(why), "{}", error);
    assert!(adamw.step(&both.backward()?)? > 0.0);
    let ctx: &'static Context = Box::leak(Box::new(Context::create().map_err(to_candle)?));
    let split = ParallelOptions { tensor_parallel_size: 2, ..Default::default() };
    ctx.init_model_parallel(&split).map_err(to_candle)?;
    let square = Tensor::ones((4, 4), DType::F32, &Device::Cpu)?;
    let weight = if rank == 1 { square.t()? } else { square.clone() };
    let error = row_linear(Shared(ctx), &square, &weight, &square.get(0)?).unwrap_err();
    assert!(error.to_string().contains("expected a contiguous tensor"), "{}", error);
    row_linear(Shared(ctx), &square, &square, &square.get(0)?)?;
    ctx.master_print("the step after it goes well").map_err(to_candle)
}
END
cargo fetch --locked --manifest-path "$manifest" > "$work/log" 2>&1 ||
  skip "candle of examples/candle/Cargo.lock cannot be had: $(tail -n 1 "$work/log")" \
    "let a cargo of 1.85 or later reach crates.io"
cargo build --locked --manifest-path "$manifest" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }

export NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=60000
programs=$CARGO_TARGET_DIR/debug
LD_LIBRARY_PATH=$(dirname "${pc%/*}")
export LD_LIBRARY_PATH
loads_no_libtorch "$programs/mlp_parallel"
losses "$work/alone" "$programs/mlp"
for layout in "1 1" "2 2" "2 1" "4 2"; do
  read -r ranks tp <<< "$layout"
  losses "$work/$ranks-ranks-tp$tp" "$work/prefix/bin/nxdrun" -n "$ranks" "$programs/mlp_parallel" "$tp"
done
for tp in 1 3; do rejects_ranks $tp "$work/prefix/bin/nxdrun" -n 3 "$programs/mlp_parallel" $tp; done
compare_losses 1e-5 "$work"/{alone,1-ranks-tp1,2-ranks-tp2,2-ranks-tp1,4-ranks-tp2}
grep -h "bytes of state" "$work"/*.log

timeout 300 "$work/prefix/bin/nxdrun" -n 2 "$programs/unbound" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
grep "goes well" "$work/log"
