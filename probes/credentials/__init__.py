"""Credentials: the machine's key for fingerprints, decoys and where they are met again, the search of files."""
