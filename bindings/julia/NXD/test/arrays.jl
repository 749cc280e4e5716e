@testset "an array of size (a, b, c) is the tensor of shape [c, b, a]" begin
    a = reshape(Float32.(1:24), 2, 3, 4)
    t = Tensor(a)
    @test size(t) == (2, 3, 4) && shape(t) == (4, 3, 2) && strides(t) == strides(a)
    @test eltype(t) === Float32 && length(t) == 24 && ndims(t) == 3 && NXD.device(t) === :cpu
    @test Array(t) == a
    # The last index varies fastest in C: a[2, 1, 1] is t[0][0][1].
    @test Array(op("select", t; overload = "int", dim = 2, index = 1)) == a[2, :, :]
    # x W^T of a C-order weight [out, in] is w' * x of a Julia matrix (in, out).
    x, w = rand(Float32, 5, 7), rand(Float32, 5, 3)
    @test Array(op("linear", Tensor(x), Tensor(w))) ≈ w' * x
end

@testset "copies of any strides" begin
    a = reshape(collect(1.0:24), 4, 6)
    for v in (view(a, 2:3, :), view(a, :, 1:2:5), permutedims(a), PermutedDimsArray(a, (2, 1)))
        t = Tensor(v)
        @test size(t) == size(v) && Array(t) == v
    end
    for T in (Float32, Float64, Float16, Int32, Int64, UInt8, Int8, Int16)
        @test Array(Tensor(T[1, 2, 3])) == T[1, 2, 3]
    end
    @test Array(Tensor([true, false])) == [true, false]
    @test Tensor(2.5)[] == 2.5 && Array(Tensor(fill(3))) == fill(3)
    @test_throws ArgumentError Tensor(["a"])
    @test thrown(() -> Tensor([1, 2])[]).status === :invalid_argument
end

@testset "BFloat16" begin
    xs = Float32[1, -2.5, 3.1415927, 1e30, 0]
    t = op("to", Tensor(xs); overload = "dtype", dtype = BFloat16)
    @test eltype(t) === BFloat16 && Array(t) == BFloat16.(xs)
    @test Float32.(Array(Tensor(BFloat16.(xs)))) ≈ xs rtol = 1e-2
    @test isnan(Float32(BFloat16(NaN32)))
end

@testset "over an array's own memory" begin
    for a in (collect(1.0:6), reshape(collect(1.0:6), 2, 3), view(reshape(collect(1.0:12), 3, 4), 1:2, :))
        t = Tensor(a; copy = false)
        @test Array(t) == a && strides(t) == strides(a)
        a[2] = 20
        @test Array(t) == a                                    # reads the array
        op("mul_", t; overload = "Scalar", other = 2.0)
        @test a[2] == 40                                       # and writes it
    end
    # The tensor, and what was made of it, keep the array alive; then it is let go.
    freed = Threads.Atomic{Int}(0)
    function make()
        a = finalizer(_ -> Threads.atomic_add!(freed, 1), ones(1000))
        Tensor(a; copy = false)
    end
    t = make()
    other = op("view", t; size = (1000,))
    close(t)
    GC.gc()
    @test freed[] == 0 && sum(Array(other)) == 1000
    close(other)
    NXD.sweep_exports()
    GC.gc()
    @test freed[] == 1
end

@testset "a tensor's memory as an array" begin
    t = Tensor(Float32[1 2 3; 4 5 6])
    m = mapped(t)
    @test m isa DenseArray && m == Float32[1 2 3; 4 5 6] && m * ones(Float32, 3) == [6, 15]
    m[2, 1] = 40
    NXD.mark_modified!(t)
    @test Array(t)[2, 1] == 40
    close(t)
    GC.gc()
    @test m[2, 1] == 40 # the array keeps the memory
    @test_throws BoundsError m[3, 1]
    both = deepcopy([m, m]) # with memory of its own
    m[2, 1] = 41
    @test both[1] === both[2] && both[1][2, 1] == 40
    @test size(mapped(op("t", Tensor(zeros(Float32, 2, 0))))) == (0, 2)
    turned = op("t", Tensor(Float32[1 2; 3 4]))
    @test_throws ArgumentError mapped(turned)
    @test Array(turned) == Float32[1 3; 2 4]
end

@testset "closed objects are refused" begin
    t = Tensor([1.0])
    close(t)
    close(t)
    @test !isopen(t) && occursin("closed", thrown(() -> Array(t)).msg)
    @test Tensor(t -> sum(Array(t)), [1.0, 2.0]) == 3 # a do block's object
    kept = Ref{Any}()
    Tensor(t -> (kept[] = t), [1.0])
    @test !isopen(kept[])
end
