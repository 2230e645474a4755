"""What all kernels share: compiling, random draws, SIMD loops, tables of arrays."""
