function Ddp(model::ModuleNode; options...)
    made = try
        Options(nxd_ddp_options_t; options...)
    catch
        # The peers are in the call already, or about to be: options that no rank takes make it fail there.
        nxd_ddp_create(model, Options(nxd_ddp_options_t; zero_stage = -1), Ref(Ptr{nxd_ddp_t}(C_NULL)))
        rethrow()
    end
    given(out -> nxd_ddp_create(model, made, out), Ddp)
end

"""
    finish_grads!(model; scale, max_norm, norm_type, data_parallel_reduce, ...)

Completes the gradients of a model after backward, clips them, and gives their norm before that.
[collective: tensor-, pipeline- and data-parallel groups]
"""
finish_grads!(model::ModuleNode; options...) = value(Cdouble) do out
    finishing(made -> nxd_finish_grads(model, made, out), options)
end
