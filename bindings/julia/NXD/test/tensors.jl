@testset "operators" begin
    x = Float32[1 2; 3 4]
    @test Array(op("relu", Tensor(-x))) == zeros(2, 2)
    @test Array(op("softmax", Tensor(x); overload = "int", dim = 1)) ≈ exp.(x) ./ sum(exp.(x); dims = 1)
    @test Array(op("cat"; tensors = [Tensor([1.0]), Tensor([2.0])])) == [1, 2]
    @test Array(op("index", Tensor(x); overload = "Tensor", indices = [nothing, Tensor([1])])) == x[2:2, :]
    @test Array(op("reshape", Tensor(x); shape = (4,))) == vec(x)
    values, places = op("max", Tensor(x); overload = "dim", dim = 0)
    @test Array(values) == maximum(x; dims = 2)[:] && Array(places) == [1, 1]
    @test op("item", Tensor(3.0)) == 3.0
    row = Tensor(reshape([1.0, 2.0], 2, 1))
    for parts in (op("unbind", row; overload = "int"), op("split", row; overload = "Tensor", split_size = 1),
                  op("_foreach_add"; overload = "List", self = [row], other = [row]))
        @test parts isa Tuple{Tensor} # a list of one is one, too
    end
    rows, y = Tensor([1.0 1.0]), Tensor([1.0 3.0; 2.0 4.0]) # ATen's rows are columns here
    left_out = op("native_layer_norm_backward"; grad_out = y, input = y, normalized_shape = (2,), mean = rows,
                  rstd = rows, weight = nothing, bias = nothing, output_mask = (true, false, false))
    @test Array(left_out[1]) == [-0.5 -18.5; -0.5 -26.5] && left_out[2:3] == (nothing, nothing)
    @test string(row) == "Tensor{Float64}(2, 1)" && string(op("complex", row, row)) == "Tensor{other}(2, 1)"
    o = Operator("aten::add"; overload = "Tensor")
    @test startswith(NXD.schema(o), "aten::add.Tensor(")
    o[:self], o[:other], o[:alpha] = Tensor([1.0]), Tensor([2.0]), 3
    @test Array(o()) == [7.0]
    @test occursin("near names", lowercase(thrown(() -> Operator("aten::rellu")).message)) ||
          occursin("relu", thrown(() -> Operator("aten::rellu")).message)
    @test occursin("schema", lowercase(thrown(() -> (o["nothing"] = 1)).message)) ||
          occursin("aten::add", thrown(() -> (o["nothing"] = 1)).message)
    @test thrown(() -> op("matmul", Tensor(ones(2, 3)), Tensor(ones(2, 3)))).status === :invalid_argument
end

@testset "gradients" begin
    x = requires_grad!(Tensor([1.0, 2.0, 3.0]))
    @test NXD.requires_grad(x) && NXD.grad(x) === nothing
    square(x) = op("sum", op("mul", x, x; overload = "Tensor"))
    y = square(x)
    backward(y; retain_graph = true)
    backward(y)
    @test Array(NXD.grad(x)) == [4, 8, 12]
    @test thrown(() -> backward(y)).status === :invalid_state
    NXD.grad!(x, nothing)
    @test NXD.grad(x) === nothing
    z = requires_grad!(Tensor([5.0]))
    @test map(g -> g === nothing ? nothing : Array(g), grad(square(x), [x])) == [[2, 4, 6]]
    @test NXD.grad(x) === nothing
    w = op("mul", x, x; overload = "Tensor")
    @test Array(grad(w, x; grads = Tensor([1.0, 0.0, 2.0]))[1]) == [2, 0, 12]
    @test !NXD.requires_grad(NXD.detach(w))
    @test no_grad(() -> NXD.requires_grad(square(x))) == false && NXD.requires_grad(square(x))
    @test_throws ErrorException no_grad(() -> error("mine"))
    @test NXD.requires_grad(square(x)) # recording is on again
    product() = op("matmul", Tensor(ones(Float32, 4, 4)), Tensor(ones(Float32, 4, 4)))
    @test eltype(NXD.autocast(product)) === BFloat16 && eltype(product()) === Float32
