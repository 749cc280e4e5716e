module example.org/curvefit

go 1.19

require libnxd.org/nxd v0.1.0
