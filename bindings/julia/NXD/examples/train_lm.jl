# Trains a language model on token ids, or on text byte by byte, with each layer split over
# tensor-parallel ranks, its layers over the stages of a pipeline, and the batch over data-parallel
# copies: examples/c/train_lm.c in Julia, with its options and its losses to the last digit. More
# ranks than --tp times --pp, under nxdrun or torchrun, are copies.
#
#   NXD_CPU_MODE=1 julia --project=. examples/train_lm.jl --tp 2 --steps 40 --out results
#   ... --tp 1 --pp 2 --dp 2 --microbatches 4 --zero1
#   ... --data corpus.u16 --config config.json --save-every 100 --keep 3 --resume
#
# The model is a small Llama of the sizes given, that of a configuration (--config), or one of a
# Hugging Face directory, with its weights (--weights).
using NXD, Printf

include("common.jl")

# By what parameters are kept in, how those of bf16 are updated, and whether casts are automatic.
const precisions = Dict(
    "f32" => (Float32, :master, nothing), "bf16" => (BFloat16, :master, nothing),
    "bf16-stochastic" => (BFloat16, :stochastic, nothing),
    "bf16-nearest" => (BFloat16, :nearest, nothing), "autocast" => (Float32, :master, BFloat16))

const o = read_options((
    tp = 2, pp = 1, dp = 1, virtual = 1, microbatches = 1, zero1 = false, sequence_parallel = false,
    dtype = "f32", config = "", weights = "", hidden = 256, layers = 4, heads = 8, kv_heads = 4,
    intermediate = 704, seq = 256, batch = 8, steps = 240, stop_at = 0, lr = 2e-3, seed = 1,
    text = "", data = "", out = "out", save = "", sample = 400, save_every = 0, keep = 3,
    resume = false);
    idle = (((:text,), (:data,)),
            ((:hidden, :layers, :heads, :kv_heads, :intermediate), (:config, :weights))))
o.virtual > 1 && o.pp == 1 && o.microbatches == 1 &&
    error("--virtual has no effect without --pp or --microbatches")
haskey(precisions, o.dtype) || error("--dtype: one of $(join(keys(precisions), ", "))")

"A Hugging Face configuration: a file's, or one made of the sizes given."
make_config() =
    o.config != "" ? read(o.config, String) :
    o.weights != "" ? read(joinpath(o.weights, "config.json"), String) : """
    {"model_type": "llama", "hidden_size": $(o.hidden), "num_hidden_layers": $(o.layers),
     "num_attention_heads": $(o.heads), "num_key_value_heads": $(o.kv_heads),
     "intermediate_size": $(o.intermediate), "vocab_size": 256, "rms_norm_eps": 1e-5,
     "max_position_embeddings": $(o.seq), "initializer_range": 0.02}"""

"Everything of one rank."
struct Trainer
    copies::Group
    model::ModuleNode
    pipeline::Union{Pipeline,Nothing}
    trained::ModuleNode # the model, or what this rank has of it
    optimizer::Optimizer
    reduce::Symbol      # of gradients over the copies
    data::Union{DataLoader,Vector{Int64}}
end

function Trainer(ctx::Context, data)
    dtype, update, _ = precisions[o.dtype]
    cut = o.pp > 1 || o.microbatches > 1
    model = NXD.model(ctx, make_config(); dtype = dtype, sequence_parallel = o.sequence_parallel,
                      device = cut ? :meta : :cpu)
    pipeline = cut ? make_pipeline(model) : nothing
    trained = cut ? NXD.local_module(pipeline) : model
    reduce = cut ? :sum : :avg # a pipeline has divided by the tokens of all copies
    o.weights == "" || NXD.load!(trained, o.weights)
    target = trained
    if o.zero1
        target = Ddp(trained; zero_stage = 1, reduce = reduce)
        cut && NXD.ddp!(pipeline, target)
    end
    optimizer = adamw(target; learning_rate = o.lr, beta2 = 0.95, weight_decay = 0.1, bf16_update = update)
    set_rates!(optimizer)
    Trainer(group(ctx, :data), model, pipeline, trained, optimizer, reduce, data)
end

"A checkpoint that the run goes on from has those of the run that saved it: the options count."
function set_rates!(optimizer)
    NXD.schedule!(optimizer, :cosine; warmup_steps = o.steps ÷ 20 + 1, total_steps = o.steps + 1,
                  final_factor = 0.1)
    NXD.learning_rate!(optimizer, o.lr)
end

"This rank's stages of the model, whose weights are made here."
function make_pipeline(model)
    example = Tensor(Int64, o.seq, o.batch; device = :meta)
    Pipeline(model, example, example; num_microbatches = o.microbatches, virtual_size = o.virtual,
             partition = :cost, broadcast_and_average_loss = true)
end

batch(loader::DataLoader, copies, step) = NXD.next!(loader, Matrix{Int64}(undef, o.seq, o.batch))
batch(text::Vector{Int64}, copies, step) =
    random_windows(text, o.seed, step - 1, copies, o.batch, o.seq)

