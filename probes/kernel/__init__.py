"""The kernel witness: eBPF programs, their loader, the rings and the decoding of their records."""
