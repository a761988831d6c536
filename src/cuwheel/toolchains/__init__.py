"""nvcc and a host compiler that it takes: found on the machine, or fetched into a cache, without root."""
