# Trains a small Llama on text, byte by byte, with the vocabulary, heads and features of each layer
# split over tensor-parallel ranks, and its layers over the stages of a pipeline: the C example of
# the same name with the same options, random windows and losses. More ranks than --tp times --pp,
# under nxdrun or torchrun, train data-parallel copies.
#
#   NXD_CPU_MODE=1 julia --project=. examples/train_lm.jl --tp 2 --steps 40 --out results
#
# It prints the loss as it goes, writes OUT/loss.csv, and ends with a few lines that the model wrote.
using NXD, Printf

const licences = "/usr/share/common-licenses"

# By what parameters are kept in, how those of bf16 are updated, and whether casts are automatic.
const precisions = Dict(
    "f32" => (Float32, :master, nothing), "bf16" => (BFloat16, :master, nothing),
    "bf16-stochastic" => (BFloat16, :stochastic, nothing),
    "bf16-nearest" => (BFloat16, :nearest, nothing), "autocast" => (Float32, :master, BFloat16))

const defaults = Dict{String,Any}(
    "tp" => 2, "pp" => 1, "microbatches" => 1, "steps" => 240, "layers" => 4, "heads" => 8,
    "kv-heads" => 4, "sample" => 400, "hidden" => 256, "intermediate" => 704, "seq" => 256,
    "batch" => 8, "lr" => 2e-3, "seed" => 1, "dtype" => "f32", "out" => "out", "text" => "",
    "config" => "", "save" => "", "sequence-parallel" => false)

function read_arguments(args)
    options, i = copy(defaults), 1
    while i <= length(args)
        name = replace(args[i], r"^--" => "")
        haskey(options, name) || error("cannot understand $(args[i]); known are: --" *
                                       join(sort!(collect(keys(options))), " --"))
        if options[name] isa Bool
            options[name] = true
            i += 1
        else
            i < length(args) || error("$(args[i]) takes a value")
            options[name] = options[name] isa String ? args[i + 1] : parse(typeof(options[name]), args[i + 1])
            i += 2
        end
    end
    haskey(precisions, options["dtype"]) || error("--dtype: one of $(join(keys(precisions), ", "))")
    options
end

"A file, or the licence texts that Debian installs."
function read_text(path)
    path == "" || return read(path)
    files = filter(f -> isfile(f) && !islink(f), readdir(licences; join = true))
    reduce(vcat, read.(files))
end

"The draw-th value of a stream: the finaliser of SplitMix64 (Steele et al. 2014)."
function random_bits(seed, draw)
    z = (UInt64(seed) + 1) * 0xd1b54a32d192ed03 + (UInt64(draw) + 1) * 0x9e3779b97f4a7c15
    z = (z ⊻ (z >> 30)) * 0xbf58476d1ce4e5b9
    z = (z ⊻ (z >> 27)) * 0x94d049bb133111eb
    z ⊻ (z >> 31)
end

"Ids of a batch of random windows, a column each; copies of the model take different ones."
function make_batch(o, text, copies, copy, step)
    ids = Matrix{Int64}(undef, o["seq"], o["batch"])
    for row in 0:o["batch"] - 1
        at = random_bits(o["seed"], (step * copies + copy) * o["batch"] + row) % (length(text) - o["seq"])
        ids[:, row + 1] = text[at + 1:at + o["seq"]]
    end
    ids
end

make_config(o) = o["config"] != "" ? read(o["config"], String) : """
    {"model_type": "llama", "hidden_size": $(o["hidden"]), "num_hidden_layers": $(o["layers"]),
     "num_attention_heads": $(o["heads"]), "num_key_value_heads": $(o["kv-heads"]),
     "intermediate_size": $(o["intermediate"]), "vocab_size": 256, "rms_norm_eps": 1e-5,
     "max_position_embeddings": $(o["seq"]), "initializer_range": 0.02}"""

"The model, its pipeline or `nothing`, and what this rank trains of it."
function make_model(ctx, o)
    cut = o["pp"] > 1 || o["microbatches"] > 1
    llama = NXD.model(ctx, make_config(o); dtype = precisions[o["dtype"]][1],
                      sequence_parallel = o["sequence-parallel"], device = cut ? :meta : :cpu)
    cut || return (llama, nothing, llama)
    example = Tensor(Int64, o["seq"], o["batch"]; device = :meta)
    pipeline = Pipeline(llama, example, example; num_microbatches = o["microbatches"],
                        partition = :cost, broadcast_and_average_loss = true)
    (llama, pipeline, NXD.local_module(pipeline))
