"""The trusted log: append-only frames, hash-linked, sealed; writer, reader, verifier."""
