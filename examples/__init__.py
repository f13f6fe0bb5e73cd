"""Example programs that run the commands of this project from end to end."""
