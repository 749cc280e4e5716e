#!/usr/bin/env bash
# Flux trains over libnxd_core: tensor-parallel, data-parallel with ZeRO-1, and both have the losses of Flux
# alone. Where Flux cannot be had, the example's rules and its optimizer run without it, against plain Julia.
# usage: test_framework_flux.sh SOURCE_DIR BUILD_DIR
#   NXD_FLUX_JULIA   a julia of 1.6 or later, with a depot or a registry that has Flux     77: no Julia
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
: "${NXD_PREFIX:?names the installed tree}"
julia=${NXD_JULIA:-/opt/julia15/bin/julia}
[[ -x $julia ]] || julia=$(command -v julia) || skip "julia is missing" "install it with scripts/install_julia"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset JULIA_LOAD_PATH JULIA_PROJECT RANK WORLD_SIZE
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_PREFIX NXD_TIMEOUT_MS=60000
layouts=("2 2" "2 1")
files=("$work"/{2-ranks-tp2,2-ranks-tp1})

# The rules and the optimizer alone. Compiled code is kept from run to run, and made before ranks start.
rules=(env JULIA_DEPOT_PATH="$build/bindings-julia" "$julia" -O0 --startup-file=no
  --project="$source/bindings/julia/NXD")
timeout 300 "${rules[@]}" -e 'using NXD'
rules+=("$source/tests/scripts/flux_rules.jl" "$source/examples/flux")
losses "$work/alone" "${rules[@]}" 0
for layout in "${layouts[@]}"; do
  read -r ranks tp <<< "$layout"
  losses "$work/$ranks-ranks-tp$tp" "${rules[@]}" "$ranks" "$tp"
done
for tp in 1 3; do rejects_ranks $tp "${rules[@]}" 3 $tp; done
compare_losses 1e-5 "$work/alone" "${files[@]}"

julia=${NXD_FLUX_JULIA:-$julia}
cp -r "$source/examples/flux" "$work/flux"
if ! timeout 300 "$julia" --startup-file=no --project="$work/flux" -e '
    import Pkg
    Pkg.develop(Pkg.PackageSpec(path = ARGS[1]))
    Pkg.instantiate()
    using Flux, NXD' "$source/bindings/julia/NXD" > "$work/log" 2>&1; then
  skip_part "framework_flux with Flux" "Flux cannot be had: $(grep -i error "$work/log" | sed -n 1p)" \
    "let NXD_FLUX_JULIA be a julia of 1.6 or later that reaches its registry"
  exit
fi
flux=("$julia" --startup-file=no --project="$work/flux")
losses "$work/alone" "${flux[@]}" "$work/flux/mlp.jl"
for layout in "${layouts[@]}"; do
  read -r ranks tp <<< "$layout"
  losses "$work/$ranks-ranks-tp$tp" "${flux[@]}" "$work/flux/mlp_parallel.jl" "$ranks" "$tp"
done
for tp in 1 3; do rejects_ranks $tp "${flux[@]}" "$work/flux/mlp_parallel.jl" 3 $tp; done
compare_losses 1e-5 "$work/alone" "${files[@]}"
