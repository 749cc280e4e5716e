@object Group nxd_group_t nxd_group_destroy

@doc """
    Group(context, ranks; name)

An ordered set of world ranks that communicate; made by all of them in the same order.
[collective: the listed ranks] See `world` and `group` for those a context has.

Its collectives work over `Array`s and other contiguous arrays without copies. Where an array is of
no use, because of its length or its strides, the peers are told as well: all ranks fail, none waits.
""" Group

# A group of the program's own counts the works that are not released, in `kept`: to destroy it ends those
# that are pending, so the collector lets it go behind them. It finalizes both at once, in any order.
const WorkCount = Threads.Atomic{Int}

function count_work(group, n)
    count = group.kept
    count isa WorkCount && Threads.atomic_add!(count, n)
    nothing
end

function release_collected(group::Group)
    count = group.kept
    count isa WorkCount && count[] > 0 || release(group)
    nothing
end

function Group(context::Context, ranks; name = nothing)
    kept = Any[]
    row, label = try
        collect(Int32, ranks), name === nothing ? no_string : c_string(name, kept)
    catch
        refuse_group(context, ranks)
        rethrow()
    end
    GC.@preserve kept given(Group; kept = WorkCount(0)) do out
        nxd_group_create(context, row, length(row), label, out)
    end
end

# Makes a group fail on its other ranks, who wait for this one: as many as can be read of a list that
# is none, or else all. The library tells them of a list that begins with -1 that it cannot be read.
function refuse_group(context, ranks)
    all = Int32(0):Int32(size(context) - 1)
    known = Int32[r for r in (applicable(iterate, ranks) ? ranks : ()) if r in all]
    issubset(known, rank_in(context)) && (known = collect(all))
    known = pushfirst!(unique(known), -1)
    nxd_group_create(context, known, length(known), no_string, Ref(Ptr{nxd_group_t}(C_NULL)))
end

"Group of all ranks."
world(context::Context) = given(out -> nxd_context_get_world_group(context, out), Group; owner = context)

"This rank's group along an axis: $axes_of_layouts. It is closed with the layout."
function group(context::Context, axis::Symbol)
    found = given(out -> nxd_parallel_get_group(context, axis, out), Group; owner = context)
    groups = filter!(ref -> ref.value !== nothing, context.kept.groups)
    push!(groups, WeakRef(found))
    found
end

# The ranks of a call along an axis; `nothing` where there is no layout: no other rank is in the call then.
group_along(context, axis) = is_model_parallel(context) ? group(context, axis) : nothing
# The group of a Ddp that is given none.
default_group(context) = something(group_along(context, :data), world(context))

Base.size(group::Group) = number(out -> nxd_group_get_size(group, out))
rank_in(group::Group) = number(out -> nxd_group_get_rank(group, out))
"World ranks of the group."
ranks(group::Group) = listed((row, cap, n) -> nxd_group_get_ranks(group, row, cap, n), Int32)
"Bound of every later call on the group, in milliseconds."
set_timeout!(group::Group, timeout_ms::Integer) = check(nxd_group_set_timeout(group, timeout_ms))
"Gives the group's next call a key: ranks whose keys differ all get `:invalid_argument`."
set_next_key!(group::Group, key::Integer) = check(nxd_group_set_next_key(group, key))
transport(group::Group) = Symbol(value(out -> nxd_group_get_transport(group, out), nxd_transport_t))
"Makes every pending and later call on the group fail with `:aborted`; from any thread."
abort(group::Group) = check(nxd_group_abort(group))

# ---- arguments of the collectives

function check_arrays(recv, arrays...)
    check_writable(recv)
    check_sent(recv, arrays...)
end

function check_sent(arrays...)
    for a in arrays
        dtype(eltype(a))
        is_contiguous(a) || throw(ArgumentError("expected an array whose elements follow one " *
            "another in memory, got strides $(strides(a)) of size $(size(a)): copy it first"))
        eltype(a) === eltype(arrays[1]) || throw(ArgumentError(
            "expected arrays of one element type, got $(eltype(arrays[1])) and $(eltype(a))"))
    end
end

"Length of a part, of which the whole has one for each of `parts` ranks."
function part_length(whole, part, parts)
    length(whole) == parts * length(part) || throw(DimensionMismatch(
        "expected $(length(part)) elements from each of $parts ranks, or $(parts * length(part)), " *
        "got $(length(whole))"))
    length(part)
end

