"""Kernels of the NCM forest: trees whose splits are nearest class means or SVM planes."""
