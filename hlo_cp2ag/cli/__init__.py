"""The click commands, one file each."""
