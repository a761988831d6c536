"""Files, processes, locks, text that is safe to print, JSON: what every room uses, and nothing of CUDA."""
