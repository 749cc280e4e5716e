module example.org/curvefit

go 1.19

require libnxd.org/nxd v0.1.0

replace libnxd.org/nxd => ./nxd-go