end

swish(z) = z / (1 + exp(-z))
slope(z) = (s = 1 / (1 + exp(-z)); s + z * s * (1 - s))

@testset "custom functions" begin
    needed = []
    f = CustomFunction("test::swish", (call, x) -> (NXD.save(call, x); swish.(Array(x)));
        backward = (call, g) -> (push!(needed, NXD.needs_grad(call, 1));
                                 Tensor(slope.(Array(NXD.saved(call, 1))) .* Array(g))))
    x = requires_grad!(Tensor([-1.0, 0.5, 2.0]))
    y = f(x)
    @test Array(y) ≈ swish.([-1, 0.5, 2])
    close(f) # the graph keeps what it needs
    backward(op("sum", y))
    @test Array(NXD.grad(x)) ≈ slope.([-1, 0.5, 2]) && needed == [true]

    split = CustomFunction("test::split", (call, x) -> (copy(x), x); num_outputs = 2,
                           backward = (call, a, b) -> a === nothing ? b : b === nothing ? a :
                                      op("add", a, b; overload = "Tensor"))
    NXD.grad!(x, nothing)
    a, b = split(x)
    backward(op("sum", b))
    @test Array(a) == Array(x) && Array(NXD.grad(x)) == ones(3)

    kept = Ref{Any}()
    wrong = CustomFunction("test::wrong", (call, x) -> (kept[] = (call, x); (x, x)))
    @test thrown(() -> wrong(x)) isa DimensionMismatch
    @test !isopen(kept[][2]) && occursin("closed", thrown(() -> Array(kept[][2])).msg)
    @test occursin("over", thrown(() -> NXD.saved(kept[][1], 1)).msg)
end

struct Mine <: Exception
    depth::Int
end

# A Julia exception crosses as many calls of the library as there are, and comes out as itself.
@testset "exceptions of callbacks" begin
    inner = CustomFunction("test::inner", (call, x) -> throw(Mine(1)))
    outer = CustomFunction("test::outer", (call, x) -> inner(x))
    x = Tensor([1.0])
    @test thrown(() -> outer(x)) == Mine(1)
    caught = CustomFunction("test::caught", (call, x) -> (thrown(() -> inner(x)) == Mine(1) ? copy(x) : error("no")))
    @test Array(caught(x)) == [1.0]
    # An error of the library inside of a callback stays what it is.
    failing = CustomFunction("test::failing", (call, x) -> op("matmul", x, Tensor(ones(3, 3))))
    @test thrown(() -> failing(x)).status === :invalid_argument
    back = CustomFunction("test::back", (call, x) -> copy(x); backward = (call, g) -> throw(Mine(2)))
    y = requires_grad!(Tensor([1.0]))
    @test thrown(() -> backward(op("sum", back(y)))) == Mine(2)
    @test thrown(() -> backward(op("sum", back(y)))) == Mine(2)
end

@testset "recorded device" begin
    x = NXD.to_device(Tensor(Float32[1, -2, 3]), :xla)
    @test NXD.device(x) === :xla
    NXD.reset_device_metrics()
    total = op("sum", op("relu", x))
    seen = Float64[]
    NXD.add_step_closure(() -> push!(seen, total[]))
    NXD.mark_step()
    @test seen == [4.0]
    counts = NXD.device_metrics()
    @test counts.steps == 1 && counts.executions == 1 && counts.implicit_syncs == 0
    @test counts.argument_bytes == 12 && counts.result_bytes >= 4
    @test occursin("aten::relu(f32[3])", NXD.step_graph())
    @test startswith(NXD.step_graph(:dot), "digraph step {")
    @test occursin("executions 1\n", NXD.device_report())
    NXD.add_step_closure(() -> error("mine"))
    @test_throws ErrorException NXD.mark_step()
    later = op("sum", x)
    NXD.mark_step(wait = false)
    @test later[] == 2.0
    @test Array(NXD.to_device(x, :cpu)) == Float32[1, -2, 3]
end
