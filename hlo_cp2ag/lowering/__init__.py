"""The pass: collective-permute to all-gather."""
