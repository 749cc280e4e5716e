# julia --project=. test/runtests.jl [[--without] names of files below]
#
# Threads of one process are the ranks of many tests, so the suite runs in a process with two.
const project = dirname(@__DIR__)
const suite = joinpath(@__DIR__, "suite.jl")

const julia = Base.julia_cmd()

run(`$julia -t 2 -O0 --startup-file=no --project=$project $suite $ARGS`)