end

"Forward and backward; the loss is the mean over all copies."
function run_model(llama, pipeline, data_group, ids)
    pipeline === nothing || return train!(pipeline, ids, ids) # labels are shifted inside
    loss = llama(ids, ids)
    backward(loss)
    mean = [loss[]]
    all_reduce!(data_group, mean; op = :avg)
    mean[1]
end

function train(ctx, o, text, llama, pipeline, trained)
    data_group = group(ctx, :data)
    copies, copy = size(data_group), rank_in(data_group)
    dtype, update, cast = precisions[o["dtype"]]
    optimizer = adamw(trained; learning_rate = o["lr"], beta2 = 0.95, weight_decay = 0.1, bf16_update = update)
    NXD.schedule!(optimizer, :cosine; warmup_steps = o["steps"] ÷ 20 + 1, total_steps = o["steps"] + 1,
                  final_factor = 0.1)
    losses, every, started = Float32[], max(1, o["steps"] ÷ 20), time()
    for step in 1:o["steps"]
        ids = Tensor(make_batch(o, text, copies, copy, step - 1))
        zero_grad!(trained)
        loss = NXD.autocast(() -> run_model(llama, pipeline, data_group, ids), cast)
        # A pipeline has divided by the tokens of all copies.
        report = step!(optimizer; max_norm = 1.0, data_parallel_reduce = pipeline === nothing ? :avg : :sum)
        report.skipped && master_print(ctx, "step $step: skipped, gradients overflow")
        push!(losses, loss)
        (step == 1 || step % every == 0 || step == o["steps"]) && master_print(ctx, @sprintf(
            "step %4d/%d  loss %6.3f  %7.0f tokens/s", step, o["steps"], loss,
            step * o["seq"] * o["batch"] * copies / (time() - started)))
    end
    losses
end

# ---- the model's own words

"Logits behind the last of the tokens; tokens after them are padding, which a causal model ignores."
function last_logits(ctx, llama, tokens, count)
    parts = llama(Tensor(reshape(tokens, :, 1)))
    row = op("index_select", parts; dim = 1, index = Tensor([count - 1]))
    Array(op("to", NXD.gather_from_tensor_region(ctx, row); overload = "dtype", dtype = Float32))
end

function draw_token(logits, temperature, u)
    weights = exp.((Float64.(logits) .- Float64(maximum(logits))) ./ temperature)
    place = findfirst(>(u * sum(weights)), cumsum(vec(weights)))
    UInt8((place === nothing ? 256 : place) - 1)
end

function write_sample(ctx, llama, o, prompt)
    text, window = Vector{UInt8}(prompt), o["seq"]
    NXD.no_grad() do
        for n in length(text):length(text) + o["sample"] - 1
            seen = text[max(1, n - window + 1):n]
            tokens = zeros(Int64, window)
            tokens[1:length(seen)] = seen
            u = (random_bits(o["seed"] ⊻ 0x5a17, n) >> 11) * 2.0^-53
            push!(text, draw_token(last_logits(ctx, llama, tokens, length(seen)), 0.7, u))
        end
    end
    map(c -> c == '\n' || ' ' <= c <= '~' ? c : '.', String(Char.(text)))
end

function main(o)
    text = read_text(o["text"])
    length(text) > o["seq"] || error("expected a text of more than $(o["seq"]) bytes, got $(length(text))")
    Context(seed = o["seed"], timeout_ms = 120000) do ctx
        init_model_parallel!(ctx; tensor_parallel_size = o["tp"], pipeline_parallel_size = o["pp"])
        llama, pipeline, trained = make_model(ctx, o)
        master_print(ctx, size(ctx), " ranks: tensor parallel ", o["tp"], ", pipeline parallel ", o["pp"],
                     "; ", o["dtype"])
        losses = train(ctx, o, text, llama, pipeline, trained)
        if rank_in(ctx) == 0
            mkpath(o["out"])
            write(joinpath(o["out"], "loss.csv"),
                  "step,loss\n" * join((@sprintf("%d,%.6f\n", i, l) for (i, l) in enumerate(losses))))
        end
        o["save"] == "" || NXD.save(trained, o["save"])
        o["sample"] > 0 && o["pp"] == 1 &&
            master_print(ctx, "the model writes:\n", write_sample(ctx, llama, o, "This License"))
    end
end

const options = read_arguments(ARGS)
const num_ranks = options["tp"] * options["pp"]
NXD.is_rank() || num_ranks == 1 ? main(options) : spawn_ranks(num_ranks)
