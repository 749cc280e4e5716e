module libnxd.org/nxd

go 1.19