function all_reduce_arguments(recv, send, op)
    check_arrays(recv, send)
    (send, recv, part_length(recv, send, 1), dtype(eltype(recv)), convert(nxd_reduce_t, op))
end

function all_gather_arguments(group, recv, send)
    check_arrays(recv, send)
    (send, recv, part_length(recv, send, size(group)), dtype(eltype(recv)))
end

function reduce_scatter_arguments(group, recv, send, op)
    check_arrays(recv, send)
    (send, recv, part_length(send, recv, size(group)), dtype(eltype(recv)), convert(nxd_reduce_t, op))
end

function all_to_all_arguments(group, recv, send)
    check_arrays(recv, send)
    ranks = size(group)
    length(send) == length(recv) || throw(DimensionMismatch(
        "expected as many elements to receive as to send, got $(length(recv)) and $(length(send))"))
    length(recv) % ranks == 0 || throw(DimensionMismatch(
        "expected as many elements for each of $ranks ranks, got $(length(recv))"))
    (send, recv, length(recv) ÷ ranks, dtype(eltype(recv)))
end

# `check`: check_sent of one that is only read.
function one_array_arguments(check, a, more...)
    check(a)
    (a, length(a), dtype(eltype(a)), map(Int32, more)...)
end

broadcast_arguments(group, a, root) =
    one_array_arguments(root == rank_in(group) ? check_sent : check_arrays, a, root)

# The text of an exception, for the peers.
reason(e) = replace(e isa Union{ArgumentError,DimensionMismatch,ErrorException,NXDError} ?
    string(e isa NXDError ? e.message : e.msg) : sprint(showerror, e), '\0' => '?')

# Makes a call that this rank cannot make fail on its peers, with the reason. `call`: its name, and of
# a message the peer and the tag.
reject(group, call, e) = nxd_group_reject(group, call..., reason(e))

"""
    NXD.reject(group, operation::AbstractString, why)

Makes a collective that this rank cannot make fail on its peers, with the reason: they would wait for
it otherwise. `why` is a text or an exception. For arrays of other packages: the functions of this one
do so themselves. `operation` is the collective's name, such as `"all_reduce"`, or `""` for any.
[collective: group]
"""
function reject(group::Group, operation::AbstractString, why)
    reject(group, collective(operation), why isa AbstractString ? ErrorException(why) : why)
    nothing
end

reject_async(group, call, e) = started(out -> nxd_group_reject_async(group, call..., reason(e), out), group, ())

collective(name) = (name, Int32(-1), Int32(-1))
message(name, peer, tag) = (name, clamp(peer, typemin(Int32), typemax(Int32)),
                            clamp(tag, typemin(Int32), typemax(Int32)))

# Makes what a collective call takes. Where that fails the peers of the group, who are in the call
# already or about to be, are told.
function prepared(make, its_group)
    try
        make()
    catch e
        found = its_group()
        found === nothing || reject(found, collective(""), e)
        rethrow()
    end
end

# A collective call with tensors, by `call`, which gives its status. One of this rank's that is closed goes
# as no row at all, which the library rejects on all ranks.
function told_tensors(call, tensors)
    GC.@preserve tensors begin
        row = try
            handles(nxd_tensor_t, tensors)
        catch
            call(Ptr{Ptr{nxd_tensor_t}}(C_NULL))
            rethrow()
        end
        call(row)
    end
end

function agreed(issue, arguments, refuse)
    found = try
        arguments()
    catch e
        refuse(e)
        rethrow()
    end
    issue(found...)
end

waiting(f, group, arguments, call) =
    agreed((a...) -> check(f(group, a...)), arguments, e -> reject(group, call, e))

# The work roots what is borrowed until it is done: the arrays are among the arguments. A Ctrl-C must
# not come between the call and the object that does so.
function started(call, group, arguments)
    disable_sigint() do
        work = given(call, Work; kept = (group, arguments))
        count_work(group, 1)
        work
    end
end

starting(f, group, arguments, call) = agreed(arguments, e -> reject_async(group, call, e)) do a...
    started(out -> f(group, a..., out), group, a)
end

# ---- collectives

"""
    all_reduce!(group, recv, send = recv; op = :sum)

Reduces every rank's `send` and leaves the result on every rank. `op`: `:sum`, `:avg`, `:max`,
`:min` or `:prod`. [collective: group]
"""
all_reduce!(group::Group, recv, send = recv; op = :sum) = waiting(nxd_all_reduce, group,
    () -> all_reduce_arguments(recv, send, op), collective("all_reduce"))

