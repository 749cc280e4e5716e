#include "nxd.h"
