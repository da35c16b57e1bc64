"""The gateway: all IP traffic of a trial, decided and recorded."""
