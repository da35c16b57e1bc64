"""Where the writes of a trial are, staged or in place, and how they get to where they belong."""