"Joins every rank's `send`, in rank order. [collective: group]"
all_gather!(group::Group, recv, send) =
    waiting(nxd_all_gather, group, () -> all_gather_arguments(group, recv, send), collective("all_gather"))

"A new array of every rank's array, along one more dimension. [collective: group]"
function all_gather(group::Group, send::AbstractArray{T}) where {T}
    recv = Array{T}(undef, size(send)..., size(group))
    all_gather!(group, recv, send)
    recv
end

"Reduces and leaves this rank's part of the result in `recv`. [collective: group]"
reduce_scatter!(group::Group, recv, send; op = :sum) = waiting(nxd_reduce_scatter, group,
    () -> reduce_scatter_arguments(group, recv, send, op), collective("reduce_scatter"))

"Copies an array of the rank `root` of the group to all others. [collective: group]"
broadcast_from!(group::Group, a, root::Integer = 0) =
    waiting(nxd_broadcast, group, () -> broadcast_arguments(group, a, root), collective("broadcast"))

"Sends the i-th part of `send` to rank i and receives its part. [collective: group]"
all_to_all!(group::Group, recv, send) =
    waiting(nxd_all_to_all, group, () -> all_to_all_arguments(group, recv, send), collective("all_to_all"))

"Sends to a rank of the group, which calls `receive_from!` with the same tag."
send_to(group::Group, a, to::Integer; tag::Integer = 0) =
    waiting(nxd_send, group, () -> one_array_arguments(check_sent, a, to, tag), message("send", to, tag))

"Receives from a rank of the group, which calls `send_to` with the same tag."
receive_from!(group::Group, a, from::Integer; tag::Integer = 0) =
    waiting(nxd_receive, group, () -> one_array_arguments(check_arrays, a, from, tag),
            message("receive", from, tag))

"Returns when every rank of the group has called. [collective: group]"
barrier(group::Group) = check(nxd_barrier(group))

"""
    rendezvous(group, tag, payload = UInt8[])

Waits for all ranks at the place of this name, and gives what each has brought, by rank.
[collective: group]
"""
function rendezvous(group::Group, tag::AbstractString, payload::Vector{UInt8} = UInt8[])
    kept = Any[]
    name = prepared(() -> c_string(tag, kept), () -> group)
    all = GC.@preserve kept value(
        out -> nxd_group_rendezvous(group, name, payload, length(payload), out), Ptr{nxd_payloads_t})
    try
        data, bytes = Ref{Ptr{Cvoid}}(C_NULL), Ref{Csize_t}(0)
        map(0:size(group) - 1) do rank
            check(nxd_payloads_get(all, rank, data, bytes))
            copy(unsafe_wrap(Array, Ptr{UInt8}(data[]), Int(bytes[])))
        end
    finally
        nxd_payloads_destroy(all)
    end
end

# ---- the same without waiting: each gives a Work

all_reduce_async!(group::Group, recv, send = recv; op = :sum) = starting(nxd_all_reduce_async, group,
    () -> all_reduce_arguments(recv, send, op), collective("all_reduce"))
all_gather_async!(group::Group, recv, send) =
    starting(nxd_all_gather_async, group, () -> all_gather_arguments(group, recv, send), collective("all_gather"))
reduce_scatter_async!(group::Group, recv, send; op = :sum) = starting(nxd_reduce_scatter_async, group,
    () -> reduce_scatter_arguments(group, recv, send, op), collective("reduce_scatter"))
broadcast_from_async!(group::Group, a, root::Integer = 0) =
    starting(nxd_broadcast_async, group, () -> broadcast_arguments(group, a, root), collective("broadcast"))
all_to_all_async!(group::Group, recv, send) =
    starting(nxd_all_to_all_async, group, () -> all_to_all_arguments(group, recv, send), collective("all_to_all"))
send_to_async(group::Group, a, to::Integer; tag::Integer = 0) =
    starting(nxd_send_async, group, () -> one_array_arguments(check_sent, a, to, tag), message("send", to, tag))
receive_from_async!(group::Group, a, from::Integer; tag::Integer = 0) =
    starting(nxd_receive_async, group, () -> one_array_arguments(check_arrays, a, from, tag),
             message("receive", from, tag))
barrier_async(group::Group) = starting(nxd_barrier_async, group, () -> (), collective("barrier"))
