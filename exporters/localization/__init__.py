"""Where a graph stops computing what PyTorch computes: the first layer, or the optimisation pass."""
