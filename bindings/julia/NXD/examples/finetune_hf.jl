# Fine-tunes a model of a Hugging Face directory and writes one that Hugging Face's libraries load:
# weights under their names, and config.json, tokenizer and other files as they were, but no
# directories and no names with a dot in front. It is examples/c/finetune_hf.c in Julia, with the
# same losses.
#
#   julia --project=. examples/finetune_hf.jl --model gpt2/ --ids corpus.u16 --out gpt2-tuned/ --tp 2
#
# The ids are those of the model's own tokenizer, as 16-bit numbers, the least byte first. With --text
# the bytes of a file are the ids. More ranks than --tp, as of a launcher, train data-parallel copies.
using NXD, Printf

include("common.jl")

const o = read_options((model = "", out = "", ids = "", text = "", tp = 1, dp = 1, steps = 20,
                        batch = 4, seq = 32, lr = 1e-4); idle = (((:text,), (:ids,)),))
o.model != "" && o.out != "" && o.ids * o.text != "" ||
    error("expected --model DIR --out DIR and --ids FILE or --text FILE")

function train(ctx, model, corpus)
    copies, optimizer = group(ctx, :data), adamw(model; learning_rate = o.lr)
    for step in 1:o.steps
        ids = Tensor(random_windows(corpus, 1, step - 1, copies, o.batch, o.seq))
        loss = forward_backward(model, copies, ids, ids) # the model shifts its labels itself
        step!(optimizer; max_norm = 1.0, data_parallel_reduce = :avg)
        zero_grad!(model)
        master_print(ctx, @sprintf("step %d/%d  loss %.6f", step, o.steps, loss))
    end
end

# Endings of weights, of any program's, and of indices of them: each would be the old ones.
const weights = (".safetensors", ".index.json", ".bin", ".ckpt", ".gguf", ".h5", ".msgpack",
                 ".onnx", ".onnx_data", ".ot", ".pt", ".pth", ".tflite")
is_weights(name) = any(ending -> endswith(name, ending), weights)

function write_directory(ctx, model)
    NXD.save(model, joinpath(o.out, "model.safetensors")) # written by rank 0, whole
    if rank_in(ctx) == 0
        for name in readdir(o.model)
            from = joinpath(o.model, name)
            isfile(from) && !startswith(name, ".") && !is_weights(name) &&
                cp(from, joinpath(o.out, name); force = true, follow_symlinks = true)
        end
    end
    master_print(ctx, "wrote ", o.out)
end

function main()
    corpus = o.ids != "" ? read_ids(o.ids) : read_text(o.text)
    length(corpus) > o.seq || error("expected more than $(o.seq) ids, got $(length(corpus))")
    Context() do ctx
        make_directory(ctx, o.out)
        init_model_parallel!(ctx; tensor_parallel_size = o.tp)
        model = NXD.from_pretrained(ctx, o.model)
        train(ctx, model, corpus)
        write_directory(ctx, model)
    end
end

run_ranks(main, o.tp * o.dp)
