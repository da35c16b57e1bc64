"""The version of this package: pyproject.toml reads it from here, since asking the metadata costs 10 ms a start."""

VERSION = "0.1.0"
