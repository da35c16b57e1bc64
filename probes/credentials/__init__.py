"""Credentials: the machine's key for fingerprints, decoys and where they are met again, and the search of touched files."""
