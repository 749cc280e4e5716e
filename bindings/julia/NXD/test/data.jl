# Sixteen samples of four tokens, 0 to 63.
const token_file = joinpath(mktempdir(), "tokens.bin")
write(token_file, htol.(UInt16.(0:63)))

@testset "ranks share an epoch" begin
    parts = two_ranks() do rank, context
        NXD.DataLoader(context, [token_file], 4, 4) do loader
            @test NXD.num_samples(loader) == 16
            ids = NXD.next!(loader, zeros(Int64, 4, 4, 2))
            @test position(loader) == 16
            reshape(ids, 4, 8)
        end
    end
    samples = sort(collect(eachcol(hcat(parts...))))
    @test samples == [collect(4s:4s + 3) for s in 0:15]
end

@testset "a loader goes on at a position" begin
    alone() do context
        loader = NXD.DataLoader(context, [token_file], 1, 4; format = :uint16, next_labels = true,
                                vocab_size = 64, seed = 3)
        labels = zeros(Int64, 4, 2)
        first = NXD.next!(loader, zeros(Int64, 4, 2), labels)
        @test labels == first .+ 1
        seek(loader, 0)
        @test NXD.next!(loader, zeros(Int64, 4, 2), labels) == first
        @test thrown(() -> NXD.next!(loader, zeros(Int64, 4, 2), zeros(Int64, 4))) isa DimensionMismatch
        @test thrown(() -> NXD.next!(loader, zeros(Int64, 4, 2))).status == :invalid_argument
        @test position(loader) == 2
        close(loader)
    end
end

@testset "batches on the device" begin
    alone() do context
        plain = NXD.DataLoader(context, [token_file], 2, 4)
        want = [NXD.next!(plain, zeros(Int64, 4, 2)) for _ in 1:3]
        loader = NXD.DeviceLoader(NXD.DataLoader(context, [token_file], 2, 4), :xla)
        took() = Array(NXD.to_device(NXD.next!(loader), :cpu))
        @test [took() for _ in 1:3] == want
        @test position(loader) == 6
        seek(loader, 2)
        @test took() == want[2]
        @test thrown(() -> NXD.next!(loader; num_tensors = 2)).status == :invalid_argument
        close(loader)
    end
end

@testset "ranks meet" begin
    brought = two_ranks() do rank, context
        NXD.rendezvous(NXD.world(context), "here", fill(UInt8(rank), 3rank))
    end
    @test brought == fill([UInt8[], UInt8[1, 1, 1]], 2)
    failures = two_ranks() do rank, context
        thrown(() -> NXD.rendezvous(NXD.world(context), "place $rank")).status
    end
    @test failures == [:invalid_argument, :invalid_argument]
end

@testset "a bad path of one rank fails all" begin
    for (bad, status) in ("/nonexistent" => :io, 5 => :invalid_argument)
        failures = two_ranks() do rank, context
            failure = thrown(() -> NXD.DataLoader(context, [rank == 1 ? bad : token_file], 1, 4))
            failure isa NXDError ? failure.status : :invalid_argument
        end
        @test failures == [status, status]
    end
end
