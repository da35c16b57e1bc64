"""A trial that stands: held, watched, released, and followed to its endpoint and on until it settles."""
