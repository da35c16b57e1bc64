"""The controlled replay: the same calls scored at two moments, and the services that it is tried with."""
