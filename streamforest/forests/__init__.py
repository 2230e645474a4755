"""River estimators: each turns events into rows and labels into indices, owns arrays, calls kernels."""