"Forward, backward and update; the loss is the mean over all copies."
function run_step!(t::Trainer, step)
    ids, cast = Tensor(batch(t.data, t.copies, step)), precisions[o.dtype][3]
    zero_grad!(t.trained)
    loss = t.pipeline === nothing ? # labels are shifted inside
        forward_backward(t.model, t.copies, ids, ids; cast = cast) :
        NXD.autocast(() -> train!(t.pipeline, ids, ids), cast)
    step!(t.optimizer; max_norm = 1.0, data_parallel_reduce = t.reduce)
    Float32(loss)
end

# ---- checkpoints: the run's state, and beside it the losses so far

const checkpoints = joinpath(o.out, "checkpoints")
losses_file(checkpoint) = NXD.path(checkpoint, "losses.f32")

function make_state(ctx, t)
    state = NXD.TrainingState(ctx)
    push!(state, "model" => t.trained)
    push!(state, "optimizer" => t.optimizer)
    t.data isa DataLoader && push!(state, "data" => t.data)
    state
end

"Saves in the background, once the save before has ended."
function save!(ctx, state, losses, before)
    before === nothing || wait(before)
    checkpoint = NXD.Checkpoint(ctx, checkpoints, length(losses))
    NXD.snapshot(state, checkpoint)
    rank_in(ctx) == 0 && write(losses_file(checkpoint), losses)
    NXD.publish(checkpoint; keep_last = o.keep, wait = false)
    checkpoint
end

"Goes on from the newest complete one; gives the losses until then."
function resume!(ctx, state)
    newest = NXD.open_checkpoint(ctx, checkpoints)
    newest === nothing && return Float32[]
    step = NXD.checkpoint_step(newest)
    step <= o.steps || error("the checkpoint is of step $step, and the run is to have $(o.steps)")
    NXD.load!(state, newest)
    read!(losses_file(newest), Vector{Float32}(undef, step))
end

"The losses of all steps."
function train(ctx, t)
    state, saving = make_state(ctx, t), nothing
    losses = o.resume ? resume!(ctx, state) : Float32[]
    first, started = length(losses), time()
    if o.resume
        set_rates!(t.optimizer)
        master_print(ctx, "going on after step ", first)
    end
    for step in first + 1:(o.stop_at > 0 ? min(o.stop_at, o.steps) : o.steps)
        push!(losses, run_step!(t, step))
        if o.save_every > 0 && step % o.save_every == 0
            saving = save!(ctx, state, losses, saving)
        end
        is_shown(step, o.steps) && master_print(ctx, @sprintf(
            "step %4d/%d  loss %6.3f  %7.0f tokens/s", step, o.steps, losses[end],
            (step - first) * o.seq * o.batch * size(t.copies) / (time() - started)))
    end
    saving === nothing || wait(saving)
    losses
end

# ---- the model's own words

"Logits behind the last of the tokens; tokens after them are padding, which a causal model ignores."
function last_logits(ctx, model, tokens, count)
    parts = model(Tensor(reshape(tokens, :, 1)))
    row = op("index_select", parts; dim = 1, index = Tensor([count - 1]))
    Array(op("to", NXD.gather_from_tensor_region(ctx, row); overload = "dtype", dtype = Float32))
end

function draw_token(logits, temperature, u)
    weights = exp.((Float64.(logits) .- Float64(maximum(logits))) ./ temperature)
    place = findfirst(>(u * sum(weights)), cumsum(vec(weights)))
    UInt8((place === nothing ? 256 : place) - 1)
end

function write_sample(ctx, model, prompt)
    text, window = Vector{UInt8}(prompt), o.seq
    NXD.no_grad() do
        for n in length(text):length(text) + o.sample - 1
            seen = text[max(1, n - window + 1):n]
            tokens = zeros(Int64, window)
            tokens[1:length(seen)] = seen
            u = (random_bits(o.seed ⊻ 0x5a17, n) >> 11) * 2.0^-53
            push!(text, draw_token(last_logits(ctx, model, tokens, length(seen)), 0.7, u))
        end
    end
    map(c -> c == '\n' || ' ' <= c <= '~' ? c : '.', String(Char.(text)))
end

function main()
    text = o.data == "" ? read_text(o.text) : nothing
    text === nothing || length(text) > o.seq ||
        error("expected a text of more than $(o.seq) bytes, got $(length(text))")
    Context(seed = o.seed, timeout_ms = 120000) do ctx
        make_directory(ctx, o.out)
        o.save == "" || make_directory(ctx, dirname(abspath(o.save)))
        init_model_parallel!(ctx; tensor_parallel_size = o.tp, pipeline_parallel_size = o.pp)
        t = Trainer(ctx, text === nothing ? DataLoader(ctx, [o.data], o.batch, o.seq) : text)
        losses = train(ctx, t)
        if rank_in(ctx) == 0
            write(joinpath(o.out, "loss.csv"),
                  "step,loss\n" * join((@sprintf("%d,%.6f\n", i, l) for (i, l) in enumerate(losses))))
        end
        o.save == "" || NXD.save(t.trained, o.save)
        # Generation needs the whole model, and one that knows bytes.
        if o.sample > 0 && o.pp == 1 && o.weights == "" && o.data == ""
            NXD.training!(t.model, false) # without dropout
            written = write_sample(ctx, t.model, "This License")
            NXD.training!(t.model)
            master_print(ctx, "the model writes:\n", written)
        end
    end
end

run_ranks(main, o.tp * o.pp * o.dp)
