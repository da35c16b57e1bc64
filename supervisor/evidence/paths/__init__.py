"""What happened to paths: changes, names over time, histories and looks, held against the disk."""
