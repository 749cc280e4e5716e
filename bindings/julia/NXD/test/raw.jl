const api = json(read(joinpath(root, "bindings", "api.json"), String))
const layout = json(read(joinpath(root, "bindings", "layout.json"), String))
const tags = Dict(f["name"] => f["tag"] for f in api["functions"])

@testset "structs are laid out as the C compiler does" begin
    for (name, struct_) in layout["structs"]
        T = getfield(NXD, Symbol(name))
        @test sizeof(T) == struct_["size"]
        @test Set(string.(fieldnames(T))) == Set(keys(struct_["fields"]))
        for (field, (offset, size)) in struct_["fields"]
            i = findfirst(==(Symbol(field)), fieldnames(T))
            @test (fieldoffset(T, i), sizeof(fieldtype(T, i))) == (offset, size)
        end
    end
end

@testset "constants" begin
    for (name, value) in layout["constants"]
        @test Int(getfield(NXD, Symbol(name))) == value
    end
end

@testset "every function can be reached" begin
    handles = Dict("nxd_core" => dlopen(joinpath(NXD.library_directories()[1], NXD.libnxd_core)),
                   "nxd" => dlopen(joinpath(NXD.library_directories()[1], NXD.libnxd)))
    for f in api["functions"]
        @test first(methods(getfield(NXD, Symbol(f["name"])))).nargs - 1 == length(f["params"])
        @test dlsym_e(handles[f["library"]], f["name"]) != C_NULL
    end
end

@testset "finalizers call [local] functions alone" begin
    # A finalizer calls `destroyer(T)`, and nxd_work_test for works.
    kinds = filter(T -> T !== NXD.Parameter, InteractiveUtils.subtypes(NXD.Object))
    @test length(kinds) == count(h -> h["destroy"] !== nothing, api["handles"]) - 2 # reports and payloads are no objects
    for T in kinds
        name = string(nameof(NXD.destroyer(T)))
        @test tags[name]["kind"] == "local" # some wait for what this rank has begun
        @test name == only(h["destroy"] for h in api["handles"] if h["name"] == string(nameof(supertype(T).parameters[1])))
    end
    @test tags["nxd_work_test"]["kind"] == "local" && !tags["nxd_work_test"]["blocking"]
end

@testset "another ABI is refused" begin
    mktempdir() do directory
        gcc = Sys.which("gcc")
        @test gcc !== nothing
        mkpath(joinpath(directory, "lib"))
        path = joinpath(directory, "lib", NXD.libnxd_core)
        write(joinpath(directory, "other.c"), "unsigned nxd_abi_version(void) { return 7; }\n")
        run(`$gcc -shared -fPIC -o $path $(joinpath(directory, "other.c"))`)
        code, text = program("-e", "using NXD"; env = ("NXD_PREFIX" => directory,))
        @test code != 0 && occursin("made for ABI 0", text) && occursin("has ABI 7", text)
        without = filter(d -> !isfile(joinpath(d, NXD.libnxd_core)), split(ENV["LD_LIBRARY_PATH"], ":"))
        code, text = program("-e", "using NXD"; env = ("NXD_PREFIX" => "/nowhere",
                                                       "LD_LIBRARY_PATH" => join(without, ":")))
        @test code != 0 && occursin("cannot load libnxd_core", text) && occursin("NXD_PREFIX", text)
    end
end

@testset "codes and options" begin
    @test convert(NXD.nxd_dtype_t, :bf16) == NXD.NXD_DTYPE_BF16
    @test Symbol(NXD.NXD_REDUCE_MAX) === :max
    @test occursin(":cosine", thrown(() -> convert(NXD.nxd_lr_schedule_t, :cosin)).msg)
    @test occursin("beta2", thrown(() -> Options(NXD.nxd_adamw_options_t; beta_2 = 0.9)).msg)
    @test_throws ArgumentError Options(NXD.nxd_adamw_options_t; struct_size = 3)
    @test_throws ArgumentError Options(NXD.nxd_linear_options_t; name = "a\0b")
    options = Options(NXD.nxd_parallel_options_t; pipeline_parallel_size = 3)
    @test options.ref[].tensor_parallel_size == 1 && options.ref[].pipeline_parallel_size == 3
    @test options.ref[].struct_size == sizeof(NXD.nxd_parallel_options_t)
end
