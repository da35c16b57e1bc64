"""What is fixed before anything runs: places, credentials, the box's test of itself, the manifest."""
