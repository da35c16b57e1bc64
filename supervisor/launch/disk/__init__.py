"""What lies on disk: entered only through descriptors, described, copied, written whole, removed."""
