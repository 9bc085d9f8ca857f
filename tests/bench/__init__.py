"""Speed and memory, measured: `make bench`. Figures are for this machine and this run; only ratios travel."""
