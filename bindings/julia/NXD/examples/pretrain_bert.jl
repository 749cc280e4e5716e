# Pre-trains a BERT on masked words and next sentences (Devlin et al. 2019), tensor- and data-parallel,
# with the optimizer's state split over the copies (--zero1). It is examples/c/pretrain_bert.c in
# Julia, with the same rows and losses.
#
#   julia --project=. examples/pretrain_bert.jl --tp 2 --dp 2 --zero1 --text my.txt --out bert
#   ... --data corpus.u16 --vocab 30522 --config config.json --cls 101 --sep 102 --mask 103
#
# A row is [CLS] first [SEP] second [SEP]. In half of the rows the second part goes on where the
# first one ends, in the others it is from anywhere; the model tells which. It also guesses 15 % of
# the words: of these 80 % are hidden by [MASK], 10 % are other words, 10 % stay as they are.
#
# The words are the bytes of a text, or with --data 16-bit ids of a tokenizer, the least byte first.
# The three special ids follow the words where they are not given. A batch of --batch rows is shared
# by all copies. --out gets what Hugging Face's BertForPreTraining loads: config.json and
# model.safetensors.
using NXD, Printf

include("common.jl")

const specials = 3 # of a row: [CLS] and two [SEP]
const dtypes = Dict("f32" => (Float32, nothing), "bf16" => (BFloat16, nothing),
                    "autocast" => (Float32, BFloat16))

const o = read_options((
    tp = 1, dp = 1, zero1 = false, sequence_parallel = false, dtype = "f32", config = "", hidden = 128,
    layers = 2, heads = 4, intermediate = 512, steps = 300, warmup = -1, batch = 16, seq = 64,
    lr = 1e-3, seed = 1, text = "", data = "", vocab = -1, cls = -1, sep = -1, mask = -1, out = ""))
haskey(dtypes, o.dtype) || error("--dtype: one of $(join(keys(dtypes), ", "))")
o.text == "" || o.data == "" || error("expected --text or --data, got both")
# Ids of words would serve as [CLS] and others.
o.data == "" || o.vocab >= 0 || error("expected --vocab with --data")
const vocab = o.vocab < 0 ? 256 : o.vocab # bytes
const cls, sep, mask = [id < 0 ? vocab + i : id for (i, id) in zip(0:2, (o.cls, o.sep, o.mask))]
const warmup = o.warmup < 0 ? o.steps ÷ 20 + 1 : o.warmup

"A Hugging Face configuration: a file's, or one made of the sizes given."
make_config() = o.config != "" ? read(o.config, String) : """
    {"model_type": "bert", "architectures": ["BertForPreTraining"], "hidden_size": $(o.hidden),
     "num_hidden_layers": $(o.layers), "num_attention_heads": $(o.heads),
     "intermediate_size": $(o.intermediate), "vocab_size": $(vocab + specials),
     "max_position_embeddings": $(o.seq), "type_vocab_size": 2, "hidden_act": "gelu",
     "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02,
     "layer_norm_eps": 1e-12, "pad_token_id": null}
    """

"Both parts of a row; 0 where the second one follows the first, 1 where it does not."
function make_pair(words, draw)
    room = o.seq - specials
    first = 1 + draw(room - 1)
    second = room - first
    at = draw(length(words) - room + 1)
    is_other = draw(2)
    from = is_other == 1 ? draw(length(words) - second + 1) : at + first
    ids = [cls; words[at + 1:at + first]; sep; words[from + 1:from + second]; sep]
    (ids, Int64.(0:o.seq - 1 .> 1 + first), is_other)
end

"""
Hides words, and gives them as labels. Each row has as many, so that the mean over copies of their mean
losses is the mean over all hidden words.
"""
function hide_words!(ids, types, draw)
    labels, hidden = fill(-100, o.seq), 0
    while hidden < cld(o.seq * 15, 100)
        at = 2 + draw(o.seq - 2)
        is_separator = types[at] != types[at + 1]
        (labels[at] != -100 || is_separator) && continue
        labels[at] = ids[at]
        kind = draw(10)
        kind < 8 && (ids[at] = mask)
        kind == 8 && (ids[at] = draw(vocab))
        hidden += 1
    end
    labels
end

"""
One row. Its draws hang on its number in all of the training alone: any number of copies sees the same
rows.
"""
function make_row(words, row)
    next = UInt64(row) << 32 # far more than a row needs
    draw(below) = (next += 1; Int(random_bits(o.seed, next - 1) % below))
    ids, types, is_other = make_pair(words, draw)
    (ids, hide_words!(ids, types, draw), types, is_other)
end

"The model's inputs. Every row is full: there is no attention mask."
function make_batch(words, step, copies)
    rows = o.batch ÷ size(copies)
    first = (step - 1) * o.batch + rank_in(copies) * rows
    ids, labels, types, is_other = zip((make_row(words, first + i) for i in 0:rows - 1)...)
    (Tensor(hcat(ids...)), Tensor(hcat(labels...)), nothing, Tensor(hcat(types...)), Tensor([is_other...]))
end

function train(ctx, model, words)
    copies, cast = group(ctx, :data), dtypes[o.dtype][2]
    o.batch % size(copies) == 0 ||
        error("--batch: expected a multiple of the $(size(copies)) copies, got $(o.batch)")
    target = o.zero1 ? Ddp(model; zero_stage = 1, reduce = :avg) : model
    optimizer = adamw(target; learning_rate = o.lr, weight_decay = 0.01)
    NXD.schedule!(optimizer, :linear; warmup_steps = warmup, total_steps = warmup + o.steps)
    for step in 1:o.steps
        zero_grad!(model)
        loss = forward_backward(model, copies, make_batch(words, step, copies)...; cast = cast)
        step!(optimizer; max_norm = 1.0, data_parallel_reduce = :avg)
        is_shown(step, o.steps) &&
            master_print(ctx, @sprintf("step %d/%d  loss %.6f", step, o.steps, loss))
    end
    shared = o.zero1 ? " (ZeRO-1 over $(size(copies)) copies)" : ""
    master_print(ctx, "rank 0 keeps ", NXD.state_bytes(optimizer), " bytes of the optimizer's state", shared)
end

function write_directory(ctx, model, config)
    if rank_in(ctx) == 0
        write(joinpath(o.out, "config.json"), config)
    end
    NXD.save(model, joinpath(o.out, "model.safetensors")) # written by rank 0, whole
    master_print(ctx, "wrote ", o.out)
end

function main()
    words = o.data != "" ? read_ids(o.data) : read_text(o.text)
    length(words) >= 2 * o.seq || error("expected at least $(2 * o.seq) words, got $(length(words))")
    config = make_config()
    Context(seed = o.seed) do ctx
        o.out == "" || make_directory(ctx, o.out)
        init_model_parallel!(ctx; tensor_parallel_size = o.tp)
        model = NXD.model(ctx, config; dtype = dtypes[o.dtype][1], sequence_parallel = o.sequence_parallel)
        train(ctx, model, words)
        o.out == "" || write_directory(ctx, model, config)
    end
end

run_ranks(main, o.tp * o.dp)
