module example.org/mlp

go 1.19

require libnxd.org/nxd v0.1.0

replace libnxd.org/nxd => ../../bindings/go
