# julia --project=. test/runtests.jl [[--without] names of files below]
const project = dirname(@__DIR__)
const suite = joinpath(@__DIR__, "suite.jl")
const files = ["raw", "arguments", "arrays", "collectives", "faults", "zero1", "checkpoints", "data", "layer_arrays",
               "stages", "tensors", "modules", "lifetimes", "programs"]
# Files whose subject is when compiled code lets go of an object, and how often: the others call what is
# compiled once, and take less time when they are interpreted. NXD_LONG=1 compiles all.
const compiled = get(ENV, "NXD_LONG", "0") == "1" ? files : ["arguments", "arrays", "lifetimes"]

const leaves_out = !isempty(ARGS) && ARGS[1] == "--without"
const named = ARGS[1 + leaves_out:end]
const unknown = setdiff(named, files)
isempty(unknown) || error("expected names of $(join(files, ", ")), got $(join(unknown, ", "))")
const chosen = leaves_out ? setdiff(files, named) : isempty(named) ? files : named

# Threads of one process are the ranks of many tests, so that the suite runs in processes with two.
for (mode, names) in ("min" => setdiff(chosen, compiled), "yes" => intersect(chosen, compiled))
    isempty(names) ||
        run(`$(Base.julia_cmd()) -t 2 -O0 --compile=$mode --startup-file=no --project=$project $suite $names`)
end
