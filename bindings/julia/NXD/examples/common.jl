# Parts that train_lm, finetune_hf and pretrain_bert share: options, corpora, draws, a pass.

"""
Options of a command line, where --kv-heads 4 gives `kv_heads`; those without a value are flags, and one
of them is `lr`. `idle`: pairs of groups of names; an option of the first group has no effect beside one of
the second.
"""
function read_options(defaults::NamedTuple; idle = ())
    given, args, seen = Dict{Symbol,Any}(pairs(defaults)), copy(ARGS), Set{Symbol}()
    while !isempty(args)
        option = popfirst!(args)
        name = Symbol(replace(replace(option, r"^--" => ""), "-" => "_"))
        haskey(given, name) || error("cannot understand $option; known are: " * join(spelled.(keys(defaults)), " "))
        push!(seen, name)
        was = given[name]
        was isa Bool || !isempty(args) || error("$option takes a value")
        given[name] = was isa Bool ? true : was isa String ? popfirst!(args) : parse(typeof(was), popfirst!(args))
    end
    for (names, others) in idle, name in names, other in others
        name in seen && other in seen && error("$(spelled(name)) has no effect beside $(spelled(other))")
    end
    # The library takes a rate of 0 for its own default.
    given[:lr] > 0 || error("--lr: expected a rate above 0, got $(given[:lr])")
    NamedTuple{keys(defaults)}(Tuple(given[name] for name in keys(defaults)))
end

"An option as a command line has it."
spelled(name) = "--" * replace(string(name), "_" => "-")

"The bytes of a file as ids, or of the licence texts that Debian installs, in order of their names."
function read_text(path = "")
    licences = "/usr/share/common-licenses"
    files = path != "" ? [path] : filter(f -> isfile(f) && !islink(f), readdir(licences; join = true))
    reduce(vcat, (Int64.(read(file)) for file in files))
end

"16-bit ids of a tokenizer, the least byte first."
read_ids(path) = Int64.(ltoh.(reinterpret(UInt16, read(path))))

"The draw-th value of a stream: the finaliser of SplitMix64 (Steele et al. 2014)."
function random_bits(seed, draw)
    z = (UInt64(seed) + 1) * 0xd1b54a32d192ed03 + (UInt64(draw) + 1) * 0x9e3779b97f4a7c15
    z = (z ⊻ (z >> 30)) * 0xbf58476d1ce4e5b9
    z = (z ⊻ (z >> 27)) * 0x94d049bb133111eb
    z ⊻ (z >> 31)
end

"A batch of random windows, a column each; copies of the model, a group, take different ones."
function random_windows(ids, seed, step, copies, batch, len)
    first = (step * size(copies) + rank_in(copies)) * batch
    windows = Matrix{Int64}(undef, len, batch)
    for row in 0:batch - 1
        at = random_bits(seed, first + row) % (length(ids) - len)
        windows[:, row + 1] = ids[at + 1:at + len]
    end
    windows
end

"Adds to the gradients; the loss is the mean over all copies. `cast`: a type for automatic casts."
function forward_backward(model, copies, inputs...; cast = nothing)
    loss = NXD.autocast(() -> model(inputs...), cast)
    backward(loss)
    mean = [loss[]]
    all_reduce!(copies, mean; op = :avg)
    mean[1]
end

"By rank 0, with its parents. Before a training: no result of one is lost to a bad path."
make_directory(ctx, path) = rank_in(ctx) == 0 && mkpath(path)

"True if the loss of a step, from 1, is printed: about 20 of them, the first and the last too."
is_shown(step, steps) = step in (1, steps) || step % max(1, steps ÷ 20) == 0

"A program of `n` ranks: starts them, unless this process is one, by a launcher too, or the only one."
run_ranks(main, n) = NXD.is_rank() || n == 1 ? main() : spawn_ranks(n)
