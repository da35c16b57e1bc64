"""What keeps a sealed run open, followed on: services, schedules and files, sealed as addenda."""
