Ddp(model::ModuleNode; options...) =
    given(out -> nxd_ddp_create(model, Options(nxd_ddp_options_t; options...), out), Ddp)

"""
    finish_grads!(model; scale, max_norm, norm_type, data_parallel_reduce, ...)

Completes the gradients of a model after backward, clips them, and gives their norm before that.
[collective: tensor-, pipeline- and data-parallel groups]
"""
finish_grads!(model::ModuleNode; options...) = value(Cdouble) do out
    finishing(made -> nxd_finish_grads(model, made, out), options)
end
